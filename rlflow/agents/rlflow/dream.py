"""Dreams: episodes that happen in the world model alone, and the controller that learns in them by PPO; the one that
CMA-ES adapts is in :mod:`rlflow.agents.rlflow.evolving`.

Nothing here can reach the engine: a dream is given latent vectors, structures and memories, and makes the next ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from rlflow.agents.rlflow.config import WorldConfig
from rlflow.agents.rlflow.latent import Fires, LatentWorld, Memory, settled, unsquash
from rlflow.nn.token_vocabulary import STOP_ROW

_NEVER = -1e9
_RULE = 16
_TINY = 1e-8


@dataclass
class DreamState:
    """Where [b] dreams are. ``z`` [b, latent]; ``fires``: what can be done; ``memory``: the LSTM's; ``gain``, ``best``
    [b]: log gain over the start, now and at best; ``alive`` [b] bool; ``spec`` [b]: the problem, for units of reward.
    """

    z: Tensor
    fires: Fires
    memory: Memory
    gain: Tensor
    best: Tensor
    alive: Tensor
    spec: Tensor

    @property
    def hidden(self) -> Tensor:
        """[b, hidden]."""
        return self.memory[0][0]


def reward_of(name: str, before: Tensor, after: Tensor, best: Tensor, gamma: float) -> Tensor:
    """What a step from log gain ``before`` to ``after`` earns where ``best`` was the largest so far.

    ``improvement`` and ``potential`` are those of :mod:`rlflow.env.reward`; ``change`` is the difference, ``runtime``
    the price as a part of the start's, which the published code maximises (kept to show what that does).
    """
    if name == "improvement":
        return (after - best).clamp(min=0)
    if name == "potential":
        return gamma * after.clamp(min=0) - before.clamp(min=0)
    return after - before if name == "change" else torch.exp(-after)


@dataclass
class Dream:
    """The world model as an environment. ``temperature``: of the next latent vector; ``random``: where draws come from.
    ``pessimism``: standard deviations of the ensemble that a step's change is lowered by, so that a controller gains
    nothing by going where the model does not know. ``copies``: the states are the same ones so many times over, one
    block after the other, and each block sees the same draws.
    """

    world: LatentWorld
    reward: str
    temperature: float
    pessimism: float
    random: torch.Generator
    gamma: float = 0.99
    copies: int = 1

    def step(self, state: DreamState, row: Tensor, location: Tensor) -> tuple[DreamState, Tensor]:
        """The next state, and the rewards [b]; 0 for dreams that had ended. To stop ends one and earns nothing."""
        count, size = state.z.shape
        with torch.no_grad():
            found, memory = self.world.step(state.z, state.fires, row, location, state.memory)
        uniform = torch.rand(count // self.copies, generator=self.random).repeat(self.copies)
        normal = torch.randn(count // self.copies, size, generator=self.random).repeat(self.copies, 1)
        z = self.world.tidied(found.latent.sample(self.temperature, uniform, normal))
        fires = settled(found.log_counts, found.best)
        acts = state.alive & (row != STOP_ROW)
        change = unsquash(found.change)
        spread = change.std(1, unbiased=False) if change.shape[1] > 1 else torch.zeros(count)
        gain = torch.where(acts, state.gain + change.mean(1) - self.pessimism * spread, state.gain)
        reward = torch.where(acts, reward_of(self.reward, state.gain, gain, state.best, self.gamma), 0.0)
        stuck = (fires.counts[:, 1:].sum(1) == 0) | (found.ends > 0)
        after = DreamState(z, fires, memory, gain, torch.maximum(state.best, gain), acts & ~stuck, state.spec)
        return after, reward


class Chooser(Protocol):
    """Who acts in a dream: what is seen and its value, then log probabilities of rules, and of a rule's matches."""

    def __call__(self, z: Tensor, hidden: Tensor, fires: Fires) -> Any:
        """``(seen [b, …], values [b])``."""

    def rules(self, seen: Tensor, fires: Fires) -> Tensor:
        """[b, rows]."""

    def places(self, seen: Tensor, row: Tensor, fires: Fires) -> Tensor:
        """[b, locations], of rule ``row`` [b]."""


def masked_rules(scores: Tensor, fires: Fires) -> Tensor:
    """[b, rows]: log probabilities of the rules; those that do not fire are masked."""
    return torch.log_softmax(scores.masked_fill(fires.counts < 0.5, _NEVER), -1)


