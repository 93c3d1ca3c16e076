"""The clean-up alone: import, folds that always pay, export, the check of outputs. No clock decides anything."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlflow.pipeline import found, loaded
from rlflow.pipeline.account import report
from rlflow.pipeline.checking import check
from rlflow.pipeline.context import Context
from rlflow.pipeline.exports import Exports
from rlflow.pipeline.found import Found
from rlflow.pipeline.loading import Loaded
from rlflow.pipeline.racing import Entrant, Raced
from rlflow.pipeline.searching import settle_sizes
from rlflow.pipeline.writing import OptimizeResult, write
from rlflow.search import Problem, solve

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["BUDGET", "folding_rules", "simplify"]

#: Rules that make one node of several without more work at run time, on any machine: a family, and one of another.
FAMILY, BESIDE = "fold", ("linear", "linear-to-gemm")
#: The way down ends by itself; this is for models of many thousands of nodes.
BUDGET = "2000x"
#: Seconds for inputs beyond the usual ones: few rules change little.
CHECK_SECONDS = 0.3


def simplify(model: Any, context: Context) -> OptimizeResult:
    """The stages without a race: what is imported and folded is compared with the original, and written."""
    context.options = replace(context.options, cost="analytic", search="greedy", budget=BUDGET, rules=folding_rules())
    came = _with_clean_bodies(loaded(model, context), context)
    if came.library is None:
        best, raced = None, Raced(f"the model is carried through as it came: {came.imported.passthrough}")
    else:
        context.keep_sessions(came)
        settle_sizes(came, context)
        best = found(came, context)
        raced = Raced("simplified; no clock was used", _entrant(came, best))
    with context.blaming_guesses():
        raced, checked = check(came, raced, context, CHECK_SECONDS)
    written = write(came, raced, context)
    told = report(came, best, raced, checked, written, context, context.stage.seconds())
    return OptimizeResult(told, written.make)


def _with_clean_bodies(came: Loaded, context: Context) -> Loaded:
    """The model with the bodies of If, Loop and Scan cleaned up like the model itself; it came as it came."""
    from rlflow.frontends import load_model
    from rlflow.frontends.inner_graphs import rewritten_bodies

    if came.library is None or came.weights is not None or came.imported.external:
        return came
    model, count = rewritten_bodies(came.imported.origin.model, lambda body: _cleaned(body, came))
    if model is None:
        return came
    context.notes.append(f"{count} {'bodies' if count > 1 else 'body'} of If, Loop and Scan cleaned up, too.")
    imported = load_model(model, keep_initializer_inputs=context.options.keep_initializer_inputs)
    imported = imported.in_place_of(came.imported)
    exports = Exports(imported, came.ruleset, None, context)
    return replace(came, imported=imported, graph=imported.graph, exports=exports)


def _cleaned(body: ModelProto, came: Loaded) -> ModelProto | None:
    """A body after import, folds and export; ``None`` where that makes it no smaller."""
    from rlflow import price
    from rlflow.frontends import load_model, save_model

    imported = load_model(body)
    if imported.passthrough is not None:
        return None
    problem = Problem(imported.graph, came.ruleset, price.make("analytic"), BUDGET)
    best = solve(problem, "greedy").best.graph
    made = save_model(imported, imported.graph if imported.inexpressible(best) else best)
    size, was = (sum(node.op_type != "Constant" for node in one.graph.node) for one in (made, body))
    return made if size < was else None


def _entrant(came: Loaded, best: Found) -> Entrant:
    visited = best.result.best  # also where it is only smaller
    return Entrant(visited, came.exports.export(visited.graph, visited.trace))


def folding_rules() -> Any:
    """The rules that make one node of several without more work at run time, on any machine."""
    from rlflow.rewrite import load_rules

    family, name = BESIDE
    library = load_rules(families=[FAMILY, family])
    return library.select([one for one, rule in library.items() if rule.family == FAMILY or one == name])
