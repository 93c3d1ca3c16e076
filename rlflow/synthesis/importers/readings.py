"""Are foreign rules true, under what one assumes of a match? Exact evaluation of both sides at drawn shapes."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

from rlflow import _core
from rlflow.synthesis.domains import Field, Ordered
from rlflow.synthesis.field import key_of
from rlflow.synthesis.importers.building import ELEMENTWISE, Inexpressible
from rlflow.synthesis.importers.foreign import ForeignRule
from rlflow.synthesis.importers.instances import TASO, Instance, Reading, draw
from rlflow.synthesis.operators import NeedsOrder
from rlflow.synthesis.semantics import Evaluator

MATCHES = 200
_PROPOSALS = 40
_BROADCAST = 25  # proposals a match, where elementwise operators broadcast: few of them change the result's shape


@dataclass
class Tally:
    """What came of the matches of one rule under one reading. ``inapplicable``: TASO's shape rules do not admit the
    target, so that it does not apply the rule; ``wrong_value``, ``wrong_shape``: it would, and be wrong.
    ``smallest``: the smallest wrong one."""

    reading: Reading
    matched: int = 0
    inapplicable: int = 0
    right: int = 0
    wrong_value: int = 0
    wrong_shape: int = 0
    same_graph: int = 0
    smallest: Instance | None = None
    reason: str = ""
    shapes: set[str] = field(default_factory=set)

    @property
    def false(self) -> bool:
        """Whether a counterexample was found."""
        return self.smallest is not None

    @property
    def status(self) -> str:
        """ "true", "false", "identity" (both sides are one graph of ours, always) or "never applies"."""
        if self.false:
            return "false"
        if not self.right:
            return "never applies"
        return "identity" if self.same_graph == self.right else "true"

    @property
    def counterexample(self) -> str:
        """The shapes of the smallest counterexample, as text."""
        if self.smallest is None:
            return ""
        return ", ".join(f"{name} {list(shape)}" for name, shape in self.smallest.shapes.items())


def judge(rule: ForeignRule, reading: Reading = TASO, *, matches: int = MATCHES, seed: int = 0) -> Tally:
    """Draws matches of the rule's source and compares the two sides exactly. Raises Inexpressible."""
    if rule.unreadable:
        raise Inexpressible(rule.unreadable)
    tally, statement = Tally(reading), str(rule)  # equal statements are judged alike, whatever file they are in
    broadcasts = not reading.equal_shapes and any(t.op in ELEMENTWISE for t in rule.operators())
    for attempt in range(_PROPOSALS * matches):
        rng = random.Random(key_of(seed, statement, reading.name, attempt))
        item = draw(rule, rng, reading)
        if item is None:
            continue
        tally.matched += 1
        enough = tally.right >= matches
        _count(tally, item, None if enough else key_of(seed, attempt))
        if enough and (not broadcasts or tally.false or attempt > _BROADCAST * matches):
            break
        if (tally.false and tally.matched >= 2 * matches) or tally.matched > 15 * matches:
            break
    return tally


def _count(tally: Tally, item: Instance, seed: int | None) -> None:
    """Adds one match; without a seed only its shapes are compared."""
    if item.target is None:
        tally.inapplicable += 1
        return
    if item.source.digest == item.target.digest:
        tally.same_graph += 1
        tally.right += 1
        return
    shapes = [[g.shape(v) for v in g.outputs()] for g in (item.source, item.target)]
    if shapes[0] != shapes[1]:
        tally.wrong_shape += 1
        _keep(tally, item, f"the result is {shapes[1][0]} instead of {shapes[0][0]}")
    elif seed is None or equal(item.source, item.target, seed):
        tally.right += 1
    else:
        tally.wrong_value += 1
        _keep(tally, item, "the result has other elements")


def _keep(tally: Tally, item: Instance, reason: str) -> None:
    if tally.smallest is None or item.size < tally.smallest.size:
        tally.smallest, tally.reason = item, reason


def equal(source: _core.Graph, target: _core.Graph, seed: int) -> bool:
    """Whether two graphs with the same inputs give equal outputs, over the field, or exact rationals where an order
    is needed."""
    for domain in (Field(), Ordered()):
        evaluator = Evaluator(domain, seed)
        try:
            feeds = evaluator.inputs(source, {})
            before, after = evaluator.run(source, feeds), evaluator.run(target, feeds)
        except NeedsOrder:
            continue
        return all(a.shape == b.shape and bool(np.all(a == b)) for a, b in zip(before, after, strict=True))
    return False
