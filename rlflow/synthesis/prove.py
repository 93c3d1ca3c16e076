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

``python -m rlflow.synthesis.prove --write`` proves the package's rules again and writes their records.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from rlflow import _core
from rlflow.errors import GraphError, ProofError, RlflowError, RuleError
from rlflow.rewrite import PROVER_VERSION, ProofRecord, Rule, semantics_digest
from rlflow.synthesis import floats
from rlflow.synthesis.domains import Domain, Field, Ordered, Unsupported
from rlflow.synthesis.field import key_of
from rlflow.synthesis.plan import Plan, make_plan
from rlflow.synthesis.sampling import Sample, draw_sample
from rlflow.synthesis.semantics import Evaluator, NeedsOrder

SAMPLES = 200
MOVES_PER_SAMPLE = 3
TRIES_PER_SAMPLE = 60
_ORDER_OPS = re.compile(
    r"\b(Max|Min|MaxPool|GlobalMaxPool|ReduceMax|ReduceMin|ArgMax|ArgMin|Relu|Clip|LeakyRelu|PRelu|Abs)\b"
    r"|\b(Greater|Less\w*)\b|:monotone"
)
# Refusals that say nothing against a rule: nothing to do, or a match that the applier rightly declines.
_BENIGN = re.compile(
    r"nothing changes|same graph|cycle|is not known here|is not a known number|has a second output in use"
)


@dataclass
class Verdict:
    """What is known of a rule: ``status`` is "proved", "refuted" or "undecided".

    ``kind`` of a refutation: "statement" (it does not compile), "shape" (the target is ill-typed or of another type),
    "value" (a field or
    ordered counterexample), "float" (double precision disagrees), "numerics" (said exact, is not).
    ``counterexample``: the smallest graph found,
    in text form.
    """

    rule: str
    status: str
    kind: str = ""
    reason: str = ""
    counterexample: str | None = None
    record: ProofRecord | None = None
    fired: int = 0
    wild_fired: int = 0
    tries: int = 0
    seconds: float = 0.0

    @property
    def proved(self) -> bool:
        return self.status == "proved"


@dataclass
class _Failure:
    kind: str
    reason: str
    graph: _core.Graph

    @property
    def size(self) -> tuple[int, int]:
        g = self.graph
        elements = 0
        for n in g.order():
            shape = g.shape(g.node_outputs(n)[0]) or []
            count = 1
            for d in shape:
                count *= d if isinstance(d, int) else 9
            elements += count
        return elements, g.num_nodes


@dataclass
class _Run:
    """The sampling of one rule over one domain."""

    rule: Rule
    plan: Plan
    domain: Domain
    samples: int
    seed: int
    fired: int = 0
    wild: int = 0
    tries: int = 0
    concrete: list[Sample] = field(default_factory=list)
    shapes: set[str] = field(default_factory=set)
    largest: int = 1
    failures: list[_Failure] = field(default_factory=list)
    needs_order: bool = False
    unsupported: str = ""

    def go(self) -> None:
        ruleset = _core.RuleSet([self.rule.core])
        limit = self.samples * TRIES_PER_SAMPLE
        after_failure = 0
        while self.tries < limit and self.fired < self.samples and after_failure < 300:
            self.tries += 1
            after_failure += bool(self.failures)
            rng = random.Random(key_of(self.seed, self.rule.digest, self.domain.name, self.tries))
            sample = draw_sample(self.plan, rng)
            if sample is not None:
                self._check(ruleset, sample)
            if self.needs_order or len(self.failures) >= 40:
                return

    def _check(self, ruleset: _core.RuleSet, sample: Sample) -> None:
        state = _core.State(sample.graph, ruleset)
        moves = state.moves()
        stats = state.stats().get(self.rule.name)
        if stats is None:
            return
        refusal = stats["last_refusal"]
        if stats["refused"] and not sample.symbols and not _BENIGN.search(refusal):
            self.failures.append(
                _Failure("shape", f"the conditions hold, and the target is ill-typed: {refusal}", sample.graph)
            )
        for i in range(min(len(moves), MOVES_PER_SAMPLE)):
            self._compare(sample, state.child(i))
            if self.needs_order:
                return

    def _compare(self, sample: Sample, child: _core.Graph) -> None:
        parent = sample.graph
        if sample.symbols:
            try:
                parent = parent.bind(sample.symbols)
            except GraphError:
                return  # the names hid a contradiction of the drawn graph itself
            try:
                child = child.bind(sample.symbols)
            except GraphError as error:
                self.failures.append(
                    _Failure("shape", f"with {sample.symbols} the target is ill-typed: {error}", sample.graph)
                )
                return
        evaluator = Evaluator(self.domain, key_of(self.seed, self.tries))
        try:
            feeds = evaluator.inputs(parent, sample.index_inputs)
            before = evaluator.run(parent, feeds)
            after = evaluator.run(child, feeds)
        except Unsupported as why:
            self.unsupported = str(why)
            return
        except NeedsOrder:
            self.needs_order = True
            return
        problem = _difference(parent, child, before, after)
        if problem:
            self.failures.append(_Failure(*problem, parent))
            return
        self.fired += 1
        self.wild += sample.wild
        self.shapes.add(_configuration(parent))
        self.largest = max(
            [self.largest, *(d for v in parent.outputs() for d in parent.shape(v) or [] if isinstance(d, int))]
        )
        if not sample.symbols and len(self.concrete) < 24:
            self.concrete.append(sample)


