"""``rlflow cost``: the prices that were measured, and how well they predict the clock."""

from __future__ import annotations

import datetime
import json
import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlflow.cli.common import NameChoice, VerbGroup, console, device_command, parse_dims, plural
from rlflow.cli.json_option import in_json, json_option
from rlflow.cli.model_files import MODEL
from rlflow.cli.outputs import check_outputs, check_replaced
from rlflow.cli.sections import SectionedCommand
from rlflow.errors import ModelError, RuntimeUnavailable, UsageError
from rlflow.ledger import Ledger
from rlflow.options import runtime_names

if TYPE_CHECKING:
    from rlflow.fidelity import Fidelity, Timed
    from rlflow.price.database import PriceDatabase

_DATABASE = click.option("--database", metavar="FILE", help="Price database. [default: the user's own]")
_OPERATORS_WIDTH = 60
FORMAT = "rlflow calibration"


@click.group(cls=VerbGroup)
def cost() -> None:
    """Measured prices: show, export, import and prune them; see how well they predict the clock."""


@cost.command("show")
@_DATABASE
@click.option("--dearest", type=click.IntRange(min=0), default=10, show_default=True, help="Regions to list per place.")
@json_option()
def show(database: str | None, dearest: int, json_file: str | None) -> None:
    """Show where prices were taken: device, runtime, threads, number, dates, spread; and the most expensive regions."""
    with _opened(database, read=True) as base:
        places = [
            {**vars(one.context), **{key: value for key, value in one._asdict().items() if key != "context"},
             "dearest": _dearest(base, one.context, dearest)}
            for one in base.contexts()
        ]  # fmt: skip
        where, compared = database or str(base.path), 0 if database else len(_comparisons())
    if in_json(json_file, lambda: {"database": where, "comparisons": compared, "places": places}):
        return
    told = f", {plural(compared, 'comparison')} of whole models" if compared else ""
    click.echo(f"{where}: {plural(sum(place['prices'] for place in places), 'price')}{told}")
    for place in places:
        _show_place(place)


def _dearest(base: PriceDatabase, context: Any, count: int) -> list[dict[str, Any]]:
    priced = [price for price in base.all_here(context).values() if price.ms is not None and price.operators]
    rows = sorted(priced, key=lambda price: -(price.ms or 0.0))[:count]
    return [
        {name: getattr(row, name)
         for name in ("operators", "kind", "ms", "spread_ms", "samples", "measured_at", "clock")}
        for row in rows
    ]  # fmt: skip


def _show_place(place: dict[str, Any]) -> None:
    from rich import box
    from rich.table import Table

    spread = place["relative_spread"]
    told = "" if spread is None else f", spread {100 * spread:.1f} % in the median"
    click.echo(
        f"\n{place['device']}\n  {place['runtime']} {place['version']}, {plural(place['threads'], 'thread')}, "
        f"optimisation level {place['level']}: {plural(place['prices'], 'price')} "
        f"({plural(place['refusals'], 'refusal')}), {place['oldest'][:10]} to {place['newest'][:10]}{told}"
    )
    if not place["dearest"]:
        return
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("dearest regions", no_wrap=True, overflow="ellipsis", max_width=_OPERATORS_WIDTH)
    for name in ("ms", "± ms", "samples", "date"):
        table.add_column(name, justify="right")
    for row in place["dearest"]:
        table.add_row(
            row["operators"], f"{row['ms']:.4g}", f"{row['spread_ms'] or 0.0:.2g}", str(row["samples"]),
            row["measured_at"][:10],
        )  # fmt: skip
    console().print(table)


@cost.command("export")
@click.argument("file", metavar="FILE")
@_DATABASE
def export(file: str, database: str | None) -> None:
    """Write every price to FILE, one JSON object a line (- for the standard output)."""
    from rlflow.files import check_output, write_atomically
    from rlflow.price.database import default_path

    lines: list[str] = []
    target = None if file == "-" else check_output(file, database or default_path())
    if target is not None:
        check_replaced("The export", target, b'{"format"', "exported prices")
    with _opened(database, read=True) as base:
        count = base.export_to(lines.append)
    if target is None:
        click.echo("".join(lines), nl=False)
        return
    write_atomically(target, "".join(lines).encode())
    click.echo(f"{target}: {plural(count, 'price')}")


