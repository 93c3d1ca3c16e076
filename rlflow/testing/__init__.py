"""Suites and generators that ship with the library, so that an extension can be tested with what tests our own.

* :func:`random_graph`: seeded graphs over the operator table.
* :mod:`rlflow.testing.tiny`: problems small enough that their optimum is known by enumeration.
* :mod:`rlflow.testing.toys`: more of them, to compare strategies on.
* :mod:`rlflow.testing.conformance`: what every strategy must do; run it on yours.
* :mod:`rlflow.testing.cost_models`: what every cost model must do.
* :mod:`rlflow.testing.runtimes`: what every runtime must do.
"""

from __future__ import annotations

from rlflow.testing.conformance import CHECKS, Case, check_strategy
from rlflow.testing.cost_models import check_cost_model
from rlflow.testing.random_graphs import random_graph
from rlflow.testing.runtimes import check_runtime
from rlflow.testing.tiny import TINY, TinyProblem, optimum
from rlflow.testing.toys import TOYS

__all__ = [
    "CHECKS",
    "TINY",
    "TOYS",
    "Case",
    "TinyProblem",
    "check_cost_model",
    "check_runtime",
    "check_strategy",
    "optimum",
    "random_graph",
]
