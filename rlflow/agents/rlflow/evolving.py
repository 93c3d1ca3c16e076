"""The controller as Ha and Schmidhuber (2018) have it: linear, and adapted by CMA-ES to the returns of whole dreams."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from rlflow.agents.rlflow.config import WorldConfig
from rlflow.agents.rlflow.dream import Dream, DreamState, choose, masked_places, masked_rules
from rlflow.agents.rlflow.latent import Fires
from rlflow.nn.checkpoint import part_of
from rlflow.nn.cma import CMAES
from rlflow.nn.token_vocabulary import STOP_ROW

#: The two slopes over prices are of the size of logits; kept as tenths, one step size suits all parameters.
_TENTHS = 10.0
#: Before the name of each array that a search goes on from.
_PREFIX = "cma/"


class LinearController(nn.Module):
    """Chooses as :class:`rlflow.agents.rlflow.dream.Controller` does, linearly in the latent vector, the memory and
    what fires. Several ``members`` act side by side, on as many states each.

    ``flat`` [members, size]: a row is one member: of each rule the weights and the bias of its score; the weights of
    the *aim*, a match's number on a logarithmic scale, and the aim's offset by rule; how much a rule's best price
    counts, and how sharply matches off the aim are avoided, both in tenths. No gradient is asked for.
    """

    flat: Tensor

    def __init__(self, config: WorldConfig, rows: int, members: int = 1) -> None:
        super().__init__()
        self.locations, self.rows = config.locations, rows
        self.inputs = config.latent + config.hidden + 2 * rows
        self.sizes = (rows * self.inputs, rows, self.inputs, rows, 2)
        first = torch.zeros(sum(self.sizes))
        first[self.sizes[0] + STOP_ROW] = -2.0  # begin with the even choice, and seldom stop
        first[-2:] = torch.tensor([config.rule_prior, config.prior]) / _TENTHS
        self.register_buffer("flat", first.repeat(members, 1))

    def forward(self, z: Tensor, hidden: Tensor, fires: Fires) -> tuple[Tensor, Tensor]:
        """What is seen, [members · b, inputs], and values, which are 0: nothing estimates them."""
        seen = torch.cat((z, hidden, torch.log1p(fires.counts), fires.best), dim=-1)
        return seen, seen.new_zeros(len(seen))

    def rules(self, seen: Tensor, fires: Fires) -> Tensor:
        """[members · b, rows]: log probabilities of the rules; those that do not fire are masked."""
        weight, bias, _, _, slopes = self._parts()
        largest = fires.best.abs().amax(-1, keepdim=True).clamp(min=1e-3)
        priced = self._by_member(fires.best / largest) * slopes[:, :1].unsqueeze(1)
        weight = weight.view(-1, self.rows, self.inputs).transpose(1, 2)
        scores = torch.baddbmm(bias.unsqueeze(1), self._by_member(seen), weight) + priced
        return masked_rules(scores.flatten(0, 1), fires)

    def places(self, seen: Tensor, row: Tensor, fires: Fires) -> Tensor:
        """[members · b, locations]: log probabilities of the matches of rule ``row``, best priced first."""
        _, _, weight, offset, slopes = self._parts()
        aim = (self._by_member(seen) @ weight.unsqueeze(-1)).squeeze(-1)
        aim = aim + offset.gather(1, row.view(len(self.flat), -1))
        off = (torch.log1p(torch.arange(self.locations).float()) - aim.unsqueeze(-1)).abs()
        return masked_places((-slopes[:, 1:].unsqueeze(-1) * off).flatten(0, 1), row, fires)

    def _parts(self) -> tuple[Tensor, ...]:
        *parts, slopes = self.flat.split(self.sizes, dim=1)
        return (*parts, _TENTHS * slopes)

    def _by_member(self, values: Tensor) -> Tensor:
        return values.view(len(self.flat), -1, values.shape[-1])


class DreamEvolution:
    """Adapts a linear controller: the mean of CMA-ES's distribution is who acts; candidates are compared in the same
    dreams, from the same starts with the same random numbers, by their likeliest choices.
    """

    def __init__(self, config: WorldConfig, controller: LinearController) -> None:
        self.config, self.controller, self.dreams = config, controller, config.rollouts
        mean = controller.flat[0].double().numpy()
        self.search = CMAES(mean, config.sigma, config.population, separable=len(mean) > config.full_size)

    def update(
        self, env: Dream, state: DreamState, horizon: int, units: Tensor, rng: np.random.Generator
    ) -> dict[str, float]:
        """One generation in dreams from ``state`` of [rollouts]; the figures of ``docs/metrics.md``."""
        search = self.search
        crowd = LinearController(self.config, self.controller.rows, search.population)
        crowd.flat.copy_(torch.from_numpy(search.ask(rng)))
        returns, total, steps = rollouts(env, crowd, state, horizon, units)
        search.tell(-returns)
        self.controller.flat.copy_(torch.from_numpy(search.mean))
        return {"dream_return": total, "dream_length": steps / len(returns) / len(state.alive), "dream_steps": steps,
                "best_return": float(returns.max()), "sigma": search.sigma,
                "axis_ratio": search.axis_ratio}  # fmt: skip

    def arrays(self) -> dict[str, np.ndarray]:
        """What a resumed training needs."""
        return {_PREFIX + name: array for name, array in self.search.arrays().items()}

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """The reverse of :meth:`arrays`."""
        self.search.load(part_of(dict(arrays), _PREFIX))


def rollouts(
    env: Dream, crowd: LinearController, state: DreamState, horizon: int, units: Tensor
) -> tuple[np.ndarray, float, float]:
    """Each member's mean discounted return in units of its problems, [members] float64; the mean return without
    either; and the number of steps. Every member dreams from ``state`` of [b], for at most ``horizon`` steps.
    """
    members = len(crowd.flat)
    env, unit = dataclasses.replace(env, copies=members), units[state.spec].repeat(members)
    state = copied(state, members)
    returns, total, steps, discount = torch.zeros(len(unit)), 0.0, 0.0, 1.0
    for _ in range(horizon):
        if not bool(state.alive.any()):
            break
        row, location, _, _ = choose(crowd, state.z, state.hidden, state.fires, None)
        steps += float(state.alive.sum())
        state, reward = env.step(state, row, location)
        returns += discount * reward / unit
        total += float(reward.mean())
        discount *= env.gamma
    return returns.view(members, -1).double().mean(1).numpy(), total, steps


def copied(state: DreamState, copies: int) -> DreamState:
    """The states [b] one after the other, so many times: [copies · b]."""

    def wide(values: Tensor) -> Tensor:
        return values.repeat(copies, *[1] * (values.dim() - 1))

    fires = Fires(wide(state.fires.counts), wide(state.fires.best))
    memory = (state.memory[0].repeat(1, copies, 1), state.memory[1].repeat(1, copies, 1))
    return DreamState(
        wide(state.z), fires, memory, wide(state.gain), wide(state.best), wide(state.alive), wide(state.spec)
    )
