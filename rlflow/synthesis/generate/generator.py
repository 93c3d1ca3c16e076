"""The generator from end to end: enumerate, pair, prune, generalise and prove, prune again, write.

Everything is deterministic for the vocabulary, the budget and the seed: branches and proofs are independent of each
other and are
taken in a fixed order, whatever the number of workers.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rlflow import _core
from rlflow.crew import Crew, Workers
from rlflow.errors import RlflowError, UsageError
from rlflow.rewrite import ProofRecord, Rule
from rlflow.synthesis.generate.deriver import Deriver
from rlflow.synthesis.generate.generalise import generalise
from rlflow.synthesis.generate.graphs import RECORD, Canon, Equation, decode_pairs, leaves, tree_size
from rlflow.synthesis.generate.statement import Statement
from rlflow.synthesis.generate.vocabulary import Group, Vocabulary, make_enumerator
from rlflow.synthesis.generate.work_folder import WorkFolder

GENERATOR_VERSION = "2"
_BATCH = 24  # equations proved between two prunings; a constant, so that results do not depend on the number of workers


@dataclass(frozen=True)
class Effort:
    """``max_ops``: operators of a graph; ``memory_mb``: of fingerprints and graphs; ``jobs``: threads, then processes.

    ``minutes``: proving stops after so long in all, with what is proved; the only limit that makes a run
    irreproducible.
    """

    max_ops: int = 3
    seed: int = 0
    jobs: int = 1
    memory_mb: int = 1000
    samples: int = 200
    minutes: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.max_ops <= 5:
            raise UsageError(f"--max-ops {self.max_ops}: a graph has 1 to 5 operators.")
        if self.memory_mb < 1 or self.jobs < 1 or self.samples < 1:
            raise UsageError("--memory, --jobs and --samples are at least 1.")


@dataclass
class FoundRule:
    """A proved rule; ``group``: where it was found; ``equation``: what it is a direction of, with its number."""

    rule: Rule
    group: Group
    equation: Equation
    number: int


@dataclass
class StepCounts:
    """Counts by step, in order, for each group; seconds by phase."""

    groups: dict[str, dict[str, int]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, group: str, **counts: int) -> None:
        """Adds to a group's counts."""
        row = self.groups.setdefault(group, {})
        for name, value in counts.items():
            row[name] = row.get(name, 0) + value

    def total(self) -> dict[str, int]:
        """Sums over groups."""
        out: dict[str, int] = {}
        for row in self.groups.values():
            for name, value in row.items():
                out[name] = out.get(name, 0) + value
        return out


@dataclass(frozen=True)
class PhaseProgress:
    """``done`` of ``total`` units of a phase of a group."""

    phase: str
    group: str
    done: int
    total: int


Report = Callable[[PhaseProgress], None]


