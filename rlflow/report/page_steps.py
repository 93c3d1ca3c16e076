"""The trace of a search on a page: each step, and then each rule once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from rlflow.report.page_parts import table
from rlflow.report.rule_drawing import rule_section

if TYPE_CHECKING:
    from rlflow.report.model import Report
    from rlflow.report.steps import ReplayedStep

__all__ = ["rules_used", "steps_taken"]


def steps_taken(report: Report, steps: Sequence[ReplayedStep] | None) -> str:
    """Which rule did what to which nodes, and what the graph cost then. ``steps``: the trace, replayed."""
    if not report.improved:
        return ""
    if report.trace is None:
        return "<p>An e-graph found this result. It holds all rewrites at once, so there is no sequence of steps.</p>"
    if not report.trace:
        return "<p>No rewrites: the clean-up of import is what gained.</p>"
    if steps is None:
        return table(("", "rule"), [(str(n), escape(one["rule"])) for n, one in enumerate(report.trace, 1)], left=2)
    return table(("", "rule", "nodes", "formula, ms"), _rows(steps), left=3, kind="steps")


def _rows(steps: Sequence[ReplayedStep]) -> Iterator[tuple[str, ...]]:
    for number, one in enumerate(steps, 1):
        gone = ", ".join(map(escape, one.removed)) or "nothing"
        made = ", ".join(map(escape, one.made)) or "nothing"
        ms = "" if one.formula_ms is None else f"{one.formula_ms:.4g}"
        yield str(number), f"<b>{escape(one.rule.name)}</b>", f"{gone} → {made}", ms


def rules_used(steps: Sequence[ReplayedStep]) -> str:
    """Each rule of the steps once: statement, picture and proof."""
    counts = Counter(one.rule.name for one in steps)
    written = {one.rule.name: one.rule for one in steps}
    return "".join(
        f'<div class="rule"><h3>{escape(name)} <span class="dim">{count} '
        f"step{'s' if count > 1 else ''}</span></h3>{rule_section(written[name])}</div>"
        for name, count in counts.items()
    )
