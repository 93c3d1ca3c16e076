"""The Python face of the operator table, which lives in the native core because shape rules are code.

A row is a dictionary: ``name``, ``since`` (first opset), ``min_inputs``, ``max_inputs`` (negative: any number),
``outputs``, ``flags`` (names such as ``pure``, ``unary``, ``commutative``), ``fusion`` (how a runtime treats it),
``defaults`` and ``attributes``.
"""

from __future__ import annotations

import importlib
from functools import cache, lru_cache
from typing import Any

from rlflow._core import op_features, op_names, op_row
from rlflow.ops import microsoft
from rlflow.ops.extension import Extension, extension, extension_of, extensions, register
from rlflow.ops.microsoft import asked_domain
from rlflow.plugins import entry_points, warn

__all__ = [
    "ASKED_DOMAINS",
    "CLASSES",
    "LATER",
    "Extension",
    "asked_domain",
    "extension",
    "extension_of",
    "extensions",
    "has_op",
    "members",
    "op_features",
    "op_names",
    "op_row",
    "register",
    "rows",
]

#: What class variables such as ``?f:unary`` stand for, by the flags of the operators.
CLASSES: dict[str, frozenset[str]] = {
    "unary": frozenset({"unary"}),
    "unary0": frozenset({"unary", "zero_preserving"}),
    "monotone": frozenset({"unary", "monotone"}),
    "binary": frozenset({"binary"}),
    "reduce": frozenset({"reduce"}),
}


#: Domains whose operators rules may write where the user allows them.
ASKED_DOMAINS: tuple[str, ...] = (microsoft.DOMAIN,)

#: Rows that came after the rules of the package were proved: the prover draws them for class variables from its next
#: version on. Until then they are covered as all functions with their flags are.
LATER: frozenset[str] = frozenset()


@lru_cache(maxsize=1)
def _known() -> frozenset[str]:
    return frozenset(op_names())


def has_op(name: str) -> bool:
    """Whether the table knows the operator; others are carried opaquely."""
    return name in _known()


def rows() -> list[dict[str, Any]]:
    """All rows, in the table's order."""
    return [op_row(name) for name in op_names()]


@cache
def members(op_class: str) -> tuple[str, ...]:
    """The operators of a class that the prover draws, in the table's order: those that the table comes with.

    A class variable is proved for functions of which nothing but the class's flags is used, so that an operator that
    was added later is covered; the proof's samples, and its digest, are about these.
    """
    drawn = (name for name in op_names() if name not in LATER and extension(name) is None)
    return tuple(name for name in drawn if CLASSES[op_class] <= set(op_row(name)["flags"]))


def _from_distributions() -> None:
    """Operators of other distributions, whose entry points call :func:`register`: once, before the table is read. What
    is broken is left out, with one warning.
    """
    for name, place in sorted(entry_points("rlflow.operators").items()):
        module, _, attribute = place.partition(":")
        try:
            getattr(importlib.import_module(module), attribute)()
        except Exception as error:  # noqa: BLE001 - a plug-in may raise anything
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            warn(f"The operators {name!r} are at {place}, and cannot be registered ({reason}). They are left out.")


microsoft.add()
_from_distributions()
