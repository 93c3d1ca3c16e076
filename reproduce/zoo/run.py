"""Optimises every model of the zoo with the command line's default budget: none may fail, none may be slower.

    python reproduce/zoo/run.py [--models NAME ...] [--budget 60s] [--seed 0] [--out FILE] [--resume]

Every model is written with seeded weights, optimised for one thread, and its JSON report kept: results/latest.jsonl
holds the machine and then one report a line. Exit status 1 when a model failed or was not verified.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, os.fspath(Path(__file__).resolve().parents[1] / "common"))

import sweep  # from the folder "common"

from rlflow import zoo

if __name__ == "__main__":
    sys.exit(sweep.sweep("zoo", dict.fromkeys(zoo.names()), "60s", __doc__))
