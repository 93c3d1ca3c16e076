"""What is added to rlflow's lists of names: by its own packages, and by entry points of other distributions. What is
broken is left out, with one warning.

``import rlflow`` opens this module, and it opens nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # what `typing` has under this name, without opening it
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_told: set[str] = set()
_offered: dict[str, dict[str, str]] = {}


def offer(group: str, places: Mapping[str, str]) -> None:
    """Make entries of a group known: ``"module:attribute"`` by name. Nothing is opened."""
    _offered.setdefault(group, {}).update(places)


def offered(group: str) -> dict[str, str]:
    """What was offered to a group: ``"module:attribute"`` by name."""
    return dict(_offered.get(group, {}))


def entry_points(group: str) -> dict[str, str]:
    """``"module:attribute"`` by name: what installed distributions add to a group. Of two with one name the first on
    the module path counts, with a warning.
    """
    found: dict[str, str] = {}
    for point in _points(group):
        try:
            place = f"{point.module}:{point.attr}"
        except AttributeError:
            warn(f"The entry point {point.name!r} of {group} is {point.value!r}; it should be module:attribute.")
            continue
        if found.setdefault(point.name, place) != place:
            warn(f"Two packages have the entry point {point.name!r} of {group}; {found[point.name]} counts.")
    return found


def _points(group: str) -> list[Any]:
    from importlib import metadata

    try:
        return list(metadata.entry_points(group=group))
    except Exception:  # noqa: BLE001 - a file of some distribution is damaged; the others still count
        return [point for one in metadata.distributions() for point in _points_of(one, group)]


def _points_of(distribution: Any, group: str) -> list[Any]:
    try:
        return [point for point in distribution.entry_points if point.group == group]
    except Exception:  # noqa: BLE001 - whatever stands in its file
        place = getattr(distribution, "_path", "a distribution")
        warn(f"The entry points of {place} cannot be read; they are left out.")
        return []


def warn(sentence: str) -> None:
    """Once a process."""
    import logging

    if sentence not in _told:
        _told.add(sentence)
        logging.getLogger(__name__).warning("%s", sentence)
