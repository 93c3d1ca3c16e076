"""What a user does first, with the rlflow that is installed and nothing of this repository: export, optimise, compare.

    python .ci/try_wheel.py [WHEEL]

Ends with a line of sizes and seconds; an exception where something is missing or wrong.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

#: The bars: the wheel, what is installed of rlflow itself, and ``import rlflow``.
MOST_WHEEL, MOST_BYTES, MOST_SECONDS = 15e6, 30e6, 0.1


def rlflow(*arguments: str) -> None:
    """The command of the environment that runs this file."""
    command = Path(sys.executable).with_name("rlflow.exe" if os.name == "nt" else "rlflow")
    subprocess.run([command, *arguments], check=True, stdout=subprocess.DEVNULL)


def import_seconds() -> float:
    """What ``import rlflow`` takes in a new process, without the start of Python."""
    timed = "import time; began = time.perf_counter(); import rlflow; print(time.perf_counter() - began)"
    return float(subprocess.run([sys.executable, "-c", timed], check=True, capture_output=True, text=True).stdout)


def main(wheel: str | None = None) -> None:
    if wheel is not None:
        packed = os.path.getsize(wheel)
        assert packed < MOST_WHEEL, f"the wheel has {packed / 1e6:.1f} MB; expected under {MOST_WHEEL / 1e6:.0f} MB"
        print(f"{os.path.basename(wheel)}: {packed / 1e6:.1f} MB")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # what is imported is what was installed
        began = time.monotonic()
        light = min(import_seconds() for _ in range(3))
        assert light < MOST_SECONDS, f"`import rlflow` takes {light:.2f} s; expected under {MOST_SECONDS} s"
        rlflow("info")
        rlflow("zoo", "export", "nasrnn", "-o", "model.onnx")
        quick = ("--cost", "analytic", "--budget", "200c", "--quiet")
        rlflow("optimize", "model.onnx", "-o", "faster.onnx", "--report", "report.html", *quick)
        rlflow("verify", "model.onnx", "faster.onnx")
        assert os.path.getsize("faster.onnx") > 0
        assert "</html>" in Path("report.html").read_text(encoding="utf-8")
    size = sum(file.locate().stat().st_size for file in metadata.files("rlflow") or ())
    assert size < MOST_BYTES, f"rlflow takes {size / 1e6:.1f} MB installed; expected under {MOST_BYTES / 1e6:.0f} MB"
    took = time.monotonic() - began
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "g++", "c++", "clang"))), None) or "none"
    print(f"installed: {size / 1e6:.1f} MB; `import rlflow`: {light:.3f} s; all: {took:.1f} s; compiler: {compiler}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
