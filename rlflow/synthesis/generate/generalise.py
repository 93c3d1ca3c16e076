"""The most general statement of an equation that the prover accepts.

Statements are tried from the general to the special: all attributes bound and no condition first, then under
conditions on attributes,
ranks, shapes and extents, then with fewer attributes bound. A first look at few samples that stops at the first
failure chooses; of
what it lets through, every condition is dropped that is not needed and every attribute bound that may be, equal
shapes become equal extents where those are enough, and the rest is proved in full, from several seeds. What refutes a
variant is tried first on all others. So no proper subset of a rule's conditions suffices as far as a first look
shows, but they are not the weakest of all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlflow import _core
from rlflow.errors import RlflowError
from rlflow.synthesis.generate.statement import Statement
from rlflow.synthesis.hints import hints_of
from rlflow.synthesis.prove import SAMPLES, prove
from rlflow.synthesis.sampling import Sample
from rlflow.synthesis.trial import Trial, explore
from rlflow.synthesis.verdict import Verdict

_LOOK, _DRAWS = 40, 800  # samples and draws of a first look
_SEEDS = 3  # a statement is chosen because it survived: it must survive samples that it was not chosen by
_ATTEMPTS = 4  # proofs of one rung; each refutation makes the next choice wiser


@dataclass(frozen=True)
class Generalised:
    """The slots bound and the conditions of a proved statement, or why there is none; ``tried``: statements looked
    at."""

    bound: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    verdict: Verdict | None = None
    reason: str = ""
    tried: int = 0


class _Search:
    def __init__(self, statement: Statement, seed: int) -> None:
        self.statement = statement
        self.seed = seed
        self.last = "its conditions were never met"
        self._known: dict[tuple[frozenset[str], frozenset[str]], bool] = {}
        self._bad: list[Sample] = []  # graphs on which a variant of the statement was false: tried first

    def holds(self, bound: Sequence[str], where: Sequence[str]) -> bool:
        """Whether the statement survives a first look."""
        key = (frozenset(bound), frozenset(where))
        if key not in self._known:
            self._known[key] = self._look(bound, where)
        return self._known[key]

    def _look(self, bound: Sequence[str], where: Sequence[str]) -> bool:
        rule = self.statement.rule(bound, where)
        try:
            hints = hints_of(rule)
            trial = explore(rule, hints, _LOOK, self.seed, self._until_failure)
        except RlflowError as error:
            self.last = str(error)
            return False
        if trial.failures:
            self.last = trial.failures[0].reason
        return not trial.failures and trial.fired >= _LOOK // 4

    def _until_failure(self, trial: Trial) -> None:
        for sample in self._bad:
            trial.judge(sample)
            if trial.failures or trial.needs_order:
                return
        trial.fired = 0
        while trial.tries < _DRAWS and trial.fired < _LOOK and not trial.failures and not trial.needs_order:
            drawn = trial.draw(trial.hints, stray=trial.tries % 2 == 1)
            if drawn is not None:
                trial.judge(drawn)
        self._bad += [failure.sample for failure in trial.failures[:1]]

    def run(self, samples: int) -> Generalised:
        """The first statement, from the general to the special, that is proved."""
        for bound, where in _ladder(self.statement):
            for _ in range(_ATTEMPTS):
                if not self.holds(bound, where):
                    break
                weak = self._weakened(bound, where)
                verdict = self._prove(*weak, samples)
                if verdict.proved:
                    return Generalised(*weak, verdict, "", len(self._known))
                if verdict.kind in ("float", "numerics") or verdict.status == "identity":
                    return self._failure()  # no condition on shapes helps
                if verdict.example is None:
                    break
                self._bad.append(Sample(_core.Graph.parse(verdict.example.graph), {}))
                self._known = {key: held for key, held in self._known.items() if not held}
        return self._failure()

    def _failure(self) -> Generalised:
        return Generalised(reason=self.last, tried=len(self._known))

    def _prove(self, bound: Sequence[str], where: Sequence[str], samples: int) -> Verdict:
        rule = self.statement.rule(bound, where)
        try:
            for seed in range(self.seed + 1, self.seed + _SEEDS):
                verdict = prove(rule, samples=-(-samples // 2), seed=seed, check_floats=False, exhaustive=False)
                if not verdict.proved:
                    break
            else:
                verdict = prove(rule, samples=samples, seed=self.seed)
        except RlflowError as error:
            verdict = Verdict(rule.name, "undecided", reason=str(error))
        self.last = verdict.reason or self.last
        return verdict

    def _weakened(self, bound: Sequence[str], where: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        for slot in self.statement.slots:
            if slot not in bound and self.holds([*bound, slot], where):
                bound = [*bound, slot]
        where = self._needed(bound, where, where)
        return tuple(bound), tuple(self._axis_by_axis(bound, where))

    def _needed(self, bound: Sequence[str], where: Sequence[str], doubtful: Sequence[str]) -> Sequence[str]:
        """The conditions without those among the doubtful that can be dropped."""
        for condition in doubtful:
            fewer = [c for c in where if c != condition]
            if len(fewer) < len(where) and self.holds(bound, fewer):
                where = fewer
        return where

    def _axis_by_axis(self, bound: Sequence[str], where: Sequence[str]) -> Sequence[str]:
        """Ranks and some equal extents in the place of equal shapes, where that is enough."""
        same = [c for c in where if c in self.statement.axes_of]
        if not same:
            return where
        ranks, extents = self.statement.axis_conditions()
        apart = list(dict.fromkeys([*(c for c in where if c not in same), *ranks, *extents]))
        fewer = self._needed(bound, apart, [*extents, *ranks]) if self.holds(bound, apart) else apart
        equalities = sum(len(self.statement.axes_of[c]) for c in same)
        return fewer if sum(c in fewer for c in extents) < equalities else where


def _ladder(s: Statement) -> Iterator[tuple[list[str], list[str]]]:
    axes = [slot for slot in s.slots if slot.startswith("axis ")]
    windows = [slot for slot in s.slots if slot not in axes]
    bindings = [s.slots, windows, []] if axes and windows else [s.slots, []] if s.slots else [[]]
    for bound in bindings:
        both, attributes = [*s.ranks, *s.equal_shapes], s.attribute_values(bound)
        rungs: list[list[str]] = []
        for rung in (
            [],
            attributes,
            s.ranks,
            s.equal_shapes,
            both,
            [*attributes, *both],
            [*attributes, *both, *s.extents],
        ):
            if rung not in rungs:
                rungs.append(rung)
                yield bound, [*s.signs, *rung]


def generalise(statement: Statement, *, seed: int = 0, samples: int = SAMPLES) -> Generalised:
    """The proved rule of a statement, deterministic for a seed."""
    if statement.refusal:
        return Generalised(reason=statement.refusal)
    return _Search(statement, seed).run(samples)
