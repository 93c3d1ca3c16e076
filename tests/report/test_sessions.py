"""The screen that records sessions follows a terminal, and notices what is cut."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("pty", reason="pseudo-terminals are POSIX's")

from tests.report.sessions import Screen, faults_of, page, recorded


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("one\r\ntwo\r\n", "one\ntwo"),
        ("12345678\r\n", "123456\n78"),  # the screen has six columns
        ("wrong\r\x1b[2Kgood", "good"),
        ("a\r\nb\r\n\x1b[1A\x1b[2Kc\r\n", "a\nc"),
        ("\x1b[1;32mgreen\x1b[0m", "green"),
        ("long\rs", "song"),
        ("1%\r2%\r3%", "3%"),
    ],
)
def test_what_stays_on_the_screen(said: str, shown: str) -> None:
    screen = Screen(6)
    screen.feed(said)
    assert screen.text == shown


def test_a_command_sees_the_width_of_its_terminal(tmp_path: Path) -> None:
    ask = f"{sys.executable} -c 'import os; print(os.get_terminal_size().columns); print(chr(120) * 70)'"
    assert recorded(ask, 80, tmp_path).splitlines() == ["80", "x" * 70]
    assert recorded(ask, 60, tmp_path).splitlines() == ["60", "x" * 60, "x" * 10]


def test_what_is_cut_is_noticed() -> None:
    assert not faults_of("a", {80: "x" * 80, 200: "x" * 80})
    assert faults_of("a", {80: "a long na…", 200: "a long name"}) == ["a: the narrow screen cuts 1 texts"]
    assert "80 columns" in page({"a": {80: "x", 200: "y"}})
