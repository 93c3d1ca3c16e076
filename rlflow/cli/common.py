"""What the verbs share: errors as one sentence with an exit code, consoles, the reading of ``NAME=VALUE`` options."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
import textwrap
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import click

from rlflow.cli.json_option import in_json
from rlflow.cli.signals import INTERRUPTED, end_on_signals, ending_at_the_second_interrupt
from rlflow.errors import RlflowError, UsageError
from rlflow.specs import MOST_SIZE, whole_number

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from rlflow.price.command import DeviceCommand
    from rlflow.search import Strategy


class VerbGroup(click.Group):
    """A group whose help lists its verbs in the order in which they were added, each with a whole sentence."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In their own order."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, but an unknown verb is told with those that are near."""
        unknown = bool(args) and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None
        if unknown and not ctx.resilient_parsing:
            from rlflow.specs import did_you_mean

            near = did_you_mean(args[0], self.list_commands(ctx))
            raise UsageError(f"There is no command '{ctx.command_path} {args[0]}'. {near}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click's, but no sentence is cut."""
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        named = [(name, one) for name, one in found if one is not None and not one.hidden]
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(_WIDEST)) for name, one in named])


class ErrorGroup(VerbGroup):
    """A group whose errors are one sentence on stderr, ``rlflow: error: …``, and an exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """As click's, but for how errors end the process."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        given = list(sys.argv[1:] if args is None else args)
        _open_closed_streams()
        _print_every_character()
        end_on_signals()
        try:
            with ending_at_the_second_interrupt():
                outcome = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except click.exceptions.Exit as end:
            sys.exit(end.exit_code)
        except (click.Abort, KeyboardInterrupt):
            _fail("interrupted; nothing was written.", INTERRUPTED)
        except click.ClickException as error:
            _fail(_click_sentence(error), error.exit_code)
        except RlflowError as error:
            if error.exit_code != UsageError.exit_code:
                _maybe_traceback(given)
            _fail(str(error), error.exit_code)
        except BrokenPipeError:
            _give_stdout_up()  # the reader of our output left, as `| head` does
            sys.exit(1)
        except Exception as error:  # noqa: BLE001 - the last resort of a command line: say it in one sentence, keep the traceback at hand
            if (reason := _why_not_printed(error)) is not None:
                _give_stdout_up()
                _fail(f"What rlflow prints cannot be written: {reason}.", 1)
            _maybe_traceback(given)
            _fail(
                f"unexpected {type(error).__name__}: {error}. This is a mistake in rlflow; "
                "run again with RLFLOW_DEBUG=1 and report it.",
                1,
            )
        sys.exit(outcome if isinstance(outcome, int) else 0)


def _open_closed_streams() -> None:
    """Standard streams that were closed lead nowhere. Else the next file that is opened takes their place, and native
    code that prints something writes into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            handle = os.open(os.devnull, os.O_RDWR)
            if handle != number:
                os.dup2(handle, number)
                os.close(handle)
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115


def _print_every_character() -> None:
    """A character that the encoding of stdout has not is printed as a question mark, and ends nothing."""
    stream = sys.stdout
    if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
        stream.reconfigure(errors="replace")


def _why_not_printed(error: Exception) -> str | None:
    """What the system has against what was printed, where the error is that: all that prints are click and rich."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    printing = str(frames[-1].f_globals.get("__name__")).partition(".")[0] in ("click", "rich")
    return error.strerror if printing and isinstance(error, OSError) else None


def _give_stdout_up() -> None:
    """Points stdout elsewhere, so that the flush at exit stays silent."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _click_sentence(error: click.ClickException) -> str:
    message = error.format_message().strip()
    if isinstance(error, click.UsageError) and error.ctx is not None:
        sentence = message.rstrip(".")
        message = f"{sentence}{'' if sentence.endswith('?') else '.'} See: {error.ctx.command_path} --help"
    return message


def _maybe_traceback(arguments: Sequence[str]) -> None:
    """With ``--verbose``, or where the environment variable RLFLOW_DEBUG is set, errors come with their traceback."""
    if os.environ.get("RLFLOW_DEBUG") or {"--verbose", "-v"} & set(arguments):
        traceback.print_exc()


def _fail(sentence: str, code: int) -> NoReturn:
    with contextlib.suppress(OSError):  # nobody reads it
        say(f"rlflow: error: {sentence}", err=True)
    sys.exit(code)


def say(text: str, *, err: bool = False) -> None:
    """Print lines; on a terminal they are wrapped between words, with a hanging indent, and elsewhere never."""
    stream = sys.stderr if err else sys.stdout
    if stream.isatty():
        width = terminal_width()
        text = "\n".join(_wrapped(line, width) for line in text.splitlines())
    click.echo(text, err=err)


def terminal_width() -> int:
    """Columns of the terminal; 120 where there is none."""
    return shutil.get_terminal_size((120, 24)).columns


def _wrapped(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    margin = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(
        line, width, subsequent_indent=f"{margin}  ", drop_whitespace=True, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


class NameChoice(click.ParamType):
    """A name out of a registry. Which there are is asked for the help alone: who looks one up says what is near."""

    name = "name"

    def __init__(self, names: Callable[[], Sequence[str]]) -> None:
        self._names = names

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """All names."""
        return f"[{'|'.join(self._names())}]"


def console(*, stderr: bool = False) -> Console:
    """A rich console on stdout or stderr; plain and wide where it is not a terminal."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    columns = os.environ.get("COLUMNS")
    width = None if stream.isatty() or columns else 120
    if columns == "0":  # nobody knows; rich would show nothing
        width = terminal_width()
    return Console(file=stream, width=width, highlight=False, soft_wrap=False)


