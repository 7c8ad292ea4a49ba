"""Files that are damaged in the middle, as by a failing disk or an interrupted transfer."""

from __future__ import annotations

from pathlib import Path


def damage_data(path: Path) -> Path:
    """Flips bits in a Parquet file's first pages but keeps its footer, so its columns can still be listed."""
    content = bytearray(path.read_bytes())
    assert content[:4] == content[-4:] == b"PAR1"
    length_of_footer = int.from_bytes(content[-8:-4], "little")
    for place in range(4, min(len(content) - 8 - length_of_footer, 4000)):
        content[place] ^= 0x5A
    path.write_bytes(content)
    return path
