"""Tuning tensor programs: hierarchical reinforcement learning (HARL), and what it is compared with.

An :class:`Engine` has subgraphs with spaces of programs, and times what it is given; a :class:`Tuner` chooses what to
measure. ``docs/tuner.md`` explains both.

>>> from rlflow.search import Budget
>>> from rlflow.tuner import RecordedEngine, Tuner, method
>>> result = Tuner(RecordedEngine.read("table.json"), method("evolutionary")).run(Budget(measurements=64))
"""

from __future__ import annotations

from rlflow.tuner.engines import INVALID, Engine, Subgraph
from rlflow.tuner.kernel_engine import KernelEngine
from rlflow.tuner.methods import METHODS, TunerConfig, method, unavailable
from rlflow.tuner.recorded import RecordedEngine, record
from rlflow.tuner.records import Records, Remembering
from rlflow.tuner.spaces import GROUPS, Program, Sketch, Space, Steps, Tile
from rlflow.tuner.tuning import Round, Tuner, TuneResult

__all__ = [
    "GROUPS",
    "INVALID",
    "METHODS",
    "Engine",
    "KernelEngine",
    "Program",
    "RecordedEngine",
    "Records",
    "Remembering",
    "Round",
    "Sketch",
    "Space",
    "Steps",
    "Subgraph",
    "Tile",
    "TuneResult",
    "Tuner",
    "TunerConfig",
    "method",
    "record",
    "unavailable",
]
