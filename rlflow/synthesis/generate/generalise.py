"""The most general statement of an equation that the prover accepts.

Statements are tried from the general to the special: all attributes bound and no condition first, then with equal shapes, ranks and
extents demanded, then with fewer attributes bound. Of the first that holds, every condition is dropped that it holds without, and
every attribute bound that may be. So the conditions are a weakest conjunction of those tried (no proper subset of them suffices), not
the weakest of all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlflow.errors import RlflowError
from rlflow.synthesis.generate.statement import Statement
from rlflow.synthesis.prove import SAMPLES, Verdict, prove

_QUICK = 40  # samples of a first look; what passes is proved in full


@dataclass(frozen=True)
class Outcome:
    """The slots bound and the conditions of a proved statement, or why there is none; ``tried``: calls of the prover."""

    bound: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    verdict: Verdict | None = None
    reason: str = ""
    tried: int = 0


class _Search:
    def __init__(self, statement: Statement, seed: int) -> None:
        self.statement = statement
        self.seed = seed
        self.tried = 0
        self.last = ""
        self._known: dict[tuple[frozenset[str], tuple[str, ...]], bool] = {}

    def holds(self, bound: Sequence[str], where: Sequence[str]) -> bool:
        """Whether the statement survives a first look."""
        key = (frozenset(bound), tuple(where))
        if key not in self._known:
            verdict = self.prove(bound, where, _QUICK, floats=False)
            self._known[key] = verdict.proved
        return self._known[key]

    def prove(self, bound: Sequence[str], where: Sequence[str], samples: int, *, floats: bool) -> Verdict:
        rule = self.statement.rule(bound, where)
        self.tried += 1
        try:
            verdict = prove(rule, samples=samples, seed=self.seed, check_floats=floats)
        except RlflowError as error:
            verdict = Verdict(rule.name, "undecided", reason=str(error))
        self.last = verdict.reason or self.last
        return verdict

    def run(self, samples: int) -> Outcome:
        for bound, where in _ladder(self.statement):
            if not self.holds(bound, where):
                continue
            weak = self.weaken(bound, where)
            for attempt in (weak, (bound, where)) if weak != (bound, where) else (weak,):
                verdict = self.prove(*attempt, samples, floats=True)
                if verdict.proved:
                    return Outcome(tuple(attempt[0]), tuple(attempt[1]), verdict, "", self.tried)
                if verdict.kind in ("float", "numerics"):
                    return self.failure()  # no condition on shapes helps
        return self.failure()

    def failure(self) -> Outcome:
        return Outcome(reason=f"not proved under any condition tried: {self.last}", tried=self.tried)

    def weaken(self, bound: list[str], where: list[str]) -> tuple[list[str], list[str]]:
        for slot in self.statement.slots:
            if slot not in bound and self.holds([*bound, slot], where):
                bound = [*bound, slot]
        for condition in list(where):
            fewer = [c for c in where if c != condition]
            if self.holds(bound, fewer):
                where = fewer
        return bound, where


def _ladder(s: Statement) -> Iterator[tuple[list[str], list[str]]]:
    axes = [slot for slot in s.slots if slot.startswith("axis ")]
    windows = [slot for slot in s.slots if slot not in axes]
    bindings = [s.slots, windows, []] if axes and windows else [s.slots, []] if s.slots else [[]]
    for bound in bindings:
        for where in _rungs(s):
            yield bound, [*s.signs, *where]


def _rungs(s: Statement) -> list[list[str]]:
    both = [*s.ranks, *s.equal_shapes]
    rungs: list[list[str]] = []
    for rung in ([], s.ranks, s.equal_shapes, both, [*both, *s.extents]):
        if rung not in rungs:
            rungs.append(rung)
    return rungs


def generalise(statement: Statement, *, seed: int = 0, samples: int = SAMPLES) -> Outcome:
    """The proved rule of a statement, deterministic for a seed."""
    if statement.refusal:
        return Outcome(reason=statement.refusal)
    return _Search(statement, seed).run(samples)
