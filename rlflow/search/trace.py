"""Traces: a list of rewrites that replays on any copy of the graph it starts from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import index
from typing import Any

from rlflow.errors import UsageError, brief
from rlflow.search.result import TraceStep


def read_trace(steps: Iterable[TraceStep | Mapping[str, Any] | Sequence[Any]]) -> tuple[TraceStep, ...]:
    """A trace from its JSON form (``[{"rule": …, "match": […]}, …]``); raises :class:`UsageError` where it is
    malformed.
    """
    trace = []
    for number, step in enumerate(steps, 1):
        try:
            rule, match = (step["rule"], step["match"]) if isinstance(step, Mapping) else step
            trace.append(TraceStep(str(rule), tuple(index(ordinal) for ordinal in match)))
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(
                f"Step {number} of the trace is {brief(repr(step))}; expected a rule's name and ordinals of a match."
            ) from error
    return tuple(trace)


def replay_states(state: Any, trace: Iterable[TraceStep]) -> Iterator[Any]:
    """The states after each step, from a starting ``State``; raises :class:`UsageError` where a step does not apply."""
    for number, (rule, match) in enumerate(trace, 1):
        after = state.step(rule, list(match))
        if after is None:
            raise UsageError(
                f"Step {number} of the trace, rule {rule!r} at {list(match)}, does not apply to the graph that the "
                f"steps before it lead to ({state.graph.num_nodes} nodes, digest {state.graph.digest}); "
                "it was recorded on another graph, or with other rules."
            )
        state = after
        yield state


def replay(graph: Any, rules: Any, trace: Iterable[TraceStep | Mapping[str, Any]]) -> Any:
    """The graph that a trace leads to from ``graph``; ``rules`` is a rule library or a compiled rule set."""
    from rlflow.rewrite import State, compiled

    last = graph
    for state in replay_states(State(graph, compiled(rules)), read_trace(trace)):
        last = state.graph
    return last