class Generator:
    """One run. :meth:`run` returns the rules; :attr:`statistics` says what happened to the others. ``workers``: who
    proves; ``None``: as many processes as jobs.
    """

    def __init__(
        self, vocabulary: Vocabulary, budget: Effort, work: WorkFolder, report: Report | None = None,
        workers: Workers | None = None,
    ) -> None:  # fmt: skip
        self.vocabulary = vocabulary
        self._workers = workers or Workers(budget.jobs)
        self.budget = budget
        self.work = work
        self.statistics = StepCounts()
        self.unproved: list[tuple[str, str]] = []
        self._report = report or (lambda _: None)
        self._stop = _core.StopToken()
        self._outcomes = work.proofs()
        self._number = self._suspect_number = 0
        self._suspects = Deriver([])
        self._groups_left = len(vocabulary.groups)
        self._deadline = time.perf_counter() + 60 * budget.minutes if budget.minutes is not None else math.inf

    def run(self) -> list[FoundRule]:
        """All rules found, in the order in which they were. KeyboardInterrupt leaves what was done in the work
        folder."""
        found: list[FoundRule] = []
        deriver = Deriver([])
        with self._workers.crew(partial(Proving, self.budget.seed, self.budget.samples)) as crew:
            try:
                for group in self.vocabulary.groups:
                    equations = self._equations(group)
                    found += self._prove(group, equations, deriver, crew)
            except BaseException:
                self._stop.set()
                raise
        return found

    def _timed(self, phase: str, since: float) -> None:
        self.statistics.seconds[phase] = self.statistics.seconds.get(phase, 0.0) + time.perf_counter() - since

    # ---- enumeration

    def _equations(self, group: Group) -> list[Equation]:
        started = time.perf_counter()
        enumerator = make_enumerator(group, max_ops=self.budget.max_ops, seed=self.budget.seed)
        parts = self._branches(group, enumerator)
        self._timed("enumerate", started)
        started = time.perf_counter()
        raw, counts = enumerator.pairs(parts, self._stop)
        self.statistics.add(group.name, **counts)
        canon = Canon(group)
        distinct: dict[str, Equation] = {}
        for e in decode_pairs(raw, group):
            distinct.setdefault(canon.equation(e), e)
        ordered = sorted(distinct.items(), key=lambda item: _order(item[1], item[0]))
        self.statistics.add(group.name, distinct=len(ordered))
        self._timed("pair", started)
        return [e for _, e in ordered]

    def _branches(self, group: Group, enumerator: _core.Enumerator) -> list[bytes]:
        limit = self.budget.memory_mb * 10**6 // (2 * RECORD.itemsize)
        parts: dict[int, bytes] = {-1: enumerator.inputs()}
        held = 0

        def run(branch: int) -> tuple[bytes, dict[str, int]] | None:
            kept = self.work.branch(group.name, branch)
            if kept is not None:
                return kept
            result = enumerator.run(branch, limit, self._stop)
            if result is not None:
                self.work.keep_branch(group.name, branch, *result)
            return result

        with ThreadPoolExecutor(self.budget.jobs) as threads:
            futures: dict[Future[Any], int] = {threads.submit(run, b): b for b in range(enumerator.branches)}
            try:
                for done, future in enumerate(as_completed(futures)):
                    graphs, counts = future.result()
                    parts[futures[future]] = graphs
                    held += len(graphs) // RECORD.itemsize
                    if held > limit:
                        raise UsageError(
                            f"The group '{group.name}' has more than {limit:,} graphs of {self.budget.max_ops} "
                            f"operators, which is all that {self.budget.memory_mb} MB hold: raise --memory, or take "
                            "fewer --ops or --max-ops."
                        )
                    self.statistics.add(group.name, evaluated=counts["graphs"], ill_typed=counts["ill_typed"])
                    self._report(PhaseProgress("enumerate", group.name, done + 1, enumerator.branches))
            except BaseException:
                self._stop.set()
                for future in futures:
                    future.cancel()
                raise
        return [parts[k] for k in sorted(parts)]

    # ---- proofs

    def _prove(
        self, group: Group, equations: list[Equation], deriver: Deriver, crew: Crew
    ) -> list[FoundRule]:
        started = time.perf_counter()
        found: list[FoundRule] = []
        deadline = started + (self._deadline - started) / self._groups_left  # each group its share of what time is left
        self._groups_left -= 1
        levels = list(_levels(equations))
        ends = list(itertools.accumulate(len(level) for level in levels))
        for number, level in enumerate(levels):
            rest = level
            while rest:
                if time.perf_counter() > deadline:
                    self.statistics.add(group.name, not_reached=len(rest))
                    break
                batch, rest = self._next_batch(group, rest, deriver)
                for equation, rules in self._outcomes_of(group, batch, crew):
                    if rules and found_again(deriver, equation, group):
                        self.statistics.add(group.name, implied=1)
                        continue
                    if not rules:
                        self._suspect(group, equation)
                    self.statistics.add(group.name, **{"proved" if rules else "unproved": 1})
                    self._number += bool(rules)
                    found += [FoundRule(rule, group, equation, self._number) for rule in rules]
                    deriver.add(rules)
                self._report(PhaseProgress("prove", group.name, ends[number] - len(rest), len(equations)))
        self.statistics.add(group.name, rules=len(found))
        self._timed("prove", started)
        return found

    def _suspect(self, group: Group, equation: Equation) -> None:
        """What is not proved is not tried again in every special case: it counts as implied by something unproved."""
        rules = []
        for sides in ((equation.left, equation.right), (equation.right, equation.left)):
            s = Statement(group, *sides)
            if not s.refusal:
                self._suspect_number += 1
                rules.append(_with(s.rule((), [*s.signs, *s.ranks]), name=f"suspect-{self._suspect_number}"))
        self._suspects.add([r for r in rules if _compiles(r)])

    def _next_batch(
        self, group: Group, rest: list[Equation], deriver: Deriver
    ) -> tuple[list[Equation], list[Equation]]:
        batch: list[Equation] = []
        for k, equation in enumerate(rest):
            if found_again(deriver, equation, group):
                self.statistics.add(group.name, implied=1)
                continue
            if found_again(self._suspects, equation, group):
                self.statistics.add(group.name, implied_by_unproved=1)
                continue
            batch.append(equation)
            if len(batch) == _BATCH:
                return batch, rest[k + 1 :]
        return batch, []

    def _outcomes_of(
        self, group: Group, batch: Sequence[Equation], crew: Crew
    ) -> Iterator[tuple[Equation, list[Rule]]]:
        pairs = [[Statement(group, *sides) for sides in ((e.left, e.right), (e.right, e.left))] for e in batch]
        new = {s.key: s for pair in pairs for s in pair if not s.refusal and s.key not in self._outcomes}
        waiting = list(new.values())
        with closing(crew.as_done(waiting)) as ended:
            for number, outcome in ended:
                self._outcomes[waiting[number].key] = outcome
                self.work.keep_proof(waiting[number].key, outcome)
        for equation, pair in zip(batch, pairs, strict=True):
            rules = [self._rule(s) for s in pair]
            both = {rule.name: rule for rule in rules if rule}  # an equation may be its own reverse
            yield equation, list(both.values())

    def _rule(self, statement: Statement) -> Rule | None:
        if statement.refusal:
            return None
        outcome = self._outcomes[statement.key]
        if "proof" in outcome:
            record = ProofRecord.from_json(outcome["proof"])
            plain = statement.rule(outcome["bound"], outcome["where"])
            return _with(plain, proof=record)
        self.unproved.append((statement.text, outcome["reason"]))
        return None


