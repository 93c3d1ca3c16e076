"""A trace of a part, replayed on the whole graph, or on a twin of the part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rlflow.search.memory import resumable
from rlflow.search.node import Link, SearchNode
from rlflow.search.result import TraceStep
from rlflow.search.subgraphs import Subgraph
from rlflow.search.view import View

#: A node of a part: its place among the members, or (number of the step, place among the nodes that the step made).
Name = int | tuple[int, int]


@resumable
class Made(NamedTuple):
    """A node that a step made: its operator, and what it reads as (node, output); ``None`` for an input of the part or
    an input that is left out.
    """

    op: str
    reads: tuple[tuple[Name, int] | None, ...]


@resumable
class Step(NamedTuple):
    """A rewrite of a part: rule number, the nodes it matches, and those it makes."""

    rule: int
    touched: tuple[Name, ...]
    made: tuple[Made, ...]


def steps_of(part: Subgraph, state: Any, trace: Iterable[TraceStep]) -> list[Step]:
    """The steps of a trace that was found on ``part``; ``state``: the core's, at the part's graph."""
    names: dict[int, Name] = {}
    for member, place in enumerate(part.places):
        names.setdefault(place, member)
    steps: list[Step] = []
    for rule, key in trace:
        i = state.find(rule, list(key))
        if i < 0:  # a stop was asked for, and the core enumerates no more
            return steps
        raw = state.moves()
        touched = raw.touched[raw.touched_begin[i] : raw.touched_begin[i + 1]].tolist()
        after = state.open(i)
        fresh = after.graph.nodes_from(state.graph.id_limit)
        names.update({node: (len(steps), k) for k, node in enumerate(fresh)})
        made = tuple(Made(after.graph.op(node), tuple(_reads(after.graph, node, names))) for node in fresh)
        steps.append(Step(int(raw.rule[i]), tuple(names[node] for node in touched), made))
        state = after
    return steps


def _reads(graph: Any, node: int, names: dict[int, Name]) -> Iterator[tuple[Name, int] | None]:
    for value in graph.node_inputs(node):
        producer = graph.producer(value) if value >= 0 else -1
        yield (names[producer], graph.output_index(value)) if producer in names else None


@dataclass
class Stitcher:
    """Applies the steps of parts to the whole graph that ``view`` starts from."""

    view: View

    def apply(self, node: SearchNode, members: Sequence[int], steps: Sequence[Step]) -> SearchNode:
        """The node after those steps that apply; a step that does not, and what needs it, is passed over.

        Every step counts as an opened graph; only the last graph is priced and can become the best. Raises
        :class:`rlflow.search.SearchStopped`, after pricing what was done until then.
        """
        numbers: dict[Name, int] = dict(enumerate(members))
        state, link, done = node.state, node.link, 0
        try:
            for number, step in enumerate(steps):
                if any(name not in numbers for name in step.touched):
                    continue
                self.view.check()
                found = state.take(step.rule, [numbers[name] for name in step.touched])
                if found is None:
                    continue
                self.view.meter.expansions += 1
                self.view.report()
                before, (state, key) = state.graph.id_limit, found
                link = Link(TraceStep(self.view.rule_names[step.rule], tuple(map(int, key))), link)
                done += 1
                _recognise(state.graph, before, number, step, numbers)
        finally:
            result = node if done == 0 else self._visited(node, state, link, done)
        return result

    def _visited(self, node: SearchNode, state: Any, link: Link | None, steps: int) -> SearchNode:
        frontier = self.view.frontier
        child = SearchNode.of(state, frontier.cost(state), link, node.depth + steps)
        if frontier.prices.is_settled(state.graph) and frontier.admits(state.weight_bytes):
            self.view._visit(child)
            return child
        return node


def _recognise(graph: Any, before: int, number: int, step: Step, numbers: dict[Name, int]) -> None:
    """Find the nodes that a step made in the whole graph, where some of them may have been there already."""
    fresh = graph.nodes_from(before)
    for k, made in enumerate(step.made):
        found = next(
            (node for node in _candidates(graph, made, numbers, fresh) if _is(graph, node, made, numbers)), None
        )
        if found is not None:
            numbers[(number, k)] = found
            fresh = [node for node in fresh if node != found]


def _candidates(graph: Any, made: Made, numbers: dict[Name, int], fresh: Sequence[int]) -> Iterator[int]:
    yield from fresh
    source = next((numbers[read[0]] for read in made.reads if read is not None and read[0] in numbers), None)
    if source is not None and graph.alive(source):
        for value in graph.node_outputs(source):
            yield from (user for user, _ in graph.users(value))


def _is(graph: Any, node: int, made: Made, numbers: dict[Name, int]) -> bool:
    """Whether ``node`` has the operator and reads the known values, in any order where the operator is commutative."""
    if graph.op(node) != made.op:
        return False
    reads = [(graph.producer(value), graph.output_index(value)) for value in graph.node_inputs(node) if value >= 0]
    wanted = [(numbers[read[0]], read[1]) for read in made.reads if read is not None and read[0] in numbers]
    return all(read in reads for read in wanted)
