"""A controller in the real world: the engine's graphs are encoded, the memory goes along, its choices are done."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlflow.agents.rlflow.dream import Chooser, DreamState, choose
from rlflow.agents.rlflow.latent import OWN_GLOBALS, Fires, LatentWorld, Memory, Scene, fires_of
from rlflow.agents.rlflow.latent_fit import Memories
from rlflow.agents.rlflow.replay import Recorded, State, Structure, structure
from rlflow.env.walks import Episode
from rlflow.nn.token_vocabulary import STOP_ROW


@dataclass
class ControllerPilot:
    """Walks by a controller; ``random`` draws, without it the likeliest choices are made. ``rows``: embedding row of
    each rule number of the problem. ``temperature`` above 1 draws more evenly.
    """

    world: LatentWorld
    controller: Chooser
    rows: np.ndarray
    random: torch.Generator | None = None
    temperature: float = 1.0
    name: str = "controller"
    _memory: Memory | None = None
    _known: dict[bytes, tuple[Tensor, Structure]] = field(default_factory=dict, repr=False)

    def begin(self, episode: Episode) -> None:
        """The memory is empty again."""
        self._memory = self.world.start(1)

    def choose(self, episode: Episode) -> int:
        """The candidate's number; the memory hears of it."""
        z, found = self._read(episode)
        fires = fires_of([found])
        assert self._memory is not None, "begin() is called first"
        row, location = self._chosen(z, fires)
        with torch.no_grad():
            self._memory = self.world.step(z, fires, row, location, self._memory)[1]
        return candidate_of(found, int(row), int(location))

    def _chosen(self, z: Tensor, fires: Fires) -> tuple[Tensor, Tensor]:
        assert self._memory is not None
        hidden = self._memory[0][0]
        if self.random is None or self.temperature == 1:
            return choose(self.controller, z, hidden, fires, self.random)[:2]
        with torch.no_grad():
            seen, _ = self.controller(z, hidden, fires)
            row = _warm(self.controller.rules(seen, fires), self.temperature, self.random)
            return row, _warm(self.controller.places(seen, row, fires), self.temperature, self.random)

    def _read(self, episode: Episode) -> tuple[Tensor, Structure]:
        """The latent vector and structure of where the episode is; each graph is encoded once."""
        digest = episode.place.node.digest
        if digest not in self._known:
            if len(self._known) > 4096:
                self._known.clear()
            scene = scene_of(episode.observe(), self.rows, self.world.rows)
            with torch.no_grad():
                self._known[digest] = (self.world.encode([scene]), scene.structure)
        return self._known[digest]


def _warm(log_probs: Tensor, temperature: float, random: torch.Generator) -> Tensor:
    return torch.multinomial(torch.softmax(log_probs / temperature, -1), 1, generator=random).squeeze(-1)


def scene_of(seen: Any, rows: np.ndarray, size: int) -> Scene:
    """An observation as the encoder reads it."""
    return Scene(seen.graph, seen.globals[list(OWN_GLOBALS)], structure(seen, rows, size))


def candidate_of(found: Structure, row: int, location: int) -> int:
    """The candidate at (rule row, match); where the rule has fewer matches, its last; stop where it does not fire."""
    matches = np.flatnonzero(found.row == row)
    if row == STOP_ROW or not len(matches):
        return 0
    return int(matches[np.argmin(np.abs(found.location[matches] - location))])


def dream_starts(memories: Memories, episodes: list[Recorded], count: int, rng: np.random.Generator) -> DreamState:
    """Where dreams begin: half of them at starting graphs, half after a real beginning of an episode, heard through."""
    world = memories.world
    chosen = [episodes[i] for i in rng.integers(0, len(episodes), count).tolist()]
    begins = [int(rng.integers(0, len(one))) if rng.random() < 0.5 else 0 for one in chosen]
    memory = world.start(count)
    for t in range(max(begins)):
        memory = _heard(world, memories, chosen, begins, t, memory)
    keys = [one.keys[begin] for one, begin in zip(chosen, begins, strict=True)]
    states: list[State] = [memories.replay.states[key] for key in keys]
    gains = [np.nanmax(one.gains[: begin + 1]) for one, begin in zip(chosen, begins, strict=True)]
    now = [one.gains[begin] for one, begin in zip(chosen, begins, strict=True)]
    gain = torch.tensor([s.gain if np.isnan(g) else g for s, g in zip(states, now, strict=True)], dtype=torch.float32)
    best = torch.maximum(gain, torch.tensor(gains, dtype=torch.float32))
    fires = fires_of([memories.scene(key).structure for key in keys])
    alive = fires.counts[:, 1:].sum(1) > 0
    return DreamState(memories.latent(keys), fires, memory, gain, best, alive, torch.tensor([k[0] for k in keys]))


def _heard(
    world: LatentWorld, memories: Memories, chosen: list[Recorded], begins: list[int], t: int, memory: Memory
) -> Memory:
    """The memory after step ``t`` of the episodes that begin later; the others' as it was."""
    keys = [one.keys[min(t, len(one) - 1)] for one in chosen]
    found = [memories.scene(key).structure for key in keys]
    actions = [one.actions[min(t, len(one) - 1)] for one in chosen]
    row = torch.tensor([int(s.row[a]) for s, a in zip(found, actions, strict=True)])
    location = torch.tensor([int(s.location[a]) for s, a in zip(found, actions, strict=True)])
    location = location.clamp(max=world.config.locations - 1)
    with torch.no_grad():
        after = world.step(memories.latent(keys), fires_of(found), row, location, memory)[1]
    listens = torch.tensor([t < begin for begin in begins]).view(1, -1, 1)
    return torch.where(listens, after[0], memory[0]), torch.where(listens, after[1], memory[1])
