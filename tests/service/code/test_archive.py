"""Archives of code: the same files have the same hash, and nothing but bounded files with plain names is taken."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest

from service.code import archive
from service.code.archive import CodeFile, UnusableCode, pack, read, unpack
from service.code.collecting import collect


def tar(*members: tuple[str, bytes], kind: bytes = tarfile.REGTYPE, link: str = "", mtime: int = 7) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as file:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size, member.type, member.linkname, member.mtime = len(content), kind, link, mtime
            file.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def headers(**keywords: str) -> bytes:
    """An archive of one empty file with extended headers."""
    member = tarfile.TarInfo("a.py")
    member.pax_headers = keywords
    return gzip.compress(member.tobuf(tarfile.PAX_FORMAT) + bytes(1024))


def of_negative_size() -> bytes:
    content = bytearray(tarfile.TarInfo("a.py").tobuf())
    content[124:136] = b"\xff" * 12
    content[148:156] = b"%06o\0 " % (sum(content[:148]) + 8 * ord(" ") + sum(content[156:512]))
    return gzip.compress(bytes(content) + bytes(1024))


def taken(sent: bytes) -> archive.CodeArchive:
    return pack(read(io.BytesIO(sent)))


def test_the_hash_is_that_of_the_files_however_they_were_packed() -> None:
    one = taken(tar(("a.py", b"a = 1"), ("b/c.py", b"")))
    other = taken(tar(("./b/c.py", b""), ("a.py", b"a = 1"), mtime=9))
    assert one == other
    assert (one.num_files, one.num_bytes) == (2, 5)
    for files in (
        {"a.py": CodeFile(b"a = 1")},
        {"a.py": CodeFile(b"a = 1", is_executable=True)},
        {"b.py": CodeFile(b"")},
    ):
        assert pack(files).sha256 != one.sha256
    moved = {pack({"ab": CodeFile(b"c")}).sha256, pack({"a": CodeFile(b"bc")}).sha256}
    assert len(moved) == 2


def test_what_was_packed_is_unpacked(tmp_path: Path) -> None:
    files = {"a.py": CodeFile(b"a = 1"), "b/run": CodeFile(b"#!", is_executable=True)}
    unpack(pack(files).content, tmp_path / "code")
    assert (tmp_path / "code" / "a.py").read_bytes() == b"a = 1"
    assert os.access(tmp_path / "code" / "b" / "run", os.X_OK)


def test_no_file_is_written_over_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine whose names have no case."""
    as_it_is = Path.open
    monkeypatch.setattr(Path, "open", lambda self, mode: as_it_is(self.with_name(self.name.lower()), mode))
    with pytest.raises(FileExistsError):
        unpack(pack({"A.py": CodeFile(b"1"), "a.py": CodeFile(b"2")}).content, tmp_path / "code")


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"no archive", "no gzipped tar archive"),
        (tar(("a.py", b"a = 1"))[:-20], "no gzipped tar archive"),
        (tar(), "no files"),
        (tar(("../a.py", b"")), "leads out"),
        (tar(("/etc/a.py", b"")), "leads out"),
        (tar(("a//b.py", b"")), "leads out"),
        (tar(("a\\b.py", b"")), "has characters"),
        (tar(("a\nb.py", b"")), "has characters"),
        (tar(("a\udcff.py", b"")), "not valid Unicode"),
        (tar((f"{'a' * 260}.py", b"")), "longer than"),
        (tar(("/".join("a" * 17), b"")), "deeper than"),
        (tar(("json.py", b"")), "standard library"),
        (tar(("service/mine.py", b"")), "service itself imports"),
        (tar(("a", b""), ("a/b.py", b"")), "both a file and a directory"),
        (tar(("a.py", b""), ("a.py", b"")), "twice"),
        (tar(("a.py", b""), kind=tarfile.SYMTYPE, link="/etc/passwd"), "no regular file"),
        (tar(("a.py", b""), kind=tarfile.LNKTYPE, link="b.py"), "no regular file"),
        (tar(("a.py", b""), kind=tarfile.CHRTYPE), "no regular file"),
        (tar(("a.py", b""), kind=tarfile.GNUTYPE_SPARSE), "no regular file"),
        (headers(**{"GNU.sparse.map": "0,0"}), "no regular file"),
        (headers(**{"GNU.sparse.map": "none,0"}), "no gzipped tar archive"),
        (of_negative_size(), "no regular file|no gzipped tar archive"),  # newer Pythons read none
    ],
    ids=lambda value: value if isinstance(value, str) else "archive",  # its bytes hold the time of day
)
def test_what_is_not_taken_is_refused_with_the_reason(sent: bytes, why: str) -> None:
    with pytest.raises(UnusableCode, match=why):
        taken(sent)


@pytest.mark.slow
def test_more_members_than_a_directory_of_code_has_are_refused() -> None:
    with pytest.raises(UnusableCode, match="beside the content"):
        taken(tar(*((f"d{number}", b"") for number in range(20_000)), kind=tarfile.DIRTYPE))
    with pytest.raises(UnusableCode, match="more than 2000 files"):
        taken(tar(*((f"f{number}.py", b"") for number in range(2001))))


def test_data_may_have_any_name() -> None:
    assert taken(tar(("json/data.csv", b""), ("service/readme.md", b""))).num_files == 2


def test_few_bytes_that_say_many_are_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_BYTES", 1000)
    monkeypatch.setattr(archive, "_OVERHEAD_BYTES", 100_000)
    with pytest.raises(UnusableCode, match="more than"):
        taken(tar(("a.bin", bytes(1001))))
    with pytest.raises(UnusableCode, match=r"more than 0\.1 MB beside the content of files, .* pack the files alone"):
        taken(tar(("x" * 200_000, b"")))  # in a header
    monkeypatch.setattr(archive, "MAX_BYTES", 1_000_000)
    assert taken(tar(("a.bin", bytes(500_000)), ("b.bin", bytes(500_000)))).num_bytes == 1_000_000


def test_a_directory_is_sent_without_what_is_to_be_left_out(tmp_path: Path) -> None:
    for name in ("model.py", "sub/part.py", "data/big.bin", ".git/HEAD", "sub/__pycache__/part.pyc", ".env"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "link.py").symlink_to("model.py")
    (tmp_path / ".gitignore").write_text("data/\n*.log\n.env\n")
    assert sorted(collect(tmp_path)) == ["link.py", "model.py", "sub/part.py"]
    (tmp_path / ".shampooignore").write_text("sub/\n.env\n")
    assert sorted(collect(tmp_path)) == ["data/big.bin", "link.py", "model.py"]
    (tmp_path / ".shampooignore").write_text("sub/\n.env\n", encoding="utf-8-sig")  # as editors on Windows write it
    assert sorted(collect(tmp_path)) == ["data/big.bin", "link.py", "model.py"]


def test_a_directory_with_something_that_cannot_go_along_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnusableCode, match="is no directory"):
        collect(tmp_path / "nothing")
    with pytest.raises(UnusableCode, match="no file in"):
        collect(tmp_path)
    (tmp_path / "out.py").symlink_to("/etc/passwd")
    with pytest.raises(UnusableCode, match=r"'out\.py' is a link that leads out"):
        collect(tmp_path)
    (tmp_path / "out.py").unlink()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnusableCode, match="'pipe' is no regular file"):
        collect(tmp_path)
