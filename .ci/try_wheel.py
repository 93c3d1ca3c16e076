"""What a user does first, with the rlflow that is installed and nothing of this repository: export, optimise, compare.

    python .ci/try_wheel.py

Ends with a line of sizes and seconds; an exception where something is missing or wrong.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path


def rlflow(*arguments: str) -> None:
    """The command of the environment that runs this file."""
    command = Path(sys.executable).with_name("rlflow.exe" if os.name == "nt" else "rlflow")
    subprocess.run([command, *arguments], check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # what is imported is what was installed
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", "import rlflow"], check=True)
        light = time.monotonic() - began
        rlflow("info")
        rlflow("zoo", "export", "nasrnn", "-o", "model.onnx")
        rlflow("optimize", "model.onnx", "-o", "faster.onnx", "--cost", "analytic", "--budget", "200c", "--quiet")
        assert os.path.getsize("faster.onnx") > 0
    size = sum(file.locate().stat().st_size for file in metadata.files("rlflow") or ())
    took = time.monotonic() - began
    print(f"installed: {size / 1e6:.1f} MB; python and `import rlflow`: {light:.2f} s; all: {took:.1f} s")


if __name__ == "__main__":
    main()
