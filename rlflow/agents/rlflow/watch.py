"""A dream about one model, and the same actions in the engine."""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from rlflow.agents.rlflow.dream import Dream, DreamState, choose, random_of
from rlflow.agents.rlflow.latent import fires_of
from rlflow.agents.rlflow.pilot import scene_of
from rlflow.agents.rlflow.trained import WorldCheckpoint, load_world
from rlflow.env.reward import Improvement
from rlflow.env.spec import ProblemSpec
from rlflow.env.walks import STOP, Episode, Walks
from rlflow.nn.token_vocabulary import UNKNOWN_RULE
from rlflow.search import generator


@dataclass(frozen=True)
class WatchedStep:
    """``predicted``, ``real``: log gain over the start after the step (``None``: the engine could not do it);
    ``matches``, ``real_matches``: places where any rule fires then.
    """

    rule: str
    match: int
    predicted: float
    matches: int
    real: float | None = None
    real_matches: int | None = None


@dataclass(frozen=True)
class Watched:
    """A dream's steps, and where it ended."""

    model: str
    worldmodel: str
    steps: tuple[WatchedStep, ...]
    ended: str

    @property
    def predicted(self) -> list[float]:
        return [0.0, *(step.predicted for step in self.steps)]

    @property
    def real(self) -> list[float]:
        return [0.0, *(step.real for step in self.steps if step.real is not None)]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"model": self.model, "worldmodel": self.worldmodel, "ended": self.ended,
                "steps": [asdict(step) for step in self.steps]}  # fmt: skip

    def sentence(self) -> str:
        """How it ended, and how far apart dream and engine were."""
        done = len(self.real) - 1
        if not self.steps:
            return f"The dream ended at once: {self.ended}."
        far = f"after {done} real steps the return is {self.real[-1]:.4f}, dreamt {self.predicted[done]:.4f}"
        return f"The dream ended after {len(self.steps)} steps: {self.ended}; {far}."


def watch(
    model: str,
    checkpoint: str | os.PathLike[str] | None,
    form: str,
    steps: int,
    temperature: float,
    cost: str,
    seed: int,
) -> Watched:
    """Dream at most ``steps`` steps about ``model``, then walk the same way in the engine.

    Raises :class:`rlflow.errors.UsageError` and :class:`rlflow.errors.ModelError` for what is not there.
    """
    found = load_world(checkpoint, form)
    loaded = ProblemSpec.of(model, cost=cost).load()
    episode = Episode(Walks(loaded.problem(seed=seed)), Improvement(), steps)
    rows = found.vocabulary.rule_rows(episode.walks.problem.rule_names)
    watcher = _watch_graph if found.config.worldmodel == "graph" else _watch_latent
    try:
        dreamt, ended = watcher(found, episode, rows, steps, temperature, seed)
        return Watched(model, found.config.worldmodel, tuple(dreamt), ended)
    finally:
        loaded.cost_model.close()


def _watch_latent(
    found: WorldCheckpoint, episode: Episode, rows: np.ndarray, steps: int, temperature: float, seed: int
) -> tuple[list[WatchedStep], str]:
    networks = found.networks()
    world, controller = networks["world"], networks["controller"]
    scene = scene_of(episode.observe(), rows, world.rows)
    with torch.no_grad():
        z = world.encode([scene])
    zero = torch.zeros(1)
    fires = fires_of([scene.structure])
    state = DreamState(z, fires, world.start(1), zero, zero, torch.tensor([True]), torch.tensor([0]))
    env = Dream(world, "improvement", temperature, 0.0, random_of(generator(seed)))
    dreamt: list[WatchedStep] = []
    actions: list[tuple[int, int]] = []
    ended = "the longest dream asked for"
    while len(dreamt) < steps:
        row, location, _, _ = choose(controller, state.z, state.hidden, state.fires, None)
        if int(row) == STOP:
            ended = "the controller stopped"
            break
        state, _ = env.step(state, row, location)
        rule = "another rule" if int(row) == UNKNOWN_RULE else found.vocabulary.rules[int(row) - 2]
        matches = int(state.fires.counts[0, 1:].sum())
        dreamt.append(WatchedStep(rule, int(location), float(state.gain), matches))
        actions.append((int(row), int(location)))
        if not bool(state.alive):
            ended = "the model says that nothing is left to do"
            break
    return _done(episode, rows, world.rows, dreamt, actions), ended


def _done(
    episode: Episode, rows: np.ndarray, size: int, dreamt: list[WatchedStep], actions: list[tuple[int, int]]
) -> list[WatchedStep]:
    """The steps with what the engine says of them, as far as it can take them."""
    out = list(dreamt)
    for number, (row, location) in enumerate(actions):
        now = scene_of(episode.observe(), rows, size).structure
        at = np.flatnonzero((now.row == row) & (now.location == location))
        if episode.ended or not len(at):
            break
        episode.step(int(at[0]))
        out[number] = _real(dreamt[number], episode)
    return out


def _real(step: WatchedStep, episode: Episode) -> WatchedStep:
    gain = math.log(episode.start_ms / max(episode.place.node.cost, 1e-12))
    return WatchedStep(step.rule, step.match, step.predicted, step.matches, gain, len(episode.place.table))


def _watch_graph(
    found: WorldCheckpoint, episode: Episode, rows: np.ndarray, steps: int, temperature: float, seed: int
) -> tuple[list[WatchedStep], str]:
    """The graph form has no draw: ``temperature`` and ``seed`` do not matter."""
    from rlflow.agents.rlflow.graph_agent import signatures
    from rlflow.agents.rlflow.ranked import Ranker

    config, world = found.config, found.networks()["world"]
    ranker = Ranker(world, rows, config.breadth, config.depth, config.discount)
    seen = episode.observe()
    if seen.candidates == 1:
        return [], "nothing can be rewritten"
    rolled = ranker.dream(seen, steps)
    names, rule_names = signatures(seen), episode.walks.problem.rule_names
    dreamt, gain = [], 0.0
    for number, (k, change, _) in enumerate(rolled, 1):
        gain += change
        dreamt.append(WatchedStep(rule_names[names[1 + k][0]], k, gain, max(0, seen.candidates - 1 - number)))
    for number, (k, _, _) in enumerate(rolled):
        now = signatures(episode.observe())
        if episode.ended or names[1 + k] not in now[1:]:
            break
        episode.step(now.index(names[1 + k], 1))
        dreamt[number] = _real(dreamt[number], episode)
    whole = len(rolled) == steps
    return dreamt, "the longest dream asked for" if whole else "no candidate that survives promises anything"
