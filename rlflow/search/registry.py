"""Strategies by name. A strategy is a frozen dataclass whose fields are its options on the command line:
``backtracking:alpha=1.1``.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import typing
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import numpy as np

from rlflow.errors import UsageError
from rlflow.plugins import offered, open_offered
from rlflow.search.problem import Problem
from rlflow.search.result import Result


@runtime_checkable
class Strategy(Protocol):
    """A way to choose rewrites: a frozen dataclass of hyper-parameters with one method.

    ``name`` is how it is asked for; ``has_trace`` says whether its results carry the rewrites that lead to them.
    """

    name: ClassVar[str]
    has_trace: ClassVar[bool]

    def run(self, problem: Problem, rng: np.random.Generator) -> Result:
        """Search until the problem says stop, or nothing is left. All randomness comes from ``rng``."""
        ...


_REGISTRY: dict[str, type[Any]] = {}
#: How a docstring begins to speak about options: ``one``: …, or ``one``, ``two``: …
_OPTION = re.compile(r"(``\w+``(?:, ``\w+``)*): ")
#: Where strategies of packages above this one, and of other distributions, are offered.
GROUP = "rlflow.strategies"
_T = TypeVar("_T", bound=type)


def register(kind: _T) -> _T:
    """Class decorator: make a strategy known by its ``name``."""
    if not (dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen):  # type: ignore[attr-defined]
        raise TypeError(f"The strategy {kind.__name__} must be a frozen dataclass, because its fields are its options.")
    if kind.name in _REGISTRY and _REGISTRY[kind.name] is not kind:  # type: ignore[attr-defined]
        raise TypeError(f"Two strategies are called {kind.name!r}.")  # type: ignore[attr-defined]
    _REGISTRY[kind.name] = kind  # type: ignore[attr-defined]
    return kind


def names() -> list[str]:
    """Names of the registered strategies, sorted."""
    return sorted({*_REGISTRY, *offered(GROUP)})


def strategy_class(name: str) -> type[Any]:
    """The class behind a name; raises :class:`UsageError` with near matches."""
    if name not in _REGISTRY and (kind := open_offered(GROUP, name)) is not None:
        _adopt(name, kind)
    if name not in _REGISTRY:
        raise UsageError(f"There is no search strategy {name!r}. {did_you_mean(name, names())}")
    return _REGISTRY[name]


def _adopt(name: str, kind: Any) -> None:
    """Register a strategy that was offered by ``name``."""
    if getattr(kind, "name", None) != name:
        raise UsageError(
            f"The search strategy {name!r} is offered as {kind!r}, which calls itself {getattr(kind, 'name', None)!r}; "
            "expected a strategy's class of that name."
        )
    register(kind)


def unavailable(spec: str) -> str | None:
    """Why the strategy cannot be used on this machine (what it needs is not installed), or ``None``."""
    reason = getattr(strategy_class(spec.partition(":")[0].strip()), "available", lambda: None)()
    return None if reason is None else str(reason)


def require_ready(strategy: Strategy) -> None:
    """Say now what a search would lack later: an extra that is not installed, a checkpoint that cannot be read. Such a
    strategy has a method ``ready``, which raises the sentence.
    """
    ready = getattr(strategy, "ready", None)
    if ready is not None:
        ready()


def make(spec: str | Strategy, **overrides: Any) -> Strategy:
    """A strategy from ``"name"`` or ``"name:option=value,option=value"``; ``overrides`` that are not ``None`` win.

    Raises :class:`UsageError` for an unknown name or option, or a value that cannot be read.
    """
    if not isinstance(spec, str):
        return dataclasses.replace(spec, **_known(type(spec), _given(overrides))) if _given(overrides) else spec  # type: ignore[type-var]
    name, _, tail = spec.partition(":")
    kind = strategy_class(name.strip())
    options: dict[str, Any] = {}
    for part in filter(None, (piece.strip() for piece in tail.split(","))):
        key, equals, value = part.partition("=")
        if not equals:
            raise UsageError(f"The option {part!r} of search strategy {name!r} has no value; write {name}:{part}=… .")
        options[key.strip()] = value.strip()
    options |= _given(overrides)
    return kind(**_known(kind, options))


def specification(nested: str) -> str:
    """``beam:width=4,twins=1`` from ``beam(width=4;twins=1)``: so strategies are written inside an option."""
    return nested.strip().replace("(", ":", 1).replace(";", ",").removesuffix(")")


def describe(strategy: Strategy) -> str:
    """The specification that :func:`make` turns into this strategy again; options at their default are left out."""
    options = [
        f"{field.name}={_text(getattr(strategy, field.name))}"
        for field in dataclasses.fields(strategy)  # type: ignore[arg-type]
        if getattr(strategy, field.name) != field.default
    ]
    return strategy.name + (":" + ",".join(options) if options else "")


def option_table(kind: type[Any]) -> list[tuple[str, str, str]]:
    """``(option, type, default)`` of each hyper-parameter, as text."""
    hints = typing.get_type_hints(kind)
    return [(field.name, hints[field.name].__name__, _text(field.default)) for field in dataclasses.fields(kind)]


def catalogue() -> list[dict[str, Any]]:
    """Every strategy as plain data: name, a line about it, whether its results carry traces and depend on the seed, and
    its options with type, default and a line each, taken from the docstring.
    """
    rows = []
    for name in names():
        kind = strategy_class(name)
        docs = [" ".join((base.__doc__ or "").split()) for base in kind.__mro__]  # a preset says what it changes only
        options = [
            {"name": option, "type": type_name, "default": default, "doc": _about(option, docs)}
            for option, type_name, default in option_table(kind)
        ]
        rows.append(
            {
                "name": name,
                "doc": re.split(_OPTION, docs[0], maxsplit=1)[0].strip().replace("``", ""),
                "has_trace": kind.has_trace,
                "randomised": getattr(kind, "randomised", False),
                "options": options,
            }
        )
    return rows


def _about(option: str, docs: Iterable[str]) -> str:
    """What the first docstring that names an option says about it: the text behind its name, up to the next option."""
    for doc in docs:
        parts = re.split(_OPTION, doc)
        for names, text in zip(parts[1::2], parts[2::2], strict=True):
            if f"``{option}``" in names:
                return text.strip().replace("``", "")
    return ""


_LISTED = 60


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A closing sentence for an unknown name: the nearest ones, else all of them, or how many there are."""
    choices = sorted(known)
    if not choices:
        return "There is none."
    near = difflib.get_close_matches(word, choices, n=3, cutoff=0.5)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    return f"There are: {', '.join(choices)}." if len(choices) <= _LISTED else f"There are {len(choices)} others."


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if value is not None}


def _known(kind: type[Any], options: dict[str, Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    fields = {field.name for field in dataclasses.fields(kind)}
    values = {}
    for key, value in options.items():
        if key not in fields:
            raise UsageError(f"Search strategy {kind.name!r} has no option {key!r}. {did_you_mean(key, fields)}")
        values[key] = (
            _convert(value, hints[key], f"option {key!r} of search strategy {kind.name!r}")
            if isinstance(value, str)
            else value
        )
    return values


_BOOLS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_READERS: dict[type, tuple[Callable[[str], Any], str]] = {
    int: (int, "a whole number"),
    float: (float, "a number"),
    bool: (lambda text: _BOOLS[text.lower()], "true or false"),
    str: (str, "text"),
}


def _convert(text: str, kind: type, what: str) -> Any:
    reader, expected = _READERS[kind]
    try:
        return reader(text)
    except (ValueError, KeyError) as error:
        raise UsageError(f"The {what} is {text!r}; expected {expected}.") from error


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
