"""How the native enumerator is told about an operator: its kind, and its attributes as a list of integers
(``enumerate.h``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Attributes = dict[str, Any]


@dataclass(frozen=True)
class NativeKind:
    """``key`` selects the keyed function where the kind is one: the same that the meaning uses."""

    kind: str
    arity: int
    attributes: list[int]
    outputs: int = 1
    commutative: bool = False
    key: int = 0
