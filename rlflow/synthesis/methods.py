"""One verdict by the method that a caller names."""

from __future__ import annotations

from dataclasses import replace

from rlflow.errors import RlflowError, RuleError
from rlflow.rewrite import Rule
from rlflow.synthesis import floats
from rlflow.synthesis.hints import hints_of
from rlflow.synthesis.prove import SAMPLES, faults_told, prove_or_say
from rlflow.synthesis.trial import explore
from rlflow.synthesis.verdict import Counterexample, Verdict


def one_verdict(
    rule: Rule, *, method: str = "auto", samples: int = SAMPLES, seed: int = 0, axioms: bool = False
) -> Verdict:
    """``auto``: the whole proof, with ``axioms`` a derivation from laws too, as a second argument; ``field`` and
    ``ordered``: over that domain only, then floats; ``float``: floats only; ``axiom``: the derivation only. A fault of
    the prover becomes an undecided verdict. Raises ProofError where z3 is asked for and absent."""
    if method == "axiom":
        return _derived(rule)
    if method == "float":
        return _float_only(rule, samples, seed)
    verdict = prove_or_say(rule, samples=samples, seed=seed, method="" if method == "auto" else method)
    if axioms and verdict.record is not None:
        laws = _derived(rule)
        if laws.proved:
            verdict.record = replace(verdict.record, axioms=laws.laws)
    return verdict


def _derived(rule: Rule) -> Verdict:
    from rlflow.synthesis.axioms import derive

    answer = derive(rule)
    return Verdict(rule.name, "proved" if answer.proved else "undecided", reason=answer.reason, laws=answer.laws)


def _float_only(rule: Rule, samples: int, seed: int) -> Verdict:
    try:
        with faults_told():
            rule.core  # noqa: B018 - compiles it
            hints = hints_of(rule)
            trial = explore(rule, hints, min(samples, 40), seed)
            report = floats.compare(rule, trial.concrete)
    except RuleError as error:
        return Verdict(rule.name, "refuted", "statement", error.reason)
    except RlflowError as error:
        return Verdict(rule.name, "undecided", reason=f"the prover failed: {error}")
    verdict = Verdict(rule.name, "proved" if report.samples else "undecided", fired=report.samples, tries=trial.tries)
    if report.kind:
        verdict.status, verdict.kind, verdict.reason = "refuted", report.kind, report.problem
        verdict.example = Counterexample(report.graph) if report.graph else None
        verdict.counterexample = report.graph
    elif report.samples:
        verdict.reason = (
            f"{report.samples} runs in floats, error {report.max_rel_err:.0e} in double precision, "
            f"growth {report.growth:g} in float32" + (", overflows at 2^50" if report.overflow else "")
        )
    else:
        verdict.reason = "ONNX's evaluator ran none of the graphs in which it fires"
    return verdict
