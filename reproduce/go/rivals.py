"""Two earlier learned placers, as far as their papers describe them, each learning on the graph at hand from nothing.

GDP (Zhou et al. 2019) decides about all nodes at once: a graph encoder, attention over the nodes, proximal policy
optimisation of the whole placement's time. Here that is our own network with one iteration and one task.

Placeto (Addanki et al. 2019) visits the nodes one after the other and may move each; it is rewarded at every step by
the time that this saved, and learns by REINFORCE with a baseline for each step. Here a graph encoder sees the placement
of now, which nodes were visited, and where it is.
"""

from __future__ import annotations

import numpy as np

from rlflow.placement import PlacementTask

#: Episodes side by side, the discount of what later steps save, and the optimisers' rates: ours.
EPISODES, DISCOUNT, VISITING_RATE, RATE = 4, 0.95, 3e-3, 1e-3


def gdp_style(task: PlacementTask, evaluations: int, seed: int) -> float:
    """The best time that was seen. It is told nothing first, and every decision is about all nodes."""
    import torch

    from rlflow.agents.go.config import GoConfig
    from rlflow.agents.go.lessons import lesson_of
    from rlflow.agents.go.network import make_go
    from rlflow.agents.go.surrogate import learn
    from rlflow.nn.threads import one_thread
    from rlflow.placement.decisions import GraphView

    config = GoConfig(iterations=1, baseline="mean", replay=False, lr=RATE)
    lesson = lesson_of("gdp", GraphView.of(task.work, task.devices), [task])
    policy, rng = make_go(config, seed), np.random.default_rng(seed)
    optimizer = torch.optim.Adam(policy.parameters(), lr=RATE, eps=1e-5)
    with one_thread():
        for _ in range(evaluations // config.samples):
            learn(policy, optimizer, [lesson], rng)
    return lesson.best[0] ** 2 * lesson.reference[0]


def placeto_style(task: PlacementTask, evaluations: int, seed: int) -> float:
    """The best time that was seen. Every step of a visit counts as an evaluation, because it earns a reward."""
    import torch

    from rlflow.agents.go.network import GraphTensors
    from rlflow.nn.threads import one_thread
    from rlflow.placement.decisions import FEATURES, GraphView

    view, rng = GraphView.of(task.work, task.devices), np.random.default_rng(seed)
    graph, best = GraphTensors.of(view), np.inf
    with one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        policy = _visitor(len(FEATURES), task.choices)
        optimizer = torch.optim.Adam(policy.parameters(), lr=VISITING_RATE)
        for _ in range(evaluations // (EPISODES * (task.nodes + 1))):
            chances, saved, seen = _visits(task, view, graph, policy, rng)
            best = min(best, seen)
            loss = -(torch.stack(chances) * torch.from_numpy(_advantages(np.array(saved)))).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return best


def _visits(task, view, graph, policy, rng):  # type: ignore[no-untyped-def]
    """Episodes from random placements: log probabilities and what was saved, [episodes] a step, and the best time."""
    import torch

    unit = float(task.seconds.mean(axis=1).sum())
    chances, saved = [], []
    placed = rng.integers(0, task.choices, (EPISODES, task.nodes))
    now = task.scores(view.told(placed).astype(np.int32))
    best = float(now.min())
    for node in range(task.nodes):
        drawn = torch.distributions.Categorical(logits=policy(graph, placed, node))
        chosen = drawn.sample()
        chances.append(drawn.log_prob(chosen))
        placed = placed.copy()
        placed[:, node] = chosen.numpy()
        after = task.scores(view.told(placed).astype(np.int32))
        saved.append((now - after) / unit)
        now, best = after, min(best, float(after.min()))
    return chances, saved, best


def _advantages(saved: np.ndarray) -> np.ndarray:
    """Discounted sums of what was saved, [steps, episodes], less their mean over episodes, in units of their spread."""
    sums = np.zeros_like(saved)
    later = np.zeros(saved.shape[1])
    for step in range(len(saved) - 1, -1, -1):
        later = saved[step] + DISCOUNT * later
        sums[step] = later
    sums -= sums.mean(axis=1, keepdims=True)
    return (sums / max(float(sums.std()), 1e-8)).astype(np.float32)


def _visitor(features: int, choices: int):  # type: ignore[no-untyped-def]
    """Logits [b, choices] for one node, given a placement int [b, n] by place and the nodes before as visited."""
    import torch
    from torch import nn

    from rlflow.agents.go.network import MaxPoolEncoder

    class Visitor(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.reads = nn.Linear(features + choices + 2, 32)
            self.graph = MaxPoolEncoder(32, 2)
            self.head = nn.Linear(64, choices)

        def forward(self, graph, placed, node):  # type: ignore[no-untyped-def]
            b, n = placed.shape
            where = nn.functional.one_hot(torch.from_numpy(placed), choices).float()
            at = torch.zeros(b, n, 2)
            at[:, :node, 0], at[:, node, 1] = 1.0, 1.0
            told = torch.cat([graph.features.expand(b, n, -1), where, at], dim=-1).flatten(0, 1)
            apart = (torch.arange(b) * n)[:, None]
            nodes = self.graph(
                self.reads(told).relu(), (graph.source + apart).flatten(), (graph.target + apart).flatten()
            ).view(b, n, -1)
            return self.head(torch.cat([nodes[:, node], nodes.mean(dim=1)], dim=-1))

    return Visitor()
