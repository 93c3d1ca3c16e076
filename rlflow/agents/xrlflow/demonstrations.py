"""Demonstrations: what a patient search found on the models of a training, for a policy to begin with.

Rewrites that pay only together are rare among thousands of others, and exploration that a prior or an early success
has narrowed does not meet them. A search of thousands of expansions does, on a model of a layer or two. The policy
first imitates what such a search found, then improves on it by its own play, and brings it to models that are too
large to be searched like that. In further rounds the policy's own walks compete with what it was shown (expert
iteration: Anthony, Tian and Barber 2017).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlflow import search
from rlflow.agents.torch_state import weights_of
from rlflow.agents.xrlflow.config import TrainConfig
from rlflow.agents.xrlflow.walker import Walker
from rlflow.agents.xrlflow.ways import KEEP, drawn_ways
from rlflow.env.reward import Improvement
from rlflow.env.spec import OpenProblem, ProblemSpec
from rlflow.env.walks import STOP, Episode, Place, Walks
from rlflow.nn.native_policy import NativePolicy
from rlflow.nn.observation import Observation
from rlflow.nn.policy import Policy
from rlflow.nn.token_vocabulary import TokenVocabulary
from rlflow.search import Result, TraceStep, generator
from rlflow.search.limits import SearchStopped
from rlflow.search.problem import ROUNDING

_KEEP = 4
#: Of the most that a run of steps brings a step, the part that is as good.
_SOON = 0.5
#: How often a step of the other orders is any that is open.
_STRAY = 0.5


@dataclass
class Demonstration:
    """What was shown of one model (number ``spec``).

    ``observations`` [t] with embedding rows for rules, the last one where it stops. ``good`` [t]: at each of them the
    actions that belong to the way and pay soonest; others of the way may have been taken.
    ``rewards`` [t]: as an episode earns them. ``cost``: of the best graph on the way, in ms.
    """

    spec: int
    observations: list[Observation] = field(default_factory=list)
    good: list[list[int]] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    cost: float = np.inf

    def __len__(self) -> int:
        return len(self.good)

    def returns(self, gamma: float) -> np.ndarray:
        """[t], discounted."""
        total, out = 0.0, []
        for reward in reversed(self.rewards):
            total = reward + gamma * total
            out.append(total)
        return np.array(out[::-1])


class Expert:
    """Who shows how one model is rewritten: the best way that any search has found so far."""

    def __init__(self, spec: ProblemSpec, number: int, config: TrainConfig, vocabulary: TokenVocabulary) -> None:
        self.loaded, self.number, self.config, self.vocabulary = spec.load(), number, config, vocabulary
        self.title, self.expansions, self.cost = spec.title, 0, np.inf
        self.nodes = self.loaded.graph.num_working_nodes
        self._shown: list[Demonstration] = []

    def consult(self) -> None:
        """Search as the configuration's teachers do, unless the graph is too large to be taught."""
        if 0 < self.config.teach_nodes < self.nodes:
            return
        for teacher in self.config.teachers:
            self._heard(search.solve(self.loaded.problem(self.config.teacher_budget), teacher))

    def practise(self, policy: Policy, rng: np.random.Generator) -> None:
        """Search by walks that the policy draws."""
        problem = self.loaded.problem(self.config.own_budget)
        native = NativePolicy(policy.config, policy.vocabulary, weights_of(policy))
        try:
            reason = drawn_ways(Walker.of(problem, (native, self.config), 1.0, KEEP), rng, descent=False)
        except SearchStopped as stop:
            reason = stop.reason
        self._heard(problem.result(reason, "the policy's own"))

    def _heard(self, result: Result) -> None:
        self.expansions += result.counts.expansions
        if result.trace is None or result.cost_after_ms >= self.cost * (1 - ROUNDING):
            return
        self.cost = result.cost_after_ms
        trace = shortened(self.loaded, result.trace)[: self.config.horizon]
        self._shown = self._orders(_Way.of(Walks(self.loaded.problem(), _KEEP), trace))

    def _orders(self, way: _Way) -> list[Demonstration]:
        rng, others = generator(self.number), self.config.orders if len(way.steps) > 1 else 0
        made = [self._show(way, order) for order in (None, *[rng] * others)]
        good = [one for one in made if one.cost <= way.cost * (1 + ROUNDING)]
        return good or [self._show(way, None, as_found=True)]

    def shown(self) -> list[Demonstration]:
        """The best way without the steps that bring nothing: what pays soonest first, and in ``config.orders`` other
        orders that lead to the same cost; at least one demonstration once a search was heard.
        """
        return self._shown

    def _show(self, way: _Way, rng: np.random.Generator | None, as_found: bool = False) -> Demonstration:
        return _shown(way, self.number, self.config, self.vocabulary, rng, as_found)


