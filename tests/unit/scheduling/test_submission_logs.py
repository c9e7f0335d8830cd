"""Test that a hostile log is shown as harmless text in a limited window."""

from __future__ import annotations

import pytest

from scheduling.engine.executors.local_files import LogWindow
from scheduling.services.logs import WINDOW_BYTES, _whole_signs, inert


def window(data: bytes, *, more: int = 0) -> LogWindow:
    return LogWindow(data, len(data), len(data) + more)


class TestInertText:
    @pytest.mark.parametrize(
        ("hostile", "shown"),
        [
            ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
            ("a\x00b", "a\\x00b"),
            ("\x9b31m", "\\x9b31m"),
            ("over\rwritten\b", "over\\x0dwritten\\x08"),
            ("\u202egnp.exe", "\\u202egnp.exe"),
            ("tab\tline\n", "tab\tline\n"),
            ("snow \N{SNOWMAN}", "snow \N{SNOWMAN}"),
        ],
    )
    def test_shows_control_characters_escaped(self, hostile: str, shown: str) -> None:
        assert inert(hostile) == shown

    def test_replaces_invalid_bytes(self) -> None:
        assert _whole_signs(window(b"\xff\xfeok"))[1] == "\ufffd\ufffdok"


class TestCarriageReturn:
    @pytest.mark.parametrize(
        ("written", "shown"),
        [
            (b"start\r 1%\r 2%\ndone\n", "start\n 1%\n 2%\ndone\n"),
            (b"windows\r\nline\r\n", "windows\nline\n"),
            (b"\r\r\n\n", "\n\n\n"),
        ],
    )
    def test_becomes_newline(self, written: bytes, shown: str) -> None:
        assert _whole_signs(window(written)) == (written, shown)

    def test_and_newline_in_next_window_are_one_newline(self) -> None:
        assert _whole_signs(window(b"a\r", more=2))[1] == "a\n"
        assert _whole_signs(window(b"\nb"), after_return=True) == (b"\nb", "b")


class TestWindow:
    @pytest.mark.parametrize("sign", ["é", "\N{SNOWMAN}", "\N{PARTY POPPER}"])
    def test_ends_between_characters(self, sign: str) -> None:
        raw = sign.encode()
        for cut in range(1, len(raw)):
            data, text = _whole_signs(window(b"abc" + raw[:cut], more=9))
            assert (data, text) == (b"abc", "abc")
        assert _whole_signs(window(b"abc" + raw, more=9)) == (b"abc" + raw, "abc" + sign)

    def test_advances_over_incomplete_bytes(self) -> None:
        assert _whole_signs(window(b"\xf0", more=9))[0] == b"\xf0"

    def test_stays_bounded_if_fully_escaped(self) -> None:
        data, text = _whole_signs(window(b"\x00" * WINDOW_BYTES))
        assert 0 < len(text.encode()) <= WINDOW_BYTES
        assert len(text) == 4 * len(data)
