"""Hyper-parameters from text, as ``rlflow train --set name=value`` gives them."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Any

from rlflow.errors import UsageError

_WORDS = {"true": True, "yes": True, "false": False, "no": False}


def read_fields(kind: type[Any], options: Mapping[str, str], prefix: str = "") -> dict[str, Any]:
    """Values for fields of a dataclass from text; raises :class:`UsageError` for a name or a value that is none."""
    hints = typing.get_type_hints(kind)
    readers: dict[Any, Any] = {int: int, float: float, str: str, bool: lambda text: _WORDS[text.lower()]}
    values = {}
    for name, text in options.items():
        if hints.get(name) not in readers:
            names = ", ".join(prefix + key for key, hint in hints.items() if hint in readers)
            raise UsageError(f"There is no training option {prefix + name!r}; there are {names}.")
        try:
            values[name] = readers[hints[name]](text)
        except (ValueError, KeyError) as error:
            raise UsageError(
                f"The training option {prefix + name!r} is {text!r}; expected {hints[name].__name__}."
            ) from error
    return values
