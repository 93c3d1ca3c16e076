"""Optimises the foundation's seven models through the command line and holds each against its bar.

    python reproduce/foundation/run.py [--models NAME ...] [--budget 120s] [--seed 0] [--out FILE] [--resume]

Every model is written with seeded weights, optimised for one thread, and its JSON report kept: results/latest.jsonl
holds the machine and then one report a line. Exit status 1 when a model failed, was not verified, or missed its bar.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, os.fspath(Path(__file__).resolve().parents[1] / "common"))

import sweep  # from the folder "common"

# What the project promises over ONNX Runtime with all its optimisations on, one thread; None: not slower.
BARS: dict[str, float | None] = {
    "squeezenet1.1": None,
    "inception-v3": None,
    "densenet-121": 1.05,
    "repvgg-a0": 1.12,
    "nasrnn": 1.25,
    "bert6-classifier": 1.10,
    "llama-decoder-step": 1.30,
}

if __name__ == "__main__":
    sys.exit(sweep.sweep("foundation", BARS, "120s", __doc__))
