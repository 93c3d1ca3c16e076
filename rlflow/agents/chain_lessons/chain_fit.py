"""What chains that paid teach: the weights that make their steps likely among the candidates that there were."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rlflow.search.levin.chain_policy import Candidates, ChainPolicy
from rlflow.search.levin.chains import ChainStep, Paid, Rules
from rlflow.search.levin.trained import LevinConfig

_ARRAYS = ("rule", "change", "excess", "growth", "place")
_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8


@dataclass
class Decisions:
    """Steps of chains that paid, with what else could have been done."""

    steps: list[tuple[Candidates, int]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.steps)

    def learn_from(self, paid: Iterable[Paid], same: int) -> int:
        """Take the steps of the chains that one search found, of at most ``same`` with the same rules; how many chains
        that were.
        """
        counts: dict[Rules, int] = {}
        for chain in paid:
            counts[chain.rules] = counts.get(chain.rules, 0) + 1
            if counts[chain.rules] <= same:
                self.steps += [(step.seen, step.taken) for step in reversed(list[ChainStep](chain.steps()))]
        return sum(min(count, same) for count in counts.values())

    def arrays(self) -> dict[str, np.ndarray]:
        """For a checkpoint: of each step what was taken, the two rules before and the number of its candidates; then
        the candidates of all steps.
        """
        heads = [(taken, seen.last, seen.before, len(seen)) for seen, taken in self.steps]
        found: dict[str, np.ndarray] = {"heads": np.array(heads, dtype=np.int32).reshape(-1, 4)}
        for name in _ARRAYS:
            parts = [getattr(seen, name) for seen, _ in self.steps]
            found[name] = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int8)
        return found

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray]) -> Decisions:
        """The reverse of :meth:`arrays`."""
        found, begin = cls(), 0
        for taken, last, before, count in arrays["heads"].tolist():
            parts = {name: arrays[name][begin : begin + count] for name in _ARRAYS}
            found.steps.append((Candidates(last, before, **parts), taken))
            begin += count
        return found


def fitted(
    policy: ChainPolicy, steps: Sequence[tuple[Candidates, int]], config: LevinConfig
) -> tuple[ChainPolicy, float]:
    """A policy of the same shape that was learnt from ``steps``, and the mean of -log of the probabilities that it
    gives them (nats); with no steps, ``policy`` itself and 0.

    Minimises the sum of -log and ``decay`` times the squared distances from the weights by hand, by Adam (Kingma and Ba
    2015) on the mean, from there.
    """
    if not steps:
        return policy, 0.0
    places: np.ndarray = np.concatenate([policy.places(seen) for seen, _ in steps])
    used, inner = np.unique(places, return_inverse=True)
    inner = inner.reshape(places.shape)
    sizes = np.array([len(seen) for seen, _ in steps])
    begins = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    owner = np.repeat(np.arange(len(steps)), sizes)
    taken = begins + np.array([one for _, one in steps])
    flat = policy.untaught().flat
    begin, loss = flat[used], 0.0
    weights, first, second = begin.copy(), np.zeros(len(used)), np.zeros(len(used))
    for count in range(1, config.passes + 1):
        chances = _softmax(weights[inner].sum(axis=1), owner, begins)
        loss = -float(np.log(np.maximum(chances[taken], 1e-300)).mean())
        chances[taken] -= 1.0
        shares = np.repeat(chances / len(steps), places.shape[1])
        gradient = np.bincount(inner.ravel(), weights=shares, minlength=len(used))
        gradient += 2.0 * config.decay / len(steps) * (weights - begin)
        first = _BETA1 * first + (1.0 - _BETA1) * gradient
        second = _BETA2 * second + (1.0 - _BETA2) * gradient**2
        step = (first / (1.0 - _BETA1**count)) / (np.sqrt(second / (1.0 - _BETA2**count)) + _EPSILON)
        weights -= config.lr * step
    flat[used] = weights
    return ChainPolicy(policy.shape, policy.families, flat), loss


def _softmax(scores: np.ndarray, owner: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """Over the candidates of each step."""
    scores = np.exp(scores - np.maximum.reduceat(scores, begins)[owner])
    return scores / np.add.reduceat(scores, begins)[owner]
