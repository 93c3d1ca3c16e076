"""``rlflow rules generate``."""

from __future__ import annotations

import json
import sys
from datetime import date as _date
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

from rlflow.cli.sections import SectionedCommand
from rlflow.errors import UsageError

if TYPE_CHECKING:
    from rlflow.synthesis.generate import PhaseProgress, Vocabulary

_PHASES = {"enumerate": "enumerating", "prove": "pruning and proving", "examples": "finding examples"}


_SECTIONS = {
    "Which rules": ("vocabulary", "ops", "groups", "max_ops"),
    "Effort": ("memory", "samples", "minutes", "jobs", "workers", "seed"),
    "Result": ("out", "statistics", "date", "resume", "keep_work", "quiet"),
}  # fmt: skip


@click.command("generate", cls=SectionedCommand, sections=_SECTIONS)
@click.option(
    "--vocabulary", default="taso", show_default=True, metavar="NAME|FILE",
    help="Which operators: taso, wide, or a JSON file.",
)
@click.option("--ops", metavar="OP,...", help="Only these operators: the vocabulary's names, or ONNX names.")
@click.option("--groups", metavar="GROUP,...", help="Only these groups of the vocabulary.")
@click.option("--max-ops", default=3, show_default=True, help="Operators of a graph, at most.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The rule file to write.")
@click.option("--jobs", default=2, show_default=True, help="Threads that enumerate, then processes that prove.")
@click.option("--workers", metavar="N|ray|ray://…", help="Who proves, instead of --jobs processes of this machine.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True,
    help="Seed of the inputs' values and of the proofs' samples.",
)
@click.option("--memory", default=1000, show_default=True, metavar="MB", help="Memory for enumerated graphs.")
@click.option("--samples", default=200, show_default=True, help="Evaluations of each proof.")
@click.option("--minutes", type=float, help="Stop proving after so long, and write what is proved.")
@click.option("--date", metavar="YYYY-MM-DD", help="The date to write into the rules; today's by default.")
@click.option("--resume", is_flag=True, help="Go on where an interrupted run stopped.")
@click.option("--statistics", type=click.Path(path_type=Path), help="Also write counts and seconds as JSON.")
@click.option("--keep-work", is_flag=True, help="Keep the work folder (OUT.work) after a complete run.")
@click.option("-q", "--quiet", is_flag=True, help="Print no progress.")
def generate(
    vocabulary: str,
    ops: str | None,
    groups: str | None,
    max_ops: int,
    out: Path,
    jobs: int,
    workers: str | None,
    seed: int,
    memory: int,
    samples: int,
    minutes: float | None,
    date: str | None,
    resume: bool,
    statistics: Path | None,
    keep_work: bool,
    quiet: bool,
) -> None:
    """Find rules: enumerate graphs, pair those that compute the same, prune what smaller rules imply, prove the rest.

    Ctrl-C keeps what was done in OUT.work; the same command with --resume goes on from there.
    """
    from rlflow.crew import Workers
    from rlflow.files import same_place
    from rlflow.synthesis.generate import Effort, Recipe, generate_file

    if statistics is not None and same_place(statistics, out):
        raise UsageError(f"--out and --statistics cannot both be written to {out}; give each its own place.")
    provers = None if workers is None else Workers.parse(workers)
    chosen = _vocabulary(vocabulary, ops, groups)
    settings = Recipe(chosen, Effort(max_ops, seed, jobs, memory, samples, minutes), date or _date.today().isoformat())
    with _Bar(quiet) as bar:
        try:
            result = generate_file(
                settings, out, resume=resume, keep_work=keep_work, report=bar.report, workers=provers
            )
        except KeyboardInterrupt:
            click.echo(f"\nStopped. What was done is in {out}.work; the same command with --resume goes on.", err=True)
            sys.exit(130)
    if statistics is not None:
        from rlflow.files import write_atomically

        write_atomically(statistics, json.dumps(result.summary(), indent=1) + "\n")
    _print(result.summary(), out)


def _vocabulary(name: str, ops: str | None, groups: str | None) -> Vocabulary:
    from rlflow.synthesis.generate import load_vocabulary

    vocabulary = load_vocabulary(name)
    if groups is not None:
        vocabulary = vocabulary.only_groups([g.strip() for g in groups.split(",") if g.strip()])
    return vocabulary if ops is None else vocabulary.only([o.strip() for o in ops.split(",") if o.strip()])


def _print(summary: dict[str, Any], out: Path) -> None:
    for name, count in summary["total"].items():
        click.echo(f"{count:>12,}  {name.replace('_', ' ')}")
    seconds = ", ".join(f"{phase} {s:.0f} s" for phase, s in summary["seconds"].items())
    click.echo(
        f"{summary['rules']:,} rules ({summary['new']:,} that the core library does not imply) in {out}; {seconds}."
    )


class _Bar:
    """A progress bar on a terminal, a line a phase elsewhere."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._last = ""
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> _Bar:
        if not self._quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, console=Console(stderr=True))
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def report(self, progress: PhaseProgress) -> None:
        """Shows a step."""
        text = f"{_PHASES.get(progress.phase, progress.phase)} {progress.group}".strip()
        if self._bar is None:
            if text != self._last and not self._quiet:
                click.echo(f"rlflow: {text}", err=True)
        elif text != self._last:
            self._task = self._bar.add_task(text, total=progress.total)
        if self._bar is not None:
            self._bar.update(self._task, completed=progress.done, total=progress.total)
        self._last = text
