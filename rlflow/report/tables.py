"""The report as tables for a terminal, and as a JSON file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlflow.files import write_atomically
from rlflow.report.model import Report, Verified, group_trace, rounding_sentence

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
    from rich.table import Table

_LEAST_SHOWN = 0.0005  # which is 0.0 % in words
_CLEANUP_WORTH_SAYING = 0.02
_MOST_RULES, _MOST_OUTPUTS = 30, 12


def render(report: Report, *, verbose: bool = False) -> Group:
    """The report as a rich renderable; ``verbose`` shows every rule and every output."""
    from rich.console import Group

    return Group(*_parts(report, verbose))


def as_text(report: Report) -> str:
    """What :func:`render` shows, as plain text of 120 columns; sentences are not cut."""
    from io import StringIO

    from rich.console import Console

    stream = StringIO()
    Console(file=stream, width=120, highlight=False).print(render(report), crop=False)
    return stream.getvalue()


class _Line:
    """A sentence: wrapped on a terminal, one line where the output is read by something else."""

    def __init__(self, text: str, style: str = "bold") -> None:
        self._text, self._style = text, style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        if options.is_terminal:
            yield Text(self._text, self._style)
        else:
            yield Text(self._text, self._style, no_wrap=True, overflow="ignore")


def _parts(report: Report, verbose: bool) -> Iterator[RenderableType]:
    line = _Line
    yield line(headline(report), "bold green" if report.improved else "bold")
    yield line("Latency" if report.intervals else "Cost")
    yield _costs(report)
    if report.operators_after and report.operators_after != report.operators_before:
        yield line("Operators")
        yield _operators(report.operators_before, report.operators_after)
    if report.improved and report.trace:
        yield line(f"Substitutions applied, in order ({len(report.trace)})")
        yield _substitutions(report, verbose)
    if report.rule_profile is not None:
        yield line(f"Rules by time ({len(report.rule_profile)} of {report.rules} were tried)")
        yield _rule_profile(report.rule_profile, verbose)
    if report.verified is not None:
        yield line("Outputs against the original's")
        yield _verification(report.verified, verbose)
    if verbose and report.statistics is not None:
        yield line("Rules in the search")
        yield rule_statistics(report.statistics)
    yield from (line(f"note: {note}", "dim") for note in report.notes)
    yield from (line(text, "dim") for text in _footer(report))


def headline(report: Report) -> str:
    """The verdict in a sentence."""
    if not report.improved:
        return f"Nothing gained: {report.reason}"
    if report.improved and report.speedup_ci95 is None and report.cleanup_ci95 is not None:
        low, high = report.cleanup_ci95
        gain = f"{report.cleanup_speedup:.3f} times as fast as it came (95 % interval {low:.3f} to {high:.3f})"
        return f"{gain} by the clean-up of import alone; no rewrite gained anything beyond it."
    if report.speedup is None or report.speedup_ci95 is None:
        before, after = report.cost_before_ms or 0.0, report.cost_after_ms or 0.0
        if before > 0.0 and abs(after / before - 1.0) < _LEAST_SHOWN:
            return f"Nothing gained: the analytic cost is {before:.4g} ms before and after; no clock was used."
        return f"Analytic cost {before:.4g} ms -> {after:.4g} ms ({_change(before, after)}); no clock was used."
    low, high = report.speedup_ci95
    cleanup = report.cleanup_speedup or 1.0
    beside = (
        f"; the clean-up of import alone {cleanup:.3f} times" if abs(cleanup - 1.0) >= _CLEANUP_WORTH_SAYING else ""
    )
    return f"{report.speedup:.3f} times as fast (95 % interval {low:.3f} to {high:.3f}){beside}"


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, pad_edge=False)
    for number, column in enumerate(columns):
        # Names and sentences stand in the first and the last column; they are wrapped where there is no room, not cut.
        figures = 0 < number < len(columns) - 1
        table.add_column(column, justify="right" if number else "left", overflow="fold", no_wrap=figures)
    return table


def _costs(report: Report) -> Table:
    table = _table("", "ms", "95 % interval")
    labels = {"original": "as it came", "baseline": "imported, no rewrites", "optimized": "optimised"}
    for name, label in labels.items():
        interval = report.intervals.get(name)
        if interval is not None:
            table.add_row(label, f"{interval.ms:.4g}", f"{interval.low:.4g} to {interval.high:.4g}")
    if report.cost_before_ms is not None and report.cost_after_ms is not None:
        table.add_row(f"{report.cost_model} cost before", f"{report.cost_before_ms:.4g}", "")
        table.add_row(f"{report.cost_model} cost after", f"{report.cost_after_ms:.4g}", "")
    return table


def _operators(before: Mapping[str, int], after: Mapping[str, int]) -> Table:
    table = _table("", "before", "after", "")
    for name in sorted({*before, *after}, key=lambda name: (-before.get(name, 0), name)):
        old, new = before.get(name, 0), after.get(name, 0)
        table.add_row(name, str(old), str(new), f"{new - old:+d}" if new != old else "")
    old, new = sum(before.values()), sum(after.values())
    table.add_row("all", str(old), str(new), f"{new - old:+d}" if new != old else "", style="bold")
    return table


def _substitutions(report: Report, verbose: bool) -> Table:
    groups = group_trace(report.trace or ())
    shown = groups if verbose else groups[:_MOST_RULES]
    table = _table("rule", "times")
    for rule, times in shown:
        table.add_row(rule, f"×{times}" if times > 1 else "")
    if len(shown) < len(groups):
        table.add_row(f"… and {len(groups) - len(shown)} more groups (--verbose)", "")
    return table


def rule_statistics(statistics: Mapping[str, Any], most: int | None = None) -> Table:
    """What every rule was good for, from ``Statistics.to_dict``; the first ``most`` rows."""
    table = _table("rule", "matched", "tried", "gained", "accepted", "winning")
    rows = statistics["rules"]
    for row in rows[:most]:
        table.add_row(row["rule"], *(str(row[key]) for key in ("matched", "tried", "gained", "accepted", "winning")))
    if most is not None and len(rows) > most:
        table.add_row(f"… and {len(rows) - most} more", *[""] * 5)
    depths = [int(depth) for depth in statistics["depths"]]
    table.caption = (
        f"{statistics['opened']} graphs opened, {statistics['duplicates']} of them again; "
        f"{statistics['known_candidates']} candidates led to graphs opened before; deepest {max(depths, default=0)}"
    )
    return table


def _rule_profile(uses: Sequence[Mapping[str, Any]], verbose: bool) -> Table:
    table = _table("rule", "tried", "matched", "built", "applied", "matching ms", "building ms", "written in")
    shown = uses if verbose else uses[:_MOST_RULES]
    for use in shown:
        place = "" if use["file"] is None else f"{os.path.basename(use['file'])}:{use['line']}"
        counts = (str(use[name]) for name in ("tried", "matched", "built", "applied"))
        table.add_row(use["rule"], *counts, f"{use['match_ms']:.2f}", f"{use['build_ms']:.2f}", place)
    if len(shown) < len(uses):
        table.add_row(f"… and {len(uses) - len(shown)} more (--verbose)")
    return table


def _verification(verified: Verified, verbose: bool) -> Table:
    table = _table("", "max abs", "max rel", "allowed", "")
    shown = verified.outputs if verbose else verified.outputs[:_MOST_OUTPUTS]
    for output in shown:
        verdict = "DIFFERS" if not output.passed else f"proves nothing: {output.vacuous}" if output.vacuous else "equal"
        table.add_row(output.name, f"{output.max_abs:.2e}", f"{output.max_rel:.2e}", f"{output.tolerance:.2e}", verdict)
    if len(shown) < len(verified.outputs):
        table.add_row(f"… and {len(verified.outputs) - len(shown)} more (--verbose)", "", "", "", "")
    return table


def _footer(report: Report) -> Iterator[str]:
    yield (
        f"{report.strategy}, {report.candidates} candidates, {report.expansions} expansions, "
        f"{report.measurements} measurements in {report.seconds:.1f} s ({report.stop_reason})"
    )
    if report.rounding is not None:
        yield rounding_sentence(report.rounding)
    if report.stages:
        yield from _time_split(report)
    if report.runtime is not None and report.runtime.version is not None:
        threads = "1 thread" if report.runtime.threads == 1 else f"{report.runtime.threads} threads"
        yield f"{report.runtime.name} {report.runtime.version}, {threads}"
    if report.peak_bytes_before is not None and report.peak_bytes_after is not None:
        before, after = report.peak_bytes_before, report.peak_bytes_after
        yield f"peak memory {before / 1e6:.1f} MB -> {after / 1e6:.1f} MB ({_change(before, after)})"
    if report.written is not None:
        yield f"written to {report.written}"


def _time_split(report: Report) -> Iterator[str]:
    """Where the time went; what was spent measuring, apart."""
    parts = {stage: f" of {seconds:.1f}" for stage, seconds in report.parts.items()}
    shown = ((stage, seconds) for stage, seconds in report.stages.items() if seconds >= 0.05)
    stages = ", ".join(f"{stage} {seconds:.1f}{parts.get(stage, '')}" for stage, seconds in shown)
    yield f"{report.seconds_total:.1f} s in all: {stages}"
    if report.gate is not None:
        regions, models = report.seconds_measuring or 0.0, report.gate.get("seconds") or 0.0
        yield f"{regions + models:.1f} s of these measuring: regions {regions:.1f}, whole models {models:.1f}"


def _change(before: float, after: float) -> str:
    return f"{100.0 * (after / before - 1.0):+.1f} %" if before > 0 else "±0 %"


def write_json(report: Report | Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write the report as JSON: to a temporary file beside ``path``, then renamed. Raises :class:`OutputError` where
    that fails.
    """
    plain = report.to_dict() if isinstance(report, Report) else dict(report)
    write_atomically(path, (json.dumps(plain, indent=2, ensure_ascii=False) + "\n").encode())
