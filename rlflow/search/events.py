"""Names for rewrites that do not depend on the order in which others were applied, nor on which graph they are in.

A node's number is that of the moment it was made: two rewrites far apart, applied in either order, give the same graph
with other numbers. An *event* names a rewrite by its rule and by the nodes that it matched, where an original node is
its number and a made node is "the k-th that event e made". Equal sets of events are equal graphs, whatever the order
(a configuration of an event structure: Winskel 1987), so that parts of two traces can be put together, and a trace
can be carried over to a repeated block.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from rlflow.search.macros import Macro
from rlflow.search.node import SearchNode
from rlflow.search.problem import Problem
from rlflow.search.selection import Signature, position, signatures_of
from rlflow.search.view import View

_NAME_BYTES = 12

#: An original node's number, or the name of a node that an event made.
NodeName = int | bytes


class Event(NamedTuple):
    """A rewrite: rule number, and the names of the nodes it matched, in the order of the match."""

    rule: int
    nodes: tuple[NodeName, ...]

    @property
    def name(self) -> bytes:
        """Twelve bytes that stand for the event and, through its nodes, for what it depends on."""
        return hashlib.blake2b(repr((self.rule, self.nodes)).encode(), digest_size=_NAME_BYTES).digest()

    def made(self, k: int) -> bytes:
        """Name of the ``k``-th node (by number) that the event made."""
        return self.name + k.to_bytes(2, "little")


@dataclass(frozen=True)
class History:
    """The events that led to a node, in the order they were applied, and the names of the nodes they made."""

    events: tuple[Event, ...] = ()
    names: Mapping[int, NodeName] = field(default_factory=dict)

    def name(self, identifier: int) -> NodeName:
        return self.names.get(identifier, identifier)

    def event(self, signature: Signature) -> Event:
        """The event that a candidate of the node would be."""
        rule, touched = signature
        return Event(int(rule), tuple(map(self.name, np.frombuffer(touched, dtype=np.uint32).tolist())))

    def after(self, event: Event, parent: SearchNode, child: SearchNode) -> History:
        """The history of ``child``, which ``event`` made from ``parent``."""
        made = sorted(child.nodes - parent.nodes)
        names = {**self.names, **{identifier: event.made(k) for k, identifier in enumerate(made)}}
        return History((*self.events, event), names)

    def signature(self, event: Event, node: SearchNode) -> Signature | None:
        """How the core knows ``event`` at ``node``; ``None`` where a node it matches is not there."""
        numbers = {name: identifier for identifier, name in self.names.items()}
        found = []
        for name in event.nodes:
            identifier = name if isinstance(name, int) else numbers.get(name, -1)
            if identifier not in node.nodes:
                return None
            found.append(identifier)
        return event.rule, np.array(found, dtype=np.uint32).tobytes()


class Chronicle(View):
    """A view of a problem that remembers the history of every node that is opened through it."""

    __slots__ = ("_histories", "_macros")

    def __init__(
        self, problem: Problem, start: SearchNode | None = None, turn: Callable[[], None] | None = None
    ) -> None:
        self._histories: WeakKeyDictionary[SearchNode, History] = WeakKeyDictionary()
        self._macros: dict[Event, Macro] = {}  # those whose seeds are original nodes, which keep their numbers
        super().__init__(problem, start, turn)

    def history(self, node: SearchNode) -> History:
        """The events between this view's root and ``node``."""
        return self._histories.get(node, _BEGINNING)

    def histories(self) -> list[tuple[SearchNode, History]]:
        """All nodes with a history that somebody still holds."""
        return list(self._histories.items())

    def remember(self, node: SearchNode, history: History) -> None:
        """Say what led to a node that was not opened through this view."""
        self._histories[node] = history

    def _open(self, node: SearchNode, i: int) -> SearchNode:
        child = super()._open(node, i)
        history = self.history(node)
        event = history.event(signatures_of(node.raw, np.array([i]))[0])
        macro = node.macro(i)
        if macro is not None and not any(n in history.names for seed in macro.seeds for n in seed.nodes):
            self._macros[event] = macro
        self._histories[child] = history.after(event, node, child)
        return child

    def apply(self, node: SearchNode, events: Iterable[Event]) -> SearchNode:
        """Apply those events that can be applied, in their order; the others are passed over."""
        known = set(self.history(node).events)
        for event in events:
            if event not in known:
                i = self.find(node, event)
                node = node if i is None else self.open(node, i)
        return node

    def find(self, node: SearchNode, event: Event) -> int | None:
        """The core's number of the move that ``event`` is at ``node``; ``None`` where it cannot be applied."""
        self.check()
        wanted = self.history(node).signature(event, node)
        if wanted is None:
            return None
        node.number(raw := node.state.moves())
        macro = self._macros.get(event)
        if macro is None or self.frontier.macros is None:
            return position(raw, wanted)
        again = self.frontier.macros.again(macro, node)
        if again is None:
            return None
        node.number(raw, again.macros)
        return len(node.raw) - 1


_BEGINNING = History()


def dependents(events: Sequence[Event], of: Event) -> set[Event]:
    """``of`` and the events that need it, directly or not; ``events`` are in an order in which they were applied."""
    found = {of}
    for event in events:
        made_by = {name[:_NAME_BYTES] for name in event.nodes if isinstance(name, bytes)}
        if any(other.name in made_by for other in found):
            found.add(event)
    return found
