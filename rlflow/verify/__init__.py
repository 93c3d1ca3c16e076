"""Whole-model equivalence check in the deployment runtime."""

from __future__ import annotations

from rlflow.verify.check import Noise, Runner, Verification, WorkerRunner, calibrate, verify
from rlflow.verify.compare import OutputCheck, compare, flatten, noise_floor, tolerance
from rlflow.verify.inputs import for_single_input, load_input_data, make_inputs

__all__ = [
    "Noise",
    "OutputCheck",
    "Runner",
    "Verification",
    "WorkerRunner",
    "calibrate",
    "compare",
    "flatten",
    "for_single_input",
    "load_input_data",
    "make_inputs",
    "noise_floor",
    "tolerance",
    "verify",
]
