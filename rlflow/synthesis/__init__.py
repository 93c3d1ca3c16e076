"""Proving rules (and, later, finding them).

``rlflow.synthesis.prove.prove(rule)`` gives a verdict on one rule, ``prove_all(rules)`` on many;
``load_rules(paths)`` loads rule files from anywhere, proving what does not come with the package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlflow.synthesis.cache import load_rules, prove_cached
    from rlflow.synthesis.prove import prove_all
    from rlflow.synthesis.repair import Repair
    from rlflow.synthesis.verdict import Counterexample, Verdict

_HOMES = {
    "Counterexample": "verdict",
    "Repair": "repair",
    "Verdict": "verdict",
    "load_rules": "cache",
    "prove_all": "prove",
    "prove_cached": "cache",
}
# `prove` and `repair` are functions of modules of the same names: import them from there.
__all__ = ["Counterexample", "Repair", "Verdict", "load_rules", "prove_all", "prove_cached"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rlflow.synthesis' has no attribute {name!r}")
    return getattr(importlib.import_module(f"rlflow.synthesis.{_HOMES[name]}"), name)
