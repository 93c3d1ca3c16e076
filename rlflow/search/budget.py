"""What a search may spend, in four units, and the meter that says when it is spent."""

from __future__ import annotations

import enum
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real

from rlflow.errors import BudgetError

_PART = re.compile(r"(?P<amount>[+-]?\d+(?:\.\d*)?|[+-]?\.\d+)(?P<unit>[A-Za-z]*)")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_COUNTS = {"c": "candidates", "x": "expansions", "meas": "measurements"}
_LETTERS = {"seconds": "s", **{field: unit for unit, field in _COUNTS.items()}}
_HELP = (
    "give a time (60s, 5m, 1h), candidates (500c), expansions (50x) or measurements (20meas), several joined by commas"
)


class StopReason(enum.Enum):
    """Why a search ended; every result carries one."""

    BUDGET_SECONDS = "budget-seconds"
    BUDGET_CANDIDATES = "budget-candidates"
    BUDGET_EXPANSIONS = "budget-expansions"
    BUDGET_MEASUREMENTS = "budget-measurements"
    EXHAUSTED = "exhausted"  # everything that the strategy admits was tried: a second pass would change nothing
    CONVERGED = "converged"  # the strategy's own criterion says that going on is pointless, though not all was tried
    INTERRUPTED = "interrupted"  # Ctrl-C, or the caller's stop token
    NOTHING_TO_DO = "nothing-to-do"  # no search took place: the model is carried through as it came

    @property
    def is_budget(self) -> bool:
        """Whether a limit of the budget ended the search."""
        return self.value.startswith("budget-")

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Budget:
    """Limits of a search; ``None`` means unlimited, but at least one limit is set.

    ``seconds``: elapsed time. ``candidates``: children that were priced. ``expansions``: nodes that were opened.
    ``measurements``: regions that were really timed. Raises :class:`BudgetError` for what is no number above zero, and
    for parts of the last three.
    """

    seconds: float | None = None
    candidates: int | None = None
    expansions: int | None = None
    measurements: int | None = None

    def __post_init__(self) -> None:
        limits = [(field.name, getattr(self, field.name)) for field in fields(self)]
        if all(limit is None for _, limit in limits):
            raise BudgetError(f"A budget needs at least one limit: {_HELP}.")
        for name, limit in limits:
            if limit is None:
                continue
            counted = name in _COUNTS.values()
            if isinstance(limit, bool) or not isinstance(limit, Integral if counted else Real):
                raise BudgetError(
                    f"A budget of {limit!r} {name} is no {'whole number' if counted else 'time'}: {_HELP}."
                )
            if not 0 < float(limit) < float("inf"):
                raise BudgetError(
                    f"A budget of {limit:g} {name} leaves nothing to search with; it must be above zero: {_HELP}."
                )

    @classmethod
    def parse(cls, text: str | Budget) -> Budget:
        """Read ``"60s"``, ``"5m"`` (minutes), ``"1h"``, ``"500c"``, ``"50x"``, ``"20meas"``, or several joined by
        commas; raises :class:`BudgetError` for anything else.
        """
        if isinstance(text, Budget):
            return text
        if not isinstance(text, str):
            raise BudgetError(f"The budget {text!r} has no unit; {_HELP}.")
        limits: dict[str, float | int] = {}
        for part in text.split(","):
            name, amount = _parse_part(part.strip(), text)
            if name in limits:
                minutes = " 20m is twenty minutes; twenty measurements are 20meas." if re.search(r"\dm\b", text) else ""
                raise BudgetError(f"The budget {text!r} limits {name} twice; give each unit once.{minutes}")
            limits[name] = amount
        return cls(**limits)  # type: ignore[arg-type]

    def plus(self, spent: Mapping[str, float]) -> Budget:
        """The same limits on top of what was spent already, by unit."""
        limits = {field.name: getattr(self, field.name) for field in fields(self)}
        kinds = {name: int if name in _COUNTS.values() else float for name in limits}
        return Budget(**{name: limit and limit + kinds[name](spent[name]) for name, limit in limits.items()})

    def require_end(self, measures: bool) -> None:
        """Raises :class:`BudgetError` where nothing but measurements is limited, and prices are not measured."""
        if not measures and self.seconds is None and self.candidates is None and self.expansions is None:
            raise BudgetError(
                f"The budget {self} never ends, because this cost model measures nothing; give a time (60s, 5m, 1h), "
                "candidates (500c) or expansions (50x)."
            )

    @property
    def counts_only(self) -> bool:
        """Whether no clock and no measurement decides when the search ends."""
        return self.seconds is None and self.measurements is None

    def __str__(self) -> str:
        set_limits = [(getattr(self, field.name), _LETTERS[field.name]) for field in fields(self)]
        return ",".join(
            f"{limit:g}{letter}" if letter == "s" else f"{limit}{letter}"
            for limit, letter in set_limits
            if limit is not None
        )


