"""Strategies by name. A strategy is a frozen dataclass whose fields are its options on the command line:
``backtracking:alpha=1.1``.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import numpy as np

from rlflow import specs
from rlflow.errors import UsageError
from rlflow.registry import Registry
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


_T = TypeVar("_T", bound=type)


def _accept(name: str, kind: Any) -> None:
    if not (dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen):  # type: ignore[union-attr]
        raise TypeError(f"The strategy {kind!r} must be a frozen dataclass, because its fields are its options.")
    if getattr(kind, "name", None) != name:
        raise UsageError(
            f"The search strategy {name!r} is offered as {kind!r}, which calls itself {getattr(kind, 'name', None)!r}; "
            "expected a strategy's class of that name."
        )


#: ``randomised``: it draws from the generator; ``shares``: several workers can share its choices; ``goes_on``: an
#: interrupted search goes on exactly where it was; ``from_best``: as one of several it begins at the best graph so far.
STRATEGIES: Registry[type[Any]] = Registry(
    "search strategy",
    group="rlflow.strategies",
    places={
        "annealing": "rlflow.search.annealing:Annealing",
        "backtracking": "rlflow.search.backtracking:Backtracking",
        "beam": "rlflow.search.beam:Beam",
        "eqsat": "rlflow.search.eqsat.saturation:EqSat",
        "genetic": "rlflow.search.genetic:Genetic",
        "greedy": "rlflow.search.greedy:Greedy",
        "levin": "rlflow.search.levin.strategy:Levin",
        "mcts": "rlflow.search.mcts:Mcts",
        "mixed": "rlflow.search.portfolio:Mixed",
        "partition": "rlflow.search.partitioned:PartitionedSearch",
        "portfolio": "rlflow.search.portfolio:Portfolio",
        "random": "rlflow.search.random_walk:RandomRestarts",
        "tensat": "rlflow.search.eqsat.saturation:Tensat",
    },
    capabilities={"has_trace": True, "randomised": False, "shares": False, "goes_on": False, "from_best": False},
    accept=_accept,
)


def register(kind: _T) -> _T:
    """Class decorator: make a strategy known by its ``name``."""
    STRATEGIES.register(kind.name, kind)  # type: ignore[attr-defined]
    return kind


def names() -> list[str]:
    """Names of the strategies, sorted."""
    return STRATEGIES.names()


def strategy_class(name: str) -> type[Any]:
    """The class behind a name; raises :class:`UsageError` with near matches."""
    return STRATEGIES.get(name)


def unavailable(spec: str) -> str | None:
    """Why the strategy cannot be used on this machine (what it needs is not installed), or ``None``."""
    reason = getattr(strategy_class(specs.name_of(spec)), "available", lambda: None)()
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
    if isinstance(spec, str):
        kind, chosen = STRATEGIES.chosen(spec, **overrides)
        made: Strategy = kind(**chosen)
        return made
    given = {name: value for name, value in overrides.items() if value is not None}
    if not given:
        return spec
    return dataclasses.replace(spec, **specs.arguments(type(spec), given, f"search strategy {spec.name!r}"))  # type: ignore[type-var]


def describe(strategy: Strategy) -> str:
    """The specification that :func:`make` turns into this strategy again; options at their default are left out."""
    values = {field.name: (getattr(strategy, field.name), field.default) for field in dataclasses.fields(strategy)}  # type: ignore[arg-type]
    return specs.written(strategy.name, {name: value for name, (value, default) in values.items() if value != default})


def option_table(kind: type[Any]) -> list[tuple[str, str, str]]:
    """``(option, type, default)`` of each hyper-parameter, as text."""
    return [(one["name"], one["type"], one["default"]) for one in specs.about(kind)]


def catalogue() -> list[dict[str, Any]]:
    """Every strategy as plain data: name, a line about it, whether its results carry traces and depend on the seed, and
    its options with type, default and a line each, taken from the docstring.
    """
    return STRATEGIES.rows()
