"""The policy of chains: how likely a candidate is the next step of a chain that will pay.

A softmax over the candidates that may continue a chain, whose scores are sums of weights, one of each group: by the
rule, by the rule before it and the one before that, by the families of both, by what the candidate changes, and by
where it is. So a score costs a few look-ups, and what was learnt can be read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

#: Bounds of the classes of a change of cost, as parts of the best cost.
_BOUNDS = np.array([-3e-2, -1e-2, -3e-3, -1e-3, -3e-4, -1e-4, -1e-6, 1e-6, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2])
_CHANGES = len(_BOUNDS) + 1
#: Nodes more or fewer that are told apart.
_MOST_GROWTH = 4
_GROWTHS = 2 * _MOST_GROWTH + 1
#: Weights by hand: of a chain that is cheaper than its base, of each class that it is dearer, of new and near.
_CHEAPER, _DEARER, _FRESH = 2.0, 0.5, 2.0
#: Open in the base or not, times touching what the last step made or not.
_PLACES = 4


class Candidates(NamedTuple):
    """What the policy reads of the candidates of one step. ``last``, ``before``: the rules of the last step and of the
    one before it, -1 where there is none. Arrays [n]: ``rule``; ``change``, ``excess``: classes of the cost less that
    of the graph, and less that of the chain's base; ``growth``: class of nodes added; ``place``: class of where it is.
    """

    last: int
    before: int
    rule: np.ndarray
    change: np.ndarray
    excess: np.ndarray
    growth: np.ndarray
    place: np.ndarray

    @classmethod
    def of(
        cls,
        rules: Sequence[int],
        rule: np.ndarray,
        change: np.ndarray,
        excess: np.ndarray,
        growth: np.ndarray,
        known: np.ndarray,
        fresh: np.ndarray,
    ) -> Candidates:
        """From a chain's ``rules`` and its candidates: ``change`` and ``excess`` as parts of the best cost, ``growth``
        in nodes, ``known``: was it open in the base, ``fresh``: does it touch what the last step made.
        """
        return cls(
            rules[-1] if rules else -1,
            rules[-2] if len(rules) > 1 else -1,
            np.asarray(rule, dtype=np.int32),
            np.searchsorted(_BOUNDS, change).astype(np.int8),
            np.searchsorted(_BOUNDS, excess).astype(np.int8),
            (np.clip(growth, -_MOST_GROWTH, _MOST_GROWTH) + _MOST_GROWTH).astype(np.int8),
            (2 * known.astype(np.int8) + fresh.astype(np.int8)).astype(np.int8),
        )

    def __len__(self) -> int:
        return len(self.rule)


@dataclass(frozen=True)
class ChainShape:
    """How many rules and families the weights are for; where each group of weights lies in one long vector."""

    rules: int
    families: int

    @property
    def groups(self) -> dict[str, tuple[int, ...]]:
        """The shape of each group's array. The last row of what goes by an earlier rule is for none."""
        rules, families = self.rules, self.families
        return {
            "rule": (rules,),
            "after": (rules + 1, rules),
            "after_two": (rules + 1, rules),
            "family": (families,),
            "family_after": (families + 1, families),
            "change": (2, _CHANGES),
            "excess": (2, _CHANGES),
            "growth": (2, _GROWTHS),
            "place": (2, _PLACES),
            "family_place": (families, _PLACES),
        }

    @property
    def size(self) -> int:
        """Weights in all."""
        return sum(int(np.prod(shape)) for shape in self.groups.values())

    def split(self, flat: np.ndarray) -> dict[str, np.ndarray]:
        """The arrays of a long vector, by group; views of it."""
        found, begin = {}, 0
        for name, shape in self.groups.items():
            end = begin + int(np.prod(shape))
            found[name] = flat[begin:end].reshape(shape)
            begin = end
        return found

    def joined(self, weights: Mapping[str, np.ndarray]) -> np.ndarray:
        """The reverse of :meth:`split`; raises ValueError where an array has another shape, KeyError for none."""
        for name, shape in self.groups.items():
            if weights[name].shape != shape:
                raise ValueError(f"{name} has shape {weights[name].shape}, expected {shape}")
        return np.concatenate([np.asarray(weights[name], dtype=np.float64).ravel() for name in self.groups])


def by_hand(shape: ChainShape) -> np.ndarray:
    """The weights that a training begins with, and stays near where it learns nothing else: what makes the graph
    cheaper than the base is likelier, what makes it dearer less so, class by class; in a chain, what its last step made
    possible, and touches what that made, is likelier than what was open all along and only lies near.
    """
    groups = shape.split(np.zeros(shape.size))
    same = int(np.searchsorted(_BOUNDS, 0.0))
    classes = np.arange(_CHANGES)
    groups["excess"][:] = np.where(classes < same, _CHEAPER, -_DEARER * (classes - same))
    groups["place"][1] = [0.0, _FRESH, -_FRESH, 0.0]
    return shape.joined(groups)