def _parse_part(part: str, text: str) -> tuple[str, float | int]:
    found = _PART.fullmatch(part)
    if found is None:
        raise BudgetError(f"The budget {text!r} cannot be read; {_HELP}.")
    amount, unit = found["amount"], found["unit"]
    if not unit:
        raise BudgetError(f"The budget {text!r} has no unit; {_HELP}. For seconds write {amount}s.")
    if unit in _SECONDS:
        return "seconds", float(amount) * _SECONDS[unit]
    if unit not in _COUNTS:
        raise BudgetError(f"The budget {text!r} has the unknown unit {unit!r}; {_HELP}.")
    if not re.fullmatch(r"[+-]?\d+", amount):
        raise BudgetError(f"The budget {text!r} must be a whole number of {_COUNTS[unit]}; {_HELP}.")
    return _COUNTS[unit], int(amount)


class BudgetMeter:
    """Counts what is spent against a :class:`Budget`; the clock starts with :meth:`start` or the first question."""

    def __init__(self, budget: Budget, clock: Callable[[], float] = time.monotonic) -> None:
        self.budget = budget
        self.candidates = 0
        self.expansions = 0
        self.measurements = 0
        self.clock = clock
        self._started: float | None = None

    @classmethod
    def of(cls, budget: Budget | str | BudgetMeter, clock: Callable[[], float]) -> BudgetMeter:
        """A meter for ``budget``; the budget itself where it is one."""
        return budget if isinstance(budget, BudgetMeter) else cls(Budget.parse(budget), clock)

    def start(self) -> None:
        """Start the clock; later calls change nothing."""
        if self._started is None:
            self._started = self.clock()

    def spending(self) -> dict[str, float]:
        """What was spent, by unit."""
        counts = {name: getattr(self, name) for name in ("candidates", "expansions", "measurements")}
        return {**counts, "seconds": self.seconds}

    def rewind(self, seconds: float) -> None:
        """Set the clock to where ``seconds`` have elapsed."""
        self._started = self.clock() - seconds

    def restore(self, spent: Mapping[str, float]) -> None:
        """Set counts and clock to what was spent until some moment (:meth:`spending`)."""
        for name in ("candidates", "expansions", "measurements"):
            setattr(self, name, int(spent[name]))
        self.rewind(float(spent["seconds"]))

    def extend(self, spent: Mapping[str, float]) -> None:
        """Let the budget come on top of what was spent already."""
        self.budget = self.budget.plus(spent)

    def end_after(self, seconds: float) -> None:
        """Let the search take so many seconds instead of those of the budget."""
        self.budget = replace(self.budget, seconds=seconds)

    def leave_out(self, seconds: float) -> None:
        """Do not count so many seconds that have passed: they were spent on something else than the search."""
        self.start()
        assert self._started is not None
        self._started += seconds

    @property
    def seconds(self) -> float:
        """Elapsed seconds."""
        self.start()
        assert self._started is not None
        return self.clock() - self._started

    def spent(self) -> StopReason | None:
        """Which limit is reached, or ``None``; counts are looked at before the clock."""
        budget = self.budget
        if budget.candidates is not None and self.candidates >= budget.candidates:
            return StopReason.BUDGET_CANDIDATES
        if budget.expansions is not None and self.expansions >= budget.expansions:
            return StopReason.BUDGET_EXPANSIONS
        if budget.measurements is not None and self.measurements >= budget.measurements:
            return StopReason.BUDGET_MEASUREMENTS
        if budget.seconds is not None and self.seconds >= budget.seconds:
            return StopReason.BUDGET_SECONDS
        return None

    def grant_candidates(self, wanted: int) -> int:
        """How many of ``wanted`` candidates may still be looked at; they are counted."""
        granted = (
            wanted if self.budget.candidates is None else max(0, min(wanted, self.budget.candidates - self.candidates))
        )
        self.candidates += granted
        return granted

    def measurements_left(self) -> int | None:
        """How many measurements are left, ``None`` where they are not limited."""
        return None if self.budget.measurements is None else max(0, self.budget.measurements - self.measurements)

    def expansions_left(self) -> int | None:
        """How many expansions are left, ``None`` where they are not limited."""
        return None if self.budget.expansions is None else max(0, self.budget.expansions - self.expansions)

    def seconds_left(self) -> float | None:
        """Seconds left, ``None`` where they are not limited."""
        return None if self.budget.seconds is None else max(0.0, self.budget.seconds - self.seconds)

    def fraction(self) -> float:
        """How much of the tightest limit is spent, from 0 to 1."""
        pairs = [
            (self.candidates, self.budget.candidates),
            (self.expansions, self.budget.expansions),
            (self.measurements, self.budget.measurements),
            (self.seconds if self.budget.seconds is not None else 0.0, self.budget.seconds),
        ]
        return min(1.0, max((spent / limit for spent, limit in pairs if limit), default=0.0))
