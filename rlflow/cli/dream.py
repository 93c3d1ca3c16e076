"""``rlflow dream``: what a world model believes of a model, beside what the engine says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rlflow.cli.common import console
from rlflow.cli.json_option import in_json, json_option
from rlflow.cli.outputs import check_outputs
from rlflow.errors import UsageError

if TYPE_CHECKING:
    from rlflow.agents.rlflow.watch import Watched


@click.command()
@click.argument("model")
@click.option(
    "--checkpoint", default="", metavar="FILE",
    help="What `rlflow train worldmodel` wrote. [default: the one that ships]",
)
@click.option("--worldmodel", default="latent", show_default=True, help="Which of those that ship: latent or graph.")
@click.option("--steps", type=click.IntRange(min=1), default=20, show_default=True, help="Longest dream.")
@click.option(
    "--temperature", type=float, default=0.0, show_default=True, help="Temperature of the next latent vector."
)
@click.option("--cost", default="analytic", show_default=True, help="Cost model for the real returns.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of everything random.")
@json_option("the steps as JSON")
@click.option("--plot", "plot_file", metavar="FILE", help="Draw predicted and real return (extra [report]).")
def dream(
    model: str, checkpoint: str, worldmodel: str, steps: int, temperature: float, cost: str, seed: int,
    json_file: str | None, plot_file: str | None,
) -> None:  # fmt: skip
    """Dream about MODEL (a zoo model or an ONNX file), then do the same for real and compare.

    The dream asks the engine for the starting graph and nothing else. Its actions are then taken in the engine: a step
    that is not possible there ends the comparison and is shown as such.
    """
    from rlflow import nn

    reason = nn.available()
    if reason is not None:
        raise UsageError(f"rlflow dream runs a learned model, and this environment cannot: {reason}.")
    from rlflow.agents.learned import one_thread
    from rlflow.agents.rlflow.watch import watch

    check_outputs({"--json": json_file, "--plot": plot_file}, [model, checkpoint, worldmodel])
    if plot_file is not None:
        from rlflow.report.plots import check_plot

        check_plot(plot_file)
    with one_thread():
        found = watch(model, checkpoint or None, worldmodel, steps, temperature, cost, seed)
    printed = in_json(json_file, found.to_dict)
    if plot_file is not None:
        from rlflow.report.plots import predicted_and_real

        predicted_and_real(found.predicted, found.real, plot_file, title=model)
    if not printed:
        _print(found)


def _print(found: Watched) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, pad_edge=False)
    for number, title in enumerate(("step", "rule", "match", "predicted return", "real return", "matches", "really")):
        table.add_column(title, justify="left" if number == 1 else "right")
    for number, step in enumerate(found.steps, 1):
        real = "not possible" if step.real is None else f"{step.real:.4f}"
        really = "" if step.real_matches is None else str(step.real_matches)
        table.add_row(str(number), step.rule, str(step.match), f"{step.predicted:.4f}", real, str(step.matches), really)
    console().print(table)
    click.echo(found.sentence())
