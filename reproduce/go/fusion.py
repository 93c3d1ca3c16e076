"""Fusions that are really compiled and timed: TorchInductor's kernels for small graphs that memory bounds.

Each way of deciding has as many evaluations, by the table of timed groups. What it found is then compiled as a whole,
and all wholes run in turn, beside what Inductor decides itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import results

from rlflow.nn.threads import one_thread
from rlflow.placement import Devices
from rlflow.placement.compiled_fusing import CompiledFusingTask, times_beside
from rlflow.placement.decisions import GraphView
from rlflow.placement.level_search import AnnealedLevels
from rlflow.price.agreement import spearman

Row = dict[str, Any]
#: Rows and columns of a value: 4 MiB of floats.
ROWS, COLUMNS = 1024, 1024
#: Of the final comparison, and decisions by which the table is compared with wholes.
RUNS, COMPARED = 40, 10
SEED = 0


# --- graphs -----------------------------------------------------------------------------------------------------------


def norm_tails(x: Any, first: Any, second: Any) -> Any:
    """What stands around the products of three half layers of a transformer: sums, layer norms, activations."""
    from torch.nn.functional import layer_norm

    for added in (first, second, first):
        x = x + added
        normal = layer_norm(x, (COLUMNS,))
        inner = torch_relu(normal) * normal
        x = x + inner * inner.mean(-1, keepdim=True)
    return x, layer_norm(x, (COLUMNS,)).amax(-1)


def softmax_chain(x: Any, mask: Any) -> Any:
    """Softmax over rows, then over columns, twice, as Sinkhorn's iteration has it, with what each step keeps."""
    kept = []
    for dim in (-1, 0, -1, 0):
        x = (x + mask).softmax(dim)
        kept.append((x * mask).sum(dim))
    return x, *kept


def lstm_steps(gates: Any, state: Any) -> Any:
    """The pointwise part of a cell with clipped gates, unrolled; what follows reads every step's state."""
    outputs = []
    for step in gates.unbind(0):
        one, two, three, four = step.chunk(4, -1)
        state = two.clamp(0, 1) * state + one.clamp(0, 1) * three.clamp(-1, 1)
        state = state - state.mean(-1, keepdim=True)
        outputs.append(four.clamp(0, 1) * state.clamp(-1, 1))
    return outputs, state


