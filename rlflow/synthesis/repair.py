"""Condition mining: what has to be added to ``where`` for a false statement to be true.

Candidate conditions (:mod:`atoms`) are evaluated by the core itself on instances of the statement: graphs in which it
fires, told by exact evaluation into those where it is true and those where it is false. The conjunction that excludes
every false instance and keeps the most true ones is proved; what refutes it becomes an instance, and so on
(counterexample-guided). What is proved loses every conjunct that it can do without.

"Weakest" is among conjunctions of candidates and as far as the instances show; every answer is proved like any rule.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rlflow import _core
from rlflow.errors import RlflowError, RuleError
from rlflow.rewrite import Rule
from rlflow.synthesis.atoms import candidates
from rlflow.synthesis.domains import Domain
from rlflow.synthesis.field import key_of
from rlflow.synthesis.hints import SamplingHints, hints_of
from rlflow.synthesis.prove import SAMPLES, prove
from rlflow.synthesis.sampling import Sample
from rlflow.synthesis.trial import Trial, explore
from rlflow.synthesis.verdict import Verdict

_GOOD, _BAD, _DRAWS = 100, 70, 1000
_QUICK = 50  # firing samples of the proofs on the way; the last one has as many as any rule's
_WIDTH, _DEPTH = 10, 6  # of the search among conjunctions
_LISTED = 24  # plans with hints that are drawn from


@dataclass(frozen=True)
class Repair:
    """What :func:`repair` found.

    ``status``: "proved" (true as it stands), "repaired" (true with the conditions ``added``), "identity" (nothing to
    rewrite), "none" (no conjunction found; ``reason`` says how far it came). ``repaired`` is the rule that was proved,
    with its record in ``proof``, or ``None``; ``verdict`` is on it, else on the rule as given. ``kept``: share of the
    true instances on which the repaired rule still fires.
    """

    rule: Rule
    status: str
    verdict: Verdict
    added: tuple[str, ...] = ()
    repaired: Rule | None = None
    reason: str = ""
    kept: float = 1.0
    atoms: int = 0
    rounds: int = 0
    seconds: float = field(default=0.0, compare=False)


@dataclass
class _Instance:
    """One rewrite of one graph, by what the child is (``digest`` empty: it could not be built)."""

    sample: Sample
    digest: str
    good: bool


class _NoRepair(Exception):  # noqa: N818 - becomes an answer
    pass


def repair(
    rule: Rule,
    *,
    samples: int = SAMPLES,
    seed: int = 0,
    rounds: int = 12,
    check_floats: bool = True,
    seconds: float = 60.0,
) -> Repair:
    """The conditions that a rule lacks; see :class:`Repair`. Deterministic for a seed unless ``seconds`` run out.
    Raises ProofError only where the prover itself is at fault."""
    started = time.perf_counter()
    verdict = prove(rule, samples=samples, seed=seed, check_floats=check_floats)
    if verdict.proved:
        answer = Repair(rule, "proved", verdict, repaired=replace(rule, proof=verdict.record))
    elif verdict.status == "identity":
        answer = Repair(rule, "identity", verdict, reason=verdict.reason)
    elif verdict.kind in ("statement", "float"):
        answer = Repair(rule, "none", verdict, reason=f"no condition mends it: {verdict.reason}")
    elif verdict.kind == "numerics":
        return repair(replace(rule, numerics=_looser(rule)), samples=samples, seed=seed, rounds=rounds, seconds=seconds)
    else:
        answer = _Miner(rule, verdict, samples, seed, rounds, check_floats, started + seconds).answer()
    return replace(answer, seconds=time.perf_counter() - started)


def _looser(rule: Rule) -> str:
    return "reassociates"


def repair_or_say(rule: Rule, **options: Any) -> Repair:
    """:func:`repair`, a fault of the prover as an answer that names it."""
    try:
        return repair(rule, **options)
    except RlflowError as error:
        verdict = Verdict(rule.name, "undecided", reason=f"the prover failed: {error}")
        return Repair(rule, "none", verdict, reason=verdict.reason)


class _Miner:
    """The search for one rule."""

    def __init__(
        self, rule: Rule, verdict: Verdict, samples: int, seed: int, rounds: int, check_floats: bool, deadline: float
    ) -> None:
        self.rule, self.verdict, self.samples, self.seed = rule, verdict, samples, seed
        self.rounds, self.check_floats, self.deadline = rounds, check_floats, deadline
        self.round = 0
        self.instances: list[_Instance] = []
        self._known: set[tuple[str, str]] = set()
        self.domain: Domain | None = None
        self.atoms = self._compiling(candidates(rule.source, rule.where))
        self.masks: dict[str, int] = dict.fromkeys(self.atoms, 0)  # bit k: the atom holds on instance k
        self._measured = 0
        self._refused: set[frozenset[str]] = set()
        self._named = {f"with-{k}": atom for k, atom in enumerate(self.atoms)}
        self._rules = {atom: replace(self._with([atom]), name=name).core for name, atom in self._named.items()}
        self._together = _core.RuleSet([rule.core, *self._rules.values()])

    def answer(self) -> Repair:
        try:
            added, verdict = self._search()
        except _NoRepair as why:
            return Repair(
                self.rule, "none", self.verdict, reason=str(why), atoms=len(self.atoms), rounds=self.round, kept=0.0
            )
        good = self._mask(True)
        fixed = replace(self._with(added), proof=verdict.record)
        kept = (self._conjunction(added) & good).bit_count() / max(good.bit_count(), 1)
        return Repair(self.rule, "repaired", verdict, tuple(added), fixed, "", kept, len(self.atoms), self.round)

    # ---- candidates

    def _with(self, atoms: Iterable[str]) -> Rule:
        return replace(self.rule, where=(*self.rule.where, *atoms), proof=None)

    def _compiling(self, atoms: Iterable[str]) -> list[str]:
        out = []
        for atom in atoms:
            try:
                self._with([atom]).core  # noqa: B018 - compiles it
            except RuleError:
                continue
            out.append(atom)
        return out

    # ---- instances

    def _collect(self) -> None:
        """Instances of the statement as it stands, from plans with and without the hints of some conditions."""
        plans = [self._plan([])]
        rng = random.Random(key_of("repair", self.seed, self.rule.digest))
        for _ in range(_LISTED if self.atoms else 0):
            plans.append(self._plan(rng.sample(self.atoms, min(len(self.atoms), rng.randint(1, 3)))))

        def go(trial: Trial) -> None:
            good = bad = 0
            while trial.tries < _DRAWS and (good < _GOOD or bad < _BAD) and time.perf_counter() < self.deadline:
                sample = trial.draw(plans[0] if trial.tries % 2 else plans[trial.tries // 2 % len(plans)])
                for is_good in self._take(trial, sample, good < _GOOD, bad < _BAD):
                    good, bad = good + is_good, bad + (not is_good)
                if trial.needs_order:
                    return

        self.domain = explore(self.rule, plans[0], _GOOD, self.seed, lambda trial: self._fresh(trial, go)).domain

    def _fresh(self, trial: Trial, go: object) -> None:
        self.instances, self._known = [], set()
        go(trial)  # type: ignore[operator]

    def _plan(self, atoms: Sequence[str]) -> SamplingHints:
        return hints_of(self.rule, atoms)

    def _take(self, trial: Trial, sample: Sample | None, more_good: bool, more_bad: bool) -> list[bool]:
        if sample is None or sample.symbols:
            return []
        taken = []
        for outcome in trial.judge(sample):
            good = outcome.kind == "good"
            if outcome.kind not in ("good", "bad") or not (more_good if good else more_bad):
                continue
            key = (sample.graph.text(), outcome.digest)
            if key not in self._known:
                self._known.add(key)
                self.instances.append(_Instance(sample, outcome.digest, good))
                taken.append(good)
        return taken

    def _measure(self) -> None:
        """Which atoms hold on the instances that are new."""
        for k in range(self._measured, len(self.instances)):
            for atom in self._holding(self.instances[k]):
                self.masks[atom] |= 1 << k
        self._measured = len(self.instances)

    def _holding(self, instance: _Instance) -> list[str]:
        """The atoms that hold on an instance. All are matched at once; where one holds on some matches of the graph
        only, it is asked for this child."""
        state = _core.State(instance.sample.graph, self._together)
        rows = state.stats() if state.moves() is not None else {}
        matches = rows[self.rule.name]["matched"]
        held = []
        for name, atom in self._named.items():
            count = rows[name]["matched"] if name in rows else 0
            if count == matches or (count and _fires(_core.RuleSet([self._rules[atom]]), instance)):
                held.append(atom)
        return held

    def _mask(self, good: bool) -> int:
        return sum(1 << k for k, instance in enumerate(self.instances) if instance.good is good)

    def _conjunction(self, atoms: Iterable[str]) -> int:
        mask = (1 << len(self.instances)) - 1
        for atom in atoms:
            mask &= self.masks[atom]
        return mask

    # ---- the loop

    def _search(self) -> tuple[list[str], Verdict]:
        self._collect()
        while True:
            self._measure()
            if not self._mask(True):
                raise _NoRepair(f"no instance was found on which it is true, among {len(self.instances)} matches")
            if self.round >= self.rounds or time.perf_counter() > self.deadline:
                raise _NoRepair(f"no conjunction of {len(self.atoms)} candidates was proved in {self.round} rounds")
            chosen = self._choose()
            if chosen is None:
                left = self._mask(False) & ~self._excluded()
                raise _NoRepair(
                    f"no conjunction of {len(self.atoms)} candidates tells the true instances from the false ones"
                    + (f"; {left.bit_count()} false ones satisfy all that hold on a true one" if left else "")
                )
            self.round += 1
            if self._holds(chosen, _QUICK) and self._holds(chosen, self.samples):
                chosen = self._without_needless(chosen)
                verdict = prove(
                    self._with(chosen), samples=self.samples, seed=self._other_seed(), check_floats=self.check_floats
                )
                if verdict.proved:
                    return chosen, verdict
                self._refused.add(frozenset(chosen))

    def _other_seed(self) -> int:
        """A seed that no instance was drawn with: what is proved is not what it was mined from."""
        return key_of("repaired", self.seed, self.round) % 2**31

    def _excluded(self) -> int:
        good, excluded = self._mask(True), 0
        for atom in self.atoms:
            if self.masks[atom] & good:
                excluded |= ~self.masks[atom]
        return excluded

    def _choose(self) -> list[str] | None:
        """The conjunction that excludes all false instances and keeps the most true ones, by a beam search; the fewest
        and first conditions among equals."""
        good, bad = self._mask(True), self._mask(False)
        order = {atom: k for k, atom in enumerate(self.atoms)}
        beam: list[tuple[int, tuple[str, ...]]] = [(good | bad, ())]
        best: tuple[tuple[int, int, tuple[int, ...]], tuple[str, ...]] | None = None
        for depth in range(1, _DEPTH + 1):
            grown: dict[tuple[str, ...], tuple[float, int]] = {}
            for mask, chosen in beam:
                for atom in self.atoms:
                    after = mask & self.masks[atom]
                    kept, left = (after & good).bit_count(), (after & bad).bit_count()
                    more = tuple(sorted((*chosen, atom), key=order.__getitem__))
                    if not kept or left >= (mask & bad).bit_count() > 0 or frozenset(more) in self._refused:
                        continue
                    if not left:
                        rank = (-kept, depth, tuple(order[a] for a in more))
                        best = min(best, (rank, more)) if best else (rank, more)
                    else:
                        grown[more] = (kept / (left + 1.0), after)
            ranked = sorted(grown, key=lambda m: (-grown[m][0], tuple(order[a] for a in m)))[:_WIDTH]
            beam = [
                (grown[more][1], more)
                for more in ranked
                if not best or (grown[more][1] & good).bit_count() > -best[0][0]
            ]
            if not beam:
                break
        return list(best[1]) if best else None

    def _holds(self, atoms: list[str], samples: int) -> bool:
        """Whether the rule with these conditions passes a proof. What it shows on the way becomes instances."""
        rule = self._with(atoms)
        hints = hints_of(rule)
        trial = explore(rule, hints, samples, self.seed + self.round, method=self.domain.name if self.domain else "")
        for found in [f.sample for f in trial.failures[:8]] + trial.concrete[:8]:
            self._take(trial, found, True, True)
        if not trial.failures and trial.fired >= samples:
            return True
        self._refused.add(frozenset(atoms))
        return False

    def _without_needless(self, atoms: list[str]) -> list[str]:
        for atom in reversed(list(atoms)):
            fewer = [a for a in atoms if a != atom]
            if fewer and frozenset(fewer) not in self._refused and self._holds(fewer, self.samples):
                atoms = fewer
        return atoms


def _fires(ruleset: _core.RuleSet, instance: _Instance) -> bool:
    """Whether the rule of the set makes the instance's child (or an ill-typed one, where that is the instance)."""
    state = _core.State(instance.sample.graph, ruleset)
    moves = state.moves()
    if instance.digest:
        return any(moves.digest_hex(i) == instance.digest for i in range(len(moves)))
    return any(row["refused"] for row in state.stats().values())