@cost.command("import")
@click.argument("file", metavar="FILE")
@_DATABASE
def import_prices(file: str, database: str | None) -> None:
    """Take in the prices of FILE, which `rlflow cost export` wrote; the more recent of two stays."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"The file {file} cannot be read: {reason}.") from error
    with _opened(database, new=True) as base:
        read, changed = base.import_from(text.splitlines(), file)
        click.echo(f"{base.path}: {plural(read, 'price')} read, {changed} new or more recent")


#: A hundred years: dates before our era cannot be written.
_MOST_DAYS = 36_500


@cost.command("prune")
@_DATABASE
@click.option(
    "--older-than", metavar="DAYS", type=click.FloatRange(min=0), help="Prices measured at least so many days ago."
)
@click.option("--other-versions", is_flag=True, help="Prices of other versions of the runtimes installed here.")
@click.option("--refusals", is_flag=True, help="Regions that a runtime would not run.")
@click.option("--comparisons", is_flag=True, help="Kept final comparisons and searches of whole models.")
@click.option("--all", "everything", is_flag=True, help="Every price and comparison.")
def prune(
    database: str | None,
    older_than: float | None,
    other_versions: bool,
    refusals: bool,
    comparisons: bool,
    everything: bool,
) -> None:
    """Delete prices, and kept comparisons of the same kind; at least one option says which.

    With --refusals or --database, kept comparisons and searches stay.
    """
    if older_than is None and not (other_versions or refusals or comparisons or everything):
        raise UsageError("Say what to prune: --older-than DAYS, --other-versions, --refusals, --comparisons or --all.")
    before = None
    if older_than is not None:
        if not older_than <= _MOST_DAYS:
            raise UsageError(f"The option --older-than {older_than:g} is no age; expected at most {_MOST_DAYS} days.")
        now = datetime.datetime.now(datetime.timezone.utc)
        before = (now - datetime.timedelta(days=older_than)).isoformat(timespec="seconds")
    with _opened(database) as base:
        gone = 0 if database else _prune_kept(before, comparisons or everything)
        deleted = base.prune(before=before, refusals=refusals, everything=everything)
        for context in _installed() if other_versions else ():
            deleted += base.prune(other_than=context)
            gone += 0 if database else _prune_kept(other_than=context)
        told = f", {plural(gone, 'comparison')} too" if gone else ""
        click.echo(f"{base.path}: {plural(deleted, 'price')} deleted{told}, {base.count()} left")


def _comparisons() -> Ledger[Any]:
    from rlflow.race.evidence import COMPARISONS

    return Ledger(COMPARISONS)


def _prune_kept(before: str | None = None, everything: bool = False, other_than: Any = None) -> int:
    """Delete kept comparisons and searches as prices are; the number of comparisons."""
    from rlflow.search.earlier import SEARCHES

    def which(about: Mapping[str, str]) -> bool:
        if other_than is not None:
            here = (about.get("device"), about.get("runtime")) == (other_than.device, other_than.runtime)
            return here and about.get("version") != other_than.version
        return everything or (before is not None and about.get("at", "") < before)

    Ledger(SEARCHES).prune(which)
    return _comparisons().prune(which)


def _installed() -> list[Any]:
    """Where prices would be taken now."""
    from rlflow.price.database import PriceContext
    from rlflow.runtime import RUNTIMES, RuntimeOptions, Worker

    found = []
    for runtime, kind in RUNTIMES.usable():
        if kind().missing() is not None:
            continue
        with Worker(RuntimeOptions(runtime=runtime)) as worker:
            try:
                found.append(PriceContext.of(worker.describe(), "all"))
            except RuntimeUnavailable:  # its libraries or its device are not here
                continue
    return found


def _opened(path: str | None, *, new: bool = False, read: bool = False) -> PriceDatabase:
    """The database. A file of the user's is left alone where it holds anything but prices, or they are only ``read``;
    one that is not there is made only where it may be ``new``.
    """
    from rlflow.price.database import PriceDatabase, PriceDatabaseWarning

    if path is None:
        return PriceDatabase()
    if not os.path.isdir(os.path.dirname(path) or os.curdir):
        raise UsageError(f"The price database {path} cannot be opened: its folder does not exist.")
    if not new and not os.path.isfile(path):
        raise UsageError(f"The price database {path} does not exist; give the path of a file.")
    if os.path.isfile(path) and not (new and os.path.getsize(path) == 0):
        copy = PriceDatabase.copy_of(path)
        if read:
            return copy
        copy.close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PriceDatabaseWarning)
        found = PriceDatabase(path)
    if not found.persistent:
        found.close()
        raise UsageError(f"The price database {path} cannot be written; choose another place.")
    return found


# --- calibrate --------------------------------------------------------------------------------------------------------


_SECTIONS = {
    "What is judged": ("cost_name", "variants", "no_operators", "seed"),
    "Timing": ("seconds", "tolerance", "max_noise", "threads", "dims", "runtime", "provider", "measure_cmd"),
    "Result": ("json_file", "resume", "plot"),
}  # fmt: skip


@cost.command("calibrate", cls=SectionedCommand, sections=_SECTIONS)
@click.argument("models", metavar="MODEL...", nargs=-1, required=True, type=MODEL)
@click.option(
    "--variants", type=click.IntRange(min=1), default=30, show_default=True, help="Rewritten graphs for each model."
)
@click.option("--cost", "cost_name", default="onnxruntime", show_default=True, help="Cost model to judge.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="Threads of the runtime.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of variants and inputs.")
@click.option("--dim", "dims", multiple=True, metavar="N=1", help="Size of an open dimension.")
@click.option(
    "--seconds", type=float, default=6.0, show_default=True, help="About how long one variant may be timed."
)
@click.option(
    "--tolerance", type=float, default=0.01, show_default=True,
    help="Width of the interval at which timing a variant ends.",
)
@click.option(
    "--runtime", type=NameChoice(runtime_names), default="onnxruntime", show_default=True, help="Runtime that times."
)
@click.option("--provider", metavar="NAME", help="Execution provider of ONNX Runtime.")
@click.option("--measure-cmd", metavar="COMMAND", help="Time on your own device: a command that prints milliseconds.")
@click.option(
    "--max-noise",
    type=float,
    default=0.05,
    show_default=True,
    help="Stop if the machine is noisier than this.",
)
@click.option("--no-operators", is_flag=True, help="Leave out the sum of single-operator times.")
@json_option("every row as JSON")
@click.option("--resume", is_flag=True, help="Keep the rows that the JSON file has for these models.")
@click.option("--plot", metavar="FILE", help="Draw predicted against measured times (.png, .svg or .pdf).")
def calibrate(
    models: tuple[str, ...],
    variants: int,
    cost_name: str,
    threads: int,
    seed: int,
    dims: tuple[str, ...],
    seconds: float,
    tolerance: float,
    runtime: str,
    provider: str | None,
    measure_cmd: str | None,
    max_noise: float,
    no_operators: bool,
    json_file: str | None,
    resume: bool,
    plot: str | None,
) -> None:
    """Compare predicted and end-to-end times over each MODEL and rewritten variants of it.

    The variants (random walks, and steps of a search) compute the same and cost more or less. Ctrl-C ends it after the
    variant at hand, with the figures so far; --resume goes on.
    """
    if resume and json_file in (None, "-"):
        raise UsageError("--resume needs the file that --json names.")
    check_outputs({"--json": json_file, "--plot": plot}, models)
    if plot is not None:
        from rlflow.report.plots import check_plot

        check_plot(plot)
    how = {
        "count": variants, "cost": cost_name, "threads": threads, "seed": seed, "dims": parse_dims("--dim", dims),
        "runtime": runtime, "provider": provider, "measure_cmd": device_command(measure_cmd, 1, 300.0),
        "tolerance": tolerance, "seconds": seconds, "max_noise": max_noise, "operators": not no_operators,
    }  # fmt: skip
    # A run may go on with more variants and more patience; anything else would mix what does not compare.
    same = {key: str(value) for key, value in how.items() if key not in ("count", "seconds", "max_noise")}
    ledger = _Ledger(json_file, same, resume)
    found = [one for one in (_calibrated(os.fspath(model), how, ledger) for model in models) if one is not None]
    if not in_json(json_file, ledger.plain):
        _print_agreements(found)
    if plot is not None:
        _plot(found, plot)
    if any(one.interrupted for one in found):
        click.echo("rlflow: interrupted; the figures are of the variants so far.", err=True)


def _calibrated(path: str, how: dict[str, Any], ledger: _Ledger) -> Fidelity | None:
    """One model's figures; ``None`` where an earlier model was interrupted."""
    from rlflow import fidelity
    from rlflow.search import InterruptGuard

    if ledger.stop.stopped:
        return None
    if not os.path.isfile(path):
        raise ModelError(f"The model file {path} does not exist.")
    key = fidelity.model_key(Path(path).read_bytes())

    def told(row: Timed, number: int, count: int) -> None:
        ledger.add(path, key, row)
        prices = ", ".join(f"{name} {ms:.4g}" for name, ms in row.predicted_ms.items())
        click.echo(
            f"rlflow: {os.path.basename(path)} {number}/{count} ({row.origin}, {plural(row.steps, 'step')}): "
            f"{row.measured_ms:.4g} ms ±{100 * row.half_width:.1f} %, predicted {prices}", err=True,
        )  # fmt: skip

    with InterruptGuard(ledger.stop):
        found = fidelity.calibrate(path, **how, known=ledger.known(key), on_row=told, stop=lambda: ledger.stop.stopped)
    for sentence in found.skipped:
        click.echo(f"rlflow: {sentence}", err=True)
    return found


