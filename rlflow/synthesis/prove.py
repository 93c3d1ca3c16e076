"""The prover: is a rule's target equal to its source wherever its conditions hold?

It checks the *implementation*: graphs in which the rule may fire are drawn (see :mod:`sampling`), the native core
matches and applies the rule,
and parent and child are evaluated exactly (see :mod:`semantics`). Parent and child must have the same output types
and the same elements. A match
whose target the core finds ill-typed refutes the rule too: its conditions say too little. Finally both sides run in
double precision through
ONNX's reference evaluator, which catches a wrong reading of an operator's meaning and functions that leave their
domain.

Soundness: an identity that fails as a rational function of degree d agrees by chance in one sample with probability
at most d / 2^61
(Schwartz-Zippel), and samples are independent; what the method cannot see is a shape or attribute that was never
drawn. The record says how many
configurations were.

``rlflow rules prove --all --write`` proves the package's rules again and writes their records.
"""

from __future__ import annotations

import functools
import gc
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlflow.errors import ProofError, RlflowError, RuleError
from rlflow.rewrite import PROVER_VERSION, ProofRecord, Rule, semantics_digest
from rlflow.synthesis import floats, not_finite, nothing
from rlflow.synthesis.cases import decide_pairs
from rlflow.synthesis.degree import size_argument
from rlflow.synthesis.exhaustive import Small, enumerate_small
from rlflow.synthesis.hints import hints_of
from rlflow.synthesis.pool import run_all
from rlflow.synthesis.semantics import arbitrary_operators
from rlflow.synthesis.shrink import smallest
from rlflow.synthesis.trial import Trial, explore
from rlflow.synthesis.verdict import Counterexample, Verdict

SAMPLES = 200
#: A proof makes millions of small objects and hardly a cycle; to look for cycles as often as Python does takes a sixth
#: of its time.
_SELDOM = (100_000, 50, 50)


def prove(
    rule: Rule,
    *,
    samples: int = SAMPLES,
    seed: int = 0,
    check_floats: bool = True,
    exhaustive: bool = True,
    method: str = "",
) -> Verdict:
    """The verdict on a rule. ``method``: "field" or "ordered" fixes the domain (otherwise the rule decides).
    ``exhaustive``: small graphs are counted through too. Deterministic for a seed. Raises ProofError only where the
    prover itself is at fault (an operator without meaning, a shape that the core infers wrongly, an exception that
    nobody foresaw)."""
    started = time.perf_counter()
    with _cycles_seldom_sought(), faults_told():
        verdict = _judge(rule, samples, seed, check_floats, exhaustive, method)
    verdict.seconds = time.perf_counter() - started
    return verdict


@contextmanager
def faults_told() -> Iterator[None]:
    """An exception that no one foresaw is a fault of the prover, and says nothing of other rules: a ProofError."""
    try:
        yield
    except RlflowError:
        raise
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(at.filename).name}:{at.lineno}"
        raise ProofError(f"it did not foresee {type(error).__name__} ({error}) at {where}") from error


@contextmanager
def _cycles_seldom_sought() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*_SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _judge(rule: Rule, samples: int, seed: int, check_floats: bool, exhaustive: bool, method: str) -> Verdict:
    try:
        rule.core  # noqa: B018 - compiles it
        hints = hints_of(rule)
    except RuleError as error:
        return Verdict(rule.name, "refuted", "statement", error.reason)
    if _loops(rule):
        return Verdict(rule.name, "refuted", "loop", "its target has its source in it: it could be applied for ever")
    if hints.beyond:
        return Verdict(rule.name, "undecided", reason=hints.beyond)
    trial = explore(rule, hints, samples, seed, method=method)
    verdict = Verdict(rule.name, "undecided", fired=trial.fired, wild_fired=trial.wild, tries=trial.tries)
    if trial.failures:
        return _refuted(verdict, trial)
    if trial.fired < samples:
        return _not_enough(verdict, trial)
    small = enumerate_small(trial) if exhaustive else Small()
    if trial.failures:
        return _refuted(verdict, trial)
    if trial.dropped.problem:
        verdict.reason = trial.dropped.problem
        return verdict
    decided = decide_pairs(trial)
    if trial.failures:
        return _refuted(verdict, trial)
    if trial.domain.ordered and not decided.count:
        verdict.reason = f"it needs an order, and no configuration of it could be decided by cases: {decided.reason}"
        return verdict
    return _with_floats(rule, trial, verdict, check_floats, small, decided.count)


def _loops(rule: Rule) -> bool:
    """Whether the only source stands in the target below something else, so that the rule grows what it made."""
    if len(rule.source) != 1 or len(rule.target) != 1:
        return False
    source, target = ("".join(text.split()) for text in (rule.source[0], rule.target[0]))
    return not source.startswith("*") and source != target and source in target


