"""Errors judged where they are: slice by slice of an output, against the noise that the original has in that slice.

A channel that is a ten-thousandth of its neighbours may be wrong altogether without being seen beside them. So outputs
are cut along every axis (runs of one shape are an axis too), and in each slice the largest error may be

    max(b · eps · v,  r · eps · u,  K · n)

where ``v`` is the largest magnitude of the reference in the slice, ``u`` that of the usual slice (the median), and
``n`` the largest difference, in that slice, between the original and its own variants: the runtime's optimisations on,
inputs moved by one unit in the last place, weights moved by one. The last stands for roundings inside: to re-associate
a sum, or to fold a scale into weights, is to move the products by a rounding each. A slice of few elements may show
little noise by luck, so there the median of all slices counts too, the more so the fewer the elements.

Some noise is rare: beside a mask of -10000 scores are whole thousandths, and one that stands between two of them jumps
from one to the other, here or there. Where variants show jumps, in slices that the others leave alone, every slice may
have one as large as the largest, ``J`` times that for chance.

Three more questions are asked, which no largest error answers:

* **Gain**: is the whole, or a slice of enough elements, too large by a factor? Roundings have no preference; a
  thousandth of a per cent on all elements is no rounding.
* **Zeros**: elements that are zero in the reference and in all its variants stay zero, but for a few that stand at a
  threshold.
* **Exact values**: integers, booleans and strings must be equal wherever the original's variants agree; so must NaN and
  infinities, save at scales where an overflow is a matter of order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

Arrays = Sequence[np.ndarray]

K = 8.0
#: A variant jumps in a slice where it is so many times as far off as variants usually are there.
_JUMP = 16.0
#: A jump may be so many times as large as the largest that was seen, as a part of the slice's magnitude.
J = 2.0
#: Units in the last place that a slice may differ by, and a whole be too large by, where there is no noise at all.
_UNITS = {"float16": 4.0, "bfloat16": 2.0, "float32": 16.0, "float64": 2.0**23}
_GAIN_UNITS = {"float16": 2.0, "bfloat16": 1.0, "float32": 16.0, "float64": 2.0**23}
_EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
#: Units of the usual slice's magnitude that a smaller slice may differ by: a bias that moves across a Relu leaves the
#: rounding of a sum where there was zero. At scales far from 1, where functions are at their limits, 32 times as many.
_REST_UNITS = 4.0
#: Elements of a slice from which on its own noise speaks for itself.
_MANY = 32
#: Least elements for a gain, and the fraction of zeros that may change.
_FOR_GAIN, _ZEROS_CHANGED = 32, 0.01


class Excess(NamedTuple):
    """What was found, as the end of a sentence that begins with the output's name; figures of the worst slice."""

    sentence: str
    max_abs: float
    relative: float
    allowed: float


def excess(
    reference: Arrays,
    other: Arrays,
    variants: Sequence[Arrays],
    dtype: str,
    *,
    scaled: bool = False,
    times: float = 1.0,
    strictly: bool = False,
) -> Excess | None:
    """The first thing in which ``other`` is further from ``reference`` than its noise explains, or ``None``.

    All arrays have one shape and type per run; runs of other shapes than the first's are judged apart by the caller.
    ``dtype``: the coarsest float type involved. ``scaled``: values are large or small on purpose. ``times``: so many
    times the usual differences are allowed. ``strictly``: as if there were no noise, without ``variants``, and not one
    zero may change: what passes so passes beside any noise.
    """
    ours, theirs = np.stack(list(reference)), np.stack(list(other))
    if np.array_equal(ours, theirs):
        return None
    moved = [np.stack(list(variant)) for variant in variants]
    if ours.dtype.kind not in "fc":
        return _unequal(ours, theirs, moved)
    return _misplaced(ours, theirs, moved, scaled) or _floats(ours, theirs, moved, dtype, scaled, times, strictly)


def _unequal(ours: np.ndarray, theirs: np.ndarray, moved: Arrays) -> Excess | None:
    steady = np.ones(ours.shape, bool)
    for variant in moved:
        steady &= np.asarray(variant == ours)
    wrong = steady & np.asarray(theirs != ours)
    if not wrong.any():
        return None
    share = float(wrong.sum() / ours.size)
    return Excess(f"differs in {share:.2%} of its elements; they must be equal", np.inf, share, 0.0)


def _misplaced(ours: np.ndarray, theirs: np.ndarray, moved: Arrays, scaled: bool) -> Excess | None:
    """NaN and infinities in other places than in the reference, where its variants agree with it."""
    same = _same_special(ours, theirs)
    if same.all():
        return None
    steady = np.ones(ours.shape, bool)
    for variant in moved:
        steady &= _same_special(ours, variant)
    if scaled and not np.isfinite(ours).all():
        steady &= False  # an overflow is a matter of order, and so is what comes of it
    if not (steady & ~same).any():
        return None
    return Excess("has NaN or infinite values in other places than the original's", np.inf, np.inf, 0.0)


