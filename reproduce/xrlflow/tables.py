"""X-RLflow's tables and plot, from the rows of results/SIZE.jsonl alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
#: Gains closer than this part are the same gain; a win is a gain larger by a thousandth.
SAME, MORE = 1e-6, 1e-3
#: Student's t for a 95 % interval, by the number of values.
STUDENT = {3: 4.30, 4: 3.18, 5: 2.78}
BUDGETS = (10, 25, 50, 100)


def tables(rows: Sequence[Row], size: Any) -> Iterator[str]:
    """Markdown."""
    found = [row for row in rows if row["kind"] == "search" and not row["label"].startswith("ablation")]
    for roofline in dict.fromkeys(row["roofline"] for row in found):
        for budget in (size.expansions, size.seconds):
            mine = [row for row in found if row["roofline"] == roofline and row["budget"] == budget]
            if mine:
                yield from head_to_head(mine, rows, size, f"gain in %, {roofline}, {budget}")
    yield from anytime(found, size)
    yield from level(found, size)
    yield from by_the_clock(rows, size)
    yield from transfer(found, size)
    yield from ablations(rows)
    yield from trainings(rows)


def mean_ci(values: Sequence[float], scale: float = 100.0) -> str:
    """The mean, with half the 95 % interval from three values on that differ."""
    mean = scale * statistics.mean(values)
    if len(values) < 3 or statistics.stdev(values) < 1e-9:
        return f"{mean:.2f}"
    half = STUDENT.get(len(values), 2.26) * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean:.2f} ± {scale * half:.2f}"


def gains(found: Sequence[Row], model: str, label: str) -> list[float]:
    return [row["gain"] for row in found if row["model"] == model and row["label"] == label]


def learned(label: str) -> bool:
    return label.startswith("xrlflow")


def of_cards(card: Row | None) -> set[str]:
    """What an agent was trained on, by its card and those of the agents that it began with."""
    found: set[str] = set()
    while card:
        found |= set(card["models"])
        card = card.get("start")
    return found


def met(label: str, model: str, size: Any) -> bool:
    """Whether the agent of a column learnt on the model's architecture, in this or other shapes."""
    from rlflow.agents.xrlflow.trained import SHIPPED, PolicyCheckpoint

    if "fine-tuned" in label or "earlier" in label:  # which is no longer there to ask
        return True
    known = size.learn if "four models" in label else of_cards(PolicyCheckpoint.load(SHIPPED).card)
    return model.split("?")[0] in {one.split("?")[0] for one in known}


def star(label: str, model: str, size: Any) -> str:
    return "*" if learned(label) and not met(label, model, size) else ""


def head_to_head(found: Sequence[Row], rows: Sequence[Row], size: Any, title: str) -> Iterator[str]:
    """Mean gains; an asterisk where the agent never saw the architecture."""
    labels = list(dict.fromkeys(row["label"] for row in found))
    yield from ("", f"| {title} | {' | '.join(labels)} | best not learned |", "|---" * (len(labels) + 2) + "|")
    counts = {label: [0, 0, 0] for label in labels if learned(label)}
    for group in ("seen", "unseen", "shapes", "fresh", "kin"):
        for model in getattr(size, group):
            cells = {label: gains(found, model, label) for label in labels}
            others = [statistics.mean(cells[label]) for label in labels if not learned(label) and cells[label]]
            if not others:
                continue
            best = max(others)
            if group in ("seen", "unseen"):
                count(counts, cells, best)
            shown = [mean_ci(cells[label]) + star(label, model, size) if cells[label] else "" for label in labels]
            yield f"| {model} ({group}) | {' | '.join(shown)} | {100 * best:.2f} |"
    yield ""
    for label, (level, above, models) in counts.items():
        yield (
            f"* {label}: at least the best not learned on {level} of {models} models, above it by a thousandth of the "
            f"gain or more on {above} (other shapes, fresh models and kin not counted)."
        )


def count(counts: dict[str, list[int]], cells: dict[str, list[float]], best: float) -> None:
    for label, tally in counts.items():
        if cells[label]:
            mine = statistics.mean(cells[label])
            tally[0] += mine >= best * (1 - SAME)
            tally[1] += mine > best * (1 + MORE)
            tally[2] += 1


def best_known(found: Sequence[Row], model: str, roofline: str) -> float:
    """The largest gain that any search of the file found, whatever its budget."""
    return max((row["gain"] for row in found if row["model"] == model and row["roofline"] == roofline), default=0.0)


