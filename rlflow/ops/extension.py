"""Operators that are added to the table at run time, before anything has read it: pointwise, of one operand.

One call of :func:`register` says all that is known of such an operator, in every layer: its row (shape as the
operand's, flags, cost), how ONNX writes it, its values, and where they are known its exact meaning and sampler for the
prover. The layers above ask :func:`extension` for their part.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rlflow import _core
from rlflow.errors import UsageError

_NAME = re.compile(r"[A-Za-z]\w*")
_PROBES = np.concatenate([np.linspace(-8, 8, 161), [-1e3, -100.0, 100.0, 1e3]])


@dataclass(frozen=True)
class Extension:
    """An added operator. ``onnx_name`` of ``domain`` from its opset ``version`` on; ``values``: an array and the
    attributes -> an array; ``meaning`` and ``draw``: see :class:`rlflow.synthesis.operators.Facets`.
    """

    name: str
    domain: str
    onnx_name: str
    version: int
    values: Callable[..., npt.NDArray[Any]]
    flags: frozenset[str] = frozenset()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    meaning: Callable[..., Any] | None = None
    draw: Callable[..., Any] | None = None


_EXTENSIONS: dict[str, Extension] = {}


def register(
    name: str,
    values: Callable[..., npt.NDArray[Any]],
    *,
    domain: str,
    version: int = 1,
    onnx_name: str = "",
    flags: Collection[str] = (),
    defaults: Mapping[str, Any] | None = None,
    flops: float = 8.0,
    meaning: Callable[..., Any] | None = None,
    draw: Callable[..., Any] | None = None,
) -> Extension:
    """Adds a pointwise operator of one float operand to the table of this process, and returns what was registered.

    ``values(x, **attributes)`` computes it with numpy, in the precision of ``x``. ``domain``, ``onnx_name`` (``name``
    where it is not given) and ``version`` say how ONNX writes it. ``flags``: "zero_preserving" (f(0) = 0) and
    "monotone" (non-decreasing); each is a licence for rules, and is tried on ``values``. ``defaults``: attributes with
    the value that they have when they are absent. ``flops``: float operations an element.

    Without a ``meaning`` the prover takes it for an arbitrary function with these flags, as it does most operators; a
    rule that holds for those holds for this one. For that reason rules about ``?f:unary`` cover it without being proved
    again. Raises UsageError where the table was read already, has the name, or a flag does not hold.
    """
    found = Extension(
        name, domain, onnx_name or name, version, values, frozenset(flags), dict(defaults or {}), meaning, draw
    )
    with np.errstate(all="ignore"):
        _check(found)
    _core.extend_table(name, sorted(found.flags), found.defaults, flops)
    _EXTENSIONS[name] = found
    return found


def _check(found: Extension) -> None:
    where = f"While registering the operator {found.name}"
    if not _NAME.fullmatch(found.name):
        raise UsageError(f"{where}: a name is a letter, and letters, digits and underscores after it.")
    if found.domain in ("", "ai.onnx"):
        raise UsageError(f"{where}: it needs a domain; ONNX's own operators are rows of the table.")
    if any(one.domain == found.domain and one.onnx_name == found.onnx_name for one in _EXTENSIONS.values()):
        raise UsageError(f"{where}: {found.domain}.{found.onnx_name} is registered already.")
    out = np.asarray(found.values(_PROBES.copy(), **found.defaults))
    if out.shape != _PROBES.shape or out.dtype != _PROBES.dtype:
        raise UsageError(f"{where}: its values are {out.dtype}{list(out.shape)} for float64{list(_PROBES.shape)}.")
    if not np.array_equal(out, found.values(_PROBES[::-1].copy(), **found.defaults)[::-1], equal_nan=True):
        raise UsageError(f"{where}: it is not pointwise: its values depend on their places.")
    if "zero_preserving" in found.flags and found.values(np.zeros(1), **found.defaults)[0] != 0:
        raise UsageError(f"{where}: it claims zero_preserving, and does not map 0 to 0.")
    ordered = out[np.argsort(_PROBES)]
    if "monotone" in found.flags and np.any(np.diff(ordered[np.isfinite(ordered)]) < 0):
        raise UsageError(f"{where}: it claims monotone, and decreases somewhere between -1000 and 1000.")


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
