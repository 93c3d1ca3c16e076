"""The two machines of the analytic cost, and a model as a problem on one of them."""

from __future__ import annotations

from rlflow.env import ProblemSpec

#: Options of the analytic cost. The GPU is a mid-range one of 2020: 15 TFLOP/s, 1.4 TB/s, 4 us a launch.
ROOFLINES: dict[str, dict[str, float]] = {
    "cpu": {},
    "gpu": {"gflops": 15000.0, "vector_gflops": 5000.0, "gbps": 1400.0, "overhead_us": 4.0, "view_us": 0.0},
}


def spec(model: str, roofline: str) -> ProblemSpec:
    """A model of the zoo with the library's rules, by the analytic cost."""
    return ProblemSpec.of(model, None, "analytic", ROOFLINES[roofline])
