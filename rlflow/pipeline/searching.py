"""Stage 2: what the model costs, and the cheapest graphs that the search finds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlflow import search as _search
from rlflow.equivalence.sizes import usual
from rlflow.pipeline.allowances import seconds_wanted
from rlflow.pipeline.firming import FIRST_SHARE, firmed
from rlflow.pipeline.found import Found
from rlflow.pipeline.parts import ModelTimes
from rlflow.pipeline.precision import tolerance_of
from rlflow.rulesets import ALGORITHMS, TARGETS
from rlflow.search import Problem, StopReason
from rlflow.search.earlier import EarlierSearches, repeatable
from rlflow.search.frontier import WEIGHT_FACTOR

if TYPE_CHECKING:
    from rlflow.options import Options
    from rlflow.pipeline.context import Context
    from rlflow.pipeline.loading import Loaded

__all__ = ["price", "search", "sentence", "settle_sizes"]

#: Seconds that timing one whole graph may take where regions have no prices: a twentieth of the budget, between these.
LEAST_WHOLE_SECONDS, WHOLE_SECONDS = 0.2, 6.0
#: The part of the search's time in which prices of earlier runs are made sure of.
RENEWAL_SHARE = 0.25
_MOST_NAMED = 6


def settle_sizes(loaded: Loaded, context: Context) -> None:
    """Let prices be those at the sizes that the model is timed and verified at. What the runtime cannot run is said
    here, before the search.
    """
    options, cost_model = context.options, context.cost_model
    runs = cost_model.measures and (options.place.command is None or options.verify)
    sizes = context.inputs(loaded).sizes.values if runs else {**usual(loaded.extents), **options.freeze}
    if isinstance(options.cost, str):
        cost_model.bind(sizes)


def price(loaded: Loaded, context: Context) -> Problem:
    """The search's problem, its starting graph priced. The clock of the budget starts here."""
    context.parts.begin()
    problem = _problem(loaded, context)
    problem.root()
    if (whole := _whole_graphs(context)) is not None:
        context.cost_model = whole
        problem = _problem(loaded, context)
        problem.root()
    _set_time(problem, loaded, context)
    return problem


def sentence(problem: Problem, options: Options) -> str:
    """What a search is called while it runs."""
    return f"searching ({_search.describe(options.strategy)}, {options.limits}, {len(problem.rule_names)} rules)"


def search(problem: Problem, loaded: Loaded, context: Context) -> Found:
    """The cheapest graphs; ``context.stop`` ends the search with the best so far."""
    options, setup = context.options, problem.start.measurements
    earlier = _earlier_searches(loaded, context)
    if earlier is not None and (known := earlier.recall(problem)) is not None:
        result, remark = known
        context.notes.append(remark)
        return Found(result, None, setup)
    problem = _renewed(problem, loaded, context)
    statistics = problem.observer = _search.Statistics(problem.rule_names)
    result = firmed(_search.solve(problem, options.strategy), problem, lambda: _problem(loaded, context), context)
    if earlier is not None:
        earlier.keep(result)
    if refused := sorted(problem.frontier.rounding.refused):
        context.notes.append(_held_back(refused, options.tolerance))
    if result.stop_reason is StopReason.CONVERGED and (idle := problem.limits.idle()) is not None:
        context.notes.append(
            f"The search ended after {result.seconds:.0f} s of its budget, because the last {idle} graphs that it "
            "opened brought no worthwhile gain; --patience off spends the whole budget."
        )
    return Found(result, statistics, setup, _search.rule_rows(problem) if options.profile_rules else None)


def _renewed(problem: Problem, loaded: Loaded, context: Context) -> Problem:
    """The problem, with the prices of earlier runs that it mostly rests on made sure of while there is time."""
    parts, cost_model = context.parts, context.cost_model
    if parts.seconds is None or cost_model.in_haste:
        return problem
    seconds = RENEWAL_SHARE * parts.search_left
    right = cost_model.renew(problem.root().graph, seconds, lambda: context.stop.stopped)
    if right:
        wrong = "1 price of an earlier run was" if right == 1 else f"{right} prices of earlier runs were"
        context.notes.append(f"{wrong} wrong, and put right before the search.")
        problem = _problem(loaded, context)
        problem.root()
    problem.meter.end_after(parts.search_left)
    return problem


