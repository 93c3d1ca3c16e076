"""The command line: one file per verb, nothing heavy imported before it is needed.

Exit codes: 0 done (also where there was nothing to gain), 1 failure, 2 usage, 3 verification failed, 4 something to
gain (optimize --check).
"""

from __future__ import annotations

import sys

try:
    import gc
    import importlib
    from typing import NoReturn

    import click

    from rlflow.cli.common import ErrorGroup
except KeyboardInterrupt:  # while Python still reads files: nothing was begun
    sys.exit(130)

__all__ = ["main", "program"]

#: Each is a file of this folder, with a command of its name in it.
_VERBS = (
    "optimize", "simplify", "shrink", "verify", "diff", "bench", "search", "compare", "inspect", "cost", "rules",
    "explain", "zoo", "train", "dream", "split", "run", "place", "tune", "worker", "info",
)  # fmt: skip


class _Verbs(ErrorGroup):
    """The verbs in order; the file of one is opened when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs."""
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb, or ``None`` where there is none of that name."""
        if cmd_name not in _VERBS:
            return None
        command: click.Command = getattr(importlib.import_module(f"rlflow.cli.{cmd_name}"), cmd_name)
        return command


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        import rlflow

        click.echo(f"rlflow {rlflow.__version__}")
        context.exit()


@click.group(
    cls=_Verbs,
    invoke_without_command=True,
    epilog="Begin with: rlflow optimize model.onnx -o faster.onnx. `rlflow COMMAND --help` explains a command.",
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


def program() -> NoReturn:
    """The command line as a process of its own, which ends with it."""
    try:
        _program()
    except KeyboardInterrupt:  # before main minds it
        sys.exit(130)


def _program() -> NoReturn:
    from rlflow.processes import COLLECTION, leave

    gc.set_threshold(*COLLECTION)
    try:
        main()
    except SystemExit as end:
        if not isinstance(end.code, (int, type(None))):
            raise  # Python prints it
        leave(end.code or 0)
    leave(0)
