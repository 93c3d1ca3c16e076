"""``rlflow rules prove``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlflow.cli.common import plural
from rlflow.cli.json_option import in_json, json_option
from rlflow.cli.rules.shared import Bar, rules_named
from rlflow.errors import ProofError, UsageError

if TYPE_CHECKING:
    from rlflow.rewrite import Rule
    from rlflow.synthesis import Verdict

_METHODS = ("auto", "field", "ordered", "float", "axiom")


@click.command("prove")
@click.argument("items", metavar="[FILE|NAME|FAMILY]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All rules that ship.")
@click.option(
    "--jobs", "-j", type=click.IntRange(min=1), help="Processes that work side by side. [default: one a core]"
)
@click.option(
    "--method",
    type=click.Choice(_METHODS),
    default="auto",
    show_default=True,
    help="auto: exactly (field or ordered, as the rule asks), then in floats; axiom: z3 from the operators' laws.",
)
@click.option(
    "--samples", type=click.IntRange(min=1), default=200, show_default=True, help="Firing samples of each rule."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of everything random.")
@click.option(
    "--axioms", is_flag=True, help="Look for a derivation from the operators' laws too, as a second argument."
)
@click.option(
    "--bands", is_flag=True, help="Prove the bands of rows that `rlflow shrink` makes, and no rules. [needs: z3]"
)
@click.option("--write", is_flag=True, help="Write the proof records into the files.")
@click.option("--examples", is_flag=True, help="Find and write examples for rules without; prove nothing.")
@json_option("the verdicts as JSON")
@click.option("-q", "--quiet", is_flag=True, help="Print only the rules that are not proved.")
def prove(
    items: tuple[str, ...],
    everything: bool,
    jobs: int | None,
    method: str,
    samples: int,
    seed: int,
    axioms: bool,
    bands: bool,
    write: bool,
    examples: bool,
    json_file: str | None,
    quiet: bool,
) -> None:
    """Prove rules: those of FILEs, those called NAME or of a FAMILY, or --all. Exits with 1 where one is not proved.

    Ctrl-C prints (and writes) what is known by then.
    """
    if bands:
        _prove_bands(items, everything, json_file, quiet)
        return
    if method in ("axiom", "float") and write:
        raise UsageError(f"--write needs a whole proof; the method {method} is half of one. Leave --method out.")
    rules = rules_named(items, everything)
    if examples:
        _write_examples(rules)
        return
    verdicts = _verdicts(rules, method, samples, seed, axioms, jobs)
    if write:
        _write(rules, verdicts)
    printed = in_json(json_file, lambda: [verdict.to_json() for verdict in verdicts])
    if not printed:
        for verdict in verdicts:
            _print(verdict, quiet)
    _end(rules, verdicts, quiet or printed)


def _prove_bands(items: Sequence[str], everything: bool, json_file: str | None, quiet: bool) -> None:
    from rlflow.synthesis.band_proofs import band_proofs

    if items or everything:
        raise UsageError("--bands proves no rules; leave the names of rules, or --all, out.")
    found = []
    for one in band_proofs():
        found.append(one)
        if json_file is None and not (quiet and one.proved):
            click.echo(str(one))
            for line in one.against.splitlines():
                click.echo(f"  | {line}")
    printed = in_json(json_file, lambda: [{**one._asdict(), "proved": one.proved} for one in found])
    missing = sum(not one.proved for one in found)
    if missing:
        raise ProofError(f"Of {plural(len(found), 'statement')} about bands, {missing} not proved; see above.")
    if not (quiet or printed):
        click.echo(f"{plural(len(found), 'statement')}: {len(found)} proved.")


def _verdicts(
    rules: Sequence[Rule], method: str, samples: int, seed: int, axioms: bool, jobs: int | None
) -> list[Verdict]:
    import functools

    from rlflow.synthesis.methods import one_verdict
    from rlflow.synthesis.pool import default_jobs, run_all

    task = functools.partial(one_verdict, method=method, samples=samples, seed=seed, axioms=axioms)
    with Bar("proving", len(rules)) as bar:
        return run_all(task, rules, lambda v: bar.step(v.rule), jobs or default_jobs())


def _print(verdict: Verdict, quiet: bool) -> None:
    if quiet and verdict.proved:
        return
    scope = verdict.record.scope if verdict.record else verdict.reason
    kind = f" ({verdict.kind})" if verdict.kind else ""
    click.echo(f"{verdict.rule}: {verdict.status}{kind}" + (f"; {scope}" if scope else ""))
    for line in (verdict.counterexample or "").strip().splitlines():
        click.echo(f"  | {line}")


def _end(rules: Sequence[Rule], verdicts: list[Verdict], quiet: bool) -> None:
    counts = Counter(v.status for v in verdicts)
    said = ", ".join(f"{counts[s]} {s}" for s in ("proved", "refuted", "identity", "undecided") if counts[s])
    if len(verdicts) < len(rules):
        raise ProofError(
            f"Interrupted after {len(verdicts)} of {plural(len(rules), 'rule')}: {said or 'nothing known'}."
        )
    if counts["proved"] < len(rules):
        raise ProofError(f"Of {plural(len(rules), 'rule')}: {said}; see above.")
    if not quiet:
        click.echo(f"{plural(len(rules), 'rule')}: {said}.")


def _write(rules: Sequence[Rule], verdicts: Sequence[Verdict]) -> None:
    from rlflow.synthesis.rule_files import write_records

    found = {v.rule: v for v in verdicts}
    for path in dict.fromkeys(rule.file for rule in rules if rule.file):
        names = [rule.name for rule in rules if rule.file == path]
        write_records(Path(path), {name: found[name] for name in names if name in found})


def _write_examples(rules: Sequence[Rule]) -> None:
    from rlflow.synthesis.rule_files import write_examples

    for path in dict.fromkeys(rule.file for rule in rules if rule.file):
        write_examples(Path(path), [rule.name for rule in rules if rule.file == path])
