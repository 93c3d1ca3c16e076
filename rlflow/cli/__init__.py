"""The command line: one file per verb, nothing heavy imported before it is needed.

Exit codes: 0 done (also where there was nothing to gain), 1 failure, 2 usage, 3 verification failed, 4 something to
gain (optimize --check).
"""

from __future__ import annotations

import click

from rlflow.cli.bench import bench
from rlflow.cli.common import ErrorGroup
from rlflow.cli.compare import compare
from rlflow.cli.cost import cost
from rlflow.cli.diff import diff
from rlflow.cli.dream import dream
from rlflow.cli.explain import explain
from rlflow.cli.info import info
from rlflow.cli.inspect import inspect
from rlflow.cli.optimize import optimize
from rlflow.cli.place import place
from rlflow.cli.rules import rules
from rlflow.cli.run import run
from rlflow.cli.search import search
from rlflow.cli.shrink import shrink
from rlflow.cli.simplify import simplify
from rlflow.cli.split import split
from rlflow.cli.train import train
from rlflow.cli.tune import tune
from rlflow.cli.verify import verify
from rlflow.cli.worker import worker
from rlflow.cli.zoo import zoo

__all__ = ["main"]


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        import rlflow

        click.echo(f"rlflow {rlflow.__version__}")
        context.exit()


@click.group(
    cls=ErrorGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Print the version and exit.",
)
@click.pass_context
def main(context: click.Context) -> None:
    """Make a trained network faster: measured, proved rule by rule, and checked end to end."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for verb in (optimize, simplify, shrink, verify, diff, bench, search, compare, inspect, cost, rules, explain, zoo,
             train, dream, split, run, place, tune, worker, info):  # fmt: skip
    main.add_command(verb)
