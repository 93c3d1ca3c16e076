"""``rlflow compare``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rlflow.cli.common import DEVICE, WORKERS, console, parse_dims, say
from rlflow.cli.json_option import emit_json, json_option
from rlflow.cli.model_files import MODEL
from rlflow.cli.outputs import check_outputs
from rlflow.cli.sections import SectionedCommand
from rlflow.cli.signals import INTERRUPTED

if TYPE_CHECKING:
    from rlflow.comparison import Comparison, Difference


_SECTIONS = {
    "What is compared": ("searches", "budget", "seeds", "cost", "rules"),
    "Timing": ("gate_seconds", "threads", "dims"),
    "Who works": ("workers", "device"),
    "Result": ("keep", "json_file", "csv_file", "plot_file", "quiet"),
}  # fmt: skip


@click.command(cls=SectionedCommand, sections=_SECTIONS)
@click.argument("models", metavar="MODEL...", nargs=-1, required=True, type=MODEL)
@click.option(
    "--search",
    "searches",
    required=True,
    metavar="A,B…",
    help="Strategies; options in brackets: beam(width=4;twins=1).",
)
@click.option("--budget", default="60s", show_default=True, help="Budget of each search: 60s, 5m, 500c, 50x or 20meas.")
@click.option(
    "--seeds", type=click.IntRange(min=1), default=3, show_default=True,
    help="How many seeds each strategy searches with.",
)
@click.option("--cost", default="onnxruntime", show_default=True, help="Cost model; analytic times nothing.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="Threads of the runtime.")
@click.option("--dim", "dims", multiple=True, metavar="N=1", help="Size of an open dimension, for measuring only.")
@click.option("--rules", multiple=True, metavar="FILE|FAMILY", help="Use these rules instead of all that ship.")
@click.option(
    "--gate-seconds", type=float, default=60.0, show_default=True, help="Seconds for timing the winners of each model."
)
@WORKERS
@DEVICE
@click.option(
    "--keep", metavar="FILE",
    help="Keep finished searches in FILE (JSON lines), and do not run those again that it has.",
)
@json_option("everything as JSON")
@click.option("--csv", "csv_file", metavar="FILE", help="Write CSV, one line for each search.")
@click.option("--plot", "plot_file", metavar="FILE", help="Draw the anytime curves (extra [report]).")
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
@click.pass_context
def compare(
    context: click.Context,
    models: tuple[str, ...],
    searches: str,
    budget: str,
    seeds: int,
    cost: str,
    threads: int,
    dims: tuple[str, ...],
    rules: tuple[str, ...],
    gate_seconds: float,
    workers: str,
    device: str | None,
    keep: str | None,
    json_file: str | None,
    csv_file: str | None,
    plot_file: str | None,
    quiet: bool,
) -> None:
    """Race search strategies on MODELs: the same budget for all, several seeds, the winners timed end to end.

    A strategy is called better only where the difference is significant. Ctrl-C keeps what is done (--keep), shows it
    and ends with 130.
    """
    from rlflow import comparison
    from rlflow.cli.progress import reporter
    from rlflow.crew import Workers
    from rlflow.specs import nested

    outputs = {"--keep": keep, "--json": json_file, "--csv": csv_file, "--plot": plot_file}
    check_outputs(outputs, [*models, *rules])
    if plot_file is not None:
        from rlflow.report.plots import check_plot

        check_plot(plot_file)
    specs = [nested(spec) for spec in searches.split(",")]
    with reporter(quiet) as told:
        found = comparison.compare(
            models,
            specs,
            budget=budget,
            seeds=seeds,
            cost=cost,
            threads=threads,
            dims=parse_dims("--dim", dims),
            rules=list(rules) or None,
            gate_seconds=gate_seconds,
            keep=keep,
            on_stage=told.stage,
            workers=Workers.parse(workers, device),
        )
    if json_file is not None:
        emit_json(found.to_dict(), json_file)
    _write(found, csv_file, plot_file, _unit(budget))
    if not quiet and json_file != "-":
        _print(found)
    if found.interrupted:
        _end_interrupted(context, len(found.runs), len(models) * len(specs) * seeds)


def _end_interrupted(context: click.Context, done: int, wanted: int) -> None:
    say(f"rlflow: interrupted; {done} of {wanted} searches are done.", err=True)
    context.exit(INTERRUPTED)


def _write(found: Comparison, csv_file: str | None, plot_file: str | None, unit: str) -> None:
    from rlflow.files import write_atomically

    if csv_file is not None:
        write_atomically(csv_file, found.csv().encode())
    if plot_file is not None and found.runs:
        from rlflow.report.plots import anytime_curves

        anytime_curves(found.runs, plot_file, unit)


def _unit(budget: str) -> str:
    """What the curves are drawn over: the budget's own unit, the first that it has."""
    from rlflow.search import Budget

    found = Budget.parse(budget)
    units = ("candidates", "expansions", "measurements")
    return next((unit for unit in units if getattr(found, unit) is not None), "seconds")


def _print(found: Comparison) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, pad_edge=False)
    for number, title in enumerate(
        ("model", "strategy", "cost / before", "speed-up", "95 % interval", "seconds", "opened")
    ):
        table.add_column(title, justify="right" if number > 1 else "left", no_wrap=number > 1, overflow="fold")
    for row in found.summary():
        spread = "" if row["relative_cost_ci"] is None else f" ± {row['relative_cost_ci']:.4f}"
        low_high = row["speedup_ci95"]
        table.add_row(
            row["model"],
            row["strategy"],
            f"{row['relative_cost']:.4f}{spread}",
            "" if row["speedup"] is None else f"{row['speedup']:.3f}",
            "" if low_high is None else f"{low_high[0]:.3f} to {low_high[1]:.3f}",
            f"{row['seconds']:.1f}",
            f"{row['expansions']:.0f}",
        )
    console().print(table)
    for difference in found.differences:
        if difference.significant:
            click.echo(_sentence(difference))
    silent = sum(not difference.significant for difference in found.differences)
    if silent:
        click.echo(f"{silent} of {len(found.differences)} differences are not significant.")


def _sentence(d: Difference) -> str:
    what = "a lower cost" if d.measure == "cost" else "a faster model"
    return f"{d.model}: {d.better} finds {what} than {d.worse}, by {d.ratio:.4f} ({d.low:.4f} to {d.high:.4f})."
