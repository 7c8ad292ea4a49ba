"""Tokenizers: the bytes themselves, or a Hugging Face tokenizer file."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trainers.installation.extras import optional_library

BYTE = "byte"
NUM_BYTES = 256
"""Values of a byte, each a token."""

END_OF_TEXT_NAMES = (
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|begin_of_text|>",
    "</s>",
    "<eos>",
    "<|im_end|>",
    "[SEP]",
)
"""Names of the token that separates documents, as the tokenizers of the field call it; of those that a tokenizer has,
the first counts."""


class TextNotEncoded(ValueError):
    """A text that a tokenizer has no tokens for; the message names the tokenizer."""


class TextTokenizer(Protocol):
    """Turns text into tokens."""

    num_tokens: int
    """Size of the vocabulary: all tokens are below."""
    end_of_text: int | None
    """The token that follows a document, if the tokenizer has one."""
    identity: str
    """Differs between tokenizers that differ in anything."""

    def encode(self, text: bytes) -> NDArray[np.uint32]:
        """The tokens of UTF-8 text, without special ones.

        Raises:
            UnicodeDecodeError: it is not UTF-8, and the tokenizer cannot do without.
            TextNotEncoded: the tokenizer lacks tokens for it, that for unknown words among them.
        """


class ByteTokenizer:
    """Each byte is a token, and one more ends a document: no byte is free, as files need not be UTF-8."""

    num_tokens = NUM_BYTES + 1
    end_of_text: int | None = NUM_BYTES
    identity = BYTE

    def encode(self, text: bytes) -> NDArray[np.uint32]:
        return np.frombuffer(text, dtype=np.uint8).astype(np.uint32)


class FileTokenizer:
    """A tokenizer that the library `tokenizers` reads from its JSON file.

    Raises:
        ValueError: the library is not installed, or does not understand the file.
    """

    def __init__(self, path: Path) -> None:
        library = optional_library("tokenizers", extra="text", purpose=f"tokenizer {str(path)!r}")
        self._path = path
        content = path.read_bytes()
        try:
            self._tokenizer: Any = library.Tokenizer.from_buffer(content)
        except Exception as error:  # the library raises nothing narrower
            raise ValueError(f"tokenizer {str(path)!r} is not a tokenizer file: {error}") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        if not vocabulary:
            raise ValueError(f"tokenizer {str(path)!r} has no tokens")
        self.num_tokens = max(vocabulary.values()) + 1
        known = (vocabulary[name] for name in END_OF_TEXT_NAMES if name in vocabulary)
        self.end_of_text: int | None = next(known, None)
        self.identity = hashlib.sha256(content).hexdigest()

    def encode(self, text: bytes) -> NDArray[np.uint32]:
        characters = text.decode()
        try:
            tokens = self._tokenizer.encode(characters, add_special_tokens=False).ids
        except Exception as error:  # the library raises nothing narrower
            raise TextNotEncoded(f"tokenizer {str(self._path)!r} cannot encode the text: {error}") from error
        return np.array(tokens, dtype=np.uint32)


def text_tokenizer(option: object) -> TextTokenizer:
    """The tokenizer that the option `tokenizer` names: `byte`, or the path of a `tokenizer.json`.

    Raises:
        ValueError: there is no such file, it is not a tokenizer, or the library that reads it is not installed.
    """
    if option == BYTE:
        return ByteTokenizer()
    if not isinstance(option, str) or not Path(option).expanduser().is_file():
        raise ValueError(f"tokenizer must be {BYTE} or the path of a tokenizer.json, got {option!r}")
    return FileTokenizer(Path(option).expanduser())