def _configuration(graph: _core.Graph) -> str:
    """The graph without what tells constants apart."""
    return re.sub(r"@[0-9a-f]{32}", "", graph.text())


def _difference(
    parent: _core.Graph, child: _core.Graph, before: list[np.ndarray], after: list[np.ndarray]
) -> tuple[str, str] | None:
    for k, (v, w, a, b) in enumerate(zip(parent.outputs(), child.outputs(), before, after, strict=True)):
        if parent.dtype(v) != child.dtype(w) or a.shape != b.shape:
            return "shape", f"output {k} is {parent.type_text(v)} before and {child.type_text(w)} after"
        unequal = np.asarray(a != b, dtype=bool)
        if np.any(unequal):
            at = [int(e[0]) for e in np.nonzero(unequal)] if a.ndim else []
            return "value", f"output {k} differs at {at} ({int(unequal.sum())} of {a.size} elements)"
    return None


def prove(rule: Rule, *, samples: int = SAMPLES, seed: int = 0, check_floats: bool = True) -> Verdict:
    """The verdict on a rule. Deterministic for a seed. Raises ProofError only where the prover itself is at fault (an
    operator without meaning,
    a shape that the core infers wrongly)."""
    try:
        core_rule = rule.core
        plan = make_plan(rule.source, rule.where, dict(rule.let), rule.samples)
    except RuleError as error:
        return Verdict(rule.name, "refuted", "statement", error.reason)
    run = _Run(rule, plan, Field(), samples, seed)
    run.go()
    may_order = run.needs_order or (
        run.failures and run.failures[0].kind == "value" and _ORDER_OPS.search(core_rule.text())
    )
    if may_order:
        run = _Run(rule, plan, Ordered(), samples, seed)
        run.go()
    verdict = Verdict(rule.name, "undecided", fired=run.fired, wild_fired=run.wild, tries=run.tries)
    if run.failures:
        worst = min(run.failures, key=lambda f: f.size)
        verdict.status, verdict.kind, verdict.reason, verdict.counterexample = (
            "refuted",
            worst.kind,
            worst.reason,
            worst.graph.text(),
        )
        return verdict
    if run.fired < samples:
        verdict.reason = _undecided(run)
        return verdict
    return _with_floats(rule, run, verdict, check_floats)


def _undecided(run: _Run) -> str:
    if run.fired:
        return (
            f'it fired in {run.fired} of {run.tries} draws only, {run.samples} were wanted: give it hints ("samples")'
        )
    if run.unsupported:
        return f"it never fired where both sides can be evaluated exactly: {run.unsupported}"
    return f'it never fired in {run.tries} draws: its conditions contradict each other, or it needs hints ("samples")'


def _with_floats(rule: Rule, run: _Run, verdict: Verdict, check_floats: bool) -> Verdict:
    report = floats.compare(rule, run.concrete) if check_floats else floats.FloatReport()
    if report.problem:
        verdict.status, verdict.kind, verdict.reason, verdict.counterexample = (
            "refuted",
            report.kind,
            report.problem,
            report.graph,
        )
        return verdict
    verdict.status = "proved"
    verdict.record = ProofRecord(
        method=run.domain.name,
        fired=run.fired,
        shapes=len(run.shapes),
        dims=(1, run.largest),
        prime="2^61-1" if run.domain.name == "field" else "",
        float_samples=report.samples,
        max_rel_err=report.max_rel_err,
        prover=PROVER_VERSION,
        semantics=semantics_digest(rule.core),
        statement=rule.digest,
    )
    return verdict


def prove_or_raise(rule: Rule, *, samples: int = SAMPLES) -> ProofRecord:
    """The record of a rule that is true. Raises ProofError with the counterexample for any other."""
    verdict = prove(rule, samples=samples)
    if verdict.record is None:
        example = f"\nThe smallest graph found:\n{verdict.counterexample}" if verdict.counterexample else ""
        where = f"{rule.file or 'rule'}:{rule.line or '?'}"
        raise ProofError(f"{where}: the rule '{rule.name}' is {verdict.status}: {verdict.reason}{example}")
    return verdict.record


def prove_all(
    rules: Iterable[Rule],
    progress: Callable[[Verdict], None] | None = None,
    *,
    samples: int = SAMPLES,
    check_floats: bool = True,
) -> list[Verdict]:
    """A verdict for each rule, in order; ``progress`` is called after each. A fault of the prover becomes an
    undecided verdict that names it."""
    verdicts = []
    for rule in rules:
        try:
            verdict = prove(rule, samples=samples, check_floats=check_floats)
        except RlflowError as error:
            verdict = Verdict(rule.name, "undecided", reason=f"the prover failed: {error}")
        verdicts.append(verdict)
        if progress:
            progress(verdict)
    return verdicts


if __name__ == "__main__":
    from rlflow.synthesis.writing import main

    raise SystemExit(main())
