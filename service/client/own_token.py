"""The token that a client sends: the one it is given, or that of its environment."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from service.errors import ServiceError

TOKEN = "SHAMPOO_TUNER_TOKEN"
TOKEN_FILE = "SHAMPOO_TUNER_TOKEN_FILE"


class UnusableToken(ServiceError):
    """A token was given, and cannot be sent."""


def find_token(given: str | None = None) -> str | None:
    """The token: `given`, or else of the environment, or else of the file that it names; None: there is none.

    Raises:
        UnusableToken: the file cannot be read, or others than its owner can read it; or it holds no token.
    """
    text = given or os.environ.get(TOKEN)
    source = "the token"
    if not text:
        name = os.environ.get(TOKEN_FILE)
        if not name:
            return None
        text, source = read_secret_file(Path(name)), f"{TOKEN_FILE}: {name}"
    text = text.strip()
    if not text.isascii() or not text.isprintable() or " " in text or not text:
        raise UnusableToken(f"{source} is no token: it must be one word of printable ASCII")
    return text


def read_secret_file(path: Path) -> str:
    """The text of a file that its owner alone can read.

    Raises:
        UnusableToken: it cannot be read, or others can read it.
    """
    try:
        with path.open(encoding="ascii") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if os.name == "posix" and mode & 0o077:
                raise UnusableToken(f"{path} has mode {mode:04o}: others can read the token; `chmod 600 {path}`")
            return file.read(1000)
    except (OSError, UnicodeDecodeError) as error:
        raise UnusableToken(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
