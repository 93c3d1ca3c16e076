"""Pictures for reports. The only file that imports matplotlib, and only when a picture is drawn."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from typing import Any

from rlflow.errors import UsageError
from rlflow.report.files import write_atomically


def scatter(
    panels: Mapping[str, Sequence[tuple[float, float, str]]], path: str | os.PathLike[str], *, title: str = ""
) -> None:
    """Predicted against measured milliseconds, one panel per cost model: points ``(measured, predicted, group)`` on
    logarithmic axes, with the line on which both are equal. PNG, SVG or PDF, by the name of the file.

    Raises :class:`UsageError` where matplotlib is not installed or the name has another ending, and
    :class:`rlflow.errors.OutputError` where the file cannot be written.
    """
    kind = os.path.splitext(os.fspath(path))[1].lstrip(".").lower()
    if kind not in ("png", "svg", "pdf"):
        raise UsageError(f"The plot {os.fspath(path)} would be of an unknown kind; end its name in .png, .svg or .pdf.")
    figure_class = _figure_class()
    figure = figure_class(figsize=(5 * max(1, len(panels)), 4.6), layout="constrained")
    for column, (name, points) in enumerate(panels.items(), 1):
        _panel(figure.add_subplot(1, len(panels), column), name, points)
    if title:
        figure.suptitle(title)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=130)
    write_atomically(path, buffer.getvalue())


def _figure_class() -> Any:
    try:
        from matplotlib.figure import Figure  # without pyplot: no display, no state
    except ImportError as error:
        raise UsageError(
            "Plots need matplotlib, which is not installed; install it with: pip install 'rlflow[report]'"
        ) from error
    return Figure


def _panel(axes: Any, name: str, points: Sequence[tuple[float, float, str]]) -> None:
    for group in dict.fromkeys(group for *_, group in points):
        inside = [(measured, predicted) for measured, predicted, own in points if own == group]
        axes.scatter(*zip(*inside, strict=True), s=14, alpha=0.7, label=group)
    ends = [value for measured, predicted, _ in points for value in (measured, predicted)]
    if ends:
        low, high = min(ends) / 1.1, max(ends) * 1.1
        axes.plot([low, high], [low, high], color="grey", linewidth=0.8, zorder=0)
        axes.set(xlim=(low, high), ylim=(low, high))
    axes.set(xscale="log", yscale="log", title=name, xlabel="measured end to end, ms", ylabel="predicted, ms")
    axes.set_aspect("equal")
    if 0 < len(axes.collections) <= 16:
        axes.legend(fontsize=7)
