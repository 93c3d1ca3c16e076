"""Record what a newcomer sees in a terminal, at 80 and 200 columns, as text (make sessions).

    python tests/report/sessions.py --out docs/sessions.md

The commands run in a pseudo-terminal of that width, one after the other in one folder. A small screen follows the
cursor, so that the text is what stays on it when a command has ended. Fails where a line is longer than the screen, or
where the narrow screen cuts what the wide one shows.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WIDTHS = (80, 200)
COMMANDS = (
    "rlflow",
    "rlflow inspect nasrnn",
    "rlflow optimize nasrnn -o faster.onnx --cost analytic --budget 500c",
    "rlflow verify nasrnn faster.onnx",
    "rlflow diff nasrnn faster.onnx",
    "rlflow bench nasrnn faster.onnx --blocks 8",
    "rlflow rules show conv-bias-of-concat-pair",
    "rlflow explain conv-bias-of-concat-pair squeezenet1.1",
    "rlflow optimise nasrnn",
    "rlflow inspect nasrn",
)
_TOKEN = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\x1b[^\[]|([\r\n\b])|([^\x1b\r\n\b]+)")
_CUT = "…"


class Screen:
    """What stands on a terminal of ``width`` columns, as far as ``rich`` and ``click`` move its cursor."""

    def __init__(self, width: int) -> None:
        self.width, self.rows, self.row, self.column = width, [""], 0, 0

    def feed(self, text: str) -> None:
        for argument, order, control, plain in _TOKEN.findall(text):
            if order:
                self._obey(order, argument)
            elif control == "\n":
                self.row += 1
                self.rows += [""] * (self.row + 1 - len(self.rows))
            elif control:
                self.column = 0 if control == "\r" else max(self.column - 1, 0)
            else:
                self._write(plain)

    def _obey(self, order: str, argument: str) -> None:
        count = int(argument) if argument.isdigit() else 1
        if order == "A":
            self.row = max(self.row - count, 0)
        elif order == "K":
            self.rows[self.row] = "" if argument == "2" else self.rows[self.row][: self.column]

    def _write(self, text: str) -> None:
        for sign in text:
            if self.column == self.width:
                self.column = 0
                self.row += 1
                self.rows += [""] * (self.row + 1 - len(self.rows))
            line = self.rows[self.row].ljust(self.column)
            self.rows[self.row] = line[: self.column] + sign + line[self.column + 1 :]
            self.column += 1

    @property
    def text(self) -> str:
        return "\n".join(row.rstrip() for row in self.rows).strip("\n")


def recorded(command: str, width: int, folder: Path) -> str:
    """What a command leaves on a terminal of that width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    given = {**os.environ, "PATH": search, "TERM": "xterm-256color", "NO_COLOR": "1"}
    given["RLFLOW_CACHE"] = os.fspath(folder / ".cache")  # a newcomer has nothing from earlier runs
    given = {name: value for name, value in given.items() if name not in ("COLUMNS", "LINES")}
    child = subprocess.Popen(command, shell=True, cwd=folder, env=given, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = bytearray()
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # nobody writes any more
            break
        if not part:
            break
        said += part
    os.close(ours)
    child.wait()
    screen = Screen(width)
    screen.feed(said.decode("utf-8", "replace"))
    return screen.text.replace(f"{ROOT}{os.sep}", "")


def faults_of(command: str, texts: dict[int, str]) -> list[str]:
    """Sentences about lines that are too long, and about what the narrow screen cuts."""
    found = [
        f"{command}: at {width} columns a line has {len(line)}"
        for width, text in texts.items()
        for line in text.splitlines()
        if len(line) > width
    ]
    narrow, wide = (texts[width].count(_CUT) for width in WIDTHS)
    return [*found, *([f"{command}: the narrow screen cuts {narrow - wide} texts"] if narrow > wide else [])]


def page(sessions: dict[str, dict[int, str]]) -> str:
    """All sessions in Markdown."""
    intro = "What the commands leave on the screen, at 80 and at 200 columns. `make sessions` records this page again."
    parts = [f"# In a terminal\n\n{intro} Times depend on the machine.\n"]
    for command, texts in sessions.items():
        parts += [f"## `{command}`\n", *(f"{width} columns:\n\n```text\n{texts[width]}\n```\n" for width in WIDTHS)]
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "sessions.md")
    given = parser.parse_args()
    sessions: dict[str, dict[int, str]] = {}
    for width in WIDTHS:
        with tempfile.TemporaryDirectory() as folder:
            for command in COMMANDS:
                sessions.setdefault(command, {})[width] = recorded(command, width, Path(folder))
    given.out.write_text(page(sessions), encoding="utf-8")
    faults = [fault for command, texts in sessions.items() for fault in faults_of(command, texts)]
    print("\n".join(faults) or f"nothing is cut; the sessions are in {given.out}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
