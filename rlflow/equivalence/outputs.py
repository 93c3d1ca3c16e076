"""Do two sets of outputs agree? Pure numpy; the runtime and the choice of inputs are elsewhere.

**What is compared.** Integers, booleans and strings must be equal. Floats must have NaN and infinities in the same
places; elsewhere the error is the largest absolute difference *divided by the largest magnitude of the reference
tensor* (over all inputs tried). Element by element relative errors are useless on networks: values that cancel to
almost nothing carry an absolute error that belongs to their neighbours.

**Tolerance.** Reordering a sum of n terms changes it by about sqrt(n) to n roundings of the unit ``eps``, and a
network then amplifies that by a condition number that nobody knows beforehand. So it is measured, on the *original*
model alone: its outputs with the runtime's optimisations off are compared with those with all of them on (the same
function, rounded elsewhere), and with those for inputs moved by one unit in the last place. The largest of these,
relative as above, is the noise floor ``f`` of an output. The tolerance is

    max(b · eps,  min(K · f, cap),  min(2 · f, 0.1))

* ``b · eps`` is a base for models in which the runtime happens to change nothing (then f is 0): 128 units for float32
  (1.5e-5; twenty exported networks differ by 2e-7 to 1e-6 between the runtime's own levels), 8 for float16 and 4 for
  bfloat16, whose products are accumulated in float32 so that mostly the last rounding shows, and a fixed 1e-9 for
  float64 (whose inner parts may be float32 and are then covered by f).
* ``K`` = 8: a rewrite re-associates more than one fusion of the runtime does, in more places at once; independent
  roundings add up as the square root of their number, so that 8 leaves room for 64 times as many of them.
* ``cap`` (5e-3 for float32, 3e-2 for float16, 1e-1 for bfloat16) keeps a noisy model from excusing a wrong rewrite;
  real mistakes (a dropped bias, a wrong axis, a stale epsilon that matters) are seldom below a per cent of the
  largest value.
* ``2 · f`` because nothing can be asked of a rewrite that the runtime's own settings do not keep; never more than a
  tenth, since a larger "noise" is a fault of the runtime or chaos. A note says where noise makes the check weak.

As deployed, with the runtime's optimisations on, the difference is at most (original on - off) + (off - off) + (off -
on of the optimised): three terms of the size that one of them may have, of which two are the runtime's own; base and
K are doubled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

K = 8.0
CEILING = 0.1
_BASE_UNITS = {"float16": 8.0, "bfloat16": 4.0, "float32": 128.0}
_EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
_CAP = {"float16": 3e-2, "bfloat16": 1e-1, "float32": 5e-3, "float64": 5e-3}
_FLOAT64_BASE = 1e-9
#: Fraction of differing elements that integer outputs may have where the original disagrees with itself.
_INTEGER_CAP = 0.05

Outputs = Mapping[str, Any]


@dataclass(frozen=True)
class OutputCheck:
    """One output compared: largest absolute and relative difference, the tolerance for the latter, and the verdict.

    ``max_rel`` of integers, booleans and strings is the fraction of elements that differ. ``vacuous`` says why
    agreement proves nothing (the output is constant, not finite, empty or random), else ``None``. ``detail`` is the
    sentence of a failure, or ``None``. ``kind`` and ``run`` say which input shows the largest difference: the run of
    that number among the inputs of that kind; ``None`` where no two values differ.
    """

    name: str
    max_abs: float
    max_rel: float
    tolerance: float
    passed: bool
    vacuous: str | None = None
    detail: str | None = None
    kind: str = "usual"
    run: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; differences that are not finite become ``None``."""
        return {
            key: None if isinstance(value, float) and not np.isfinite(value) else value
            for key, value in asdict(self).items()
        }


def base_tolerance(dtype: str) -> float:
    """Relative difference that is always allowed for tensors of ``dtype`` (a float type's name)."""
    return _FLOAT64_BASE if dtype == "float64" else _BASE_UNITS[dtype] * _EPS[dtype]