def masked_places(scores: Tensor, row: Tensor, fires: Fires) -> Tensor:
    """[b, locations]: log probabilities of the matches of rule ``row`` [b]; there are as many as it fires."""
    there = torch.arange(scores.shape[-1]) < fires.counts.gather(-1, row.unsqueeze(-1)).clamp(min=1)
    return torch.log_softmax(scores.masked_fill(~there, _NEVER), -1)


class Controller(nn.Module):
    """Chooses a rule, then one of its matches, from the latent vector, the memory and what fires.

    ``forward(z, hidden, fires) -> (trunk [b, size], values [b])``; ``rules`` and ``places`` are the two choices.
    """

    def __init__(self, config: WorldConfig, rows: int) -> None:
        super().__init__()
        self.locations, size = config.locations, config.controller_size
        self.trunk = nn.Sequential(
            nn.Linear(config.latent + config.hidden + 2 * rows, size), nn.Tanh(), nn.Linear(size, size), nn.Tanh()
        )
        self.rule, last, estimate = nn.Linear(size, rows), nn.Linear(size, config.locations), nn.Linear(size, 1)
        self.embed = nn.Embedding(rows, _RULE)
        self.place = nn.Sequential(nn.Linear(size + _RULE, size), nn.Tanh(), last)
        self.prior = nn.Parameter(torch.tensor(float(config.prior)))
        self.rule_prior = nn.Parameter(torch.tensor(float(config.rule_prior)))
        self.value = estimate
        with torch.no_grad():  # begin near the even choice, and seldom stop
            for layer, scale in ((self.rule, 0.01), (last, 0.01), (estimate, 0.1)):
                layer.weight.mul_(scale)
                layer.bias.zero_()
            self.rule.bias[STOP_ROW] = -2.0

    def forward(self, z: Tensor, hidden: Tensor, fires: Fires) -> tuple[Tensor, Tensor]:
        seen = self.trunk(torch.cat((z, hidden, torch.log1p(fires.counts), fires.best), dim=-1))
        return seen, self.value(seen).squeeze(-1)

    def rules(self, seen: Tensor, fires: Fires) -> Tensor:
        """[b, rows]: log probabilities of the rules; those that do not fire are masked."""
        largest = fires.best.abs().amax(-1, keepdim=True).clamp(min=1e-3)
        scores = self.rule(seen) + self.rule_prior * fires.best / largest
        return masked_rules(scores, fires)

    def places(self, seen: Tensor, row: Tensor, fires: Fires) -> Tensor:
        """[b, locations]: log probabilities of the matches of rule ``row`` [b]; there are as many as it fires."""
        at = torch.arange(self.locations)
        scores = self.place(torch.cat((seen, self.embed(row)), dim=-1)) - self.prior * torch.log1p(at.float())
        return masked_places(scores, row, fires)


def make_controller(config: WorldConfig, rows: int, seed: int) -> Controller:
    """A controller with fresh weights that depend on the seed alone; torch's own generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Controller(config, rows)


def choose(
    controller: Chooser, z: Tensor, hidden: Tensor, fires: Fires, random: torch.Generator | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``(row, location, log probability, value)``, each [b]; the likeliest without ``random``."""
    with torch.no_grad():
        seen, value = controller(z, hidden, fires)
        rules = controller.rules(seen, fires)
        row = _drawn(rules, random)
        places = controller.places(seen, row, fires)
        location = _drawn(places, random)
    log_prob = rules.gather(-1, row.unsqueeze(-1)) + places.gather(-1, location.unsqueeze(-1))
    return row, location, log_prob.squeeze(-1), value


def _drawn(log_probs: Tensor, random: torch.Generator | None) -> Tensor:
    if random is None:
        return log_probs.argmax(-1)
    return torch.multinomial(log_probs.exp(), 1, generator=random).squeeze(-1)


@dataclass
class Dreamt:
    """What was dreamt, steps of all dreams in one row each ([n, …]): only steps of dreams that were alive."""

    z: Tensor
    hidden: Tensor
    fires: Fires
    row: Tensor
    location: Tensor
    log_prob: Tensor
    advantage: Tensor
    returns: Tensor
    total: float
    length: float

    def __len__(self) -> int:
        return len(self.row)