def shortened(loaded: OpenProblem, trace: Sequence[TraceStep]) -> list[TraceStep]:
    """The trace without the steps that can be left out at no loss, the last ones first."""
    kept = list(trace)
    walks = Walks(loaded.problem(), _KEEP)
    aim = _end(walks, kept)
    for at in reversed(range(len(kept))):
        less = kept[:at] + kept[at + 1 :]
        cost = _end(walks, less)
        if cost is not None and aim is not None and cost <= aim * (1 + ROUNDING):
            kept = less
    return kept


def _end(walks: Walks, trace: Sequence[TraceStep]) -> float | None:
    """Cost of the graph that a trace leads to; ``None`` where it does not apply."""
    state = walks.root.node.state
    for step in trace:
        i = state.find(step.rule, list(step.match))
        if i < 0:
            return None
        state = state.open(i)
    return float(walks.problem.prices.cost(state))


@dataclass(frozen=True)
class _Made:
    """A node: its id, what it is apart from its inputs, and these, each the producer's id and the output's number."""

    node: int
    kind: tuple[str, ...]
    inputs: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, graph: Any, node: int) -> _Made:
        values = [*graph.node_outputs(node), *graph.node_inputs(node)]
        types = [graph.type_text(value) for value in values]
        kind = (graph.op(node), repr(graph.attrs(node)), str(graph.const_digest(node)), *types)
        inputs = [(graph.producer(value), graph.output_index(value)) for value in graph.node_inputs(node)]
        return cls(node, kind, tuple(inputs))


@dataclass(frozen=True)
class _Step:
    """A rewrite of a way: its rule, the nodes that it touched, as the rule names them, those that it made, and the
    milliseconds it brought; ``needs``: numbers of the steps that have to come before it, itself among them.
    """

    rule: int
    touched: tuple[int, ...]
    made: tuple[_Made, ...]
    gain: float
    needs: frozenset[int]


@dataclass(frozen=True)
class _Way:
    """What leads from a start to a graph of ``cost``."""

    walks: Walks
    steps: tuple[_Step, ...]
    cost: float

    @classmethod
    def of(cls, walks: Walks, trace: Sequence[TraceStep]) -> _Way:
        place = walks.root
        steps: list[_Step] = []
        maker: dict[int, int] = {}
        sharers: dict[int, list[int]] = {}
        for number, step in enumerate(trace):
            i = place.node.state.find(step.rule, list(step.match))
            k = int(np.flatnonzero(place.table.index == i)[0])
            after = walks.follow(place, k)
            rule, touched = _signature(place, k)
            first = {maker[node] for node in touched if node in maker}.union(*(sharers.get(one, ()) for one in touched))
            before = (steps[one].needs for one in sorted(first))
            made, gain = made_between(place, after), place.node.cost - after.node.cost
            told = tuple(_Made.of(after.node.graph, node) for node in made)
            steps.append(_Step(rule, touched, told, gain, frozenset({number}).union(*before)))
            maker.update(dict.fromkeys(made, number))
            for node in _shared(told, place.node.graph, touched):
                sharers.setdefault(node, []).append(number)
            place = after
        return cls(walks, tuple(steps), place.node.cost)

    def soonest(self, left: Sequence[int], open_steps: Sequence[int]) -> list[int]:
        """Which of the open steps pay soonest: those with which a run of steps begins that brings at least
        ``_SOON`` as much a step as the best of them.
        """
        rates = dict.fromkeys(open_steps, -np.inf)
        for number in left:
            run = self.steps[number].needs.intersection(left)
            rate = sum(self.steps[one].gain for one in run) / len(run)
            for one in run & rates.keys():
                rates[one] = max(rates[one], rate)
        most = max(rates.values(), default=0.0)
        return [one for one, rate in rates.items() if rate >= min(_SOON * most, most)]


