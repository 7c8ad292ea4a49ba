"""Tokenises parts of a corpus into files: what each process does that prepares one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import numpy as np

from trainers.data.processes import Job, serve
from trainers.workloads.language.documents import CorpusPart, TextPiece, is_parquet, pieces
from trainers.workloads.language.tokenizer import TextNotEncoded, TextTokenizer, text_tokenizer

SIDES = ("train", "validation")


def tokens_dtype(tokenizer: TextTokenizer) -> str:
    """The dtype that holds every token of the vocabulary in the fewest bytes, as numpy's name of it in files."""
    return "<u2" if tokenizer.num_tokens <= 2**16 else "<u4"


def token_job(
    some_parts: Sequence[CorpusPart], *, tokenizer: str, text_column: str, held_out: Path | None, output: Path
) -> Job:
    """The job of tokenising the parts in order.

    Args:
        held_out: a `.npy` file with a bool for each document; needed where a part does not know its side.
        output: beginning of the names of the files it writes, `{output}.train` and `{output}.validation`.
    """
    return {
        "parts": [asdict(part) for part in some_parts],
        "tokenizer": tokenizer,
        "text_column": text_column,
        "held_out": None if held_out is None else str(held_out),
        "output": str(output),
    }


def tokenise(job: Job) -> Job:
    """Writes the tokens of a job's parts; gives for each side the number of tokens and of bytes of text.

    Raises:
        ValueError: text is not UTF-8, or the tokenizer lacks tokens for it; the message names the file and the place.
    """
    tokenizer = text_tokenizer(job["tokenizer"])
    dtype = tokens_dtype(tokenizer)
    held_out = None if job["held_out"] is None else np.load(job["held_out"], mmap_mode="r")
    num_tokens, num_bytes = dict.fromkeys(SIDES, 0), dict.fromkeys(SIDES, 0)
    is_in_document = dict.fromkeys(SIDES, False)
    with ExitStack() as stack:
        outputs = {side: stack.enter_context(Path(f"{job['output']}.{side}").open("wb")) for side in SIDES}
        for part in (CorpusPart(**fields) for fields in job["parts"]):
            for piece in pieces(part, text_column=job["text_column"]):
                is_validation = part.is_validation
                if is_validation is None:
                    assert held_out is not None
                    is_validation = bool(held_out[piece.document])
                side = SIDES[int(is_validation)]
                tokens = _encode(tokenizer, piece, part)
                outputs[side].write(tokens.astype(dtype).tobytes())
                num_tokens[side] += len(tokens)
                num_bytes[side] += len(piece.text)
                # A document without text is none; a part that begins within a document never does so at its end.
                is_in_document[side] |= len(tokens) > 0
                if piece.ends_document and is_in_document[side]:
                    is_in_document[side] = False
                    if tokenizer.end_of_text is not None:
                        outputs[side].write(np.array([tokenizer.end_of_text], dtype=dtype).tobytes())
                        num_tokens[side] += 1
    return {"num_tokens": num_tokens, "num_bytes": num_bytes}


def _encode(
    tokenizer: TextTokenizer, piece: TextPiece, part: CorpusPart
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint32]]:
    try:
        return tokenizer.encode(piece.text)
    except UnicodeDecodeError as error:
        place = f"row {piece.position}" if is_parquet(part.path) else f"byte {piece.position + error.start}"
        raise ValueError(f"{part.path} is not UTF-8 at {place}: {error.reason}") from error
    except TextNotEncoded as error:
        place = f"row {piece.position}" if is_parquet(part.path) else f"text from byte {piece.position} on"
        raise ValueError(f"{part.path}, {place}: {error}") from error


if __name__ == "__main__":
    sys.exit(serve(tokenise))
