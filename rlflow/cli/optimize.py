"""``rlflow optimize``."""

from __future__ import annotations

import dataclasses
import math
import shlex
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from rlflow.cli.common import NameChoice, one_output, parse_dims, parse_extents, parse_shapes, show
from rlflow.cli.json_option import emit_json, json_option
from rlflow.cli.model_files import MODEL
from rlflow.cli.outputs import check_outputs, check_page, files_of
from rlflow.cli.sections import SectionedCommand
from rlflow.errors import UsageError
from rlflow.options import Options

if TYPE_CHECKING:
    from rlflow.pipeline import OptimizeResult
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
    given["dims"] = parse_extents(given["dims"])
    given["shapes"] = parse_shapes(given["shapes"])
    given["freeze"] = parse_dims("--freeze", given["freeze"])
    given["verify"] = not given["verify"]  # the flag is --no-verify
    return Options(**given)


_SECTIONS = {
    "Result": ("output", "json_file", "page_file", "check", "threshold", "verify", "quiet", "verbose"),
    "Time": ("budget", "patience", "gate_seconds", "fresh", "seed"),
    "Inputs": ("dims", "shapes", "only_usual", "freeze", "input_data", "keep_initializer_inputs"),
    "What may change": (
        "rules", "skip_rules", "only_rules", "numerics", "tolerance", "max_growth", "allow_opset", "allow_domain",
        "keep_opset", "kernels",
    ),
    "Where it will run": ("threads", "runtime", "provider", "measure_cmd", "measure_jobs", "measure_timeout"),
    "Prices and search": ("cost", "measure", "search", "alpha", "train_budget", "egraph_out", "profile_rules"),
}  # fmt: skip


@click.command(cls=SectionedCommand, sections=_SECTIONS)
@click.argument("model", metavar="IN", type=MODEL)
@click.argument("out", metavar="[OUT]", required=False)
@click.option("-o", "--output", metavar="OUT", help="File to write. Without it, only the report is made.")
@_with_options
@click.option(
    "--measure-jobs", type=click.IntRange(min=1), default=1, show_default=True,
    help="How many --measure-cmd commands may run at a time ({slot} tells them apart).",
)
@click.option(
    "--measure-timeout", type=float, default=300.0, show_default=True,
    help="Seconds that one --measure-cmd command may take.",
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
@json_option("the report as JSON")
@click.option("--report", "page_file", metavar="FILE", help="Write the report as one HTML file that needs no network.")
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
    page_file: str | None,
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
    if not 0.0 <= threshold < math.inf:
        raise UsageError(f"--threshold is {threshold:g} percent; expected a number from 0 on.")
    from rlflow import optimizer
    from rlflow.cli.common import device_command, with_egraph_out

    target = one_output(out, output)
    if check and target is not None:
        raise UsageError(f"--check writes nothing; leave out {target}, or leave out --check.")
    if check and egraph_out is not None:
        raise UsageError(f"--check writes nothing; leave out --egraph-out {egraph_out}, or leave out --check.")
    outputs = {"-o": target, "--json": json_file, "--report": page_file, "--egraph-out": egraph_out}
    check_outputs(outputs, [model, *files_of(given["input_data"]), *given["rules"]])
    check_page("--report", page_file)
    given["measure_cmd"] = device_command(given["measure_cmd"], measure_jobs, measure_timeout)
    given["search"] = with_egraph_out(given["search"], egraph_out, model)
    options = _options(given)
    result = optimizer.optimize(model, output=target, options=options, quiet=quiet)
    command = shlex.join(["rlflow", *sys.argv[1:]])
    result = dataclasses.replace(result, report=dataclasses.replace(result.report, command=command))
    if page_file is not None:
        _write_page(page_file, model, result, options)
    _tell(result.report, json_file, quiet, verbose)
    if check and 100.0 * (result.report.gain - 1.0) >= threshold:
        context.exit(GAIN_FOUND)


def _write_page(path: str, model: Any, result: OptimizeResult, options: Options) -> None:
    from rlflow.frontends.opening import open_source
    from rlflow.report.page import write_page
    from rlflow.report.steps import replayed

    report = result.report
    steps = None
    if report.improved and report.trace:
        loading = {"freeze": options.freeze or None, "keep_initializer_inputs": options.keep_initializer_inputs}
        steps = replayed(model, report.trace, options.chosen_rules, **loading)
    write_page(path, report, open_source(model)[0], result.model, steps=steps)


def _tell(report: Report, json_file: str | None, quiet: bool, verbose: bool) -> None:
    from rlflow.report import render

    if json_file is not None:
        emit_json(report.to_dict(), json_file)
    if not quiet and json_file != "-":
        show(render(report, verbose=verbose))
