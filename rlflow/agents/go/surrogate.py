"""How GO decides, and how it learns from what its decisions were worth: proximal policy optimisation, a ratio a node.

An update draws several decisions for one graph, T iterations each. All nodes of an iteration are drawn at once, each by
itself, given the iteration before. The last iteration is what counts: it earns one reward for each task. There are no
steps in time, hence no discount and no value function: the advantage is the reward less a baseline.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rlflow.agents.go.config import GoConfig
from rlflow.agents.go.lessons import GoLesson, rewards
from rlflow.agents.go.neighbourhoods import drawn_regions
from rlflow.agents.go.network import UNDECIDED, GoPolicy
from rlflow.nn.clipping import clipped_surrogate, divergence

_TINY = 1e-8


class Drawn(NamedTuple):
    """Decisions of all tasks: ``decided`` int64 and ``log_probs`` float32, a tensor [T, b, n] each, by place. ``first``
    int64 [b, n]: what the first iteration was told; ``free`` bool [b, n]: nodes that were decided, the others stayed.
    """

    decided: list[Tensor]
    log_probs: list[Tensor]
    first: list[Tensor]
    free: list[Tensor]


# --- deciding ---------------------------------------------------------------------------------------------------------


def draw(
    policy: GoPolicy,
    lesson: GoLesson,
    count: int,
    rng: np.random.Generator,
    *,
    likeliest: bool = False,
    start: Sequence[Tensor] | None = None,
    free: Sequence[Tensor] | None = None,
) -> Drawn:
    """``count`` decisions of T iterations; with ``likeliest`` each node takes its likeliest value. ``start``: of each
    task what the first iteration is told, int64 [n] or [count, n] (default: the lesson's). ``free`` bool [count, n] of
    each task: the nodes that are decided (default: all). Where these are a part, the first iteration is told the others
    alone, and they stay.
    """
    generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
    tasks = range(len(lesson.tasks))
    begun = [one.expand(count, -1) for one in start or lesson.begun]
    open_to = [torch.ones_like(one, dtype=torch.bool) for one in begun] if free is None else list(free)
    first = [_left(one, some) for one, some in zip(begun, open_to, strict=True)]
    decided: list[list[Tensor]] = [[] for _ in tasks]
    chances: list[list[Tensor]] = [[] for _ in tasks]
    with torch.no_grad():
        seen, before = policy.encode(lesson.graph), list(first)
        for _ in range(policy.config.iterations):
            logits = policy(lesson.graph, seen, before, lesson.about)
            for task, values in enumerate(logits):
                known = values.log_softmax(dim=-1)
                noise = torch.zeros(()) if likeliest else _gumbel(known.shape, generator)
                before[task] = torch.where(open_to[task], (known + noise).argmax(dim=-1), begun[task])
                decided[task].append(before[task])
                chances[task].append(_of(known, before[task], open_to[task]))
    return Drawn([torch.stack(one) for one in decided], [torch.stack(one) for one in chances], first, open_to)


def _left(begun: Tensor, free: Tensor) -> Tensor:
    """What the first iteration is told, of decisions [b, n] of which those that are ``free`` are made anew."""
    return begun.masked_fill(free & ~free.all(dim=-1, keepdim=True), UNDECIDED)


def _gumbel(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Noise whose largest sum with log probabilities is a draw by them."""
    return -torch.empty(tuple(shape)).exponential_(generator=generator).clamp(min=1e-30).log()


def _of(known: Tensor, decided: Tensor, free: Tensor) -> Tensor:
    """Log probabilities of decisions; 0 for what was not decided."""
    return known.gather(-1, decided.clamp(min=0)[..., None]).squeeze(-1).masked_fill(~free, 0.0)


def regions(begun: Sequence[Tensor], count: int, rng: np.random.Generator) -> list[Tensor]:
    """Of each task ``count`` parts that are decided anew, bool [count, n]; all, where nothing was decided before."""
    drawn = torch.from_numpy(drawn_regions(count, begun[0].shape[-1], rng))
    return [drawn if bool((one != UNDECIDED).any()) else torch.ones_like(drawn) for one in begun]


def some_parts(begun: Sequence[Tensor], count: int, rng: np.random.Generator, whole: int = 4) -> list[Tensor]:
    """What is decided in each of ``count`` decisions: all in one of ``whole``, in the others a part."""
    found = regions(begun, count, rng)
    for one in found:
        one[: count // whole] = True
    return found


def judge(lesson: GoLesson, drawn: Drawn) -> list[np.ndarray]:
    """Rewards [b] of each task for the last iteration; zeros for a task that is not asked about."""
    count = drawn.decided[0].shape[1]
    found = [np.zeros(count) for _ in lesson.tasks]
    for number, task in lesson.asked():
        last = lesson.view.told(drawn.decided[number][-1].numpy().astype(np.int32))
        found[number] = rewards(task.scores(last), lesson.reference[number])
    return found


def remember(lesson: GoLesson, drawn: Drawn, earned: Sequence[np.ndarray]) -> None:
    """Keep the best decisions so far."""
    for number, _ in lesson.asked():
        at = int(np.argmax(earned[number]))
        if earned[number][at] >= lesson.best[number]:
            lesson.best[number] = float(earned[number][at])
            lesson.kept[number] = drawn.decided[number][:, at].numpy().copy()


# --- advantages -------------------------------------------------------------------------------------------------------


def advantages_over(earned: np.ndarray, best: float, baseline: str) -> np.ndarray:
    """Rewards [b] less a baseline, in units of their spread, float32 [b]. ``best``: the highest reward before this
    update; where there is none the baseline is the mean, as it is with ``mean``.
    """
    reference = best if baseline == "best" and np.isfinite(best) else float(earned.mean())
    spread = float(earned.std())
    if spread < _TINY:
        return np.zeros(len(earned), np.float32)
    return np.clip((earned - reference) / spread, -3.0, 3.0).astype(np.float32)


# --- learning ---------------------------------------------------------------------------------------------------------


class _Share(NamedTuple):
    """What one graph has in an update."""

    lesson: GoLesson
    sample: Drawn
    advantages: list[Tensor]


def learn(
    policy: GoPolicy,
    optimizer: torch.optim.Optimizer,
    lessons: Sequence[GoLesson],
    rng: np.random.Generator,
    *,
    left: float = 1.0,
) -> dict[str, float]:
    """One update on some graphs; the figures of docs/go.md. The decisions are new ones but, with ``replay``, the best
    that were seen before. ``left``: the share of the training that is to come, by which the entropy counts.
    """
    config, shares, reward = policy.config, [], []
    for lesson in lessons:
        share, earned = _share(policy, lesson, rng)
        shares.append(share)
        reward += [earned[number].mean() for number, _ in lesson.asked()]
    rows = [_step(policy, optimizer, shares, config.entropy * left) for _ in range(config.epochs)]
    figures = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    best = [lesson.best[number] for lesson in lessons for number, _ in lesson.asked()]
    return {**figures, "reward": float(np.mean(reward)), "best": float(np.mean(best))}


def _share(policy: GoPolicy, lesson: GoLesson, rng: np.random.Generator) -> tuple[_Share, list[np.ndarray]]:
    """Decisions about a graph and their advantages; and what the new ones earned, [b] a task."""
    config: GoConfig = policy.config
    drawn = draw(policy, lesson, config.samples, rng, free=some_parts(lesson.begun, config.samples, rng))
    earned = judge(lesson, drawn)
    before = list(lesson.best)
    remember(lesson, drawn, earned)
    sample, worth = (_with_kept(policy, lesson, drawn, earned)) if config.replay else (drawn, earned)
    advantages = [
        torch.from_numpy(advantages_over(worth[number], before[number], config.baseline))
        for number in range(len(lesson.tasks))
    ]
    return _Share(lesson, sample, advantages), earned


def _with_kept(
    policy: GoPolicy, lesson: GoLesson, drawn: Drawn, earned: Sequence[np.ndarray]
) -> tuple[Drawn, list[np.ndarray]]:
    """The decisions, and the best that were seen beside them. What they are compared with is the policy of now."""
    kept = [
        drawn.decided[number][:, :1] if one is None else torch.from_numpy(one)[:, None]
        for number, one in enumerate(lesson.kept)
    ]
    first = [one[None] for one in lesson.begun]
    free = [torch.ones_like(one, dtype=torch.bool) for one in first]
    with torch.no_grad():
        chances = log_probs(policy, lesson, Drawn(kept, kept, first, free))[0]
    worth = [
        np.append(ones, ones[0] if kept_one is None else lesson.best[number])
        for number, (ones, kept_one) in enumerate(zip(earned, lesson.kept, strict=True))
    ]
    return Drawn(
        [torch.cat(pair, dim=1) for pair in zip(drawn.decided, kept, strict=True)],
        [torch.cat(pair, dim=1) for pair in zip(drawn.log_probs, chances, strict=True)],
        [torch.cat(pair) for pair in zip(drawn.first, first, strict=True)],
        [torch.cat(pair) for pair in zip(drawn.free, free, strict=True)],
    ), worth


def log_probs(policy: GoPolicy, lesson: GoLesson, drawn: Drawn) -> tuple[list[Tensor], Tensor]:
    """Log probabilities [T, b, n] of each task's decisions, each iteration given the one before; and the mean entropy
    of a node, of the tasks that are asked about.
    """
    seen = policy.encode(lesson.graph)
    shape = drawn.decided[0].shape
    logits = policy(lesson.graph, seen, before_each(drawn.first, drawn.decided), lesson.about)
    found, entropy = [], []
    for number, values in enumerate(logits):
        known = values.log_softmax(dim=-1).view(*shape, -1)
        found.append(_of(known, drawn.decided[number], drawn.free[number].expand(shape)))
        if lesson.tasks[number] is not None:
            entropy.append(-(known.exp() * known.masked_fill(known.isinf(), 0.0)).sum(dim=-1).mean())
    return found, torch.stack(entropy).mean()


def before_each(first: Sequence[Tensor], decided: Sequence[Tensor]) -> list[Tensor]:
    """What each iteration of decisions [T, b, n] is told, [T b, n]: the one before, and the first one ``first`` [n] or
    [b, n].
    """
    return [
        torch.cat([begin.expand_as(one[:1]), one[:-1]]).flatten(0, 1) for begin, one in zip(first, decided, strict=True)
    ]


def node_loss(log_ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """The clipped surrogate of every node and iteration: ``log_ratio`` [T, b, n], ``advantage`` [b]."""
    spread = advantage[None, :, None].expand_as(log_ratio)
    return clipped_surrogate(log_ratio.flatten(), spread.flatten(), clip)


def _step(
    policy: GoPolicy, optimizer: torch.optim.Optimizer, shares: Sequence[_Share], entropy: float
) -> dict[str, float]:
    """A step down the gradient, graph after graph; every graph counts alike."""
    config: GoConfig = policy.config
    optimizer.zero_grad(set_to_none=True)
    rows = []
    for share in shares:
        found, disorder = log_probs(policy, share.lesson, share.sample)
        asked = [number for number, _ in share.lesson.asked()]
        ratios = [found[number] - share.sample.log_probs[number] for number in asked]
        losses = torch.stack([
            node_loss(ratio, share.advantages[number], config.clip) for ratio, number in zip(ratios, asked, strict=True)
        ])  # fmt: skip
        ((losses.sum() - entropy * disorder) / len(shares)).backward()
        kl = float(np.mean([divergence(ratio.detach()) for ratio in ratios]))
        rows.append((float(losses.detach().mean()), float(disorder.detach()), kl))
    norm = torch.nn.utils.clip_grad_norm_(policy.parameters(), config.grad_norm)
    optimizer.step()
    means = (float(np.mean(column)) for column in zip(*rows, strict=True))
    return {**dict(zip(("policy_loss", "entropy", "kl"), means, strict=True)), "gradient_norm": float(norm)}