def found_again(deriver: Deriver, equation: Equation, group: Group) -> bool:
    """Whether an equation is implied by what is kept, or cannot be written over core graphs at all."""
    try:
        return deriver.implies(equation, group)
    except RlflowError:
        return False


def _compiles(rule: Rule) -> bool:
    try:
        return rule.core is not None
    except RlflowError:
        return False


def _with(rule: Rule, **changes: Any) -> Rule:
    fields = {name: getattr(rule, name) for name in Rule.__dataclass_fields__}
    return Rule(**{**fields, **changes})


class Proving:
    """A worker: proves one direction of an equation, and answers with plain data."""

    def __init__(self, seed: int, samples: int) -> None:
        self._seed, self._samples = seed, samples

    def __call__(self, statement: Statement) -> dict[str, Any]:
        """What was proved, or the reason why not."""
        try:
            outcome = generalise(statement, seed=self._seed, samples=self._samples)
        except Exception as error:  # noqa: BLE001 - a fault of the prover on one statement must not lose the run; it is reported
            return {"reason": f"the prover failed: {type(error).__name__}: {error}"}
        if outcome.verdict is None or outcome.verdict.record is None:
            return {"reason": outcome.reason}
        return {"bound": list(outcome.bound), "where": list(outcome.where), "proof": outcome.verdict.record.to_json()}


def _order(e: Equation, text: str) -> tuple[int, int, int, str]:
    """Small equations first; of equal ones those with more variables, which are the more general. Size is that of
    the trees: sharing
    would make the special case with coinciding variables look smaller than the general one."""
    return (*_level(e), len(text), text)


def _level(e: Equation) -> tuple[int, int]:
    return tree_size(e.left) + tree_size(e.right), -len(leaves((*e.left, *e.right)))


def _levels(equations: Iterable[Equation]) -> Iterator[list[Equation]]:
    for _, level in itertools.groupby(equations, _level):
        yield list(level)
