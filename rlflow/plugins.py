"""What is offered by name and opened when it is asked for.

A registry of a low layer knows its own entries. Entries of packages above it are *offered* by the package's front
(``rlflow/__init__.py``), those of other distributions by entry points of the same group in their metadata:

    [project.entry-points."rlflow.strategies"]
    mine = "my_package.search:Mine"
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from rlflow.errors import UsageError

_OFFERED: dict[str, dict[str, str]] = {}


def offer(group: str, places: Mapping[str, str]) -> None:
    """Make entries of a group known: ``"module:attribute"`` by name. Nothing is opened."""
    _OFFERED.setdefault(group, {}).update(places)


def offered(group: str) -> dict[str, str]:
    """``"module:attribute"`` by name: what was offered, and the entry points of distributions that are installed."""
    from importlib import metadata

    return {found.name: found.value for found in metadata.entry_points(group=group)} | _OFFERED.get(group, {})


def open_offered(group: str, name: str) -> Any:
    """What is behind a name, or ``None`` where nobody offers it. Raises :class:`UsageError` where it cannot be
    imported.
    """
    place = _OFFERED.get(group, {}).get(name) or offered(group).get(name)
    if place is None:
        return None
    module, _, attribute = place.partition(":")
    try:
        return getattr(importlib.import_module(module.strip()), attribute.strip())
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{name!r} of {group} is at {place}, and cannot be imported: {error}.") from error