def gain_at(curve: Sequence[Sequence[float]], expansions: int) -> float:
    """The gain that a search had after so many expansions; ``curve``: (expansions, seconds, cost) by expansions."""
    costs = [cost for at, _, cost in curve if at <= expansions]
    return float(curve[0][2] / min(costs) - 1)


def gain_of(row: Row, expansions: int) -> float:
    known = row["at"].get(str(expansions))
    return gain_at(row["curve"], expansions) if known is None else float(known)


def part_at(
    found: Sequence[Row], models: Sequence[str], roofline: str, label: str, expansions: int, budget: str
) -> float | None:
    """Mean over models of the part of the best-known gain; ``None`` where a model is missing. ``expansions``: one of
    :data:`BUDGETS`, or any where the rows still have their curves.
    """
    parts = []
    for model in models:
        wanted = {"model": model, "roofline": roofline, "label": label, "budget": budget}
        mine = [row for row in found if all(row[name] == value for name, value in wanted.items())]
        best = best_known(found, model, roofline)
        if not mine or best <= 0:
            return None
        parts.append(statistics.mean(gain_of(row, expansions) for row in mine) / best)
    return statistics.mean(parts)


def anytime(found: Sequence[Row], size: Any) -> Iterator[str]:
    """How much of the best-known gain is there after fewer expansions: the same searches, read earlier."""
    labels = list(dict.fromkeys(row["label"] for row in found))
    for roofline in dict.fromkeys(row["roofline"] for row in found):
        heading = " | ".join(f"{n} expansions" for n in BUDGETS)
        yield from (
            "",
            f"| mean part of the best-known gain, {roofline} | {heading} |",
            "|---" * (len(BUDGETS) + 1) + "|",
        )
        for label in labels:
            cells = [part_at(found, size.models, roofline, label, n, size.expansions) for n in BUDGETS]
            if None not in cells:
                yield f"| {label} | {' | '.join(f'{100 * (cell or 0):.1f} %' for cell in cells)} |"


def level(found: Sequence[Row], size: Any) -> Iterator[str]:
    """On how many models a learned search is at least as good as, and above, the best of the others, earlier too."""
    mine = [row for row in found if row["budget"] == size.expansions]
    labels = [label for label in dict.fromkeys(row["label"] for row in mine) if learned(label)]
    heading = " | ".join(f"{n} expansions" for n in BUDGETS)
    yield from ("", f"| models with at least / more than the best not learned | {heading} |", "|---" * 5 + "|")
    for roofline in dict.fromkeys(row["roofline"] for row in mine):
        for label in labels:
            cells = []
            for n in BUDGETS:
                counts = {label: [0, 0, 0]}
                for model in size.models:
                    here = [row for row in mine if row["model"] == model and row["roofline"] == roofline]
                    gained: dict[str, list[float]] = {}
                    for row in here:
                        gained.setdefault(row["label"], []).append(gain_of(row, n))
                    others = [statistics.mean(values) for name, values in gained.items() if not learned(name)]
                    count(counts, {label: gained.get(label, [])}, max(others, default=0.0))
                cells.append("{} / {} of {}".format(*counts[label]))
            yield f"| {label}, {roofline} | {' | '.join(cells)} |"


def by_the_clock(rows: Sequence[Row], size: Any) -> Iterator[str]:
    """Speed-up of what each strategy found; 1 where it found nothing or the gate confirmed nothing."""
    timed = {(row["model"], row["digest"]): row for row in rows if row["kind"] == "gate"}
    found = [
        row for row in rows if row["kind"] == "search" and row["roofline"] == "cpu" and row["budget"] == size.expansions
    ]
    labels = [label for label in dict.fromkeys(row["label"] for row in found) if not label.startswith("ablation")]
    if not timed:
        return
    heading = f"| speed-up by the clock of what {size.expansions} found | original, ms | {' | '.join(labels)} |"
    yield from ("", heading, "|---" * (len(labels) + 2) + "|")
    for model in size.models:
        if not any(key[0] == model for key in timed):
            continue
        original = statistics.median(
            row["original_ms"] for (name, _), row in timed.items() if name == model and "original_ms" in row
        )
        cells = []
        for label in labels:
            mine = [row for row in found if row["model"] == model and row["label"] == label]
            cells.append(clock_cell([timed.get((model, row["digest"])) for row in mine], [row["gain"] for row in mine]))
        yield f"| {model} | {original:.1f} | {' | '.join(cells)} |"