def dream(
    env: Dream, controller: Controller, state: DreamState, horizon: int, units: Tensor, config: WorldConfig
) -> Dreamt:
    """Dreams of at most ``horizon`` steps from ``state``. ``units`` [specs]: what a problem's rewards are divided by.

    A dream that is cut off goes on with the value of its last state; one that ended does not.
    """
    rows: list[tuple[Tensor, ...]] = []
    unit = units[state.spec]
    for _ in range(horizon):
        row, location, log_prob, value = choose(controller, state.z, state.hidden, state.fires, env.random)
        after, reward = env.step(state, row, location)
        rows.append((state.z, state.hidden, state.fires.counts, state.fires.best, row, location, log_prob, value,
                     reward / unit, state.alive))  # fmt: skip
        state = after
        if not bool(state.alive.any()):
            break
    last = choose(controller, state.z, state.hidden, state.fires, None)[3] * state.alive
    stacked = [torch.stack(column) for column in zip(*rows, strict=True)]
    value, reward, alive = stacked[7], stacked[8], stacked[9]
    advantage = _advantages(reward, value, last, alive, state.alive, config.gamma, config.lam)
    z, hidden, counts, best, row, location, log_prob = (column[alive] for column in stacked[:7])
    total = (reward * alive * unit).sum(0).mean()
    return Dreamt(
        z, hidden, Fires(counts, best), row, location, log_prob, advantage[alive], (advantage + value)[alive],
        float(total), float(alive.sum(0).float().mean()),
    )  # fmt: skip


def _advantages(
    reward: Tensor, value: Tensor, last: Tensor, alive: Tensor, goes_on: Tensor, gamma: float, lam: float
) -> Tensor:
    """Generalised advantages [t, b] (Schulman et al. 2016); a dream's end is where the next step is not ``alive``."""
    following = torch.cat((value[1:], last.unsqueeze(0)))
    lives = torch.cat((alive[1:], goes_on.unsqueeze(0))).float()
    out, carried = torch.zeros_like(reward), torch.zeros_like(last)
    for t in range(len(reward) - 1, -1, -1):
        delta = reward[t] + gamma * following[t] * lives[t] - value[t]
        carried = delta + gamma * lam * carried * lives[t]
        out[t] = carried
    return out


def improve(
    controller: Controller, optimizer: torch.optim.Optimizer, found: Dreamt, config: WorldConfig,
    rng: np.random.Generator,
) -> dict[str, float]:  # fmt: skip
    """PPO's update on what was dreamt, with the masks that it was dreamt with."""
    normal = (found.advantage - found.advantage.mean()) / (found.advantage.std(unbiased=False) + _TINY)
    rows = []
    for _ in range(config.epochs):
        order = torch.from_numpy(rng.permutation(len(found)))
        for begin in range(0, len(order), config.minibatch):
            rows.append(_update(controller, optimizer, found, normal, order[begin : begin + config.minibatch], config))
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def _update(
    controller: Controller, optimizer: torch.optim.Optimizer, found: Dreamt, normal: Tensor, some: Tensor,
    config: WorldConfig,
) -> dict[str, float]:  # fmt: skip
    fires = Fires(found.fires.counts[some], found.fires.best[some])
    row, location = found.row[some], found.location[some]
    seen, value = controller(found.z[some], found.hidden[some], fires)
    rules, places = controller.rules(seen, fires), controller.places(seen, row, fires)
    log_prob = (rules.gather(-1, row.unsqueeze(-1)) + places.gather(-1, location.unsqueeze(-1))).squeeze(-1)
    log_ratio = log_prob - found.log_prob[some]
    ratio, advantage = log_ratio.exp(), normal[some]
    policy_loss = -torch.min(ratio * advantage, ratio.clamp(1 - config.clip, 1 + config.clip) * advantage).mean()
    value_loss = 0.5 * (value - found.returns[some]).square().mean()
    entropy = (_entropy(rules) + _entropy(places)).mean()
    loss = policy_loss + 0.5 * value_loss - config.entropy_weight * entropy
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(controller.parameters(), 0.5)
    optimizer.step()
    with torch.no_grad():
        kl = float((ratio - 1 - log_ratio).mean())
    return {"policy_loss": float(policy_loss.detach()), "value_loss": float(value_loss.detach()),
            "entropy": float(entropy.detach()), "kl": kl}  # fmt: skip


def _entropy(log_probs: Tensor) -> Tensor:
    return -(log_probs.exp() * log_probs.clamp(min=_NEVER)).sum(-1)


def random_of(rng: np.random.Generator) -> torch.Generator:
    """A generator of torch's, seeded by one of numpy's."""
    return torch.Generator().manual_seed(int(rng.integers(0, 2**62)))
