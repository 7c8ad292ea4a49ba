"""Addresses of places for checkpoints, and what they show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.s3_server import S3Server, in_a_store
from trainers.storage import InvalidPlace, StoreFailed, StoreUri, masked, place_of, text_of
from trainers.storage import object_store as stores
from trainers.storage.object_store import ObjectStore


@pytest.mark.parametrize("text", ["checkpoints", "/shared/a:b", "./s3", "C:checkpoints", "."])
def test_a_text_without_a_scheme_is_a_path(text: str) -> None:
    assert place_of(text) == Path(text)
    assert place_of(text_of(Path(text))) == Path(text)


@pytest.mark.parametrize(
    ("text", "below", "shown"),
    [
        ("s3://b", "s3://b/job/3", "s3://b/job/3"),
        ("s3://b/a%20b/?region=eu", "s3://b/a%20b/job/3?region=eu", "s3://b/a%20b/job/3?region=eu"),
        ("gs://anonymous@b/x", "gs://anonymous@b/x/job/3", "gs://***@b/x/job/3"),
        ("hdfs://me@host:8020/x", "hdfs://me@host:8020/x/job/3", "hdfs://***@host:8020/x/job/3"),
        (
            "abfs://c@account/x?tenant_id=1",
            "abfs://c@account/x/job/3?tenant_id=1",
            "abfs://***@account/x/job/3?tenant_id=***",
        ),
        ("file:///x", "file:///x/job/3", "file:///x/job/3"),
    ],
)
def test_a_uri_names_a_place_and_those_below_it(text: str, below: str, shown: str) -> None:
    place = place_of(text) / "job" / "3"
    assert isinstance(place, StoreUri)
    assert (text_of(place), str(place), place.name) == (below, shown, "3")
    assert place_of(below) == place
    assert repr(place) == f"StoreUri({shown!r})"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "an empty text names no place"),
        ("s4://key:hidden@b/x", r"^s4://\*\*\*@b/x is neither a path nor a URI that begins with one of s3://, gs://"),
        ("https://host/x?token=hidden", r"^https://host/x\?token=\*\*\* is neither a path nor"),
        ("file:/x", "file:/x is neither a path nor"),
        ("s3://key:hidden@b/x", r"^s3://\*\*\*@b/x has credentials in it; they belong in the environment"),
        ("s3://hidden@b/x", "has credentials in it"),
        ("hdfs://me:hidden@host/x", "has credentials in it"),
        ("s3://key:hid/hidden@b/x", r"^s3://\*\*\*@b/x has credentials in it"),
        ("hdfs://me:hid/hidden@host/x", "has credentials in it"),
        ("s3://b/x?endpoint_override=http://me:hidden@host", "has credentials in it"),
        ("s3://b/x?endpoint_override=http%3A%2F%2Fme%3Ahidden%40host", "has credentials in it"),
        ("s3://b/x?secret_key=hidden", r"^s3://b/x\?secret_key=\*\*\* has credentials in it"),
        ("s3:///x", "names no bucket"),
        ("file://host/x", "names a host"),
        ("s3://b/a b", "has a fragment or white space in it"),
        ("s3://b/a#hidden-not", "has a fragment"),
        ("s3://[b/x", "is not a URI"),
    ],
)
def test_an_address_that_cannot_be_is_refused_without_its_secrets(text: str, message: str) -> None:
    with pytest.raises(InvalidPlace, match=message) as caught:
        place_of(text)
    assert "hidden@" not in str(caught.value)
    assert "=hidden" not in str(caught.value)
    assert "hidden%40" not in str(caught.value)


def test_secrets_are_masked_wherever_they_stand() -> None:
    text = "no 's3://key:hidden@b/x?region=eu&sas=hidden&scheme=http' here, nor gs://hidden@b"
    assert masked(text) == "no 's3://***@b/x?region=eu&sas=***&scheme=http' here, nor gs://***@b"


def test_a_store_in_a_directory_is_that_directory(tmp_path: Path) -> None:
    store = ObjectStore(in_a_store((tmp_path / "a b").as_uri()))
    assert (store.files(), store.directories()) == ({}, [])
    store.write("job/1/x", lambda: [b"ab", memoryview(b"c")])
    assert (tmp_path / "a b" / "job" / "1" / "x").read_bytes() == b"abc"
    assert (store.files(), store.directories(), store.read("job/1/x")) == ({"job/1/x": 3}, ["job"], b"abc")
    store.delete("job/1")
    store.delete("job/1")
    assert store.files() == {}
    with pytest.raises(FileNotFoundError):
        store.read("job/1/x")


def test_a_store_that_fails_for_a_moment_is_asked_again(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stores, "FIRST_PAUSE_SECONDS", 0.01)
    store = ObjectStore(in_a_store(s3.uri("again")))
    # An error that the client itself does not try again.
    s3.fail("PUT .*/again/x", times=2, status=400, code="BadDay")
    checksum = store.write("x", lambda: [b"abc"])
    assert checksum.startswith("ba7816bf")
    assert (s3.num_failed(), store.read("x")) == (2, b"abc")
    s3.fail("PUT .*/again/large", times=1, status=400, code="BadDay")
    store.write("large", lambda: (b"x" * 1_000_000 for _ in range(12)))  # in parts
    assert (s3.num_failed(), store.files()) == (1, {"x": 3, "large": 12_000_000})
    assert "tried again" in caplog.text
    assert "region=us-east-1 cannot take x:" in caplog.text


@pytest.mark.parametrize("scheme", ["gs", "gcs"])
def test_a_store_of_google_can_be_addressed(scheme: str) -> None:
    ObjectStore(in_a_store(f"{scheme}://anonymous@bucket/x"))  # asks it for nothing


def test_what_no_patience_mends_fails_at_once(s3: S3Server) -> None:
    with pytest.raises(StoreFailed, match=r"^s3://missing/x\?.* cannot take y: .*bucket does not exist$"):
        ObjectStore(in_a_store(s3.uri("x", bucket="missing"))).write("y", lambda: [b""])
    with pytest.raises(StoreFailed, match=r"^s3://b/x\?colour=\*\*\* cannot be used: .*'colour'"):
        ObjectStore(in_a_store("s3://b/x?colour=red"))