def _same_special(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    finite = np.isfinite(one) & np.isfinite(two)
    return np.asarray(finite | (one == two) | (np.isnan(one) & np.isnan(two)))


def _floats(
    ours: np.ndarray, theirs: np.ndarray, moved: Arrays, dtype: str, scaled: bool, times: float, strictly: bool
) -> Excess | None:
    finite = np.isfinite(ours) & np.isfinite(theirs)
    for variant in moved:
        finite &= np.isfinite(variant)
    wide = np.complex128 if ours.dtype.kind == "c" else np.float64
    base = np.where(finite, ours, 0).astype(wide)
    error = np.where(finite, theirs, 0).astype(wide) - base
    if not error.any():
        return None
    noises = [times * (np.where(finite, variant, 0).astype(wide) - base) for variant in moved]
    return (
        _peaks(np.abs(base), np.abs(error), [np.abs(noise) for noise in noises], dtype, scaled)
        or _zeros(base, error, noises, finite, dtype, strictly)
        or _gains(base, error, noises, dtype)
    )


def _peaks(size: np.ndarray, error: np.ndarray, noises: Arrays, dtype: str, scaled: bool) -> Excess | None:
    noise = np.max(noises, axis=0) if noises else np.zeros_like(size)
    for axis, others in _cuts(size.shape):
        magnitude, worst, own = (part.max(axis=others) for part in (size, error, noise))
        samples = size.size / magnitude.size * max(1, len(noises))
        alive = magnitude > 0
        shared = float(np.median(own[alive])) if alive.any() else 0.0
        own = np.maximum(own, shared * min(1.0, _MANY / samples))
        usual = float(np.max(size) if scaled else np.median(magnitude[alive])) if alive.any() else 0.0
        allowed = np.maximum(_UNITS[dtype] * _EPS[dtype] * magnitude, K * own)
        allowed = np.maximum(allowed, (32.0 if scaled else 1.0) * _REST_UNITS * _EPS[dtype] * usual)
        if noises:
            apart = np.stack([one.max(axis=others) for one in noises])
            allowed = np.maximum(allowed, J * _largest_jump(apart, magnitude, _EPS[dtype]) * magnitude)
        beyond = worst - allowed
        if (beyond > 0).any():
            at = int(np.argmax(worst / np.maximum(allowed, np.finfo(float).tiny)))
            return _peak(axis, at, float(worst[at]), float(magnitude[at]), float(allowed[at]))
    return None


def _largest_jump(noises: np.ndarray, magnitude: np.ndarray, eps: float) -> float:
    """Of the noises [v, s] of variants in slices of that ``magnitude`` [s]: the largest jump, as a part of its slice's;
    0 where there is none.
    """
    usual = np.maximum(np.median(noises, axis=0), eps * magnitude)
    jumps = np.where((noises > _JUMP * usual) & (magnitude > 0), noises, 0.0)
    return float((jumps / np.where(magnitude > 0, magnitude, 1.0)).max())


def _peak(axis: int, at: int, worst: float, magnitude: float, allowed: float) -> Excess:
    where = f"in run {at}" if axis == 0 else f"in slice {at} of axis {axis - 1}"
    sentence = (
        f"differs by {worst:.3g} {where}, where the largest magnitude is {magnitude:.3g} and {allowed:.3g} is allowed"
    )
    scale = magnitude or 1.0
    return Excess(sentence, worst, worst / scale, allowed / scale)


def _zeros(
    base: np.ndarray, error: np.ndarray, noises: Arrays, finite: np.ndarray, dtype: str, strictly: bool
) -> Excess | None:
    steady = (base == 0) & finite
    for noise in noises:
        steady &= noise == 0
    count, least = int(steady.sum()), _REST_UNITS * _EPS[dtype] * float(np.abs(base).max())
    if least == 0.0 or not count:
        return None
    changed = int((np.abs(error[steady]) > least).sum())
    if not changed or (not strictly and (changed < 4 or changed <= _ZEROS_CHANGED * count)):
        return None
    worst = float(np.abs(error[steady]).max())
    return Excess(
        f"is not zero (but up to {worst:.3g}) in {changed} of {count} places where the original is", worst, np.inf, 0.0
    )


def _gains(base: np.ndarray, error: np.ndarray, noises: Arrays, dtype: str) -> Excess | None:
    """How much of the error is the reference again, beside how much of the noises is."""
    square, known = np.abs(base) ** 2, base != 0
    shares = [difference * base.conj() for difference in (error, *noises)]
    for axis, others in [(-1, tuple(range(base.ndim))), *_cuts(base.shape)]:
        power = square.sum(axis=others)
        enough = (known.sum(axis=others) >= _FOR_GAIN) & (power > 0)
        if not enough.any():
            continue
        gains = [np.where(enough, np.abs(one.sum(axis=others)) / np.where(enough, power, 1.0), 0.0) for one in shares]
        own = np.max(gains[1:], axis=0) if noises else np.zeros_like(gains[0])
        allowed = np.maximum(_GAIN_UNITS[dtype] * _EPS[dtype], K * np.maximum(own, float(np.median(own[enough]))))
        if noises and axis >= 0:
            allowed = np.maximum(allowed, J * _largest_jump(np.stack(gains[1:]), np.ones(enough.shape), _EPS[dtype]))
        if (gains[0] > allowed).any():
            found, room = np.ravel(gains[0]), np.ravel(allowed)
            at = int(np.argmax(found - room))
            where = "as a whole" if axis < 0 else f"in slice {at} of axis {axis - 1}" if axis else f"in run {at}"
            sentence = f"is off by the factor 1 ± {found[at]:.2g} {where}, where roundings explain {room[at]:.2g}"
            return Excess(sentence, float(np.abs(error).max()), float(found[at]), float(room[at]))
    return None


def _cuts(shape: tuple[int, ...]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(axis, all others) of every axis that has several slices; the first where none has."""
    several = [axis for axis, extent in enumerate(shape) if extent > 1] or [0]
    for axis in several:
        yield axis, tuple(other for other in range(len(shape)) if other != axis)
