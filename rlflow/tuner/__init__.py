"""Tuning tensor programs: hierarchical reinforcement learning (HARL), and what it is compared with.

An :class:`Engine` has subgraphs with spaces of programs, and times what it is given; a :class:`Tuner` chooses what to
measure. ``docs/tuner.md`` explains both.

>>> from rlflow.search import Budget
>>> from rlflow.tuner import RecordedEngine, Tuner, method
>>> result = Tuner(RecordedEngine.read("table.json"), method("evolutionary")).run(Budget(measurements=64))
"""

from __future__ import annotations

from rlflow.tuner.engines import INVALID, Engine, TunedSubgraph
from rlflow.tuner.generated_engine import GeneratedEngine
from rlflow.tuner.kernel_engine import KernelEngine
from rlflow.tuner.recorded import RecordedEngine, record
from rlflow.tuner.shared_engine import SharedEngine
from rlflow.tuner.spaces import GROUPS, Sketch, Space, Steps, TensorProgram, Tile
from rlflow.tuner.trial_records import Records, Remembering
from rlflow.tuner.tuning import Tuner, TuneResult, TuningRound
from rlflow.tuner.tuning_methods import METHODS, TunerConfig, method, unavailable
from rlflow.tuner.tvm_engine import TvmEngine, TvmOperator
from rlflow.tuner.warm_starts import Observed, TransferPrior, WarmStart

__all__ = [
    "GROUPS",
    "INVALID",
    "METHODS",
    "Engine",
    "GeneratedEngine",
    "KernelEngine",
    "Observed",
    "RecordedEngine",
    "Records",
    "Remembering",
    "SharedEngine",
    "Sketch",
    "Space",
    "Steps",
    "TensorProgram",
    "Tile",
    "TransferPrior",
    "TuneResult",
    "TunedSubgraph",
    "Tuner",
    "TunerConfig",
    "TuningRound",
    "TvmEngine",
    "TvmOperator",
    "WarmStart",
    "method",
    "record",
    "unavailable",
]