#: Columns of a table that is not shown on a terminal, at most.
_WIDEST = 400


def show(what: RenderableType) -> None:
    """Prints on stdout; where that is not a terminal no line is cut, and a table is as wide as it likes."""
    from rich.table import Table

    out = console()
    width = None
    if isinstance(what, Table) and not out.is_terminal:
        width = max(out.width, out.measure(what, options=out.options.update(width=_WIDEST)).maximum)
    out.print(what, crop=out.is_terminal, width=width)


def parse_dims(option: str, pairs: Sequence[str]) -> dict[str, int]:
    """``NAME=SIZE`` options as a mapping; raises :class:`UsageError`."""
    dims: dict[str, int] = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        size = whole_number(text)
        if not name or not size or size > MOST_SIZE:
            raise UsageError(
                f"The option {option} {pair} cannot be read; "
                f"expected a dimension's name and a size from 1 to {MOST_SIZE}, as in {option} N=1."
            )
        if dims.setdefault(name, size) != size:
            raise UsageError(f"The option {option} gives the dimension {name!r} two sizes, {dims[name]} and {size}.")
    return dims


def parse_pairs(option: str, pairs: Sequence[str], sign: str, example: str) -> dict[str, str]:
    """``NAME=TEXT`` options (``sign`` stands between the two) as a mapping; raises :class:`UsageError`."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, _, text = pair.rpartition(sign)
        if not name or not text:
            raise UsageError(f"The option {option} {pair} cannot be read; expected for example {example}.")
        if found.setdefault(name, text) != text:
            raise UsageError(f"The option {option} says two things of {name!r}, {found[name]} and {text}.")
    return found


def parse_extents(pairs: Sequence[str]) -> dict[str, str]:
    """``--dim`` options of one size or of three, as a mapping; raises :class:`UsageError`."""
    return parse_pairs("--dim", pairs, "=", "--dim N=1 or --dim N=1..8..64")


def parse_shapes(pairs: Sequence[str]) -> dict[str, str]:
    """``--shape`` options as a mapping; raises :class:`UsageError`."""
    return parse_pairs("--shape", pairs, ":", "--shape x:4x128 or --shape x:1x16,4x128,8x512")


def show_rows(rows: Sequence[Mapping[str, Any]], json_file: str | None) -> None:
    """A registry's rows: a line each with what it can do in brackets, and a line an option."""
    if in_json(json_file, lambda: rows):
        return
    for row in rows:
        can = [_capability(key, value) for key, value in row.items() if key not in ("name", "doc", "options")]
        words = ", ".join(filter(None, can))
        click.echo(f"{row['name']}: {row['doc']}" + (f" [{words}]" if words else ""))
        for option in row["options"]:
            about = f": {option['doc']}" if option["doc"] else ""
            click.echo(f"  {option['name']}={option['default']} ({option['type']}){about}")


def _capability(name: str, value: Any) -> str:
    if isinstance(value, bool) or value in (None, "", ()):
        return name.replace("_", " ") if value is True else ""
    shown = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return f"{name.replace('_', ' ')} {shown}"


#: Who works: for verbs whose work can be shared out.
WORKERS = click.option(
    "--workers", default="0", show_default=True, metavar="N|ray|ray://…",
    help="Who works: processes of this machine (0: this one alone), or a Ray cluster.",
)  # fmt: skip
DEVICE = click.option(
    "--device", metavar="NAME", help="Use only the workers of a Ray cluster that joined under this name."
)


def device_command(command: str | None, jobs: int, time_limit: float) -> DeviceCommand | None:
    """The ``--measure-cmd`` options as one value; raises :class:`UsageError`."""
    from rlflow.price.command import DeviceCommand

    return None if command is None else DeviceCommand(command, time_limit, jobs)


def with_egraph_out(spec: str, path: str | None, model: str) -> Strategy:
    """The strategy of ``--search``, told to write its e-graph to ``path``; only equality saturation has one."""
    from rlflow import search
    from rlflow.files import check_output
    from rlflow.specs import name_of

    if path is None:
        return search.make(spec)
    kind = search.strategy_class(name_of(spec))
    if not hasattr(kind, "egraph_out"):
        raise UsageError(f"--egraph-out needs --search eqsat or tensat; the strategy {kind.name!r} makes no e-graph.")
    check_output(path, model)
    return search.make(spec, egraph_out=path)


def one_output(positional: str | None, option: str | None) -> str | None:
    """The output that is named as the last argument or by ``-o``; raises :class:`UsageError` where two are."""
    if positional is not None and option is not None and positional != option:
        raise UsageError(f"The output is given twice, {positional} and {option}; give it once.")
    return positional if option is None else option


def plural(count: int, noun: str, plural_noun: str | None = None) -> str:
    """``1 rule``, ``2 rules``."""
    return f"{count} {noun if count == 1 else plural_noun or noun + 's'}"
