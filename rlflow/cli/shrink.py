"""``rlflow shrink``."""

from __future__ import annotations

import re

import click

from rlflow.cli.common import parse_dims, parse_extents
from rlflow.cli.json_option import emit_json, json_option
from rlflow.cli.model_files import MODEL
from rlflow.cli.outputs import check_outputs, files_of
from rlflow.cli.sections import SectionedCommand
from rlflow.errors import UsageError, brief

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(|[kKMG])(i?)(B|b|)\s*")
#: Characters of a size at most: longer numbers are no number of bytes.
_LONGEST = 40
_SCALES = {"": 1, "k": 1, "K": 1, "M": 2, "G": 3}


def parse_size(text: str) -> int:
    """Bytes of ``32MB``, ``1.5GiB``, ``500kB`` or ``4096``; raises :class:`UsageError`."""
    found = _SIZE.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        said = brief(text, _LONGEST)
        raise UsageError(f"The memory {said!r} cannot be read; expected for example 32MB, 1.5GiB or 500kB.")
    number, scale, binary, _ = found.groups()
    power = 0 if not scale else _SCALES[scale]
    return int(float(number) * (1024 if binary else 1000) ** power)


_SECTIONS = {
    "Result": ("output", "json_file", "plot", "arena", "quiet"),
    "Bounds": ("memory", "slower"),
    "Search": ("search", "budget", "search_seconds", "race_seconds"),
    "Inputs": ("dims", "freeze", "input_data", "seed", "threads"),
}  # fmt: skip


@click.command(cls=SectionedCommand, sections=_SECTIONS)
@click.argument("model", metavar="IN", type=MODEL)
@click.option("-o", "--output", metavar="OUT", help="File to write. Without it, only the report is made.")
@click.option(
    "--memory",
    metavar="SIZE",
    help="Bytes beside the weights that the model may need, such as 32MB. [default: as few as can be]",
)
@click.option(
    "--slower", type=float, default=1.1, show_default=True, help="How slow the result may be: 1.1 is 10 % slower."
)
@click.option(
    "--threads", type=click.IntRange(min=1), default=1, show_default=True,
    help="Threads that the model will have where it runs.",
)
@click.option(
    "--search", default="mixed", show_default=True, metavar="STRATEGY",
    help="Strategy that rewrites the model for speed first, which leaves more time for bands; none: bands alone.",
)
@click.option("--budget", default="30s", show_default=True, help="What that rewriting may take.")
@click.option(
    "--search-seconds", type=float, default=20.0, show_default=True,
    help="Seconds that each search for bands may take.",
)
@click.option(
    "--race-seconds", type=float, default=20.0, show_default=True,
    help="Seconds that one comparison by the clock may take.",
)
@click.option("--dim", "dims", multiple=True, metavar="N=1", help="Size of an open dimension, for measuring only.")
@click.option("--freeze", multiple=True, metavar="N=1", help="Size of an open dimension, for good.")
@click.option("--input-data", multiple=True, metavar="FILE", help="Real inputs (.npz) for the comparison of outputs.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of everything random.")
@json_option("the report as JSON")
@click.option("--plot", metavar="FILE", help="Draw memory against time of what was found (png, svg or pdf).")
@click.option("--arena", is_flag=True, help="Print where each value lies in one block of memory, and when.")
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
def shrink(
    model: str,
    output: str | None,
    memory: str | None,
    slower: float,
    threads: int,
    search: str,
    budget: str,
    search_seconds: float,
    race_seconds: float,
    dims: tuple[str, ...],
    freeze: tuple[str, ...],
    input_data: tuple[str, ...],
    seed: int,
    json_file: str | None,
    plot: str | None,
    arena: bool,
    quiet: bool,
) -> None:
    """Make a model need less memory while it runs, at most --slower times as slow, with equal outputs; write it to OUT.

    Stretches of the network run in bands of rows (in a transformer, of tokens), so that its largest values are never
    there as a whole. Where nothing is gained, OUT receives the model as it came.
    """
    check_outputs({"-o": output, "--json": json_file, "--plot": plot}, [model, *files_of(input_data)])
    if plot is not None:
        from rlflow.report.plots import check_plot

        check_plot(plot)
    from rlflow import optimizer
    from rlflow.cli.progress import reporter
    from rlflow.report.shrunk import arena_text, shrink_text

    with reporter(quiet) as told:
        result = optimizer.shrink(
            model,
            output=output,
            memory=None if memory is None else parse_size(memory),
            slower=slower,
            search=None if search == "none" else search,
            budget=budget,
            seconds=search_seconds,
            race_seconds=race_seconds,
            threads=threads,
            dims=parse_extents(dims),
            freeze=parse_dims("--freeze", freeze),
            input_data=list(input_data) or None,
            seed=seed,
            on_stage=told.stage,
        )
    if plot is not None:
        from rlflow.report.plots import memory_against_time

        memory_against_time(result.report.front, result.report.before.peak, plot)
    if json_file is not None:
        emit_json(result.report.to_dict(), json_file)
    if not quiet and json_file != "-":
        click.echo(shrink_text(result.report))
        if arena:
            click.echo(arena_text(result.seen.needs))
