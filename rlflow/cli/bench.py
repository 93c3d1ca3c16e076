"""``rlflow bench``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from rlflow.cli.common import NameChoice, parse_dims, plural, show
from rlflow.cli.json_option import in_json, json_option
from rlflow.cli.model_files import MODEL
from rlflow.cli.sections import SectionedCommand
from rlflow.errors import UsageError
from rlflow.options import runtime_names
from rlflow.specs import whole_number

if TYPE_CHECKING:
    from rich.table import Table

    from rlflow.benchmark import Benched

#: What the clocks of :class:`rlflow.benchmark.Benched` are called.
_CLOCKS = {"cpu": "processor", "wall": "wall"}


_SECTIONS = {
    "Timing": ("seconds", "blocks", "warmup", "threads", "runtime", "provider"),
    "Inputs": ("dims", "input_data", "seed"),
    "Result": ("json_file", "quiet"),
}  # fmt: skip


@click.command(cls=SectionedCommand, sections=_SECTIONS)
@click.argument("models", metavar="MODEL...", nargs=-1, required=True, type=MODEL)
@click.option(
    "--threads", default="1", show_default=True, metavar="1,2,4",
    help="How many threads the runtime has; several counts are timed one after another.",
)
@click.option(
    "--seconds", type=float, default=10.0, show_default=True,
    help="Time for all models together, for each number of threads.",
)
@click.option(
    "--blocks", type=click.IntRange(min=1), default=7, show_default=True,
    help="Rounds; each one starts fresh processes and sessions.",
)
@click.option("--warmup", type=click.IntRange(min=0), default=3, show_default=True, help="Untimed runs in each block.")
@click.option("--dim", "dims", multiple=True, metavar="N=1", help="Size of an open dimension.")
@click.option("--input-data", multiple=True, metavar="FILE", help="An .npz by input names, or name=file.npy.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True,
    help="Seed of the random inputs and of the order.",
)
@click.option(
    "--runtime", type=NameChoice(runtime_names), default="onnxruntime", show_default=True, help="What runs the models."
)
@click.option("--provider", metavar="NAME", help="Execution provider of ONNX Runtime: cuda, or any full name.")
@json_option()
@click.option("-q", "--quiet", is_flag=True, help="Print no progress.")
def bench(
    models: Sequence[str],
    threads: str,
    seconds: float,
    blocks: int,
    warmup: int,
    dims: tuple[str, ...],
    input_data: tuple[str, ...],
    seed: int,
    runtime: str,
    provider: str | None,
    json_file: str | None,
    quiet: bool,
) -> None:
    """Time MODELs side by side: interleaved, in fresh sessions, by the wall clock and by processor time.

    "Times as fast" is the time of the first model divided by the time of the row's; above 1 is faster. Models may be
    files or names of the zoo.
    """
    from rlflow import benchmark
    from rlflow.cli.progress import reporter

    with reporter(quiet) as told:
        told.stage("timing")
        found = benchmark.bench(
            models,
            threads=_counts(threads),
            seconds=seconds,
            blocks=blocks,
            warmup=warmup,
            seed=seed,
            dims=parse_dims("--dim", dims),
            input_data=list(input_data) or None,
            runtime=runtime,
            provider=provider,
            on_progress=told.blocks,
        )
    if not in_json(json_file, lambda: [one.to_dict() for one in found]):
        show(_times(found))
        show(_ratios(found))


def _counts(text: str) -> list[int]:
    counts = [whole_number(part.strip()) for part in text.split(",")]
    if not all(counts):
        raise UsageError(
            f"The option --threads {text} cannot be read; expected numbers above zero, as in --threads 1,4."
        )
    return [count for count in counts if count]


def _times(found: Sequence[Benched]) -> Table:
    """Two rows a model: the wall clock, and processor time. Fits into 80 columns; names wrap, numbers never do."""
    table = _narrow("clock", "median ms", "95 % interval", "p90", "p99")
    for one, name in zip(found, _named(found), strict=True):
        for clock, latency in (("wall", one.wall), ("processor", one.cpu)):
            table.add_row(
                name if clock == "wall" else "",
                clock,
                _ms(latency.median),
                f"{_ms(latency.low)} to {_ms(latency.high)}",
                _ms(latency.p90),
                _ms(latency.p99),
            )
    return table


def _ratios(found: Sequence[Benched]) -> Table:
    """A row a model: how fast it is against the first, by the clock that decides."""
    table = _narrow("times as fast as the first (95 % interval)", "load ms")
    for one, name in zip(found, _named(found), strict=True):
        table.add_row(name, _ratio(one), _ms(one.load_ms))
    runs = min(one.runs for one in found)
    table.caption = (
        f"By the {_CLOCKS[found[0].clock]} clock. At least {runs} single runs a model, in {found[0].blocks} blocks of "
        "fresh sessions."
    )
    return table


def _narrow(*columns: str) -> Table:
    """A table whose first column is a model's name, which may wrap; no figure is ever cut."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("model", overflow="fold", min_width=12)
    for column in columns:
        table.add_column(column, justify="left" if column == "clock" else "right", no_wrap=True)
    return table


def _named(found: Sequence[Benched]) -> list[str]:
    """What each row is called; with the number of threads where there are several."""
    several = len({one.threads for one in found}) > 1
    return [f"{one.model}, {plural(one.threads, 'thread')}" if several else one.model for one in found]


def _ms(value: float) -> str:
    """Four digits or four decimals, and no exponent."""
    if not math.isfinite(value) or 1.0 <= abs(value) < 1000.0:
        return f"{value:.4g}"
    return f"{value:.0f}" if abs(value) >= 1000.0 else f"{value:.4f}"


def _ratio(one: Benched) -> str:
    low, high = one.ratio_ci95
    if not (math.isfinite(low) and math.isfinite(high)) or low == 0.0:
        return f"{one.ratio:.3f}"
    return f"{one.ratio:.3f} ({low:.3f} to {high:.3f})"
