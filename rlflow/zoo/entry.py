"""What the zoo knows about a model without building it, and the checks of the options that a caller gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from rlflow.errors import UsageError
from rlflow.specs import MOST_SIZE, did_you_mean

if TYPE_CHECKING:
    from rlflow.frontends.builder import ModelBuilder

Option = int | bool | str


@dataclass(frozen=True)
class ZooEntry:
    """One model of the zoo.

    ``batch`` and ``seq`` are the defaults (``seq`` is None for a model without a sequence; ``seq_option`` names the
    option that it sets). ``options`` holds the other sizes with their defaults; ``choices`` the words that a text
    option may take. ``parameters`` and ``macs`` are published figures for the default sizes (multiply-accumulates
    rounded as published), or None. ``write`` adds the model to a builder; it is called with ``batch`` and every option
    by name.
    """

    name: str
    title: str
    source: str
    shapes: str
    write: Callable[..., None] = field(repr=False)
    batch: int = 1
    seq: int | None = None
    seq_option: str | None = None
    options: Mapping[str, Option] = field(default_factory=dict)
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    parameters: int | None = None
    macs: int | None = None
    opset: int = 17

    def settle(self, batch: int | None, seq: int | None, sizes: Mapping[str, Option | None]) -> dict[str, Option]:
        """Every size by name: the caller's where given, else the default. Raises UsageError for a wrong one."""
        settled: dict[str, Option] = {"batch": self.batch, **self.options}
        if self.seq_option is not None and self.seq is not None:
            settled[self.seq_option] = self.seq
        given: dict[str, Option] = {key: value for key, value in sizes.items() if value is not None}
        if batch is not None:
            given["batch"] = batch
        if seq is not None:
            given[self._sequence_key(given)] = seq
        for key, value in given.items():
            if key not in settled:
                raise UsageError(
                    f"While building zoo model '{self.name}': unknown option '{key}'. {did_you_mean(key, settled)}"
                )
            settled[key] = self._checked(key, value, settled[key])
        return settled

    def _sequence_key(self, given: Mapping[str, Option]) -> str:
        if self.seq_option is None:
            raise UsageError(
                f"While building zoo model '{self.name}': it has no sequence, so 'seq' cannot be set; leave it out."
            )
        if self.seq_option in given:
            raise UsageError(
                f"While building zoo model '{self.name}': 'seq' and '{self.seq_option}' are the same size; "
                "both are given, expected one of them."
            )
        return self.seq_option

    def _checked(self, key: str, value: Any, default: Option) -> Option:
        where = f"While building zoo model '{self.name}': option '{key}' is {value!r}"
        if isinstance(default, bool):
            if not isinstance(value, bool):
                raise UsageError(f"{where}; expected True or False.")
        elif isinstance(default, str):
            if value not in self.choices[key]:
                raise UsageError(f"{where}; expected one of {', '.join(self.choices[key])}.")
        elif isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_SIZE:
            raise UsageError(f"{where}; expected a whole number of 1 or more, at most {MOST_SIZE}.")
        return cast(Option, value)


def require(condition: bool, model: str, found: str, expected: str) -> None:
    """Raises UsageError with a sentence where sizes that belong together do not agree."""
    if not condition:
        raise UsageError(f"While building zoo model '{model}': {found}; expected {expected}.")


def declare(builder: ModelBuilder, entry: ZooEntry, sizes: Mapping[str, Option]) -> None:
    """Writes down in the model's metadata how to build it again."""
    words = [entry.name, *(f"{key}={value}" for key, value in sorted(sizes.items())), f"seed={builder.seed}"]
    builder.metadata("rlflow.zoo", " ".join(words))
