"""After the search: what a newer opset, or operators of another domain, would add to what was found.

The rules that were left out for their operators are tried on the best graph, greedily and by the prices of its regions,
in a little time that is set aside where some of them match the model. No model is timed for it: what a note names is a
promise of the prices, which the user may have kept by the option that it names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rlflow import search as _search
from rlflow.errors import CostError
from rlflow.rulesets import Allowed
from rlflow.search import Budget, Problem
from rlflow.search.limits import SearchStopped

if TYPE_CHECKING:
    from rlflow.pipeline.context import Context
    from rlflow.pipeline.found import Found
    from rlflow.pipeline.loading import Loaded

__all__ = ["advise", "seconds_wanted"]

#: The part of the budget that it takes at most, and seconds: at most, and what it needs to be of any use.
SHARE, MOST_SECONDS, LEAST_SECONDS = 0.05, 4.0, 0.5
#: The least gain that is worth a sentence.
WORTH = 1.01


def seconds_wanted(loaded: Loaded, context: Context) -> float:
    """Seconds to set aside for the advice before the search begins; none where no allowance would change the model."""
    most = _most(loaded, context)
    matching = most >= LEAST_SECONDS and any(_matches(loaded.graph, rules) for _, rules in _wishes(loaded))
    return most if matching else 0.0


def advise(loaded: Loaded, found: Found, context: Context) -> None:
    """Leave a note for each allowance by which the best graph would be cheaper, where there is time to find out."""
    if _seconds(loaded, context) < LEAST_SECONDS:
        return
    graph, known = found.result.best.graph, WORTH
    wishes = [(option, rules) for option, rules in _wishes(loaded) if _matches(graph, rules)]
    for number, (option, rules) in enumerate(wishes):
        seconds = _seconds(loaded, context) / (len(wishes) - number)
        if context.stop.stopped or seconds < LEAST_SECONDS:
            return
        gain = _gain(graph, rules, loaded, context, seconds)
        if gain >= known:
            context.notes.append(f"By the prices of its regions, the result would gain {gain:.2f} more with {option}.")
            known = gain * WORTH


def _seconds(loaded: Loaded, context: Context) -> float:
    """What the advice may take of the time that is left."""
    return min(_most(loaded, context), context.parts.spare)


def _most(loaded: Loaded, context: Context) -> float:
    """What the advice may take at most; none where no clock prices regions, or no seconds limit the whole."""
    options = context.options
    if not loaded.others or not context.cost_model.measures or context.cost_model.whole:
        return 0.0
    if options.limits.seconds is None:
        return 0.0
    return min(SHARE * options.limits.seconds, MOST_SECONDS)


def _wishes(loaded: Loaded) -> Iterator[tuple[str, list[Any]]]:
    """Options that would allow more, and the rules that they would add: the least opset first."""
    from rlflow.frontends import raising

    opset = loaded.imported.origin.opset
    needs = [(rule, *Allowed(opset).needs(rule)) for rule in loaded.others]
    for newest in sorted({newer for _, newer, domain in needs if newer and not domain}):
        if raising.hindrance(loaded.imported, newest) is None:
            rules = [rule for rule, newer, domain in needs if newer and newer <= newest and not domain]
            yield f"--allow-opset {newest}", rules
    for wanted in sorted({domain for _, newer, domain in needs if domain and not newer}):
        yield f"--allow-domain {wanted}", [rule for rule, newer, domain in needs if domain == wanted and not newer]


def _matches(graph: Any, rules: list[Any]) -> bool:
    from rlflow.rewrite import RuleSet, State

    return len(State(graph, RuleSet([rule.core for rule in rules])).moves()) > 0


def _gain(graph: Any, rules: list[Any], loaded: Loaded, context: Context, seconds: float) -> float:
    """How many times cheaper the graph becomes by the rules, and by those that tidy up after them; 1 for not at all."""
    from rlflow.rewrite import RuleLibrary
    from rlflow.rewrite.bundles import read_bundles

    names = {rule.name for rule in rules}
    tidy = {name for one in read_bundles() if names & set(one.seeds) for name in one.tidy}
    library = RuleLibrary([*rules, *(rule for rule in loaded.library.values() if rule.name in tidy)])
    problem = Problem(
        graph,
        library.compile(),
        context.cost_model,
        Budget(seconds=seconds),
        stop=context.stop,
        growth=context.options.max_growth,
        pricing_seconds=seconds,
    )
    with contextlib.suppress(CostError, SearchStopped):
        result = _search.solve(problem, "greedy")
        used = {step.rule for step in result.trace or ()}
        return result.cost_before_ms / result.cost_after_ms if used & names and result.cost_after_ms > 0 else 1.0
    return 1.0
