"""``python -m rlflow`` is the command line."""

from __future__ import annotations

import os
import sys

# `python -m` puts the current folder first among the places of modules, and whatever json.py lies there would be ours.
# What Python itself imports before this line cannot be helped: the command `rlflow` is the safe one.
try:
    _here = os.getcwd()
except OSError:  # it was removed
    _here = ""
if sys.path and sys.path[0] == _here and not os.path.isdir(os.path.join(sys.path[0], "rlflow")):
    del sys.path[0]

try:
    from rlflow.cli import program
except KeyboardInterrupt:  # before the command line minds it
    sys.exit(130)

if __name__ == "__main__":
    program()
