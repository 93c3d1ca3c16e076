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

import functools
import hashlib
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

PRIME = (1 << 61) - 1
Array = npt.NDArray[np.uint64]


def _word(value: int) -> Array:
    """A 64-bit word as an array of rank 0: numpy takes half as long for it as for a scalar."""
    return np.asarray(np.uint64(value & ((1 << 64) - 1)))


_P = _word(PRIME)
_MASK30, _MASK31, _MASK32 = (_word((1 << bits) - 1) for bits in (30, 31, 32))
_S1, _S27, _S30, _S31, _S32, _S61 = (_word(s) for s in (1, 27, 30, 31, 32, 61))
_END = np.uint64(PRIME)  # which numpy need not convert for every draw
_FEW = 8  # residues whose sum does not overflow 64 bits


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
    return _below(np.subtract(_P, a))


def sub(a: Array, b: Array) -> Array:
    """Difference of two residue arrays, broadcast."""
    return _below(a + np.subtract(_P, b))


def mul(a: Array, b: Array) -> Array:
    """Product of two residue arrays, broadcast."""
    a1, a0 = a >> _S31, a & _MASK31
    b1, b0 = b >> _S31, b & _MASK31
    middle = a0 * b1
    middle += a1 * b0
    total = a1 * b1
    total <<= _S1
    total += middle >> _S30
    total += ((middle & _MASK30) << _S31) + a0 * b0
    return reduce(total)


def total(a: Array, axis: tuple[int, ...] | None = None) -> Array:
    """Sum over axes. Halves of more than a few are summed apart, which is exact for up to 2^29 terms."""
    if math.prod(a.shape if axis is None else [a.shape[k] for k in axis]) <= _FEW:
        return reduce(np.asarray(np.add.reduce(a, axis=axis)))
    low = np.asarray(np.add.reduce(a & _MASK32, axis=axis))
    high = reduce(np.asarray(np.add.reduce(a >> _S32, axis=axis)))
    return add(_turned(high, _S32), reduce(low))


def matmul(a: Array, b: Array) -> Array:
    """Numpy's matmul of residue arrays of rank two or more."""
    terms, products = a.shape[-1], a.size * b.shape[-1]
    if products < _MANY or terms > _LIMB_TERMS:
        return total(mul(a[..., :, :, None], b[..., None, :, :]), (max(a.ndim, b.ndim) - 1,))
    blocks = np.matmul(_limbs(a)[..., :, None, :, :], _limbs(b)[..., None, :, :, :])
    parts = [sum(blocks[..., i, weight - i, :, :] for i in range(3) if 0 <= weight - i < 3) for weight in range(5)]
    weights = _LIMBS.reshape(-1, *[1] * (blocks.ndim - 2))
    return reduce(np.add.reduce(_turned(np.array(parts).astype(np.uint64), weights), axis=0))


_LIMB = 21  # bits: doubles hold sums of three times _LIMB_TERMS products of two
_LIMBS = np.array([_LIMB * k % 61 for k in range(5)], np.uint64)
_LIMB_TERMS = 512
_MANY = 1000  # products from which on limbs are faster


def _limbs(a: Array) -> npt.NDArray[np.float64]:
    """Matrices of three pieces of few bits each, the lowest first, as doubles."""
    return ((a[..., None, :, :] >> _LIMBS[:3, None, None]) & _word((1 << _LIMB) - 1)).astype(np.float64)


def _turned(a: Array, bits: Array) -> Array:
    """Residues (or p itself) times a power of two: 2^61 is 1, so bits go round."""
    return ((a << bits) & _P) | (a >> (_S61 - bits))


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
    return np.array(inverses(np.reshape(a, -1).tolist()), dtype=np.uint64).reshape(np.shape(a))


def inverses(values: Sequence[int]) -> list[int]:
    """The inverses of residues, 0 of 0. One is computed, that of their product; each is a part of it (Montgomery)."""
    before, product = [], 1  # of those before each
    for value in values:
        before.append(product)
        product = product * (value or 1) % PRIME
    inverted, out = pow(product, -1, PRIME), []
    for value, others in zip(reversed(values), reversed(before), strict=True):
        out.append(inverted * others % PRIME if value else 0)
        inverted = inverted * (value or 1) % PRIME
    return out[::-1]


@functools.lru_cache(maxsize=4096)
def from_fraction(value: Fraction | int) -> int:
    """The residue of a rational number whose denominator p does not divide."""
    value = Fraction(value)
    return value.numerator % PRIME * pow(value.denominator, -1, PRIME) % PRIME


def random(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Uniform residues."""
    return rng.integers(0, _END, size=shape, dtype=np.uint64)


def key_of(*parts: object) -> int:
    """A 64-bit key from the text of its parts; the same in every process."""
    text = "\x1f".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


_FACTORS = _word(0xBF58476D1CE4E5B9), _word(0x94D049BB133111EB)
_OF_ROWS = _word(0x2545F4914F6CDD1D)


def mix(a: Array) -> Array:
    """A bijective 64-bit finaliser (the constants of splitmix64)."""
    a = (a ^ (a >> _S30)) * _FACTORS[0]
    a = (a ^ (a >> _S27)) * _FACTORS[1]
    return a ^ (a >> _S31)


@functools.lru_cache(maxsize=4096)
def _start(key: int) -> Array:
    """The state before the first argument."""
    with np.errstate(over="ignore"):
        return np.asarray(mix(_word(key)))


@functools.cache
def _place(k: int) -> Array:
    """What tells the argument number k from the others."""
    return _word(0x9E3779B97F4A7C15 * (k + 1))


def oracle(key: int, *arguments: Array) -> Array:
    """Keyed random function of its arguments, broadcast: 64-bit words, not reduced."""
    state = _start(key)
    for k, a in enumerate(arguments):
        state = mix(state ^ mix(np.asarray(a, dtype=np.uint64) + _place(k)))
    return state


def row_state(key: int, rows: Array) -> Array:
    """A hash of each row (the last axis), in order; the last axis goes."""
    state: Array = np.broadcast_to(_start(key), rows.shape[:-1]).copy()
    mixed = mix(rows)
    for k in range(rows.shape[-1]):
        state = mix(state * _OF_ROWS ^ mixed[..., k])
    return mix(state ^ _word(rows.shape[-1]))
