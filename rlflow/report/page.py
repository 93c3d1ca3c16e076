"""The report as one HTML file that needs nothing else: no network, no other file, and it reads without scripts too."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlflow.files import write_atomically
from rlflow.report.graph_drawing import DrawnNode, around, svg
from rlflow.report.model import Report, rounding_sentence
from rlflow.report.tables import headline

if TYPE_CHECKING:
    from rlflow.report.steps import ReplayedStep

__all__ = ["difference_page", "page", "short_page", "write_page"]

#: Larger graphs are drawn around what changed, so many edges far.
_WHOLE, _HOPS = 400, 3
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
        ("What changed", _graphs(before, after)),
        ("Rewrites, step by step", _steps(report, steps)),
        ("Operators", _operators(report)),
        ("The search over time", _curve(report)),
        ("Outputs against the original's", _verification(report)),
        ("Where and when", _environment(report)),
        ("Run it again", f"<pre>{escape(report.command)}</pre>" if report.command else ""),
    )
    body = "".join(f"<section><h2>{title}</h2>{text}</section>" for title, text in sections if text)
    return _document(report.model, headline(report), report.improved, _notes(report) + body)


def short_page(report: Report) -> str:
    """Verdict, times and operators alone, for a notebook: a part of a page, without styles of its own."""
    return f"<p><b>{escape(headline(report))}</b></p>{_latency(report)}{_operators(report)}"


def difference_page(before: Any, after: Any, title: str, verdict: str) -> str:
    """A page with the two graphs alone."""
    return _document(title, verdict, False, f"<section><h2>What changed</h2>{_graphs(before, after)}</section>")


def _document(title: str, verdict: str, good: bool, body: str) -> str:
    here = Path(__file__).parent
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>rlflow: {escape(title)}</title><style>{(here / 'page.css').read_text('utf-8')}</style></head>"
        f'<body><main><h1>{escape(title)}</h1><p class="verdict{" good" if good else ""}">{escape(verdict)}</p>'
        f"{body}</main><script>{(here / 'page.js').read_text('utf-8')}</script></body></html>\n"
    )


def write_page(path: str | os.PathLike[str], *args: Any, **keywords: Any) -> None:
    """Write :func:`page` to a file, whole or not at all. Raises :class:`rlflow.errors.OutputError`."""
    write_atomically(path, page(*args, **keywords).encode())


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """Cells are HTML; columns after the first ``left`` are figures."""
    sides = ["" if column < left else ' class="r"' for column in range(len(head))]
    top = "".join(f"<th{side}>{cell}</th>" for side, cell in zip(sides, head, strict=True))
    lines = ("".join(f"<td{side}>{cell}</td>" for side, cell in zip(sides, row, strict=True)) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _notes(report: Report) -> str:
    return "".join(f'<p class="dim">{escape(note)}</p>' for note in report.notes)


# --- figures ----------------------------------------------------------------------------------------------------------


def _latency(report: Report) -> str:
    rows: list[tuple[str, ...]] = []
    gate = report.gate or {}
    timed = {one["ms"]: one for one in (gate.get("timings") or {}).values()}
    for name, interval in report.intervals.items():
        one = timed.get(interval.ms, {})
        more = [one.get(key) for key in ("p99", "wall_ms", "wall_p99")]
        times = (f"{interval.ms:.4g}", _between(interval.low, interval.high), *map(_figure, more))
        rows.append((_CALLED.get(name, escape(name)), *times))
    if not rows:
        costs = [("before", report.cost_before_ms), ("after", report.cost_after_ms)]
        rows = [(when, f"{ms:.4g}") for when, ms in costs if ms is not None]
        note = f"<p>No clock was used. These are costs by the model “{escape(report.cost_model)}”.</p>"
        return note + _table(("", "ms"), rows) if rows else ""
    clock = _CLOCKS.get(gate.get("clock", ""), "the clock")
    head = (f"median (p50) ms, {clock}", "95 % interval", "p99", "median (p50) ms, wall clock", "p99")
    table = _table(("", *head), rows)
    blocks = f"{gate.get('blocks', 0)} blocks of fresh sessions, {gate.get('rounds', 0)} rounds, in turn."
    return f'{_bars(report)}{table}<p class="dim">{blocks}</p>'


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _between(low: float, high: float) -> str:
    return f"{low:.4g} to {high:.4g}" if math.isfinite(low) and math.isfinite(high) else "not known"


def _bars(report: Report) -> str:
    """A bar a model, with its interval."""
    ends = [one.high if math.isfinite(one.high) else one.ms for one in report.intervals.values()]
    scale, lines = 520.0 / max([*ends, 1e-9]), []
    for index, (name, one) in enumerate(report.intervals.items()):
        y, colour = 12 + 40 * index, "#137a4b" if name == "optimized" else "#8b97a8"
        lines.append(
            f'<text x="150" y="{y + 16}" text-anchor="end" font-size="13">{_CALLED.get(name, escape(name))}</text>'
        )
        lines.append(
            f'<rect x="160" y="{y}" width="{one.ms * scale:.1f}" height="24" rx="3" fill="{colour}" opacity=".75"/>'
        )
        if math.isfinite(one.low) and math.isfinite(one.high):
            a, b = 160 + one.low * scale, 160 + one.high * scale
            lines.append(
                f'<path d="M{a:.1f} {y + 12}H{b:.1f}M{a:.1f} {y + 6}v12M{b:.1f} {y + 6}v12" '
                'stroke="#1c2430" fill="none"/>'
            )
    height = 16 + 40 * len(report.intervals)
    return f'<svg class="bars" viewBox="0 0 700 {height}" role="img" aria-label="Latency">{"".join(lines)}</svg>'


def _memory(report: Report) -> str:
    if report.bytes_before is None or report.bytes_after is None:
        return ""
    rows = [_megabytes("size of the model with its weights in the file", report.bytes_before, report.bytes_after)]
    if report.peak_bytes_before is not None and report.peak_bytes_after is not None:
        what = "peak memory of a process that opens the model and runs it once, beyond the runtime's own"
        rows.append(_megabytes(what, report.peak_bytes_before, report.peak_bytes_after))
    return _table(("", "before, MB", "after, MB", ""), rows)


def _megabytes(what: str, before: int, after: int) -> tuple[str, ...]:
    change = f"{100.0 * (after / before - 1.0):+.1f} %" if before else ""
    return what, f"{before / 1e6:.2f}", f"{after / 1e6:.2f}", change


def _operators(report: Report) -> str:
    before, after = report.operators_before, report.operators_after
    names = sorted({*before, *after}, key=lambda name: (-before.get(name, 0), name))
    rows = []
    for name in names:
        old, new = before.get(name, 0), after.get(name, 0)
        rows.append((escape(name), str(old), str(new), f"{new - old:+d}" if new != old else ""))
    old, new = sum(before.values()), sum(after.values())
    rows.append(("<b>all</b>", f"<b>{old}</b>", f"<b>{new}</b>", f"{new - old:+d}" if new != old else ""))
    return _table(("", "before", "after", ""), rows)


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
        x, y = 70 + 600 * seconds / end, 20 + 160 * (high - ms) / span
        path += f"M{x:.1f} {y:.1f}" if index == 0 else f"H{x:.1f}V{y:.1f}"
        last = y
    text = 'font-size="12" fill="#5b6675"'
    axes = (
        '<path d="M70 14V184H674" stroke="#9aa5b4" fill="none"/>'
        f'<text x="62" y="26" text-anchor="end" {text}>{high:.4g} ms</text>'
        f'<text x="62" y="184" text-anchor="end" {text}>{low:.4g} ms</text><text x="70" y="204" {text}>0 s</text>'
        f'<text x="670" y="204" text-anchor="end" {text}>{end:.3g} s</text>'
    )
    line = f'<path d="{path}H670" fill="none" stroke="#137a4b" stroke-width="2"/>'
    line += f'<circle cx="670" cy="{last:.1f}" r="3" fill="#137a4b"/>'
    caption = f"Best cost so far by “{escape(report.cost_model)}”, {escape(report.strategy)}. {_counts(report)}"
    drawing = f'<svg class="bars" viewBox="0 0 700 212" role="img" aria-label="Best cost over time">{axes}{line}</svg>'
    return f"<figure style='margin:0'>{drawing}<figcaption>{caption}</figcaption></figure>"


def _counts(report: Report) -> str:
    return (
        f"{report.candidates} candidates, {report.expansions} expansions, {report.measurements} measurements in "
        f"{report.seconds:.1f} s ({escape(report.stop_reason)})."
    )


# --- what was done ----------------------------------------------------------------------------------------------------


def _graphs(before: Any, after: Any) -> str:
    from rlflow.frontends.difference import difference

    found = difference(before, after)
    if found.none:
        return "<p>Nothing: the model is as it came.</p>"
    states = [dict.fromkeys(found.removed, "removed"), dict.fromkeys(found.added, "added")]
    states[0] |= {one.before: "changed" for one in found.changed}
    states[1] |= {one.after: "changed" for one in found.changed}
    boxes = [
        _graph(model, state, title)
        for model, state, title in zip((before, after), states, ("Before", "After"), strict=True)
    ]
    key = "".join(f'<span class="{state}">{state}</span>' for state in ("removed", "added", "changed"))
    others = "".join(f"<li>{escape(one)}</li>" for one in found.others)
    return (
        f'<p class="key">{key}</p><div class="two">{"".join(boxes)}</div>'
        '<p class="dim">Drag to move. Use the buttons, or '
        "Ctrl and the wheel, to zoom. Point at a node for its whole name.</p>"
        + (f"<ul>{others}</ul>" if others else "")
    )


def _graph(model: Any, states: Mapping[int, str], title: str) -> str:
    nodes = drawn(model, states)
    shown = nodes if len(nodes) <= _WHOLE else around(nodes, _HOPS)
    hidden = len(nodes) - len(shown)
    count = f"{len(nodes)} nodes" + (f", {hidden} of them far from any change and not drawn" if hidden else "")
    does = (("in", "+"), ("out", "−"), ("whole", "Whole"), ("next", "Next change"))
    buttons = "".join(f'<button type="button" data-do="{what}">{text}</button>' for what, text in does)
    drawing = svg(shown, f"{title}: {count}") or '<p style="padding:12px">Nothing changed on this side.</p>'
    return f'<div class="graph"><header><b>{title}</b><span class="dim">{count}</span>{buttons}</header>{drawing}</div>'


def drawn(model: Any, states: Mapping[int, str]) -> list[DrawnNode]:
    """A ModelProto's main graph; constants are left out. ``states``: by position in ``model.graph.node``."""
    from rlflow.frontends.difference import operator

    made: dict[str, int] = {}
    nodes: list[DrawnNode] = []
    for place, node in enumerate(model.graph.node):
        if node.op_type == "Constant" and states.get(place, "same") == "same":
            continue
        name = node.name or next((output for output in node.output if output), "")
        reads = tuple(dict.fromkeys(made[one] for one in node.input if one in made))
        nodes.append(DrawnNode(operator(node), name, reads, states.get(place, "same")))
        made.update({output: len(nodes) - 1 for output in node.output if output})
    return nodes


