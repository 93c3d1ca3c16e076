"""The pointwise functions that are made of Exp, over the prime field.

Exp is an arbitrary function there, with four laws: Exp(0) = 1, Exp(-x) = 1 / Exp(x), Exp(2x) = Exp(x)², and Log undoes
it. Of Log one more is known: Log(1 + Exp(x)) = x + Log(1 + Exp(-x)). By these

    Sigmoid(x) = e / (1 + e),  Tanh(x) = (e² - 1) / (e² + 1)
    Softplus(x) = Log(1 + e),   Mish(x) = x · Tanh(Softplus(x))

with e = Exp(x) are what ONNX says they are, so that identities between them can be decided. That Exp of a sum is a
product is not known otherwise. Over ordered rationals they stay arbitrary functions, monotone where the table says so.
"""

from __future__ import annotations

import weakref

import numpy as np

from rlflow.synthesis import field
from rlflow.synthesis.domains import Array, Field

_EXP, _LOG = field.key_of("Exp", []), field.key_of("Log", [])
#: Of an element that was not met before, the exponentials of so many halves and doubles are settled with it.
_DOUBLINGS = 3
_LEAST = pow(2, -_DOUBLINGS, field.PRIME)


class _Exponentials:
    """Which element is whose exponential, as far as one domain has met them."""

    def __init__(self) -> None:
        self.exp_of = {0: 1}
        self.log_of = {1: 0}
        self.one_more_than = {2: 0}  # 1 + Exp(x) -> x
        self.learned: list[tuple[int, int]] = []  # logarithms and their exponentials, of late: Log is rarely asked

    def exp(self, x: Array) -> Array:
        asked = np.reshape(x, -1).tolist()
        unknown = [v for v in sorted(set(asked)) if v not in self.exp_of]
        least = [v * _LEAST % field.PRIME for v in unknown]
        for v, x0, (e, inverse) in zip(unknown, least, self._drawn(least), strict=True):
            if v not in self.exp_of:  # by one before it
                self._learn_doubles(x0, e, inverse, 2 * _DOUBLINGS)
        return np.array([self.exp_of[v] for v in asked], dtype=np.uint64).reshape(np.shape(x))

    def log(self, u: Array) -> Array:
        asked = np.reshape(u, -1).tolist()
        found = {v: self._log(v) for v in sorted(set(asked))}
        return np.array([found[v] for v in asked], dtype=np.uint64).reshape(np.shape(u))

    def _drawn(self, elements: list[int]) -> list[tuple[int, int]]:
        """Exponentials at random, and their inverses; of x and -x they are each other's."""
        halves = [min(x, field.PRIME - x) for x in elements]
        words = np.asarray(field.oracle(_EXP, np.array(halves, dtype=np.uint64))).tolist()
        values = [1 + word % (field.PRIME - 1) for word in words]
        pairs = zip(elements, halves, values, field.inverses(values), strict=True)
        return [(value, inverse) if x == half else (inverse, value) for x, half, value, inverse in pairs]

    def _log(self, u: int) -> int:
        self._note_logarithms()
        if u not in self.log_of:
            if u == 0:
                return self._any(0, 0)  # no logarithm: anything
            inverse = pow(u, -1, field.PRIME)
            if u in self.one_more_than:
                self._learn_log_of_one_more(self.one_more_than[u])
            else:
                word = self._any(u, inverse)
                logarithm = word if u < inverse else (field.PRIME - word) % field.PRIME
                self._learn_doubles(logarithm, u, inverse, _DOUBLINGS)
            self._note_logarithms()
        return self.log_of[u]

    @staticmethod
    def _any(u: int, inverse: int) -> int:
        return int(np.asarray(field.reduce(field.oracle(_LOG, np.asarray(np.uint64(min(u, inverse)))))))

    def _learn_log_of_one_more(self, x: int) -> None:
        """Log(1 + Exp(x)) and Log(1 + Exp(-x)), which is less by x."""
        least = min(x, field.PRIME - x)
        sums = [(1 + self.exp_of[y]) % field.PRIME for y in (least, (field.PRIME - least) % field.PRIME)]
        logarithm = self._any(sums[0], sums[0])
        self._learn_doubles(logarithm, sums[0], pow(sums[0], -1, field.PRIME), _DOUBLINGS)
        if sums[1]:
            inverse = pow(sums[1], -1, field.PRIME)
            self._learn_doubles((logarithm - least) % field.PRIME, sums[1], inverse, _DOUBLINGS)

    def _learn_doubles(self, x: int, e: int, inverse: int, times: int) -> None:
        """x is the logarithm of e, and -x of its inverse; 2x that of e², and so on."""
        learn = self.exp_of.setdefault
        for _ in range(times + 1):
            minus = (field.PRIME - x) % field.PRIME
            learn(x, e)
            learn(minus, inverse)
            self.learned += ((x, e), (minus, inverse))
            x, e, inverse = 2 * x % field.PRIME, e * e % field.PRIME, inverse * inverse % field.PRIME

    def _note_logarithms(self) -> None:
        for logarithm, exponential in self.learned:
            self.log_of.setdefault(exponential, logarithm)
            self.one_more_than.setdefault((1 + exponential) % field.PRIME, logarithm)
        self.learned.clear()


_MET: weakref.WeakKeyDictionary[Field, _Exponentials] = weakref.WeakKeyDictionary()


def exp(d: Field, x: Array) -> Array:
    return _MET.setdefault(d, _Exponentials()).exp(x)


def log(d: Field, u: Array) -> Array:
    return _MET.setdefault(d, _Exponentials()).log(u)


def sigmoid(d: Field, x: Array) -> Array:
    e = exp(d, x)
    return d.div(e, d.add(d.constant(1), e))


def _hyperbolic(d: Field, e: Array) -> Array:
    """Tanh of the logarithm of ``e``."""
    square = d.mul(e, e)
    return d.div(d.sub(square, d.constant(1)), d.add(square, d.constant(1)))


def _one_more(d: Field, x: Array) -> Array:
    return d.add(d.constant(1), exp(d, x))


def tanh(d: Field, x: Array) -> Array:
    return _hyperbolic(d, exp(d, x))


def softplus(d: Field, x: Array) -> Array:
    return log(d, _one_more(d, x))


def mish(d: Field, x: Array) -> Array:
    return d.mul(x, _hyperbolic(d, _one_more(d, x)))
