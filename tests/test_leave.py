"""How a process of ours ends: at once, and yet with all that was to be done at its end."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

THREAD = "threading.Thread(target=lambda: (time.sleep(0.3), print('thread'))).start()"


@pytest.mark.parametrize(
    ("before", "out"),
    [
        ("", ""),
        ("sys.stdout.write('half a line')", "half a line"),
        ("atexit.register(print, 'registered')", "registered\n"),
        (f"{THREAD}; atexit.register(print, 'registered')", "thread\nregistered\n"),
    ],
    ids=["nothing", "unflushed", "registered", "a thread with work left"],
)
def test_what_is_left_to_do_is_done(before: str, out: str) -> None:
    done = left(before)
    assert (done.returncode, done.stdout, done.stderr) == (5, out, "")


def test_what_is_held_is_not_taken_apart() -> None:
    held = "class Held:\n    def __del__(self): print('taken apart')\nheld = Held()"
    assert left(held).stdout == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_no_success() -> None:
    with open("/dev/full", "w") as full:
        done = left("print('lost')", stdout=full, status=0)
    assert done.returncode != 0
    assert "No space left" in done.stderr


def left(before: str, stdout: object = subprocess.PIPE, status: int = 5) -> subprocess.CompletedProcess[str]:
    code = f"import atexit, sys, threading, time\nfrom rlflow.processes import leave\n{before}\nleave({status})"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={name: value for name, value in environment.items() if name != "PYTHONUNBUFFERED"},
        stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
    )  # fmt: skip