def rotary_norms(query: Any, key: Any, cosine: Any, sine: Any) -> Any:
    """RMS norms of queries and keys, rotary positions, and scores of each position with itself."""
    found = []
    for value in (query, key):
        value = value * (value.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
        left, right = value.chunk(2, -1)
        found.append(value * cosine + torch_cat((-right, left)) * sine)
    scores = (found[0] * found[1]).sum(-1)
    return (*found, scores, scores.softmax(0))


def norm_branches(x: Any) -> Any:
    """Batch norm by the batch's own figures in three branches of different activations, weighed by channel means."""
    joined = x
    for activation in (lambda y: y * (y + 3).clamp(0, 6) / 6, lambda y: y.clamp(min=0), lambda y: y.abs()):
        mean = joined.mean(0, keepdim=True)
        spread = (joined - mean).square().mean(0, keepdim=True)
        branch = activation((joined - mean) * (spread + 1e-5).rsqrt())
        joined = joined + branch * branch.mean(1, keepdim=True)
    return joined, joined.amax(1)


def pointwise_inception(x: Any, scale: Any) -> Any:
    """Four pointwise branches of one input, each with a mean of its own, joined, three times."""
    for _ in range(3):
        branches = [
            torch_relu(x * scale),
            x - x.mean(-1, keepdim=True),
            x * x.amax(-1, keepdim=True).reciprocal(),
            torch_relu(x + scale) * x.abs().mean(0, keepdim=True),
        ]
        x = branches[0] + branches[1] * branches[2] - branches[3]
    return x, x.sum(0)


def torch_relu(x: Any) -> Any:
    return x.clamp(min=0)


def torch_cat(parts: Sequence[Any]) -> Any:
    import torch

    return torch.cat(list(parts), -1)


def drawn(*shapes: tuple[int, ...]) -> tuple[Any, ...]:
    import torch

    made = torch.Generator().manual_seed(SEED)
    return tuple(torch.rand(shape, generator=made) + 0.1 for shape in shapes)


SQUARE = (ROWS, COLUMNS)
#: Functions, and the shapes of their inputs.
GRAPHS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "norm tails": (norm_tails, (SQUARE, SQUARE, SQUARE)),
    "softmax chain": (softmax_chain, (SQUARE, SQUARE)),
    "lstm steps": (lstm_steps, ((6, ROWS // 2, 4 * COLUMNS // 2), (ROWS // 2, COLUMNS // 2))),
    "rotary norms": (rotary_norms, (SQUARE, SQUARE, SQUARE, SQUARE)),
    "norm branches": (norm_branches, (SQUARE,)),
    "pointwise inception": (pointwise_inception, (SQUARE, SQUARE)),
}


# --- ways of deciding -------------------------------------------------------------------------------------------------


def by_go(task: CompiledFusingTask, checkpoint: str, evaluations: int) -> np.ndarray:
    """The best of what a policy decides, told first what equal levels are worth."""
    from rlflow.agents.go.deciding import best_of, policy_of
    from rlflow.agents.go.lessons import lesson_of

    view = GraphView.of(task.sketch.work(), Devices.alike(2), task.sketch.products)
    lesson = lesson_of("fusion", view, [None, None, task], rules=1, rewarded=False)
    with one_thread():
        return best_of(policy_of(checkpoint), lesson, evaluations, np.random.default_rng(SEED))[2][1]


def by_drawing(task: CompiledFusingTask, evaluations: int) -> np.ndarray:
    """The best of levels that are drawn."""
    rows = np.random.default_rng(SEED).integers(0, task.choices, (evaluations, task.nodes))
    return np.asarray(rows[int(np.argmin(task.scores(rows)))])


#: By name, what decides with so many evaluations.
WAYS: dict[str, Callable[[CompiledFusingTask, int], np.ndarray]] = {
    "random": by_drawing,
    "annealing": lambda task, tried: AnnealedLevels(tried).decide(task, np.random.default_rng(SEED))[1],
    "GO untrained": lambda task, tried: by_go(task, "untrained", tried),
    "GO": lambda task, tried: by_go(task, "", tried),
}


# --- rows -------------------------------------------------------------------------------------------------------------


def fused(evaluations: int, have: Callable[..., bool], folder: str | None = None) -> Iterator[Row]:
    """A row for each graph that is not there yet. ``evaluations``: of each way; ``folder``: for compiled kernels."""
    for name, (function, shapes) in GRAPHS.items():
        key = f"fusion {evaluations} {name}"
        if not have(key=key):
            with CompiledFusingTask(function, drawn(*shapes), folder=folder) as task:
                yield {"kind": "fusion", "key": key, "graph": name, **row_of(task, function, shapes, evaluations)}


def row_of(task: CompiledFusingTask, function: Any, shapes: Any, evaluations: int) -> Row:
    """Of one graph: what each way found by the table, and by the clock as a whole, in units of Inductor's default."""
    chosen: dict[str, np.ndarray | None] = {"no fusion": np.zeros(task.nodes, int), "Inductor": None}
    spent: dict[str, Row] = {}
    task.evaluate(np.ones(task.nodes, int))
    for way, decide in WAYS.items():
        before, compiled, began = task.spent, task.compiled, time.monotonic()
        chosen[way] = decide(task, evaluations)
        spent[way] = {"evaluations": task.spent - before, "compiled": task.compiled - compiled,
                      "seconds": round(time.monotonic() - began, 1)}  # fmt: skip
    by_table = {
        way: task.evaluate(np.ones(task.nodes, int) if row is None else row).objective for way, row in chosen.items()
    }
    clock, worst = {}, 0.0
    for form, apart in (("apart", True), ("whole", False)):
        plans = [task.plan(row) for row in chosen.values()]
        made = {plan: task.whole(row, apart=apart) for plan, row in zip(plans, chosen.values(), strict=True)}
        wholes = list(made.values())  # what decides the same is the same
        times = times_beside(wholes, RUNS)[:, [list(made).index(plan) for plan in plans]]
        over = np.median(times / times[:, 1:2], axis=0)
        clock[form] = {way: {"ms": 1e3 * float(ms), "over": float(ratio)}
                       for way, ms, ratio in zip(chosen, times.min(axis=0), over, strict=True)}  # fmt: skip
        worst = max([worst, *(off(one, function, shapes) for one in wholes)])
    kernels = {way: len(task.plan(row)) for way, row in chosen.items()}
    return {"nodes": task.nodes, "evidence": task.evidence, "evaluations": evaluations, "kernels": kernels,
            "groups_compiled": task.compiled, "table_ms": {way: 1e3 * value for way, value in by_table.items()},
            **clock, "spent": spent, "worst": worst, "agreement": agreement(task)}  # fmt: skip


def off(whole: Any, function: Any, shapes: Any) -> float:
    """The largest difference from what eager torch computes."""
    from torch.utils._pytree import tree_leaves

    given = drawn(*shapes)
    pairs = zip(tree_leaves(whole(*given)), tree_leaves(function(*given)), strict=True)
    return max(float((one - other).abs().max()) for one, other in pairs)


def agreement(task: CompiledFusingTask) -> Row:
    """The table against wholes, over decisions with different groups: none, all, and drawn ones."""
    rng, rows = np.random.default_rng(SEED + 1), [np.zeros(task.nodes, int), np.ones(task.nodes, int)]
    seen = {tuple(task.groups(row)) for row in rows}
    for _ in range(200):
        row = rng.integers(0, task.choices, task.nodes) * (rng.random(task.nodes) < rng.random())
        if len(rows) < COMPARED and tuple(task.groups(row)) not in seen:
            seen.add(tuple(task.groups(row)))
            rows.append(row)
    said = task.scores(np.stack(rows))
    found: Row = {"decisions": len(rows)}
    for form, apart in (("apart", True), ("whole", False)):
        took = times_beside([task.whole(row, apart=apart) for row in rows], RUNS).min(axis=0)
        found[form] = {"spearman": spearman(said.tolist(), took.tolist()), "ratio": float(np.median(took / said)),
                       "spread": float(took.max() / took.min())}  # fmt: skip
    return found


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Times over Inductor's default and the table of groups against wholes, in Markdown: as Inductor writes code, and
    with a function for each group.
    """
    ways = [way for way in rows[0]["whole"] if way != "Inductor"]
    for form, title in (("whole", "graph"), ("apart", "graph, a function a group")):
        yield from results.heading(
            title, "nodes", "Inductor, ms", *ways, "groups timed", "rank correlation", "clock over table"
        )
        for row in rows:
            over = (f"{row[form][way]['over']:.3f} ({row['kernels'][way]})" for way in ways)
            found = row["agreement"][form]
            rank = "–" if found["spearman"] is None else f"{found['spearman']:.2f}"
            first = f"{row[form]['Inductor']['ms']:.2f} ({row['kernels']['Inductor']})"
            cells = (row["graph"], row["nodes"], first, *over, row["groups_compiled"], rank, f"{found['ratio']:.2f}")
            yield f"| {' | '.join(map(str, cells))} |"
