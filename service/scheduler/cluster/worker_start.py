"""Start of a Ray worker on this machine: as a fork of the run's template process, else as a new interpreter.

Ray runs this file instead of its own script `setup_worker.py`, which imports much of Ray only to start another
interpreter that imports it again. Imports only the standard library, and little of it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

SOCKET_VARIABLE = "SHAMPOO_TEMPLATE_SOCKET"
"""Names the socket at which the template process listens, if there is one."""
CONTEXT = "--serialized-runtime-env-context="
LANGUAGE = "--language="
ACCEPTED = b"1"
PATIENCE_SECONDS = 30.0
"""Seconds to wait for the template process, which may still be importing: half of the time that Ray waits for a
worker."""
STANDARD_STREAMS = (0, 1, 2)


def main(arguments: Sequence[str]) -> NoReturn:
    """Becomes the worker that Ray asks for, or ends when the worker has begun in a fork of the template.

    Args:
        arguments: the worker's script, its arguments, and options of Ray's `setup_worker.py` among them.
    """
    worker = [argument for argument in arguments if not argument.startswith((CONTEXT, LANGUAGE))]
    variables = _variables([argument for argument in arguments if argument not in worker])
    if variables is None:  # nothing of ours requires that
        os.execv(sys.executable, [sys.executable, str(Path(arguments[0]).with_name("setup_worker.py")), *arguments])
    os.environ.update(variables)
    if _forked(worker):
        os._exit(0)
    os.execv(sys.executable, [sys.executable, *worker])


def _variables(options: Sequence[str]) -> Mapping[str, str] | None:
    """The environment variables that Ray sets for the worker; None: it sets up more than these.

    Tune gives every trainable some variables, and the processes of a trainable inherit them.
    """
    variables: dict[str, str] = {}
    for option in options:
        if option.startswith(CONTEXT):
            context = json.loads(option.removeprefix(CONTEXT))
            variables = context.pop("env_vars", variables)
            if context.pop("py_executable", sys.executable) != sys.executable or any(context.values()):
                return None
        elif option != f"{LANGUAGE}PYTHON":
            return None
    # Ray replaces the names of other variables in them.
    return None if any("$" in value for value in variables.values()) else variables


def _forked(worker: Sequence[str]) -> bool:
    """True if the template process has become this worker; False if there is none that can."""
    address = os.environ.get(SOCKET_VARIABLE)
    if address is None:
        return False
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE_SECONDS)
            connection.connect(address)
            send_request(connection, worker, os.environ, STANDARD_STREAMS)
            return connection.recv(1) == ACCEPTED
    except OSError:
        return False


def send_request(
    connection: socket.socket, arguments: Sequence[str], environment: Mapping[str, str], streams: Sequence[int]
) -> None:
    """Asks for a process with these arguments, this environment, and these file descriptors as its standard streams."""
    request = json.dumps({"arguments": list(arguments), "environment": dict(environment)}).encode()
    socket.send_fds(connection, [len(request).to_bytes(8, "big")], streams)
    connection.sendall(request)


if __name__ == "__main__":
    main(sys.argv[1:])