def _held_back(rules: Sequence[str], tolerance: str | float) -> str:
    shown = ", ".join(rules[:_MOST_NAMED]) + (
        f" and {len(rules) - _MOST_NAMED} more" if len(rules) > _MOST_NAMED else ""
    )
    return (
        f"--tolerance {tolerance} held these rules back, at least in some places, because of their rounding: {shown}."
    )


def _whole_graphs(context: Context) -> Any:
    """What times whole graphs instead, where regions have been priced and too few of them have a price."""
    from rlflow import price

    options, coverage = context.options, context.cost_model.coverage
    if not coverage.small or not isinstance(options.cost, str):
        return None
    seconds = options.limits.seconds
    each = WHOLE_SECONDS if seconds is None else min(WHOLE_SECONDS, max(seconds / 20.0, LEAST_WHOLE_SECONDS))
    place = options.place
    how: dict[str, Any] = {"runtime": place.runtime, "provider": place.provider, "measure_cmd": place.command}
    how |= {"database": context.cost_model.database}
    # However noisy the machine is: a search that keeps what it cannot tell apart is better than none.
    how |= {"seconds": each, "max_noise": math.inf, "worker": context.worker if place.is_default else None}
    model = price.make("end-to-end", threads=options.threads, dims=context.cost_model.dims, **how)
    context.opened(model)
    context.notes.append(f"{coverage.sentence} So whole graphs were timed in the search, {each:.3g} s each at most.")
    return model


def _problem(loaded: Loaded, context: Context) -> Problem:
    options, cost_model = context.options, context.cost_model
    learning = context.parts.learning
    if learning is not None:
        cost_model.hurry(learning)
    cost_model.pricer  # noqa: B018 - made on first use, by measuring
    # Whole graphs are timed as they would be deployed.
    cost_model.attach(lambda graph: loaded.exports.export(graph).source, lambda: context.inputs(loaded).feeds[0])
    return Problem(
        loaded.graph,
        loaded.ruleset,
        cost_model,
        options.limits,
        seed=options.seed,
        on_progress=context.on_progress,
        stop=context.stop,
        profile_rules=options.profile_rules,
        patience=options.chosen_patience,
        growth=options.max_growth,
        tolerance=tolerance_of(loaded, options.tolerated),
        clocked=frozenset(name for name, rule in loaded.library.items() if rule.family in (*ALGORITHMS, *TARGETS)),
        pricing_seconds=context.parts.pricing(),
        on_pricing=context.on_pricing,
    )


def _set_time(problem: Problem, loaded: Loaded, context: Context) -> None:
    """Give the search the time that pricing left, less what the stages after it need."""
    parts, options = context.parts, context.options
    if parts.seconds is None:
        return
    if problem.prices.guessed:
        context.notes.append(
            f"{problem.prices.guessed} regions of the model have estimated prices, because pricing them all would have "
            f"taken more than its part of the budget, {parts.given['pricing']:.0f} s."
        )
    timed = context.cost_model.measures or options.place.command is not None
    known = context.cost_model.measures and options.place.command is None
    pace = (parts.pace or context.pace(loaded)) if known else ModelTimes()
    parts.plan(pace, models=2 if timed else 0, advice=seconds_wanted(loaded, context))
    seconds = parts.searching()
    assert seconds is not None
    problem.meter.end_after(seconds * FIRST_SHARE if context.cost_model.in_haste else seconds)


def _earlier_searches(loaded: Loaded, context: Context) -> EarlierSearches | None:
    """Searches of this model that were kept beside the prices; ``None`` where that of now cannot be one of them."""
    options = context.options
    if options.profile_rules or not repeatable(options.strategy):
        return None
    if not isinstance(options.cost, str) or context.cost_model.database is None:
        return None
    patience = None if options.chosen_patience is None else options.chosen_patience.least
    dims = sorted(context.cost_model.dims.items())
    settings: tuple[Any, ...] = (str(options.limits), patience, options.seed, options.cost, dims)
    if options.max_growth != WEIGHT_FACTOR:
        settings = (*settings, options.max_growth)
    settings = (*settings, ("tolerance", options.tolerated))
    parts = (loaded.graph.digest, loaded.library.digest, "macros", *settings)
    return EarlierSearches(context.cost_model, options.strategy, parts, options.fresh)