def _refuted(verdict: Verdict, trial: Trial) -> Verdict:
    worst, verdict.example = smallest(trial)
    verdict.counterexample = verdict.example.text()
    names = arbitrary_operators(worst.graph, worst.child, trial.domain) if worst.kind == "value" else []
    plain = [f.sample for f in trial.failures if not f.sample.symbols]
    if names and floats.agree(trial.rule, plain[:8]):
        spoilt = not_finite.refused(trial.rule, plain)
        if spoilt.kind:
            return _by_floats(verdict, spoilt)
        verdict.reason = (
            f"{worst.reason} where {_listed(names)} may be any function, and in floating point the sides agree: "
            "if it is true, it is by a law that the prover does not know"
        )
        return verdict
    verdict.status, verdict.kind, verdict.reason = "refuted", worst.kind, worst.reason
    if names:
        verdict.reason += f"; to the prover {_listed(names)} may be any function"
    return verdict


def _by_floats(verdict: Verdict, report: floats.FloatReport) -> Verdict:
    verdict.status, verdict.kind, verdict.reason = "refuted", report.kind, report.problem
    verdict.example = Counterexample(report.graph) if report.graph else None
    verdict.counterexample = report.graph
    return verdict


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _not_enough(verdict: Verdict, trial: Trial) -> Verdict:
    if not trial.fired and trial.same >= min(20, trial.samples):
        verdict.status = "identity"
        verdict.reason = f"both sides are one graph in our form ({trial.same} of {trial.same} matches)"
        return verdict
    if trial.fired:
        verdict.reason = (
            f"it fired in {trial.fired} of {trial.tries} draws only, {trial.samples} were wanted: "
            'give it hints ("samples")'
        )
    elif trial.needs_order:
        verdict.reason = "the field has no order, and the rule needs one; prove it over ordered rationals"
    elif trial.unsupported:
        verdict.reason = f"it never fired where both sides can be evaluated exactly: {trial.unsupported}"
    else:
        verdict.reason = (
            f"it never fired in {trial.tries} draws: its conditions contradict each other, "
            'or it needs hints ("samples")'
        )
    return verdict


def _with_floats(rule: Rule, trial: Trial, verdict: Verdict, check_floats: bool, small: Small, cases: int) -> Verdict:
    report = floats.compare(rule, trial.concrete) if check_floats else floats.FloatReport()
    spoilt = not_finite.refused(rule, trial.concrete) if check_floats and not report.kind else report
    if spoilt.kind:
        report = spoilt
    if check_floats and not report.kind:
        of_nothing = nothing.refused(rule, [sample for some in trial.of_nothing.values() for sample in some])
        report = of_nothing if of_nothing.kind else report
    if report.kind:
        return _by_floats(verdict, report)
    if spoilt.problem:
        verdict.reason = spoilt.problem
        return verdict
    field = trial.domain.name == "field"
    verdict.status = "proved"
    verdict.record = ProofRecord(
        method=trial.domain.name,
        fired=verdict.fired,
        shapes=len(trial.shapes),
        dims=(1, trial.largest),
        ranks=trial.ranks if trial.ranks[0] <= trial.ranks[1] else (0, 0),
        degree=trial.degree if field else 0,
        prime="2^61-1" if field else "",
        small=small.graphs,
        small_rank=small.rank,
        float_samples=report.samples,
        max_rel_err=report.max_rel_err,
        growth=report.growth,
        overflow=report.overflow,
        prover=PROVER_VERSION,
        semantics=semantics_digest(rule.core),
        statement=rule.digest,
        size=size_argument(rule, small.rank),
        cases=cases,
    )
    return verdict


def prove_all(
    rules: Iterable[Rule],
    progress: Callable[[Verdict], None] | None = None,
    *,
    samples: int = SAMPLES,
    seed: int = 0,
    check_floats: bool = True,
    exhaustive: bool = True,
    method: str = "",
    jobs: int = 1,
) -> list[Verdict]:
    """A verdict for each rule, in order; ``progress`` is called after each, in the order in which they end. A fault of
    the prover becomes an undecided verdict that names it. ``jobs``: processes. Ctrl-C ends it with what is known."""
    task = functools.partial(
        prove_or_say, samples=samples, seed=seed, check_floats=check_floats, exhaustive=exhaustive, method=method
    )
    return run_all(task, list(rules), progress, jobs)


def prove_or_say(rule: Rule, **options: Any) -> Verdict:
    """:func:`prove`, a fault of the prover as an undecided verdict."""
    try:
        return prove(rule, **options)
    except RlflowError as error:
        return Verdict(rule.name, "undecided", reason=f"the prover failed: {error}")