class ChainPolicy:
    """Weights for the rules of one library. ``families``: the number of each rule's family."""

    def __init__(self, shape: ChainShape, families: np.ndarray, flat: np.ndarray) -> None:
        self.shape, self.families, self.flat = shape, families, flat
        begins = np.cumsum([0, *(int(np.prod(one)) for one in shape.groups.values())])
        self._begin = dict(zip(shape.groups, begins.tolist(), strict=False))

    def places(self, seen: Candidates) -> np.ndarray:
        """Which weights each candidate's score is the sum of: [n, groups] positions in the long vector."""
        rules, families = self.shape.rules, self.shape.families
        rule, begun, begin = seen.rule, int(seen.last >= 0), self._begin
        family = self.families[rule]
        last_family = int(self.families[seen.last]) if begun else families
        columns = (
            begin["rule"] + rule,
            begin["after"] + (seen.last if begun else rules) * rules + rule,
            begin["after_two"] + (seen.before if seen.before >= 0 else rules) * rules + rule,
            begin["family"] + family,
            begin["family_after"] + last_family * families + family,
            begin["change"] + begun * _CHANGES + seen.change.astype(np.int64),
            begin["excess"] + begun * _CHANGES + seen.excess.astype(np.int64),
            begin["growth"] + begun * _GROWTHS + seen.growth.astype(np.int64),
            begin["place"] + begun * _PLACES + seen.place.astype(np.int64),
            begin["family_place"] + family * _PLACES + seen.place.astype(np.int64),
        )
        return np.stack(columns, axis=1)

    def log_probabilities(self, seen: Candidates, even: float) -> np.ndarray:
        """[n] natural logarithms; ``even``: part of the probability that all candidates share alike."""
        return _logarithms(self.flat[self.places(seen)].sum(axis=1), even)

    def of_rules(self, last: int, before: int, even: float) -> np.ndarray:
        """[rules] probabilities of the rule of the next step after those two (-1: none), where nothing else is known of
        its candidates; ``even`` as above. They are taken for new, and away from the last step.
        """
        own, families = self.shape.split(self.flat), self.families
        last_family = families[last] if last >= 0 else self.shape.families
        scores = own["rule"] + own["after"][last] + own["after_two"][before]  # the last row is for none
        scores += own["family"][families] + own["family_after"][last_family, families]
        scores += own["family_place"][families, 0]
        return np.exp(_logarithms(scores, even))

    def untaught(self) -> ChainPolicy:
        """The weights by hand, for the same rules."""
        return ChainPolicy(self.shape, self.families, by_hand(self.shape))

    def bound(self, known: Sequence[str], names: Sequence[str]) -> ChainPolicy:
        """The same for the rules ``names``, where its own are called ``known``. A rule that it does not know has no
        weights but those of its change and place.
        """
        if list(known) == list(names):
            return self
        number = {name: i for i, name in enumerate(known)}
        theirs = np.array([number.get(name, -1) for name in names], dtype=np.int64)
        rules, families = len(names), self.shape.families
        # a family more, the last, for rules that are not known
        own, shape = self.shape.split(self.flat), ChainShape(rules, families + 1)
        made = {name: np.zeros(size) for name, size in shape.groups.items()}
        rows = np.append(theirs, self.shape.rules)
        have, have_rows = np.flatnonzero(theirs >= 0), np.flatnonzero(rows >= 0)
        made["rule"][have] = own["rule"][theirs[have]]
        for name in ("after", "after_two"):
            made[name][np.ix_(have_rows, have)] = own[name][np.ix_(rows[have_rows], theirs[have])]
        made["family"][:families] = own["family"]
        made["family_after"][:families, :families] = own["family_after"][:families]
        made["family_after"][families + 1, :families] = own["family_after"][families]
        for name in ("change", "excess", "growth", "place"):
            made[name] = own[name]
        made["family_place"][:families] = own["family_place"]
        of = np.where(theirs >= 0, self.families[theirs], families)
        return ChainPolicy(shape, of, shape.joined(made))


class ChainMixture:
    """A policy, and beside it the weights by hand. A chain's probability is the mean of both, the policy's counting
    ``taught``: what it thinks little of is found in little more time than by the weights by hand alone.
    """

    def __init__(self, policy: ChainPolicy, taught: float) -> None:
        self._policy = policy
        self._both = np.stack((policy.flat, policy.untaught().flat), axis=1)
        self._shares = np.log([taught, 1.0 - taught])

    def log_probabilities(self, seen: Candidates, even: float) -> np.ndarray:
        """[n, 2] natural logarithms of a step's probability, by each."""
        return _logarithms(self._both[self._policy.places(seen)].sum(axis=1), even)

    def of_chains(self, each: np.ndarray) -> np.ndarray:
        """[n] logarithms of the probabilities of chains; ``each`` [n, 2]: the sums of their steps', by each."""
        return np.asarray(np.logaddexp.reduce(each + self._shares, axis=1))


def _logarithms(scores: np.ndarray, even: float) -> np.ndarray:
    chances = np.exp(scores - scores.max(axis=0))
    return np.asarray(np.log((1.0 - even) * chances / chances.sum(axis=0) + even / len(scores)))