class _Ledger:
    """The rows so far, in the JSON file (if there is one) after each of them."""

    def __init__(self, path: str | None, how: dict[str, str], resume: bool) -> None:
        from rlflow.search import StopToken

        self.path, self.how, self.stop = None if path == "-" else path, how, StopToken()
        self._rows: list[dict[str, Any]] = self._kept() if resume else []

    def _kept(self) -> list[dict[str, Any]]:
        assert self.path is not None
        if not os.path.exists(self.path):
            return []
        try:
            kept = json.loads(Path(self.path).read_text(encoding="utf-8"))
            if kept["format"] != FORMAT:
                raise KeyError("format")
            rows, how = list(kept["rows"]), kept["how"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"The file {self.path} holds no calibration to go on with ({error!r}).") from error
        differs = sorted(key for key in self.how if how.get(key) != self.how[key])
        if differs:
            raise UsageError(
                f"The calibration in {self.path} was made with other options ({', '.join(differs)}); "
                "give the same ones, or leave out --resume."
            )
        return rows

    def known(self, key: str) -> list[Timed]:
        from rlflow.fidelity import Timed

        return [
            Timed(**{name: value for name, value in row.items() if name not in ("model", "key")})
            for row in self._rows
            if row["key"] == key
        ]

    def add(self, model: str, key: str, row: Timed) -> None:
        from rlflow.report import write_json

        if any(kept["key"] == key and kept["digest"] == row.digest for kept in self._rows):
            return
        self._rows.append({"model": os.path.basename(model), "key": key, **row.to_dict()})
        if self.path is not None:
            write_json(self.plain(), self.path)

    def plain(self) -> dict[str, Any]:
        return {"format": FORMAT, "how": self.how, "rows": self._rows}