def tolerance(dtype: str, noise: float, factor: float = 1.0) -> float:
    """The formula at the top of this file; ``factor`` is 2 as deployed."""
    return max(factor * base_tolerance(dtype), min(factor * K * noise, _CAP[dtype]), min(2.0 * noise, CEILING))


def compare(
    reference: Outputs | Sequence[Outputs],
    outputs: Outputs | Sequence[Outputs],
    noise: Mapping[str, float] | None = None,
    *,
    factor: float = 1.0,
    dtypes: Mapping[str, str] | None = None,
) -> list[OutputCheck]:
    """Compare outputs by name, for one run or for several (the worst counts).

    ``noise`` is the relative noise floor per output (see :func:`noise_floor`), ``dtypes`` the coarsest float type
    involved in each output where that is coarser than its own. A missing output fails its check.
    """
    references, others = _runs(reference), _runs(outputs)
    floors, types = noise or {}, dtypes or {}
    return [
        _check(
            name,
            [run[name] for run in references],
            [run.get(name) for run in others],
            floors.get(name, 0.0),
            factor,
            types.get(name),
        )
        for name in references[0]
    ]


def noise_floor(reference: Sequence[Outputs], variants: Sequence[Sequence[Outputs]]) -> dict[str, float]:
    """Largest relative difference per output between the reference runs and each variant of them (same inputs, same
    order).

    Infinite where a variant has other shapes, or NaN in other places.
    """
    floors: dict[str, float] = {}
    for name in reference[0]:
        differences = [
            _difference([run[name] for run in reference], [run[name] for run in variant])[1] for variant in variants
        ]
        floors[name] = max(differences, default=0.0)
    return floors


def flatten(outputs: Outputs) -> dict[str, np.ndarray]:
    """Tensors by name: the elements of a sequence get ``name[i]``, those of a map ``name[key]``, an absent optional
    is left out.
    """
    flat: dict[str, np.ndarray] = {}
    for name, value in outputs.items():
        if isinstance(value, Mapping):
            flat |= flatten({f"{name}[{key}]": item for key, item in value.items()})
        elif isinstance(value, (list, tuple)):
            flat |= flatten({f"{name}[{index}]": item for index, item in enumerate(value)})
        elif value is not None:
            flat[name] = np.asarray(value)
    return flat


def _runs(outputs: Outputs | Sequence[Outputs]) -> list[dict[str, np.ndarray]]:
    return [flatten(run) for run in ([outputs] if isinstance(outputs, Mapping) else outputs)]


def _check(
    name: str, reference: list[np.ndarray], other: list[Any], noise: float, factor: float, dtype: str | None
) -> OutputCheck:
    hollow = vacuous(reference)
    mismatch = structure(reference, other)
    if mismatch is not None:
        worst = worst_run(reference, other)
        return OutputCheck(name, np.inf, np.inf, 0.0, False, hollow, f"The output {name!r} {mismatch}.", run=worst)
    max_abs, max_rel = _difference(reference, other)
    allowed = _allowed(coarsest(reference[0].dtype, dtype), noise, factor)
    passed = bool(max_rel <= allowed)
    detail = None if passed else f"The output {name!r} {_failure(reference[0], max_abs, max_rel, allowed)}."
    return OutputCheck(name, max_abs, max_rel, allowed, passed, hollow, detail, run=worst_run(reference, other))


def _allowed(dtype: str, noise: float, factor: float) -> float:
    if dtype not in _EPS:
        return min(factor * K * noise, _INTEGER_CAP)
    return tolerance(dtype, noise, factor)


def coarsest(own: np.dtype, other: str | None) -> str:
    name = own.name if own.kind != "c" else ("float32" if own.itemsize == 8 else "float64")
    if name not in _EPS or other is None:
        return name
    return max(name, other, key=lambda candidate: _EPS[candidate])


def _failure(reference: np.ndarray, max_abs: float, max_rel: float, allowed: float) -> str:
    if reference.dtype.kind not in "fc":
        return f"differs in {max_rel:.2%} of its elements (by at most {max_abs:g}); they must be equal"
    if not np.isfinite(max_abs):
        return "has NaN or infinite values in other places than the original's"
    return f"differs by {max_abs:.3g}, {max_rel:.3g} of its largest magnitude, where {allowed:.3g} is allowed"


