"""Part of stage 4: is the result's rounding error, against float64, within the tolerance?

It is asked where a rule of large growth was used (Winograd's, for example): such a rule computes the same function, and
rounds otherwise than a sum in another order does. The model as it came is evaluated in double precision on the first
input; both models' outputs are compared with that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlflow.errors import GraphError
from rlflow.rewrite.tolerance import LARGE, Tolerance

if TYPE_CHECKING:
    from rlflow.pipeline.context import Context
    from rlflow.pipeline.loading import Loaded
    from rlflow.pipeline.racing import Entrant

__all__ = ["Accuracy", "accuracy", "bill", "rounds_otherwise", "tolerance_of", "worst"]

#: Float operations that double precision takes here in a second, about; a larger model is not evaluated in it.
WIDE_FLOPS = 10e9
#: Half a unit in the last place of float32: no output that was rounded once is nearer to the truth.
_ONE_ROUNDING = 2.0**-24


@dataclass(frozen=True)
class Accuracy:
    """Largest differences from float64, relative to each output's largest magnitude: of the model as it came, and of
    the result. ``times``: the worst output's quotient of the two.
    """

    original: float
    result: float
    times: float

    def __str__(self) -> str:
        return (
            f"Against float64 the outputs err by {self.result:.2g} of their largest value, {self.times:.1f} times as "
            f"much as the original's ({self.original:.2g})."
        )


def tolerance_of(loaded: Loaded, limit: float) -> Tolerance:
    """The tolerance for a model and its rules."""
    return Tolerance(limit, loaded.growths)


def bill(loaded: Loaded, winner: Entrant | None, context: Context) -> dict[str, Any] | None:
    """What the winner's steps spent; ``None`` where there are none."""
    trace = None if winner is None else winner.visited.trace
    if not trace:
        return None
    budget = tolerance_of(loaded, context.options.tolerated).on(loaded.graph)
    return budget.bill(step.rule for step in trace)


def rounds_otherwise(loaded: Loaded, winner: Entrant) -> list[str]:
    """The rules of large growth among the winner's steps."""
    names = dict.fromkeys(step.rule for step in winner.visited.trace or ())
    return [name for name in names if loaded.growths.get(name, 1.0) >= LARGE]


def accuracy(
    loaded: Loaded, winner: Entrant, run: Any, calm: Any, seconds: float | None, context: Context
) -> Accuracy | str:
    """How near ``winner`` is to float64; or why that is not known. ``calm``: what the original computes."""
    from rlflow.equivalence import SECONDS, noise_floor

    flops = sum(row.flops for row in _formula(context).cost(loaded.graph).per_region)
    if flops > WIDE_FLOPS * (seconds or SECONDS):
        return "The outputs were not compared with float64, because that takes too long for this model."
    feeds = context.inputs(loaded).feeds[:1]
    try:
        truth = _in_float64(loaded, feeds[0])
    except GraphError as error:
        return f"The outputs could not be compared with float64: {error}"
    source = winner.export.source
    theirs = [run(source, feeds, level)[0] for level in ("disable", "all")]
    errors = [
        noise_floor([truth], [[{name: one[name] for name in truth}] for one in runs])
        for runs in ((calm.plain[0], calm.deployed[0]), theirs)
    ]
    return worst(*errors)


def worst(original: Mapping[str, float], result: Mapping[str, float]) -> Accuracy:
    """The output whose error grew most."""
    grown = {name: result[name] / max(original[name], _ONE_ROUNDING) for name in original}
    name = max(grown, key=lambda one: grown[one])
    return Accuracy(original[name], result[name], grown[name])


def _formula(context: Context) -> Any:
    from rlflow import price

    return price.make("analytic", dims=context.cost_model.dims)


def _in_float64(loaded: Loaded, feeds: Mapping[str, Any]) -> dict[str, Any]:
    from rlflow.frontends.wide import evaluate_wide

    imported = loaded.imported
    names = [output.name for output in imported.origin.model.graph.output]
    inputs = {imported.graph.input_name(node) for node in imported.graph.inputs()}
    known = {name: one for name, one in feeds.items() if name in inputs}
    values = evaluate_wide(imported.graph, known, imported.constants)
    return {name: value for name, value in zip(names, values, strict=True) if value.dtype.kind == "f"}
