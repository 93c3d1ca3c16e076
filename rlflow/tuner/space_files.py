"""Spaces of programs as plain data, and back; nothing that a file says is believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rlflow.errors import UsageError
from rlflow.tuner.engines import TunedSubgraph
from rlflow.tuner.spaces import Sketch, Space, Steps, Tile

#: What a file may hold of each; beyond this somebody made it up.
_MOST_SKETCHES, _MOST_PARAMETERS, _MOST_PARTS, _MOST_EXTENT, _MOST_TEXT = 64, 64, 8, 1 << 24, 200
_MOST_SIZES, _LARGEST_SIZE = 32, 1 << 40


def plain(subgraph: TunedSubgraph) -> dict[str, Any]:
    """For JSON."""
    found = asdict(subgraph)
    found["sketches"] = found.pop("space")["sketches"]
    return found


def subgraph_of(given: Any) -> TunedSubgraph:
    """The reverse of :func:`plain`; raises :class:`UsageError` with the reason for anything else."""
    kinds = {"name": str, "flops": float, "weight": float, "family": str, "sizes": list, "sketches": list}
    fields = read_fields(given, kinds)
    sketches = _some(fields["sketches"], _MOST_SKETCHES, "sketches")
    space = Space(tuple(_sketch(one) for one in sketches))
    if not 0 < fields["weight"] < 1e12 or not 0 <= fields["flops"] < 1e18:
        raise UsageError(f"The subgraph {fields['name']!r} has a weight or a number of operations that cannot be.")
    sizes = tuple(_some(fields["sizes"], _MOST_SIZES, "sizes"))
    if not all(type(one) is int and 0 <= one <= _LARGEST_SIZE for one in sizes):
        raise UsageError(f"The subgraph {fields['name']!r} has sizes that cannot be.")
    return TunedSubgraph(fields["name"], space, fields["flops"], fields["weight"], fields["family"], sizes)


def _sketch(given: Any) -> Sketch:
    fields = read_fields(given, {"name": str, "tiles": list, "steps": list})
    return Sketch(
        fields["name"],
        tuple(_tile(one) for one in _some(fields["tiles"], _MOST_PARAMETERS, "tiles")),
        tuple(_steps(one) for one in _some(fields["steps"], _MOST_PARAMETERS, "choices")),
    )


def _tile(given: Any) -> Tile:
    fields = read_fields(given, {"name": str, "extent": int, "parts": int, "innermost": int, "reduction": bool})
    within = 1 <= fields["extent"] <= _MOST_EXTENT and 1 <= fields["parts"] <= _MOST_PARTS
    if not within or not 0 <= fields["innermost"] <= _MOST_EXTENT:
        raise UsageError(f"The loop {fields['name']!r} has sizes that cannot be.")
    return Tile(**fields)


def _steps(given: Any) -> Steps:
    fields = read_fields(given, {"name": str, "group": str, "values": list})
    values = _some(fields["values"], _MOST_PARAMETERS, "values")
    if not all(isinstance(one, int) and not isinstance(one, bool) for one in values):
        raise UsageError(f"The choice {fields['name']!r} has values that are no integers.")
    return Steps(fields["name"], fields["group"], tuple(values))


def read_fields(given: Any, kinds: Mapping[str, type]) -> dict[str, Any]:
    """Exactly these fields, each of its type; raises :class:`UsageError` otherwise."""
    if not isinstance(given, dict) or set(given) != set(kinds):
        raise UsageError(f"The fields {', '.join(kinds)} were expected; found {str(given)[:_MOST_TEXT]}.")
    found = {name: float(value) if kinds[name] is float and type(value) is int else value
             for name, value in given.items()}  # fmt: skip
    for name, value in found.items():
        if type(value) is not kinds[name] or (isinstance(value, str) and len(value) > _MOST_TEXT):
            raise UsageError(f"The field {name!r} is {str(value)[:_MOST_TEXT]}; expected a {kinds[name].__name__}.")
    return found


def _some(given: Sequence[Any], most: int, what: str) -> Sequence[Any]:
    if len(given) > most:
        raise UsageError(f"There are {len(given)} {what}; expected at most {most}.")
    return given
