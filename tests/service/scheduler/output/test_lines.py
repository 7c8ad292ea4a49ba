"""Lines that can be shown anywhere, whatever a rank printed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.scheduler.output.lines import MAX_LINE_LENGTH, lines_of


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\r\n\ntwo", ["one", "", "two"]),
        (b" 10%\r 20%\r 30%\ndone\n", [" 30%", "done"]),
        (b" 10%|#\r 20%|##\r", [" 20%|##"]),
        (b"\x1b[31mred\x1b[0m \x1b]0;title\x07plain\n", ["red plain"]),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n", ["link"]),
        (b"a\x00b\x07\x1b\n", ["a\\x00b\\x07\\x1b"]),
        (b"\xff\xfe\n", ["\ufffd\ufffd"]),
        ("\u202egnihtyna\u2028 \u009b31m".encode(), ["\\u202egnihtyna\\u2028 "]),
        (b"a\tb", ["a       b"]),
    ],
)
def test_output_becomes_lines_that_show_and_do_nothing(content: bytes, lines: list[str]) -> None:
    assert lines_of(content) == lines


def test_a_long_line_is_cut_and_says_how_much_is_missing() -> None:
    [line] = lines_of(b"x" * (MAX_LINE_LENGTH + 7))
    assert line == "x" * MAX_LINE_LENGTH + "... (7 more characters)"


def test_secrets_are_hidden() -> None:
    assert lines_of(b"token=hunter22, hunter22!", secrets=["hunter22"]) == ["token=***, ***!"]


@given(st.binary(max_size=200))
def test_no_control_character_is_left(content: bytes) -> None:
    for line in lines_of(content):
        assert line.isprintable()
