"""``rlflow optimize``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from rlflow.cli.common import NameChoice, emit_json, parse_dims, parse_pairs, show
from rlflow.cli.model_files import MODEL
from rlflow.errors import UsageError
from rlflow.options import Options

if TYPE_CHECKING:
    from rlflow.report import Report


#: The exit code of ``--check`` where there is something to gain.
GAIN_FOUND = 4


def _with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator: an option for each field of :class:`Options`."""
    for field in reversed(dataclasses.fields(Options)):
        about = dict(field.metadata["click"])
        flags = about.pop("flags", None) or "--" + field.name.replace("_", "-")
        if isinstance(field.default, bool):
            about["is_flag"] = True
        elif not about.get("multiple"):
            about["default"] = field.default
        if isinstance(about.get("type"), tuple):
            about["type"] = click.Choice(about["type"])
        elif callable(about.get("type")) and not isinstance(about["type"], type):
            about["type"] = NameChoice(about["type"])
        elif "least" in about:
            about["type"] = click.IntRange(min=about.pop("least"))
        command = click.option(flags, field.name, **about)(command)
    return command


def _options(given: dict[str, Any]) -> Options:
    """The values of the command line as one value."""
    for name in ("input_data", "rules"):
        given[name] = list(given[name]) or None
    given["dims"] = parse_pairs("--dim", given["dims"], "=", "--dim N=1 or --dim N=1..8..64")
    given["shapes"] = parse_pairs("--shape", given["shapes"], ":", "--shape x:4x128 or --shape x:1x16,4x128,8x512")
    given["freeze"] = parse_dims("--freeze", given["freeze"])
    given["verify"] = not given["verify"]  # the flag is --no-verify
    return Options(**given)


@click.command()
@click.argument("model", metavar="IN", type=MODEL)
@click.argument("out", metavar="[OUT]", required=False)
@click.option("-o", "--output", metavar="OUT", help="File to write. Without it, only the report is made.")
@_with_options
@click.option(
    "--measure-jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Such commands at a time ({slot})."
)
@click.option(
    "--measure-timeout", type=float, default=300.0, show_default=True, help="Seconds that one such command may take."
)
@click.option(
    "--check", is_flag=True, help="Write nothing; exit code 4 where the model could be faster by --threshold or more."
)
@click.option(
    "--threshold",
    type=float,
    default=2.0,
    show_default=True,
    metavar="PERCENT",
    help="Least gain that --check reports.",
)
@click.option("--json", "json_file", metavar="FILE", help="Write the report as JSON; - is stdout.")
@click.option(
    "--egraph-out", metavar="FILE", help="Write the first e-graph of eqsat or tensat, as extraction-gym JSON."
)
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
@click.option("-v", "--verbose", is_flag=True, help="Show everything; errors come with their traceback.")
@click.pass_context
def optimize(
    context: click.Context,
    model: str,
    out: str | None,
    output: str | None,
    json_file: str | None,
    egraph_out: str | None,
    measure_jobs: int,
    measure_timeout: float,
    check: bool,
    threshold: float,
    quiet: bool,
    verbose: bool,
    **given: Any,
) -> None:
    """Search for a faster model that computes the same, and write it to OUT.

    The result is never slower (it is timed against the original) and never different (its outputs are compared). Where
    nothing is gained, OUT receives the model as it came. IN may be a name of the zoo. Ctrl-C ends the search with the
    best found so far.
    """
    if quiet and verbose:
        raise UsageError("--quiet and --verbose contradict each other; give one of them.")
    if out is not None and output is not None and out != output:
        raise UsageError(f"The output is given twice, {out} and {output}; give it once.")
    from rlflow import optimizer
    from rlflow.cli.common import device_command, with_egraph_out
    from rlflow.cli.progress import reporter

    target = output or out
    if check and target is not None:
        raise UsageError(f"--check writes nothing; leave out {target}, or leave out --check.")
    _check_report_place(json_file, model, target)
    given["measure_cmd"] = device_command(given["measure_cmd"], measure_jobs, measure_timeout)
    given["search"] = with_egraph_out(given["search"], egraph_out, model)
    options = _options(given)
    with reporter(quiet) as told:
        result = optimizer.optimize(
            model,
            output=target,
            options=options,
            on_progress=told.progress,
            on_stage=told.stage,
            on_pricing=told.pricing,
        )
    _tell(result.report, json_file, quiet, verbose)
    if check and 100.0 * (result.report.gain - 1.0) >= threshold:
        context.exit(GAIN_FOUND)


def _check_report_place(json_file: str | None, model: str, target: str | None) -> None:
    from rlflow.files import check_output, same_place

    if json_file in (None, "-"):
        return
    check_output(json_file, model)
    if target is not None and same_place(json_file, target):
        raise UsageError(f"The report and the model cannot both be written to {target}.")


def _tell(report: Report, json_file: str | None, quiet: bool, verbose: bool) -> None:
    from rlflow.report import render

    if json_file is not None:
        emit_json(report.to_dict(), json_file)
    if not quiet and json_file != "-":
        show(render(report, verbose=verbose))