def clock_cell(found: Sequence[Row | None], gained: Sequence[float]) -> str:
    """Mean over seeds; with the interval of the one graph where all seeds found the same."""
    if any(row is None and gain > 0 for row, gain in zip(found, gained, strict=True)):
        return "not timed"
    values = [1.0 if row is None or row["failure"] else row["speedup"] for row in found]
    one = {None if row is None else row["digest"] for row in found}
    if len(one) == 1 and found[0] is not None and "ci95" in found[0]:
        low, high = found[0]["ci95"]
        return f"{values[0]:.3f} [{low or 0:.3f}, {high or math.inf:.3f}]"
    return mean_ci(values, 1.0)


def transfer(found: Sequence[Row], size: Any) -> Iterator[str]:
    """Part of the best gain that anything here found on the model: the agent of four models on what it never saw."""
    mine = [row for row in found if row["budget"] == size.expansions]
    labels = [name for name in ("random", "greedy", "backtracking") if any(row["label"] == name for row in mine)]
    labels += [label for label in dict.fromkeys(row["label"] for row in mine) if "four models" in label]
    for roofline in dict.fromkeys(row["roofline"] for row in mine):
        yield from (
            "",
            f"| part of the best-known gain, {roofline}, {size.expansions} | {' | '.join(labels)} |",
            "|---" * (len(labels) + 1) + "|",
        )
        for group in ("unseen", "shapes"):
            for model in getattr(size, group):
                best = best_known(found, model, roofline)
                here = [row for row in mine if row["roofline"] == roofline]
                cells = [gains(here, model, label) for label in labels]
                if best > 0 and all(cells):
                    shown = " | ".join(f"{100 * statistics.mean(cell) / best:.1f} %" for cell in cells)
                    yield f"| {model} ({'unseen model' if group == 'unseen' else 'unseen shape'}) | {shown} |"


def ablations(rows: Sequence[Row]) -> Iterator[str]:
    found = [row for row in rows if row["kind"] == "search" and row["label"].startswith("ablation")]
    trained = {row["name"]: row for row in rows if row["kind"] == "train"}
    if found:
        yield from (
            "",
            "| ablation | model | roofline | gain in % of its own walk | steps | training, s |",
            "|---|---|---|--:|--:|--:|",
        )
    for row in found:
        one = trained[row["label"]]
        name = row["label"][9:] + (f" ({row['note']})" if "note" in row else "")
        yield (
            f"| {name} | {row['model']} | {row['roofline']} | {100 * row['gain']:.2f} | {one['steps']} "
            f"| {one['seconds']:.0f} |"
        )


def trainings(rows: Sequence[Row]) -> Iterator[str]:
    yield from ("", "| training | seed | steps | episodes | s | score |", "|---|--:|--:|--:|--:|--:|")
    for row in rows:
        if row["kind"] == "train":
            yield (
                f"| {row['name']} | {row['seed']} | {row['steps']} | {row['episodes']} | {row['seconds']:.0f} "
                f"| {row['score']:.4f} |"
            )


def plot(rows: Sequence[Row], size: Any, path: Path) -> None:
    """Mean part of the best-known gain against expansions, a panel a roofline; nothing without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = [row for row in rows if row["kind"] == "search" and not row["label"].startswith("ablation")]
    rooflines = list(dict.fromkeys(row["roofline"] for row in found))
    if not rooflines or any("curve" not in row for row in found):  # which the repository does not keep
        return
    figure, panels = pyplot.subplots(1, len(rooflines), figsize=(6 * len(rooflines), 4), squeeze=False)
    most = int(size.expansions.removesuffix("x"))
    for panel, roofline in zip(panels[0], rooflines, strict=True):
        for label in dict.fromkeys(row["label"] for row in found):
            parts = [part_at(found, size.models, roofline, label, n, size.expansions) for n in range(most + 1)]
            if None not in parts:
                style = {"linewidth": 1.8} if learned(label) else {"linewidth": 1.0, "linestyle": "--"}
                panel.plot(range(most + 1), [100 * (part or 0) for part in parts], label=label, **style)
        panel.set(
            title=f"analytic cost, {roofline}",
            xlabel="real expansions",
            ylabel="% of the best-known gain, mean of models",
        )
        panel.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)
