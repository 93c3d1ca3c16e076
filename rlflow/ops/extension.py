"""Operators that are added to the table at run time: a fixed number of operands, one result.

One call of :func:`register` says all that is known of such an operator, in every layer: its row (shape, flags, cost),
how ONNX writes it, its values, and where they are known its exact meaning and sampler for the prover. The layers above
ask :func:`extension` for their part.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rlflow import _core
from rlflow.errors import UsageError

Shape = Sequence[int | str | None]
Array = npt.NDArray[Any]

_NAME = re.compile(r"[A-Za-z]\w*")
_PROBES = np.concatenate([np.linspace(-8, 8, 161), [-1e3, -100.0, 100.0, 1e3]])
_ROWS, _COLUMNS = 11, 15  # _PROBES as a matrix


@dataclass(frozen=True)
class Extension:
    """An added operator. ``onnx_name`` of ``domain`` from its opset ``version`` on; ``values``: as many arrays as
    ``inputs`` and the attributes -> an array; ``shape``: as many shapes and the attributes -> a shape, ``None`` of a
    pointwise operator; ``meaning``, ``draw`` and ``degree``: see :class:`rlflow.synthesis.operators.Facets`.
    """

    name: str
    domain: str
    onnx_name: str
    version: int
    values: Callable[..., Array]
    inputs: int = 1
    shape: Callable[..., Shape | None] | None = None
    flags: frozenset[str] = frozenset()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    meaning: Callable[..., Any] | None = None
    draw: Callable[..., Any] | None = None
    degree: Callable[..., Any] | None = None


_EXTENSIONS: dict[str, Extension] = {}


def register(
    name: str,
    values: Callable[..., Array],
    *,
    domain: str,
    version: int = 1,
    onnx_name: str = "",
    inputs: int = 1,
    shape: Callable[..., Shape | None] | None = None,
    examples: Iterable[Sequence[Sequence[int]]] = (),
    flags: Collection[str] = (),
    defaults: Mapping[str, Any] | None = None,
    flops: float = 8.0,
    meaning: Callable[..., Any] | None = None,
    draw: Callable[..., Any] | None = None,
    degree: Callable[..., Any] | None = None,
) -> Extension:
    """Adds an operator of ``inputs`` float operands to the table of this process, and returns what was registered.

    ``values(x, …, **attributes)`` computes it with numpy, in the precision of ``x``. ``domain``, ``onnx_name``
    (``name`` where it is not given) and ``version`` say how ONNX writes it. ``defaults``: attributes with the value
    that they have when they are absent. ``flops``: float operations an element of the result.

    Without ``shape`` it is pointwise: operands broadcast, and each element of the result is the same function of one
    element of each. ``flags``: of one operand "zero_preserving" (f(0) = 0) and "monotone" (non-decreasing), of two
    "commutative"; each is a licence for rules, and is tried on ``values``.

    ``shape([d, …], …, **attributes)`` gives the result's shape from those of the operands, where all their ranks are
    known. An extent is a number, the text of an open one ("N*64"), or ``None`` where it is not known; the answer
    ``None`` says that the rank is not known. It raises what it likes for operands that do not fit, and has to give one
    answer for the same operands. ``examples`` are shapes of operands on which it is compared with ``values``.

    Without a ``meaning`` the prover takes a pointwise operator for an arbitrary function with these flags, as it does
    most operators; a rule that holds for those holds for this one. For that reason rules about ``?f:unary`` and
    ``?f:binary`` cover it without being proved again. Rules that name an operator with a shape function need its
    ``meaning`` and ``draw``, and ``degree`` where the meaning multiplies elements of operands.

    Raises UsageError where the table was read already, has the name, or a claim does not hold.
    """
    found = Extension(
        name, domain, onnx_name or name, version, values, inputs, shape, frozenset(flags), dict(defaults or {}),
        meaning, draw, degree,
    )  # fmt: skip
    with np.errstate(all="ignore"):
        _check(found, [list(map(tuple, one)) for one in examples])
    _core.extend_table(name, inputs, sorted(found.flags), found.defaults, flops, shape)
    _EXTENSIONS[name] = found
    return found


def _check(found: Extension, examples: list[list[tuple[int, ...]]]) -> None:
    where = f"While registering the operator {found.name}"
    if not _NAME.fullmatch(found.name):
        raise UsageError(f"{where}: a name is a letter, and letters, digits and underscores after it.")
    if found.domain in ("", "ai.onnx"):
        raise UsageError(f"{where}: it needs a domain; ONNX's own operators are rows of the table.")
    if any(one.domain == found.domain and one.onnx_name == found.onnx_name for one in _EXTENSIONS.values()):
        raise UsageError(f"{where}: {found.domain}.{found.onnx_name} is registered already.")
    if not 1 <= found.inputs <= 16:
        raise UsageError(f"{where}: it has {found.inputs} operands; expected a number from 1 to 16.")
    if found.shape is not None:
        _check_shape(found, found.shape, examples, where)
        return
    if examples:
        raise UsageError(f"{where}: examples are for an operator with a shape function; this one is pointwise.")
    _check_pointwise(found, where)
    if found.inputs == 1:
        _check_flags(found, where)
    else:
        _check_broadcast(found, where)


def _check_shape(
    found: Extension, shape: Callable[..., Shape | None], examples: list[list[tuple[int, ...]]], where: str
) -> None:
    """The shape function says what the values have."""
    if found.flags:
        raise UsageError(f"{where}: flags are for pointwise operators; this one has a shape function.")
    if not any(len(one) == found.inputs for one in examples):
        raise UsageError(f"{where}: it needs examples: lists of {found.inputs} shapes to try its shape function on.")
    rng = np.random.default_rng(0)
    for one in examples:
        operands = [rng.standard_normal(extents) for extents in one]
        out = _values(found, operands, where)
        try:
            said = shape(*map(list, one), **found.defaults)
        except Exception as error:  # somebody else's function
            raise UsageError(f"{where}: its shape function for {one} raised {type(error).__name__}: {error}") from error
        if said is None or list(said) != list(out.shape) or out.dtype != np.float64:
            given = " and ".join(f"float64{list(extents)}" for extents in one)
            raise UsageError(
                f"{where}: its values are {out.dtype}{list(out.shape)} for {given}; its shape function says "
                f"{'nothing' if said is None else list(said)}."
            )


def _check_pointwise(found: Extension, where: str) -> None:
    """Equal elements of the operands give equal elements of the result, wherever they stand."""
    operands = [np.roll(_PROBES, 7 * k) for k in range(found.inputs)]
    out = _values(found, operands, where)
    if out.shape != _PROBES.shape or out.dtype != _PROBES.dtype:
        raise UsageError(f"{where}: its values are {out.dtype}{list(out.shape)} for float64{list(_PROBES.shape)}.")
    turned, half = (_values(found, [x[part] for x in operands], where) for part in (slice(None, None, -1), slice(80)))
    if not _same(out, turned[::-1]) or not _same(out[:80], half):
        raise UsageError(f"{where}: it is not pointwise: its values depend on their places.")


def _check_flags(found: Extension, where: str) -> None:
    if "zero_preserving" in found.flags and _values(found, [np.zeros(1)], where)[0] != 0:
        raise UsageError(f"{where}: it claims zero_preserving, and does not map 0 to 0.")
    ordered = _values(found, [np.sort(_PROBES)], where)
    if "monotone" in found.flags and np.any(np.diff(ordered[np.isfinite(ordered)]) < 0):
        raise UsageError(f"{where}: it claims monotone, and decreases somewhere between -1000 and 1000.")


def _check_broadcast(found: Extension, where: str) -> None:
    """Operands that broadcast mean the same as operands that were broadcast."""
    matrix = _PROBES.reshape(_ROWS, _COLUMNS)
    narrow = [matrix[:, :1] if k % 2 else matrix[k] for k in range(found.inputs)]
    wide = [np.broadcast_to(x, matrix.shape) for x in narrow]
    whole = _values(found, wide, where)
    if not _same(_values(found, narrow, where), whole):
        raise UsageError(f"{where}: its values do not broadcast their operands as numpy does.")
    if "commutative" in found.flags and not _same(whole, _values(found, wide[::-1], where)):
        raise UsageError(f"{where}: it claims commutative, and its operands cannot change places.")


def _same(a: Array, b: Array) -> bool:
    """Equal but for rounding: numpy may compute the last elements of an array in another way than the first."""
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-9, atol=0, equal_nan=True)


def _values(found: Extension, operands: Sequence[Array], where: str) -> Array:
    """Its values for copies of these operands, and the attributes' defaults."""
    try:
        return np.asarray(found.values(*(x.copy() for x in operands), **found.defaults))
    except Exception as error:  # somebody else's function
        shapes = " and ".join(f"{x.dtype}{list(x.shape)}" for x in operands)
        raise UsageError(f"{where}: its values for {shapes} raised {type(error).__name__}: {error}") from error


def extension(name: str) -> Extension | None:
    """What was registered under the table's name, or None."""
    return _EXTENSIONS.get(name)


def extension_of(domain: str, onnx_name: str) -> Extension | None:
    """What was registered for an ONNX operator of another domain, or None."""
    found = (one for one in _EXTENSIONS.values() if (one.domain, one.onnx_name) == (domain, onnx_name))
    return next(found, None)


def extensions() -> tuple[Extension, ...]:
    """All that were registered, in order."""
    return tuple(_EXTENSIONS.values())
