"""The report as one HTML file that needs nothing else: no network, no other file, and it reads without scripts too."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from rlflow.files import write_atomically
from rlflow.report.model import Report, rounding_sentence
from rlflow.report.page_graphs import graphs
from rlflow.report.page_parts import document, table
from rlflow.report.page_steps import rules_used, steps_taken
from rlflow.report.tables import headline

if TYPE_CHECKING:
    from rlflow.report.steps import ReplayedStep

__all__ = ["difference_page", "page", "short_page", "write_page"]

_CLOCKS = {"cpu": "processor time", "wall": "wall clock"}
_CALLED = {"original": "as it came", "baseline": "imported, no rewrites", "optimized": "optimised"}


def page(
    report: Report,
    before: Any,
    after: Any,
    *,
    steps: Sequence[ReplayedStep] | None = None,
) -> str:
    """The page. ``before`` and ``after`` are ModelProtos, which stay as they are; ``steps``: the trace, replayed."""
    sections = (
        ("Latency" if report.intervals else "Cost", _latency(report)),
        ("Memory", _memory(report)),
        ("What changed", graphs(before, after)),
        ("Rewrites, step by step", steps_taken(report, steps)),
        ("The rules of these steps", rules_used(steps or ())),
        ("Operators", _operators(report)),
        ("The search over time", _curve(report)),
        ("Outputs against the original's", _verification(report)),
        ("Where and when", _environment(report)),
        ("Run it again", f"<pre>{escape(report.command)}</pre>" if report.command else ""),
    )
    body = "".join(f"<section><h2>{title}</h2>{text}</section>" for title, text in sections if text)
    return document(report.model, headline(report), report.improved, _notes(report) + body)


def short_page(report: Report) -> str:
    """Verdict, times and operators alone, for a notebook: a part of a page, without styles of its own."""
    return f"<p><b>{escape(headline(report))}</b></p>{_latency(report)}{_operators(report)}"


def difference_page(before: Any, after: Any, title: str, verdict: str) -> str:
    """A page with the two graphs alone."""
    return document(title, verdict, False, f"<section><h2>What changed</h2>{graphs(before, after)}</section>")


def write_page(path: str | os.PathLike[str], *args: Any, **keywords: Any) -> None:
    """Write :func:`page` to a file, whole or not at all. Raises :class:`rlflow.errors.OutputError`."""
    write_atomically(path, page(*args, **keywords).encode())


def _notes(report: Report) -> str:
    return "".join(f'<p class="dim">{escape(note)}</p>' for note in report.notes)


# --- figures ----------------------------------------------------------------------------------------------------------


def _latency(report: Report) -> str:
    models: list[tuple[str, ...]] = []
    gate = report.gate or {}
    timed = {one["ms"]: one for one in (gate.get("timings") or {}).values()}
    for name, interval in report.intervals.items():
        one = timed.get(interval.ms, {})
        more = [one.get(key) for key in ("p99", "wall_ms", "wall_p99")]
        times = (f"{interval.ms:.4g}", _between(interval.low, interval.high), *map(_figure, more))
        models.append((_CALLED.get(name, escape(name)), *times))
    if not models:
        costs = [("before", report.cost_before_ms), ("after", report.cost_after_ms)]
        rows = [(when, f"{ms:.4g}") for when, ms in costs if ms is not None]
        note = f"<p>No whole model was timed. These are costs by the model “{escape(report.cost_model)}”.</p>"
        return note + table(("", "ms"), rows) if rows else ""
    clock = _CLOCKS.get(gate.get("clock", ""), "the clock")
    what = (f"median (p50), {clock}, ms", "95 % interval", "p99", "median (p50), wall clock, ms", "p99")
    names, *figures = zip(*models, strict=True)
    times_table = table(("", *names), [(said, *row) for said, row in zip(what, figures, strict=True)], kind="times")
    blocks = f"{gate.get('blocks', 0)} blocks of fresh sessions, {gate.get('rounds', 0)} rounds, in turn."
    return f'{_bars(report)}{times_table}<p class="dim">{blocks}</p>'


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _between(low: float, high: float) -> str:
    return f"{low:.4g} to {high:.4g}" if math.isfinite(low) and math.isfinite(high) else "not known"


def _bars(report: Report) -> str:
    """A bar a model, with its interval."""
    ends = [one.high if math.isfinite(one.high) else one.ms for one in report.intervals.values()]
    longest, lines = max([*ends, 1e-9]), []
    for name, one in report.intervals.items():
        bar = f'<i style="width:{100 * one.ms / longest:.1f}%"></i>'
        if math.isfinite(one.low) and math.isfinite(one.high):
            left, width = 100 * one.low / longest, 100 * (one.high - one.low) / longest
            bar += f'<u style="left:{left:.1f}%;width:{width:.1f}%"></u>'
        good = " good" if name == "optimized" else ""
        lines.append(f'<span>{_CALLED.get(name, escape(name))}</span><div class="bar{good}">{bar}</div>')
    return f'<div class="bars">{"".join(lines)}</div>'


def _memory(report: Report) -> str:
    if report.bytes_before is None or report.bytes_after is None:
        return ""
    rows = [_megabytes("size of the model with its weights in the file", report.bytes_before, report.bytes_after)]
    if report.peak_bytes_before is not None and report.peak_bytes_after is not None:
        what = "peak memory of a process that opens the model and runs it once, beyond the runtime's own"
        rows.append(_megabytes(what, report.peak_bytes_before, report.peak_bytes_after))
    return table(("", "before, MB", "after, MB", ""), rows)


def _megabytes(what: str, before: int, after: int) -> tuple[str, ...]:
    change = 100.0 * (after / before - 1.0) if before else 0.0
    told = "±0 %" if abs(change) < 0.05 else f"{change:+.1f} %"
    return what, f"{before / 1e6:.2f}", f"{after / 1e6:.2f}", told


def _operators(report: Report) -> str:
    before, after = report.operators_before, report.operators_after
    names = sorted({*before, *after}, key=lambda name: (-before.get(name, 0), name))
    rows = []
    for name in names:
        old, new = before.get(name, 0), after.get(name, 0)
        rows.append((escape(name), str(old), str(new), f"{new - old:+d}" if new != old else ""))
    old, new = sum(before.values()), sum(after.values())
    rows.append(("<b>all</b>", f"<b>{old}</b>", f"<b>{new}</b>", f"{new - old:+d}" if new != old else ""))
    return table(("", "before", "after", ""), rows)


def _curve(report: Report) -> str:
    """Best cost so far over seconds, as steps."""
    points = [(float(one["seconds"]), float(one["cost_ms"])) for one in report.curve]
    if len(points) < 2 or points[-1][0] <= 0:
        return ""
    end = max(report.seconds, points[-1][0])
    low, high = min(ms for _, ms in points), max(ms for _, ms in points)
    span = (high - low) or 1.0
    path, last = "", 0.0
    for index, (seconds, ms) in enumerate(points):
        x, y = 110 + 560 * seconds / end, 20 + 160 * (high - ms) / span
        path += f"M{x:.1f} {y:.1f}" if index == 0 else f"H{x:.1f}V{y:.1f}"
        last = y
    axes = (
        '<path d="M110 14V184H674" stroke="#9aa5b4" fill="none"/>'
        f'<text x="102" y="26" text-anchor="end">{high:.4g} ms</text>'
        f'<text x="102" y="184" text-anchor="end">{low:.4g} ms</text><text x="110" y="206">0 s</text>'
        f'<text x="670" y="206" text-anchor="end">{end:.3g} s</text>'
    )
    line = f'<path d="{path}H670" fill="none" stroke="#137a4b" stroke-width="2"/>'
    line += f'<circle cx="670" cy="{last:.1f}" r="3" fill="#137a4b"/>'
    caption = f"Best cost so far by “{escape(report.cost_model)}”, {escape(report.strategy)}. {_counts(report)}"
    drawing = f'<svg class="curve" viewBox="0 0 700 214" role="img" aria-label="Best cost over time">{axes}{line}</svg>'
    return f"<figure style='margin:0'>{drawing}<figcaption>{caption}</figcaption></figure>"


def _counts(report: Report) -> str:
    return (
        f"{report.candidates} candidates, {report.expansions} expansions, {report.measurements} measurements in "
        f"{report.seconds:.1f} s ({escape(report.stop_reason)})."
    )


# --- what was done ----------------------------------------------------------------------------------------------------


def _verification(report: Report) -> str:
    spent = "" if report.rounding is None else f'<p class="dim">{escape(_rounding(report.rounding))}</p>'
    if report.verified is None:
        return "" if not report.improved else f"<p>The outputs were not compared (--no-verify).</p>{spent}"
    rows = []
    for one in report.verified.outputs:
        verdict = "differs" if not one.passed else f"proves nothing: {one.vacuous}" if one.vacuous else "equal"
        figures = (f"{one.max_abs:.2e}", f"{one.max_rel:.2e}", f"{one.tolerance:.2e}")
        rows.append((f"<code>{escape(one.name)}</code>", escape(verdict), *figures))
    notes = "".join(f'<p class="dim">{escape(note)}</p>' for note in report.verified.notes)
    return table(("output", "", "largest difference", "relative", "allowed"), rows, left=2) + notes + spent


def _rounding(rounding: Mapping[str, Any]) -> str:
    text = rounding_sentence(rounding, most=len(rounding["rules"]))
    return f"{text[:1].upper()}{text[1:]}."


def _environment(report: Report) -> str:
    rows = [(escape(key), escape(value)) for key, value in report.environment.items()]
    if report.input:
        rows.append(("model", f"{report.input['bytes']} bytes, SHA-256 <code>{escape(report.input['sha256'])}</code>"))
    if report.runtime is not None:
        version = report.runtime.version or "not opened"
        threads = f"{report.runtime.threads} thread{'s' if report.runtime.threads != 1 else ''}"
        rows.append(("runtime", escape(f"{report.runtime.name} {version}, {threads}")))
    rows += [("rlflow", escape(report.version)), ("search", escape(report.strategy)), ("budget", escape(report.budget))]
    rows += [("cost model", escape(report.cost_model)), ("seed", str(report.seed))]
    stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in report.stages.items() if seconds >= 0.05)
    rows.append(("seconds", f"{report.seconds_total:.1f} in all: {escape(stages)}"))
    return table(("", ""), rows, left=2)
