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


class _Exponentials:
    """Which element is whose exponential, as far as one domain has met them."""

    def __init__(self) -> None:
        self.exp_of = {0: 1}
        self.log_of = {1: 0}
        self.one_more_than = {2: 0}  # 1 + Exp(x) -> x

    def exp(self, x: Array) -> Array:
        values, places = np.unique(x, return_inverse=True)
        found = np.array([self._exp(int(v)) for v in values], dtype=np.uint64)
        return found[places].reshape(np.shape(x))

    def log(self, u: Array) -> Array:
        values, places = np.unique(u, return_inverse=True)
        found = np.array([self._log(int(v)) for v in values], dtype=np.uint64)
        return found[places].reshape(np.shape(u))

    def _exp(self, x: int) -> int:
        if x not in self.exp_of:
            least = x * pow(2, -_DOUBLINGS, field.PRIME) % field.PRIME
            self._learn_doubles(least, self._drawn(least), 2 * _DOUBLINGS)
        return self.exp_of[x]

    def _drawn(self, x: int) -> int:
        half = min(x, field.PRIME - x)
        word = int(np.asarray(field.oracle(_EXP, np.asarray(np.uint64(half)))))
        value = 1 + word % (field.PRIME - 1)
        return value if x == half else pow(value, -1, field.PRIME)

    def _log(self, u: int) -> int:
        if u not in self.log_of:
            if u == 0:
                return self._any(0, 0)  # no logarithm: anything
            if u in self.one_more_than:
                self._learn_log_of_one_more(self.one_more_than[u])
            else:
                inverse = pow(u, -1, field.PRIME)
                word = self._any(u, inverse)
                self._learn_doubles(word if u < inverse else (field.PRIME - word) % field.PRIME, u, _DOUBLINGS)
        return self.log_of[u]

    @staticmethod
    def _any(u: int, inverse: int) -> int:
        return int(np.asarray(field.reduce(field.oracle(_LOG, np.asarray(np.uint64(min(u, inverse)))))))

    def _learn_log_of_one_more(self, x: int) -> None:
        """Log(1 + Exp(x)) and Log(1 + Exp(-x)), which is less by x."""
        least = min(x, field.PRIME - x)
        sums = [(1 + self.exp_of[y]) % field.PRIME for y in (least, (field.PRIME - least) % field.PRIME)]
        logarithm = self._any(sums[0], sums[0])
        self._learn_doubles(logarithm, sums[0], _DOUBLINGS)
        if sums[1]:
            self._learn_doubles((logarithm - least) % field.PRIME, sums[1], _DOUBLINGS)

    def _learn_doubles(self, x: int, e: int, times: int) -> None:
        for _ in range(times + 1):
            self._learn(x, e)
            x, e = 2 * x % field.PRIME, e * e % field.PRIME

    def _learn(self, x: int, e: int) -> None:
        """x is the logarithm of e, and -x of 1 / e."""
        pairs = ((x, e), ((field.PRIME - x) % field.PRIME, pow(e, -1, field.PRIME)))
        for logarithm, exponential in pairs:
            self.exp_of.setdefault(logarithm, exponential)
            self.log_of.setdefault(exponential, logarithm)
            self.one_more_than.setdefault((1 + exponential) % field.PRIME, logarithm)


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