def _steps(report: Report, steps: Sequence[ReplayedStep] | None) -> str:
    if not report.improved:
        return ""
    if report.trace is None:
        return "<p>An e-graph found this result. It holds all rewrites at once, so there is no sequence of steps.</p>"
    if not report.trace:
        return "<p>No rewrites: the clean-up of import is what gained.</p>"
    if steps is None:
        return _table(("", "rule"), [(str(n), escape(one["rule"])) for n, one in enumerate(report.trace, 1)], left=2)
    return _table(("", "rule", "nodes", "proof", "formula, ms"), _step_rows(steps), left=4)


def _step_rows(steps: Sequence[ReplayedStep]) -> Iterator[tuple[str, ...]]:
    for number, one in enumerate(steps, 1):
        gone = ", ".join(map(escape, one.removed)) or "nothing"
        made = ", ".join(map(escape, one.made)) or "nothing"
        ms = "" if one.formula_ms is None else f"{one.formula_ms:.4g}"
        rule = f"<b>{escape(one.rule)}</b><br>{escape(one.doc)}<br><code>{escape(one.statement)}</code>"
        yield str(number), rule, f"{gone} → {made}", f'<span class="dim">{escape(one.proof)}</span>', ms


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
    return _table(("output", "", "largest difference", "relative", "allowed"), rows, left=2) + notes + spent


def _rounding(rounding: Mapping[str, Any]) -> str:
    text = rounding_sentence(rounding, most=len(rounding["rules"]))
    return f"{text[:1].upper()}{text[1:]}."


def _environment(report: Report) -> str:
    rows = [(escape(key), escape(value)) for key, value in report.environment.items()]
    if report.input:
        rows.append(("model", f"{report.input['bytes']} bytes, SHA-256 <code>{escape(report.input['sha256'])}</code>"))
    if report.runtime is not None:
        version = report.runtime.version or "not opened"
        rows.append(("runtime", escape(f"{report.runtime.name} {version}, {report.runtime.threads} threads")))
    rows += [("rlflow", escape(report.version)), ("search", escape(report.strategy)), ("budget", escape(report.budget))]
    rows += [("cost model", escape(report.cost_model)), ("seed", str(report.seed))]
    stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in report.stages.items() if seconds >= 0.05)
    rows.append(("seconds", f"{report.seconds_total:.1f} in all: {escape(stages)}"))
    return _table(("", ""), rows, left=2)
