"""``rlflow rules repair``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rlflow.cli.common import plural
from rlflow.cli.json_option import in_json, json_option
from rlflow.cli.rules.shared import Bar, rules_named
from rlflow.errors import ProofError

if TYPE_CHECKING:
    from rlflow.synthesis import Repair


@click.command("repair")
@click.argument("file")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option(
    "--jobs", "-j", type=click.IntRange(min=1), help="Processes that work side by side. [default: one a core]"
)
@click.option(
    "--samples", type=click.IntRange(min=1), default=200, show_default=True, help="Firing samples of each proof."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of everything random.")
@json_option()
def repair(file: str, names: tuple[str, ...], jobs: int | None, samples: int, seed: int, json_file: str | None) -> None:
    """Say which conditions the false rules of FILE lack (or those called NAME), and prove them with these.

    Nothing is written: put the conditions into "where" yourself. Exits with 1 where a rule could not be repaired.
    """
    import functools

    from rlflow.synthesis.pool import default_jobs, run_all
    from rlflow.synthesis.repair import repair_or_say

    rules = [rule for rule in rules_named([file], False) if not names or rule.name in names]
    missing = sorted(set(names) - {rule.name for rule in rules})
    if missing:
        raise click.UsageError(f"{file} has no rule {missing[0]!r}.")
    task = functools.partial(repair_or_say, samples=samples, seed=seed)
    with Bar("repairing", len(rules)) as bar:
        answers = run_all(task, rules, lambda answer: bar.step(answer.rule.name), jobs or default_jobs())
    if not in_json(json_file, lambda: [_plain(answer) for answer in answers]):
        for answer in answers:
            click.echo(_sentence(answer))
    open_ones = len(rules) - sum(answer.status in ("proved", "repaired", "identity") for answer in answers)
    if open_ones:
        raise ProofError(f"No repair for {plural(open_ones, 'rule')} of {len(rules)}; see above.")


def _sentence(answer: Repair) -> str:
    name = answer.rule.name
    if answer.status == "proved":
        return f"{name}: true as it stands"
    if answer.status == "repaired":
        return f"{name}: true with {' and '.join(answer.added)} (still fires on {answer.kept:.0%} of where it was true)"
    if answer.status == "identity":
        return f"{name}: {answer.reason}"
    return f"{name}: no repair found; {answer.reason}"


def _plain(answer: Repair) -> dict[str, Any]:
    return {
        "rule": answer.rule.name,
        "status": answer.status,
        "added": list(answer.added),
        "kept": round(answer.kept, 4),
        "reason": answer.reason,
        "rounds": answer.rounds,
        "candidates": answer.atoms,
        "verdict": answer.verdict.to_json(),
    }