def _signature(place: Place, k: int) -> tuple[int, tuple[int, ...]]:
    """What candidate ``k`` is in other graphs too, where its nodes are there: rule and nodes, in the rule's order."""
    return int(place.table.rule[k]), tuple(place.table.touched(k).tolist())


def _shared(made: Sequence[_Made], graph: Any, touched: Sequence[int]) -> set[int]:
    """Nodes that were there before, that what a step made reads, and nothing that it touched did: a later step that
    replaces one of them does so for both, and has to remain the later one.
    """
    known = {node for one in touched for node, _ in _Made.of(graph, one).inputs}
    read = {node for one in made for node, _ in one.inputs}
    return read - known - {one.node for one in made} - set(touched)


def _paired(step: _Step, before: Place, after: Place, ids: Mapping[int, int]) -> dict[int, int]:
    """The nodes that a step made on its way, and what they are now that it was taken elsewhere: the node of that kind
    with these inputs, new or there before; else the next new one of that kind. ``ids``: as :func:`_open_steps` has it.
    """
    graph = after.node.graph
    there = {(one.kind, one.inputs): one.node for one in (_Made.of(graph, node) for node in sorted(after.node.nodes))}
    found: dict[int, int] = {}
    for one in step.made:
        inputs = tuple((found.get(node, ids.get(node, -1)), output) for node, output in one.inputs)
        if (node := there.get((one.kind, inputs))) is not None:
            found[one.node] = node
    fresh = [_Made.of(graph, node) for node in made_between(before, after) if node not in found.values()]
    for one in step.made:
        alike = [other for other in fresh if other.kind == one.kind]
        if one.node not in found and alike:
            found[one.node] = alike[0].node
            fresh.remove(alike[0])
    return found


def made_between(before: Place, after: Place) -> tuple[int, ...]:
    """Ids of the nodes that a rewrite made, ascending."""
    return tuple(sorted(after.node.nodes - before.node.nodes))


def _shown(
    way: _Way,
    number: int,
    config: TrainConfig,
    vocabulary: TokenVocabulary,
    rng: np.random.Generator | None,
    as_found: bool = False,
) -> Demonstration:
    """The way in an order in which each step is open when it is taken: what pays soonest first; with ``rng``, now and
    then any other. What is good is always what pays soonest. ``as_found``: in the order in which it was found, instead.
    """
    rows = vocabulary.rule_rows(way.walks.problem.rule_names)
    episode = Episode(way.walks, Improvement(), config.horizon, config.policy.needs_children)
    out = Demonstration(number)
    ids: dict[int, int] = {identifier: identifier for identifier in episode.place.node.nodes}
    left = list(range(len(way.steps)))
    while not episode.ended:
        actions = _open_steps(episode.place, way, left, ids)
        soon = list(actions)[:1] if as_found else way.soonest(left, list(actions))
        out.observations.append(vocabulary.translate(episode.observe(), rows))
        out.good.append([actions[at] for at in soon] or [STOP])
        some = list(actions) if rng is not None and rng.random() < _STRAY else soon
        at = some[0 if rng is None else int(rng.integers(len(some)))] if some else -1
        before = episode.place
        out.rewards.append(episode.step(actions.get(at, STOP)))
        if at >= 0:
            left.remove(at)
            ids.update(_paired(way.steps[at], before, episode.place, ids))
    out.cost = episode.best_ms
    return out


def _open_steps(place: Place, way: _Way, left: Sequence[int], ids: Mapping[int, int]) -> dict[int, int]:
    """Of the steps that are left, those that can be taken here, with their actions. ``ids``: node by its id on the way
    as it was found.
    """
    at: dict[tuple[int, tuple[int, ...]], int] = {}
    of_set: dict[tuple[int, frozenset[int]], int] = {}
    for k in range(len(place.table)):
        rule, nodes = _signature(place, k)
        at.setdefault((rule, nodes), 1 + k)
        of_set.setdefault((rule, frozenset(nodes)), 1 + k)
    found, waiting = {}, frozenset(left)
    for number in left:
        step = way.steps[number]
        if step.needs.isdisjoint(waiting - {number}) and all(one in ids for one in step.touched):
            nodes = tuple(ids[one] for one in step.touched)
            action = at.get((step.rule, nodes), of_set.get((step.rule, frozenset(nodes))))
            if action is not None:
                found[number] = action
    return found
