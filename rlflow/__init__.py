"""rlflow: takes a trained network and writes the fastest equivalent one that it measured, proved rule by rule and
checked end to end.

>>> import rlflow
>>> result = rlflow.optimize("model.onnx", output="faster.onnx", budget="60s")
>>> result.report.speedup

Everything is imported when it is first used, so that ``import rlflow`` opens no heavy library.
"""

from __future__ import annotations

import importlib

from rlflow.plugins import offer

TYPE_CHECKING = False  # what `typing` has under this name, without opening it
if TYPE_CHECKING:
    from typing import Any

    from rlflow.comparison import compare
    from rlflow.frontends import load_model as load
    from rlflow.frontends import save_model as save
    from rlflow.graph import Graph
    from rlflow.optimizer import OptimizeResult, Options, optimize, replay, shrink, simplify, verify
    from rlflow.report import Report
    from rlflow.rewrite import Rule
    from rlflow.search import Budget

__all__ = [
    "Budget",
    "Graph",
    "OptimizeResult",
    "Options",
    "Report",
    "Rule",
    "__version__",
    "compare",
    "load",
    "optimize",
    "replay",
    "save",
    "shrink",
    "simplify",
    "verify",
]

_HOMES = {
    "Budget": ("rlflow.search", "Budget"),
    "Graph": ("rlflow.graph", "Graph"),
    "OptimizeResult": ("rlflow.optimizer", "OptimizeResult"),
    "Options": ("rlflow.optimizer", "Options"),
    "Report": ("rlflow.report", "Report"),
    "Rule": ("rlflow.rewrite", "Rule"),
    "compare": ("rlflow.comparison", "compare"),
    "load": ("rlflow.frontends", "load_model"),
    "optimize": ("rlflow.optimizer", "optimize"),
    "replay": ("rlflow.optimizer", "replay"),
    "save": ("rlflow.frontends", "save_model"),
    "shrink": ("rlflow.optimizer", "shrink"),
    "simplify": ("rlflow.optimizer", "simplify"),
    "verify": ("rlflow.optimizer", "verify"),
}

offer(
    "rlflow.strategies",
    {
        "mcts-policy": "rlflow.agents.xrlflow.led:PolicyMcts",
        "rlflow": "rlflow.agents.rlflow.strategy:RLFlow",
        "surrogate": "rlflow.agents.bayes.strategy:Surrogate",
        "xrlflow": "rlflow.agents.xrlflow.strategy:XRLflow",
        "xrlflow-mcts": "rlflow.agents.xrlflow.strategy:XRLflowTree",
    },
)
offer("rlflow.placers", {"go": "rlflow.agents.go.placer:LearnedPlacement"})


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("rlflow")
    except metadata.PackageNotFoundError:
        return "0.0.0+source"  # imported from a source tree that was never installed


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = _version()
    elif name in _HOMES:
        module, attribute = _HOMES[name]
        value = getattr(importlib.import_module(module), attribute)
    else:
        raise AttributeError(f"module 'rlflow' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
