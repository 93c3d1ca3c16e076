"""Figures, drawn with matplotlib (the extra ``report``)."""

from __future__ import annotations

import io
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlflow.errors import UsageError
from rlflow.files import write_atomically
from rlflow.registry import not_installed

__all__ = [
    "anytime_curves",
    "check_plot",
    "lines_against_size",
    "matplotlib_or_sentence",
    "memory_against_time",
    "predicted_and_real",
    "scatter",
]

_KINDS = ("png", "svg", "pdf")

_MARKERS = "osD^vP*Xd<>h"


def matplotlib_or_sentence() -> Any:
    """``matplotlib.figure``, for files without a screen. Raises :class:`UsageError` where it is not installed."""
    try:
        from matplotlib import figure
    except ImportError as error:
        raise UsageError(f"Figures need it: {not_installed('matplotlib', 'matplotlib', '[report]')}.") from error
    return figure


def check_plot(path: str | os.PathLike[str]) -> str:
    """The kind of a plot by the end of its name; before the work whose figures it shows. Raises :class:`UsageError`
    for another, and where matplotlib is not installed.
    """
    matplotlib_or_sentence()
    kind = os.path.splitext(os.fspath(path))[1].lstrip(".").lower()
    if kind not in _KINDS:
        raise UsageError(f"The plot {os.fspath(path)} would be of an unknown kind; end its name in .png, .svg or .pdf.")
    return kind


def anytime_curves(runs: Sequence[Mapping[str, Any]], path: str | os.PathLike[str], unit: str = "expansions") -> None:
    """A panel a model: the mean over seeds of the best cost so far, relative to the start, over what was spent.

    ``runs`` are rows of a comparison; ``unit``: ``expansions``, ``candidates``, ``measurements`` or ``seconds``.
    """
    models = list(dict.fromkeys(run["model"] for run in runs))
    figure = matplotlib_or_sentence().Figure(figsize=(5.0 * min(len(models), 3), 3.6 * -(-len(models) // 3)))
    for place, model in enumerate(models):
        axes = figure.add_subplot(-(-len(models) // 3), min(len(models), 3), place + 1)
        mine = [run for run in runs if run["model"] == model]
        end = max(max(run[unit], 1e-3) for run in mine)
        for strategy in dict.fromkeys(run["strategy"] for run in mine):
            grid = np.geomspace(max(end * 1e-4, 1e-3), end, 200)
            curves = [_steps(run, unit, grid) for run in mine if run["strategy"] == strategy]
            axes.plot(grid, np.mean(curves, axis=0), label=strategy, linewidth=1.4)
        axes.set(title=model, xlabel=unit, xscale="log", ylabel="cost / cost at the start")
        axes.legend(fontsize=7)
    _save(figure, path)


def _steps(run: Mapping[str, Any], unit: str, grid: np.ndarray) -> np.ndarray:
    """The run's anytime curve at the points of ``grid``."""
    spent = np.array([point[unit] for point in run["curve"]], dtype=float)
    cost = np.array([point["cost_ms"] for point in run["curve"]]) / run["cost_before_ms"]
    return cost[np.maximum(np.searchsorted(spent, grid, side="right") - 1, 0)]


def lines_against_size(
    rows: Sequence[Mapping[str, Any]], path: str | os.PathLike[str], *, x: str, series: str, panels: Mapping[str, str]
) -> None:
    """A panel a quantity (``panels``: key of the rows to label), a line for each value of ``series``, over ``x``."""
    figure = matplotlib_or_sentence().Figure(figsize=(4.6 * len(panels), 3.8))
    for place, (key, label) in enumerate(panels.items()):
        axes = figure.add_subplot(1, len(panels), place + 1)
        lines = defaultdict(list)
        for row in rows:
            lines[row[series]].append((row[x], row[key]))
        for marker, (name, points) in zip(_MARKERS, lines.items(), strict=False):
            axes.plot(*zip(*sorted(points), strict=True), marker=marker, markersize=4, linewidth=1.2, label=name)
        positive = all(row[key] > 0 for row in rows)
        axes.set(xlabel=x, ylabel=label, xscale="log", yscale="log" if positive else "linear")
        axes.legend(fontsize=7)
    _save(figure, path)


def predicted_and_real(
    predicted: Sequence[float], real: Sequence[float], path: str | os.PathLike[str], *, title: str = ""
) -> None:
    """Returns after each step of a dream, and of the same steps in the engine as far as they went."""
    figure = matplotlib_or_sentence().Figure(figsize=(5.0, 3.6))
    axes = figure.add_subplot(1, 1, 1)
    for values, label, marker in ((predicted, "dreamt", "o"), (real, "real", "s")):
        axes.plot(range(len(values)), values, marker=marker, markersize=4, linewidth=1.2, label=label)
    axes.set(xlabel="step", ylabel="log(cost at the start / cost)", title=title)
    axes.legend(fontsize=8)
    _save(figure, path)


def scatter(
    panels: Mapping[str, Sequence[tuple[float, float, str]]], path: str | os.PathLike[str], *, title: str = ""
) -> None:
    """Predicted against measured milliseconds, one panel per cost model: points ``(measured, predicted, group)`` on
    logarithmic axes, with the line on which both are equal. PNG, SVG or PDF, by the name of the file.

    Raises :class:`UsageError` where matplotlib is not installed or the name has another ending, and
    :class:`rlflow.errors.OutputError` where the file cannot be written.
    """
    figure = matplotlib_or_sentence().Figure(figsize=(5 * max(1, len(panels)), 4.6))
    for column, (name, points) in enumerate(panels.items(), 1):
        _panel(figure.add_subplot(1, len(panels), column), name, points)
    if title:
        figure.suptitle(title)
    _save(figure, path)


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


def memory_against_time(front: Sequence[Any], before: int, path: str | os.PathLike[str]) -> None:
    """The front of a shrunk model (:class:`rlflow.report.shrunk.Tried`): bytes over time, beside the model as it came,
    which needs ``before`` bytes.
    """
    axes = (figure := matplotlib_or_sentence().Figure(figsize=(5.2, 3.8))).add_subplot()
    points = sorted([(one.slowdown, one.peak) for one in front] + [(1.0, before)])
    axes.plot(*zip(*points, strict=True), marker="o", markersize=4, linewidth=1.2)
    axes.plot([1.0], [before], marker="s", color="grey", linestyle="", label="as it came")
    axes.set(xlabel="time, in times the model's own", ylabel="peak beside the weights, bytes", ylim=(0, None))
    axes.legend(fontsize=7)
    _save(figure, path)


def _save(figure: Any, path: str | os.PathLike[str]) -> None:
    kind = check_plot(path)
    figure.tight_layout()
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=150)
    write_atomically(path, buffer.getvalue())
