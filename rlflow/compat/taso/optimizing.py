"""``taso.optimize``: rlflow's search, gate and verification behind TASO's signature."""

from __future__ import annotations

import dataclasses
import logging
import sys
import warnings
from math import inf
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rlflow.compat.taso.arguments import number
from rlflow.compat.taso.handle import GraphHandle, H
from rlflow.compat.taso.home import home_rules
from rlflow.compat.taso.onnx_export import export_onnx
from rlflow.errors import UsageError

if TYPE_CHECKING:
    from rlflow.search import Strategy

_log = logging.getLogger("taso")
#: The SOSP paper's bound for every search, in seconds.
_SECONDS = 600.0
#: TASO's default, which admits no graph that is dearer than the best. Most gains lie behind such graphs.
_DEFAULT_ALPHA = 1.0
#: All equal graphs at once, then TASO's own search from the best of them.
_SEARCH = "portfolio:members=eqsat+backtracking"


def optimize(
    graph: H,
    alpha: float | None = _DEFAULT_ALPHA,
    budget: int | str = 1000,
    print_subst: bool = False,
    *,
    cost: str | None = None,
    seconds: float | None = _SECONDS,
    search: str | Strategy | None = None,
    **options: Any,
) -> H:
    """A new graph that computes the same faster; equal to the given one, which stays usable, where nothing is gained.

    ``alpha``: a rewrite may cost so many times the best graph; 1.0, which is TASO's default, and None leave it to the
    search (1.05), and a strategy without such a bound does without. ``budget``: graphs to expand, or a budget of rlflow
    such as ``"60s"``; ``search``: a strategy of rlflow, by default equality saturation and then TASO's own search, on
    one budget; ``print_subst``: write the rewrites of the result to standard output. ``cost``: the cost model, by
    default ``"onnxruntime"`` (measured, and confirmed end to end), or ``"analytic"`` where ONNX Runtime is missing;
    ``seconds``: limit in seconds beside a number of expansions (None: no limit). Other options are those of
    :func:`rlflow.optimize` (``seed``, ``threads``, ``dims``, ``rules``, ``verify``, …). Without ``rules``,
    those of ``$TASO_HOME/graph_subst.pb``, where there is one, are used beside ours, as far as they are true.

    The result's ``report`` says what was done. Raises the errors of :func:`rlflow.optimize`.
    """
    from rlflow import optimize as run
    from rlflow.frontends import load_model

    if not isinstance(graph, GraphHandle):
        raise UsageError(f"taso: optimize() got {type(graph).__name__}; expected a PyGraph.")
    if options.get("rules") is None:
        options["rules"] = home_rules()
    result = run(
        export_onnx(graph),
        search=_strategy(search, alpha),
        budget=_budget(budget, seconds),
        cost=_cost_model() if cost is None else cost,
        on_stage=options.pop("on_stage", _log.info),
        **options,
    )
    report = result.report
    _log.info("%s", report.reason)
    if print_subst:
        _write_trace(report)
    if report.improved or options.get("freeze"):
        imported = load_model(result.model)
        best = type(graph)._of(imported, result.model, [info.name for info in result.model.graph.output])
    else:
        best = graph.copy()
    best._print, best.report = graph._print, report
    return best


def _strategy(search: str | Strategy | None, alpha: float | None) -> Strategy:
    """The strategy with its alpha, where one was asked for and the strategy has one."""
    from rlflow.search import make

    given = None if alpha is None else number(alpha, "taso: optimize(): alpha")
    given = None if given == _DEFAULT_ALPHA else given
    if search is None:
        return make(_SEARCH if given is None else f"{_SEARCH}(alpha={given!r})")
    strategy = make(search)
    if given is None or any(field.name == "alpha" for field in dataclasses.fields(cast(Any, strategy))):
        return make(strategy, alpha=given)
    _log.info("the strategy %s has no alpha; %g is left out", strategy.name, given)
    return strategy


def _budget(budget: Any, seconds: float | None) -> Any:
    if isinstance(budget, bool) or not isinstance(budget, (int, float, np.integer)):
        return budget
    limits = {"budget": budget} if seconds is None else {"budget": budget, "seconds": seconds}
    for name, limit in limits.items():
        if not 0 < number(limit, f"taso: optimize(): {name}") < inf:
            raise UsageError(f"taso: optimize(): {name}={limit!r}; expected a number above zero.")
    count = f"{int(budget)}x"
    return count if seconds is None else f"{count},{float(seconds):.9f}s"


def _cost_model() -> str:
    from rlflow.runtime import unavailable_reason

    reason = unavailable_reason()
    if reason is None:
        return "onnxruntime"
    warnings.warn(f"taso: costs are estimated, not measured: {reason}", stacklevel=3)
    return "analytic"


def _write_trace(report: Any) -> None:
    steps = report.trace or []
    sys.stdout.write(f"{len(steps)} substitutions applied\n")
    for place, step in enumerate(steps, 1):
        sys.stdout.write(f"  {place}. {step['rule']}\n")