def structure(reference: list[np.ndarray], other: list[Any]) -> str | None:
    for one, two in zip(reference, other, strict=True):
        if two is None:
            return "is missing"
        if one.shape != two.shape:
            return f"has the shape {list(two.shape)} instead of {list(one.shape)}"
        if one.dtype != two.dtype and not (one.dtype.kind in "OUS" and two.dtype.kind in "OUS"):
            return f"has the type {two.dtype} instead of {one.dtype}"
    return None


def _difference(reference: list[np.ndarray], other: list[np.ndarray]) -> tuple[float, float]:
    """Largest absolute difference, and the same relative to the largest finite magnitude of the reference."""
    if any(one.shape != two.shape for one, two in zip(reference, other, strict=True)):
        return np.inf, np.inf
    if reference[0].dtype.kind not in "fc":
        return _exact_difference(reference, other)
    largest, scale = 0.0, 0.0
    for one, two in zip(reference, other, strict=True):
        finite = np.isfinite(one)
        if not np.array_equal(finite, np.isfinite(two)) or not np.array_equal(
            one[~finite], two[~finite], equal_nan=True
        ):
            return np.inf, np.inf
        if finite.any():
            wide = np.complex128 if one.dtype.kind == "c" else np.float64
            largest = max(largest, float(np.abs(one[finite].astype(wide) - two[finite].astype(wide)).max()))
            scale = max(scale, float(np.abs(one[finite].astype(wide)).max()))
    if largest == 0.0:
        return 0.0, 0.0
    # An output that is zero throughout has no magnitude to relate to; there the difference is taken as it is.
    return largest, largest / scale if scale > 0.0 else largest


def worst_run(reference: Sequence[np.ndarray], other: Sequence[Any]) -> int | None:
    """Number of the run with the largest absolute difference (an output that is missing or of another type is as far
    off as can be); ``None`` where there is none.
    """
    largest = [
        np.inf if structure([one], [two]) else _difference([one], [two])[0]
        for one, two in zip(reference, other, strict=True)
    ]
    return max(range(len(largest)), key=largest.__getitem__) if any(largest) else None


def _exact_difference(reference: list[np.ndarray], other: list[np.ndarray]) -> tuple[float, float]:
    largest, differing, total = 0.0, 0, 0
    for one, two in zip(reference, other, strict=True):
        unequal = np.asarray(one != two)
        differing, total = differing + int(unequal.sum()), total + one.size
        if unequal.any() and one.dtype.kind in "biu":
            largest = max(
                largest, max(abs(int(a) - int(b)) for a, b in zip(one[unequal].flat, two[unequal].flat, strict=True))
            )
        elif unequal.any():
            largest = np.inf
    return float(largest), differing / total if total else 0.0


def vacuous(reference: list[np.ndarray]) -> str | None:
    """Why agreement on this output would prove nothing, or ``None``."""
    if all(one.size == 0 for one in reference):
        return "it has no elements"
    if reference[0].dtype.kind in "fc":
        finite = [one for one in reference if np.isfinite(one).all()]
        if not any(one.size for one in finite):
            whole = not any(np.isfinite(one).any() for one in reference)
            return "none of its values is finite" if whole else "some of its values are not finite"
        reference = finite
        values = np.concatenate([one.ravel() for one in reference])
        scale = float(np.abs(values).max())
        eps = float(np.finfo(values.dtype).eps)
        if values.size > 1 and float(np.abs(values - values[0]).max()) <= 16 * eps * scale:
            return "all its values are the same"
    elif sum(one.size for one in reference) > 1 and all(
        bool((one == reference[0].flat[0]).all()) for one in reference if one.size
    ):
        return "all its values are the same"
    if len(reference) > 1 and all(np.array_equal(one, reference[0]) for one in reference[1:]):
        return "it does not depend on the inputs that were tried"
    return None
