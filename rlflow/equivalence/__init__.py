"""Whole-model equivalence check in the deployment runtime."""

from __future__ import annotations

from rlflow.equivalence.check import Verification, verify
from rlflow.equivalence.feeds import for_single_input, load_input_data, make_inputs
from rlflow.equivalence.noise import SECONDS, Noise, Runner, WorkerRunner, calibrate
from rlflow.equivalence.outputs import OutputCheck, compare, flatten, noise_floor, tolerance
from rlflow.equivalence.probes import Probe, ProbePlan, plan_for

__all__ = [
    "SECONDS",
    "Noise",
    "OutputCheck",
    "Probe",
    "ProbePlan",
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
    "plan_for",
    "tolerance",
    "verify",
]