def _print_agreements(found: list[Fidelity]) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, pad_edge=False)
    for number, name in enumerate(
        ("model", "price", "graphs", "error", "scaled", "Spearman", "attainable", "in order", "spread", "noise")
    ):  # fmt: skip
        table.add_column(name, justify="right" if number > 1 else "left", no_wrap=True)
    for one in found:
        for name, row in one.agreements().items():
            rank = "-" if row.spearman is None else f"{row.spearman:.2f}" + ("" if row.telling else " (noise)")
            top = "-" if row.attainable is None else f"{row.attainable:.2f}"
            order = "-" if row.ordered is None else f"{row.ordered:.0%} of {row.pairs}"
            table.add_row(
                os.path.basename(one.model), name, str(row.graphs), f"{100 * row.error:.1f} %",
                f"{100 * row.scaled_error:.1f} %", rank, top, order, f"{100 * row.spread:.1f} %",
                f"{100 * row.noise:.1f} %",
            )  # fmt: skip
    console().print(table)
    click.echo(
        "error: median of |predicted / measured - 1|; scaled: that of the variants, after the factor\n"
        "that sets the original right; spread and noise: standard deviations of the measured times and of their own\n"
        "errors. (noise): the spread is too small to rank by. attainable: the rank correlation of the measured times\n"
        "with themselves measured once more; in order: pairs that the clock tells apart and the price orders rightly."
    )


def _plot(found: list[Fidelity], path: str) -> None:
    from rlflow.report.plots import scatter

    panels: dict[str, list[tuple[float, float, str]]] = {}
    for one in found:
        for row in one.rows:
            for name, ms in row.predicted_ms.items():
                panels.setdefault(name, []).append((row.measured_ms, ms, os.path.basename(one.model)))
    scatter(panels, path, title="Predicted against measured time")
    click.echo(f"{path}: {plural(sum(map(len, panels.values())), 'point')}")
