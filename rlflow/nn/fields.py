"""Hyper-parameters from text, as ``rlflow train --set name=value`` gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlflow.errors import UsageError
from rlflow.specs import did_you_mean, options_of


def read_fields(kind: type[Any], options: Mapping[str, str], prefix: str = "") -> dict[str, Any]:
    """Values for fields of a dataclass from text; raises :class:`UsageError` for a name or a value that is none."""
    known = {prefix + name: option for name, option in options_of(kind).items() if option.types}
    values = {}
    for name, text in options.items():
        if prefix + name not in known:
            raise UsageError(f"There is no training option {prefix + name!r}. {did_you_mean(prefix + name, known)}")
        values[name] = known[prefix + name]._replace(name=prefix + name).read(text, "the training")
    return values
