"""The clean-up alone: import, folds that always pay, export, the check of outputs. No clock decides anything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlflow.pipeline.account import report
from rlflow.pipeline.checking import check
from rlflow.pipeline.context import Context
from rlflow.pipeline.loading import Loaded, load
from rlflow.pipeline.racing import Entrant, Raced
from rlflow.pipeline.searching import Found, search
from rlflow.pipeline.writing import OptimizeResult, write

__all__ = ["simplify"]

#: Rules that make one node of several without more work at run time, on any machine: a family, and one of another.
FAMILY, BESIDE = "fold", ("linear", "linear-to-gemm")
#: The way down ends by itself; this is for models of many thousands of nodes.
BUDGET = "2000x"
#: Seconds for inputs beyond the usual ones: few rules change little.
CHECK_SECONDS = 0.3


def simplify(model: Any, context: Context) -> OptimizeResult:
    """The stages without a race: what is imported and folded is compared with the original, and written."""
    context.options = replace(context.options, cost="analytic", search="greedy", budget=BUDGET, rules=_rules())
    context.preflight(model)
    loaded = load(model, context)
    if loaded.library is None:
        reason = f"the model is carried through as it came: {loaded.imported.passthrough}"
        found, raced = None, Raced(reason)
    else:
        context.settle_sizes(loaded)
        found = search(loaded, context)
        raced = Raced("simplified; no clock was used", _entrant(loaded, found))
    with context.blaming_guesses():
        checked = check(loaded, raced, context, CHECK_SECONDS)
    written = write(loaded, raced, context)
    return OptimizeResult(report(loaded, found, raced, checked, written, context), written.make)


def _entrant(loaded: Loaded, found: Found) -> Entrant:
    best = found.result.best  # also where it is only smaller
    return Entrant(best, loaded.exports.export(best.graph, best.trace))


def _rules() -> Any:
    from rlflow.rewrite import load_rules

    family, name = BESIDE
    library = load_rules(families=[FAMILY, family])
    return library.select([one for one, rule in library.items() if rule.family == FAMILY or one == name])
