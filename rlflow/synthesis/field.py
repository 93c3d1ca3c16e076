"""Exact arithmetic over the prime field GF(p), p = 2^61 - 1, vectorised over ``uint64`` arrays.

A Mersenne prime makes reduction a shift and an add. Products are formed from 31-bit and 30-bit halves, so that
nothing overflows 64 bits:
with ``a = a1*2^31 + a0`` and ``b = b1*2^31 + b0`` one has ``a*b = a1*b1*2^62 + (a1*b0 + a0*b1)*2^31 + a0*b0`` and
``2^61 = 1 (mod p)``.

Pointwise functions about which nothing is assumed are *keyed random functions*: equal keys and equal arguments give
equal results, everything
else is independent (a 64-bit mixer stands for a random oracle). Two expressions that agree on random field inputs
under such functions are equal
for every function, up to the Schwartz-Zippel bound ``degree / p`` per sample.
"""

from __future__ import annotations

import hashlib
from fractions import Fraction

import numpy as np
import numpy.typing as npt

PRIME = (1 << 61) - 1
Array = npt.NDArray[np.uint64]

_P = np.uint64(PRIME)
_MASK29 = np.uint64((1 << 29) - 1)
_MASK30 = np.uint64((1 << 30) - 1)
_MASK31 = np.uint64((1 << 31) - 1)
_MASK32 = np.uint64((1 << 32) - 1)
_S29, _S30, _S31, _S32, _S61 = (np.uint64(s) for s in (29, 30, 31, 32, 61))


def reduce(a: Array) -> Array:
    """Any 64-bit values to their residues below p."""
    return _below((a & _P) + (a >> _S61))


def add(a: Array, b: Array) -> Array:
    """Sum of two residue arrays, broadcast."""
    return _below(a + b)


def _below(r: Array) -> Array:
    """Values below 2 p, less p where they reach it; of a smaller one, less p would be an enormous number."""
    return np.minimum(r, np.subtract(r, _P))


def neg(a: Array) -> Array:
    """Additive inverse."""
    return np.where(a == 0, a, _P - a)


def sub(a: Array, b: Array) -> Array:
    """Difference of two residue arrays, broadcast."""
    return add(a, neg(b))


def mul(a: Array, b: Array) -> Array:
    """Product of two residue arrays, broadcast."""
    a1, a0 = a >> _S31, a & _MASK31
    b1, b0 = b >> _S31, b & _MASK31
    middle = a0 * b1 + a1 * b0
    total = (a1 * b1 << np.uint64(1)) + (middle >> _S30) + ((middle & _MASK30) << _S31) + a0 * b0
    return reduce(total)


def total(a: Array, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Array:
    """Sum over axes. Halves are summed apart, which is exact for up to 2^29 terms."""
    low = (a & _MASK32).sum(axis=axis, keepdims=keepdims, dtype=np.uint64)
    high = (a >> _S32).sum(axis=axis, keepdims=keepdims, dtype=np.uint64)
    high = reduce(np.asarray(high))
    turned = ((high & _MASK29) << _S32) | (high >> _S29)  # times 2^32: p is 2^61 - 1, so bits go round
    return add(turned, reduce(np.asarray(low)))


def power(a: Array, exponent: int) -> Array:
    """``a ** exponent`` for a non-negative exponent, by squaring."""
    result = np.ones_like(a)
    base = a
    while exponent:
        if exponent & 1:
            result = mul(result, base)
        exponent >>= 1
        if exponent:
            base = mul(base, base)
    return result


def inverse(a: Array) -> Array:
    """Multiplicative inverse; 0 goes to 0, as ``a^(p-2)`` does (the caller decides what 1/0 means)."""
    values, places = np.unique(a, return_inverse=True)
    inverses = [pow(int(v), -1, PRIME) if v else 0 for v in values]
    return np.array(inverses, dtype=np.uint64)[places].reshape(np.shape(a))


def from_fraction(value: Fraction | int) -> int:
    """The residue of a rational number whose denominator p does not divide."""
    value = Fraction(value)
    return value.numerator % PRIME * pow(value.denominator, -1, PRIME) % PRIME


def random(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Uniform residues."""
    return rng.integers(0, PRIME, size=shape, dtype=np.uint64)


def key_of(*parts: object) -> int:
    """A 64-bit key from the text of its parts; the same in every process."""
    text = "\x1f".join(str(p) for p in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def mix(a: Array) -> Array:
    """A bijective 64-bit finaliser (the constants of splitmix64)."""
    a = (a ^ (a >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    a = (a ^ (a >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return a ^ (a >> np.uint64(31))


def oracle(key: int, *arguments: Array) -> Array:
    """Keyed random function of its arguments, broadcast: 64-bit words, not reduced."""
    state: Array = mix(np.asarray(np.uint64(key)))
    for k, a in enumerate(arguments):
        state = mix(
            state ^ mix(np.asarray(a, dtype=np.uint64) + np.uint64((0x9E3779B97F4A7C15 * (k + 1)) & ((1 << 64) - 1)))
        )
    return state


def row_state(key: int, rows: Array) -> Array:
    """A hash of each row (the last axis), in order; the last axis goes."""
    state: Array = np.broadcast_to(mix(np.asarray(np.uint64(key))), rows.shape[:-1]).copy()
    for k in range(rows.shape[-1]):
        state = mix(state * np.uint64(0x2545F4914F6CDD1D) ^ mix(rows[..., k]))
    return mix(state ^ np.uint64(rows.shape[-1]))
