"""RLFlow's tables and figures, from the rows of a results file alone."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from results import Results, heading

#: Whose expansions are divided by whose: the world model, the model-free agent.
PAIRS = (
    ("latent from scratch", "PPO from scratch"),
    ("graph", "PPO from scratch"),
    ("latent", "PPO with greedy prior"),
    ("graph", "PPO with greedy prior"),
)


def tables(rows: Results) -> Iterator[str]:
    """Markdown, from the rows alone."""
    yield from efficiency_table(rows.of("efficiency"))
    yield from steps_table(rows.of("steps"))
    for kind in ("temperature", "reward", "controller"):
        yield from study_table(kind, rows.of(kind))
    yield from search_table(rows.of("search"))


def study_table(kind: str, found: list[dict[str, Any]]) -> Iterator[str]:
    if not found:
        return
    yield from heading(
        kind, "model", "dreamt", "real, last round", "real, best round", "best visited", "expansions", "CPU s"
    )
    for row in found:
        cells = [_figure(row[name]) for name in ("dreamt", "last", "score", "best")]
        cells += [str(row["expansions"]), f"{row['cpu_seconds']:.0f}"]
        yield f"| {row['value']} | {row['model']} | {' | '.join(cells)} |"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _median(found: list[dict[str, Any]], name: str) -> str:
    """The median over seeds; `>` where one of them never got there and so is at least that."""
    if not found:
        return ""
    value = statistics.median(row[name] for row in found)
    return f"{'' if all(row['reached'] for row in found) else '> '}{value:.0f}"


def efficiency_table(found: list[dict[str, Any]]) -> Iterator[str]:
    if not found:
        return
    labels = list(dict.fromkeys(row["label"] for row in found))
    yield from ("", "Real expansions (CPU seconds, all included) to 90 % of the best-known gain, medians over seeds")
    yield from heading("model", *labels, *(f"{other} / {agent}" for agent, other in PAIRS))
    for model in dict.fromkeys(row["model"] for row in found):
        mine = {label: [r for r in found if r["model"] == model and r["label"] == label] for label in labels}
        cells = [f"{_median(mine[label], 'expansions')} ({_median(mine[label], 'cpu_seconds')})" for label in labels]
        yield f"| {model} | {' | '.join([*cells, *(_ratio(mine, *pair) for pair in PAIRS)])} |"


def _ratio(mine: dict[str, list[dict[str, Any]]], agent: str, other: str) -> str:
    """How many times as many expansions the other took, at the medians."""
    if not mine.get(agent) or not mine.get(other):
        return ""
    one, two = (statistics.median(row["expansions"] for row in mine[label]) for label in (agent, other))
    got_there = (all(row["reached"] for row in mine[label]) for label in (agent, other))
    sign = {(True, True): "", (True, False): "> ", (False, True): "< ", (False, False): "? "}[tuple(got_there)]
    return f"{sign}{two / max(one, 1):.1f}"


def steps_table(found: list[dict[str, Any]]) -> Iterator[str]:
    if not found:
        return
    yield from heading("model", "dream, ms, 1 alone", "of 64 side by side", "engine, ms", "ratio",
                       "engine with the clock every 5, ms", "ratio")  # fmt: skip
    for row in found:
        dreamt, real, whole = row["dream_ms_64"], row["real_ms"], row["real_ms"] + row["measure_ms"] / 5
        yield (
            f"| {row['model']} | {row['dream_ms_1']:.2f} | {dreamt:.3f} | {real:.2f} | {real / dreamt:.0f} "
            f"| {whole:.0f} | {whole / dreamt:.0f} |"
        )


def search_table(found: list[dict[str, Any]]) -> Iterator[str]:
    """Gains at equal CPU seconds, the mean over seeds, and when the best was found; then where rlflow is below."""
    if not found:
        return
    labels = list(dict.fromkeys(row["label"] for row in found))
    yield from heading(f"log gain (CPU s to the best), {found[0]['budget']:g} CPU s each", *labels)
    below: list[str] = []
    for model in dict.fromkeys(row["model"] for row in found):
        mine = {label: [r for r in found if r["model"] == model and r["label"] == label] for label in labels}
        yield f"| {model} | {' | '.join(_search_cell(mine[label]) for label in labels)} |"
        lost = [_mean(mine[label], "gain") for label in ("rlflow", "backtracking")]
        if lost[0] < lost[1] * (1 - 1e-9):
            below.append(f"{model} by {lost[1] - lost[0]:.6f}")
    yield from ("", f"rlflow is below backtracking on: {', '.join(below) or 'none'}.")


def _search_cell(found: list[dict[str, Any]]) -> str:
    if not found:
        return ""
    spread = max(row["gain"] for row in found) - min(row["gain"] for row in found)
    about = f" ± {spread / 2:.4f}" if spread > 5e-5 else ""
    return f"{_mean(found, 'gain'):.5f}{about} ({_mean(found, 'best_after'):.1f})"


def _mean(found: list[dict[str, Any]], name: str) -> float:
    return statistics.mean(row[name] for row in found) if found else math.nan


def figures(rows: Results, path: Path) -> None:
    """Efficiency curves and convergence, beside the results file, where matplotlib is installed and the rows still
    have what is drawn (the repository does not keep it).
    """
    from rlflow.errors import UsageError

    if any("curve" not in row for row in rows.of("efficiency")):
        return
    try:
        efficiency_curves(rows, path.with_name(f"{path.stem}-efficiency.png"))
        for kind in ("temperature", "reward"):
            convergence(rows.of(kind), path.with_name(f"{path.stem}-{kind}.png"))
    except UsageError as error:
        print(error, file=sys.stderr)


def efficiency_curves(rows: Results, path: Path) -> None:
    """A panel a model: the best cost over real expansions, the mean over seeds."""
    from rlflow.report.plots import anytime_curves

    runs = [
        {
            "model": row["model"],
            "strategy": row["label"],
            "cost_before_ms": 1.0,
            "expansions": max(1, row["curve"][-1][0]),
            "curve": [{"expansions": n, "cost_ms": math.exp(-gain)} for n, _, _, gain in row["curve"]],
        }
        for row in rows.of("efficiency")
    ]
    if runs:
        anytime_curves(runs, path)


def convergence(found: list[dict[str, Any]], path: Path) -> None:
    """A row a model: the model's loss over its steps, the dreamt return over the controller's updates, and the real
    return of the rounds.
    """
    from rlflow.report.plots import matplotlib_or_sentence

    if not found:
        return
    models = list(dict.fromkeys(row["model"] for row in found))
    figure = matplotlib_or_sentence().Figure(figsize=(14.0, 3.6 * len(models)), layout="constrained")
    for number, model in enumerate(models):
        panels = [figure.add_subplot(len(models), 3, 3 * number + place) for place in (1, 2, 3)]
        for row in (row for row in found if row["model"] == model):
            real = [one["score"] for one in row["rounds"] if one["score"] is not None]
            for axes, values in zip(panels, (row["model_losses"], row["dream_returns"], real), strict=True):
                axes.plot(range(1, len(values) + 1), values, label=str(row["value"]), linewidth=1.0)
        for axes, (what, of) in zip(panels, _PANELS, strict=True):
            axes.set(title=f"{model}: {what}", xlabel=of)
        panels[0].legend(title=found[0]["kind"], fontsize=7)
    figure.savefig(path, dpi=110)


_PANELS = (("loss of the model", "step of fitting"), ("return, dreamt", "update of the controller"),
           ("return, real", "round"))  # fmt: skip
