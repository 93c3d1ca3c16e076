"""Is the price right? A model and its rewritten variants, priced by regions, priced by single operators, and timed.

``rlflow cost calibrate`` prints what is computed here. The variants come from random walks (as a search sees them) and
from the trace of a search (as it chooses them). Every variant is timed end to end beside the original, interleaved,
until the interval of their ratio is tight (:mod:`rlflow.price.endtoend`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from rlflow import price as _price
from rlflow import search as _search
from rlflow.deployment import Deployment, Inputs, open_worker, source_of
from rlflow.equivalence.sizes import require_open
from rlflow.errors import CostError, GraphError, UsageError
from rlflow.price import CostModel
from rlflow.price.agreement import Agreement, agreement
from rlflow.price.whole import student
from rlflow.runtime import DEFAULT_RUNTIME
from rlflow.specs import name_of

__all__ = ["Fidelity", "Timed", "Variant", "calibrate", "variants"]

#: A walk may lead to graphs that cost at most this many times the original, by the roofline.
SLACK = 1.6
LONGEST_WALK = 100
#: So many walks are made for each variant that is kept. Most walks end at graphs that no clock can tell from the
#: original, and the order of those says nothing about a price.
_WALKS = 4
#: The roofline by which variants are spread: with the fusion of ONNX Runtime, and pointwise work for nothing. It folds
#: a normalisation into the convolution before it, say, so that doing so is no variant. It is not the price that is
#: judged.
AS_EXECUTED = {"fusion": "onnxruntime", "vector_gflops": 1e6}
#: Bytes of weights that a variant may have, in parts of the original's.
WEIGHTS = 1.5
_SEARCH = "400x"
#: The ancestors' price: each operator timed alone, and the times added up.
OPERATORS = "sum of operators"


class Variant(NamedTuple):
    """A graph that computes the same, and where it comes from: ``original``, ``walk`` or ``search``."""

    origin: str
    graph: Any
    steps: int


@dataclass(frozen=True)
class Timed:
    """One variant: milliseconds end to end, half the 95 % interval of their logarithm, the price by each model, and of
    the first of these models the number of regions (0: not counted), the price without what is learnt from whole models
    (``None``: it learns nothing), and whether it took the model for one that streams its weights.
    """

    digest: str
    origin: str
    steps: int
    measured_ms: float
    half_width: float
    blocks: int
    predicted_ms: Mapping[str, float]
    regions: int = 0
    alone_ms: float | None = None
    streams: bool = False

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Fidelity:
    """What came of one model. ``skipped``: sentences about variants that could not be priced or timed."""

    model: str
    rows: Sequence[Timed]
    skipped: Sequence[str] = ()
    interrupted: bool = False

    def agreements(self) -> dict[str, Agreement]:
        """By cost model."""
        names = list(self.rows[0].predicted_ms) if self.rows else []
        measured = [row.measured_ms for row in self.rows]
        widths = [row.half_width / student(row.blocks) for row in self.rows]
        return {name: agreement([row.predicted_ms[name] for row in self.rows], measured, widths) for name in names}

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "model": self.model,
            "rows": [row.to_dict() for row in self.rows],
            "agreement": {name: found._asdict() for name, found in self.agreements().items()},
            "skipped": list(self.skipped),
            "interrupted": self.interrupted,
        }


def variants(graph: Any, rules: Any, count: int, seed: int = 0) -> list[Variant]:
    """At most ``count`` different graphs that compute what ``graph`` does: of those along the trace of a search and of
    the ends of random walks the ones that lie, from the cheapest to the dearest, at even distances by a roofline of
    what a runtime does. Fewer where the rules do not reach as many. Same seed, same graphs.
    """
    from rlflow.rewrite import State, compiled

    ruleset = compiled(rules)
    root = State(graph, ruleset, _price.make("analytic").pricer)
    found: dict[str, Variant] = {}
    for state, steps in _along_a_search(graph, rules, root, seed):
        found.setdefault(state.graph.digest, Variant("search", state.graph, steps))
    for digest, (state, steps) in _ends_of_walks(root, _WALKS * count, seed).items():
        found.setdefault(digest, Variant("walk", state.graph, steps))
    found.pop(graph.digest, None)
    others = list(found.values())
    roofline = _price.make("analytic", **AS_EXECUTED).pricer
    costs = [math.log(max(roofline.summary(one.graph)["ms"], 1e-9)) for one in others]
    return [others[k] for k in evenly_spread(costs, count)]


def evenly_spread(values: Sequence[float], count: int) -> list[int]:
    """Positions of at most ``count`` of the values, in their order, at distances as even as there are values for."""
    if len(values) <= count:
        return list(range(len(values)))
    waiting = set(range(len(values)))
    for wanted in np.linspace(min(values), max(values), count):
        waiting.remove(min(waiting, key=lambda k: (abs(values[k] - wanted), k)))
    return [k for k in range(len(values)) if k not in waiting]


def _ends_of_walks(root: Any, count: int, seed: int) -> dict[str, tuple[Any, int]]:
    """``count`` different graphs, or as many as the rules reach, by digest: the state and the steps to it."""
    rng = _search.generator(seed)
    ends: dict[str, tuple[Any, int]] = {}
    for _ in range(5 * count):
        if len(ends) >= count:
            break
        state, steps = _walk(root, rng)
        ends.setdefault(state.graph.digest, (state, steps))
    return ends


def _along_a_search(graph: Any, rules: Any, root: Any, seed: int) -> Iterator[tuple[Any, int]]:
    """The states of the best trace that a search finds without a clock."""
    problem = _search.Problem(graph, rules, _price.make("analytic"), _SEARCH, seed=seed)
    trace = _search.solve(problem, "backtracking").trace or ()
    for number, state in enumerate(_search.replay_states(root, trace), 1):
        yield state, number


def _walk(root: Any, rng: np.random.Generator) -> tuple[Any, int]:
    """A random walk: first a rule, then one of its matches, so that rules with many matches do not take it all."""
    state, steps = root, 0
    for _ in range(int(rng.integers(1, LONGEST_WALK + 1))):
        raw = state.moves()
        cheap = float(state.cost) + np.asarray(raw.delta_ms) <= SLACK * float(root.cost)
        light = np.asarray(raw.weight_bytes) <= WEIGHTS * max(root.weight_bytes, 1 << 16)
        choices = np.flatnonzero(cheap & light)
        if len(choices) == 0:
            break
        kinds = np.asarray(raw.rule)[choices]
        kind = rng.choice(np.unique(kinds))
        state = state.open(int(rng.choice(choices[kinds == kind])))
        steps += 1
    return state, steps


def calibrate(
    model: Any,
    *,
    count: int = 30,
    cost: str = DEFAULT_RUNTIME,
    threads: int = 1,
    dims: Mapping[str, int] | None = None,
    seed: int = 0,
    runtime: str = DEFAULT_RUNTIME,
    provider: str | None = None,
    measure_cmd: Any = None,
    tolerance: float = 0.01,
    seconds: float = 6.0,
    max_noise: float = 0.05,
    rules: Any = None,
    operators: bool = True,
    known: Sequence[Timed] = (),
    on_row: Callable[[Timed, int, int], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Fidelity:
    """Price and time ``model`` and ``count`` variants of it.

    ``cost``: the cost model to judge; beside it, where ``operators``, the sum of single-operator times. ``tolerance``
    and ``seconds``: how well, and how long at most, each variant is timed; ``max_noise``: see the end-to-end cost.
    ``known``: rows of an earlier run of the same model and seed, which are not timed again. ``on_row`` is told each
    row, its number and how many there will be; ``stop`` is asked before each.

    Raises :class:`CostError` where the model cannot be timed or the machine is too noisy, :class:`UsageError` for a
    count below 1.
    """
    from rlflow.frontends import load_model, save_model
    from rlflow.rulesets import load_library

    if count < 1:
        raise UsageError(f"The number of variants is {count}; expected at least 1.")
    place = Deployment.priced_by(cost, threads, runtime, provider, measure_cmd)
    imported = load_model(model)
    if imported.passthrough is not None:
        raise CostError(f"The model has no variants: it is carried through as it came: {imported.passthrough}")
    require_open(dims or {}, [imported])
    with ExitStack() as stack:
        worker = stack.enter_context(open_worker(threads))
        inputs = Inputs.of(worker, source_of(imported, model), imported.graph, dict(dims or {}), None, seed)
        how = {"tolerance": tolerance, "seconds": seconds, "max_noise": max_noise, "seed": seed, "threads": threads}
        how["share"] = 0.0  # variants are ranked among themselves
        own = place.cost_options("end-to-end", "eager")
        clock = _price.make("end-to-end", dims=dims, **how, **own)
        clock.attach(lambda graph: save_model(imported, graph).SerializeToString(), lambda: inputs.feeds[0])
        judged = {cost: _price.make(cost, threads=threads, dims=dims, **place.cost_options(cost, "eager"))}
        if operators:
            alone = cost if _price.COSTS.declared(name_of(cost))["on_gpu"] else DEFAULT_RUNTIME
            judged[OPERATORS] = _price.make(alone, threads=threads, dims=dims, fusion="none")
        for one in (*judged.values(), clock):
            stack.callback(one.close)
            reason = one.available()
            if reason is not None:
                raise CostError(f"The cost model {one.name!r} cannot be judged here: {reason}")
        todo = [Variant("original", imported.graph, 0), *variants(imported.graph, load_library(rules), count, seed)]
        name = imported.source_path or "the model"
        return _run(str(name), todo, clock, judged, {row.digest: row for row in known}, on_row, stop or (lambda: False))


def _run(
    name: str,
    todo: Sequence[Variant],
    clock: CostModel,
    judged: Mapping[str, CostModel],
    known: Mapping[str, Timed],
    on_row: Callable[[Timed, int, int], None] | None,
    stop: Callable[[], bool],
) -> Fidelity:
    rows: list[Timed] = []
    skipped: list[str] = []
    # All prices in one go, as a search takes them: the speed of memory is another one minutes later.
    graphs = [variant.graph for variant in todo if variant.graph.digest not in known]
    if graphs and not stop():
        clock.fill([todo[0].graph])  # whether the machine is quiet enough to tell
    for model in judged.values():
        with suppress(CostError, GraphError):  # the variant that it is about is left out below
            model.fill(graphs, stop=stop)
    for number, variant in enumerate(todo, 1):
        row = known.get(variant.graph.digest)
        if row is None:
            if stop():
                return Fidelity(name, rows, skipped, interrupted=True)
            clock.fill([todo[0].graph])  # the baseline, once
            try:
                row = _timed(variant, clock, judged)
            except (CostError, GraphError) as error:
                skipped.append(f"The variant {variant.graph.digest[:12]} was left out: {error}")
                continue
        rows.append(row)
        if on_row is not None:
            on_row(row, number, len(todo))
    return Fidelity(name, rows, skipped)


def _timed(variant: Variant, clock: CostModel, judged: Mapping[str, CostModel]) -> Timed:
    graph = variant.graph
    predicted = {name: model.cost(graph).total_ms for name, model in judged.items()}
    clock.fill([graph])
    found = clock.graph_time(graph.digest)
    if found is None or found.ms is None:
        raise CostError((found and found.refusal) or "it could not be timed")
    name, first = next(iter(judged.items()))
    regions, inside = _kernels(first, graph), first.in_model
    alone = None if inside is None else inside.alone(predicted[name], regions)
    what = (graph.digest, variant.origin, variant.steps, found.ms, found.half_width, found.blocks, predicted)
    return Timed(*what, regions, alone, first.streams_weights)


def _kernels(model: CostModel, graph: Any) -> int:
    """Regions that run something."""
    return sum(not region.view for region in model.pricer.regions(graph))


def model_key(content: bytes) -> str:
    """What a file of results names a model by, so that it is resumed for no other one."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()
