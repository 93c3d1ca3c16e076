"""Fitting the latent world model to what was really seen, and judging it on episodes that it was not fitted to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from rlflow.agents.rlflow.latent import (
    OWN_GLOBALS,
    Fires,
    LatentWorld,
    Prediction,
    Scene,
    content_of,
    divergence,
    fires_of,
    settled,
    squash,
    unsquash,
)
from rlflow.agents.rlflow.replay import Key, Recorded, Replay, structure

#: States that are encoded side by side where no gradient is needed.
_AT_ONCE = 64
#: Share of the episodes that each head of the ensemble is fitted on.
_SHARE = 0.8
_TINY = 1e-8


@dataclass
class Memories:
    """The states of a replay buffer as a world model reads them, and their latent vectors as last computed.

    ``rows``: of each problem, embedding row of each rule number.
    """

    world: LatentWorld
    replay: Replay
    rows: Callable[[int], np.ndarray]
    _scenes: dict[Key, Scene] = field(default_factory=dict)
    latents: dict[Key, Tensor] = field(default_factory=dict)

    def scene(self, key: Key) -> Scene:
        """The state behind a key."""
        if key not in self._scenes:
            seen = self.replay.states[key].seen
            found = structure(seen, self.rows(key[0]), self.world.rows)
            self._scenes[key] = Scene(seen.graph, seen.globals[list(OWN_GLOBALS)], found)
        return self._scenes[key]

    def refresh(self, keys: Sequence[Key] | None = None) -> None:
        """Encode states anew: these, or all that are in the buffer."""
        if keys is None:
            self.latents = {}
            self._scenes = {key: scene for key, scene in self._scenes.items() if key in self.replay.states}
        wanted = list(self.replay.states if keys is None else dict.fromkeys(keys))
        with torch.no_grad():
            for begin in range(0, len(wanted), _AT_ONCE):
                some = wanted[begin : begin + _AT_ONCE]
                self.latents |= dict(zip(some, self.world.encode([self.scene(key) for key in some]), strict=True))

    def latent(self, keys: Sequence[Key]) -> Tensor:
        """[n, latent], without gradient."""
        self.refresh([key for key in keys if key not in self.latents])
        return torch.stack([self.latents[key] for key in keys])


class Sequences(NamedTuple):
    """Episodes side by side, padded to the longest. ``keys`` [b][t + 1]; ``row``, ``location`` [b, t]; ``mask`` [b, t]:
    where there is a step; ``gains`` [b, t + 1], nan where not measured; ``ends`` [b, t]; ``number`` [b]: whose they
    are.
    """

    keys: list[list[Key]]
    row: Tensor
    location: Tensor
    mask: Tensor
    gains: Tensor
    ends: Tensor
    number: list[int]

    @property
    def length(self) -> int:
        return self.row.shape[1]


def sequences(episodes: Sequence[Recorded], numbers: Sequence[int], memories: Memories) -> Sequences:
    """Padding is stop, at the last state, and masked."""
    length, cap = max(map(len, episodes)), memories.world.config.locations - 1
    row = np.zeros((len(episodes), length), dtype=np.int64)
    location, mask, ends = np.zeros_like(row), np.zeros(row.shape, dtype=bool), np.zeros(row.shape, dtype=np.float32)
    gains = np.full((len(episodes), length + 1), np.nan)
    keys = []
    for b, one in enumerate(episodes):
        for t, action in enumerate(one.actions):
            found = memories.scene(one.keys[t]).structure
            row[b, t], location[b, t] = found.row[action], min(found.location[action], cap)
        mask[b, : len(one)] = True
        gains[b, : len(one) + 1] = one.gains
        ends[b, len(one) - 1] = one.terminated
        keys.append([*one.keys, *[one.keys[-1]] * (length - len(one))])
    rows, locations, there, known, last = (torch.from_numpy(array) for array in (row, location, mask, gains, ends))
    return Sequences(keys, rows, locations, there, known, last, list(numbers))


class Fitter:
    """Fits a world model; its optimiser goes on from round to round. ``history``: the loss of every step so far."""

    def __init__(self, memories: Memories, seed: int = 0) -> None:
        self.memories, self.world, self.config = memories, memories.world, memories.world.config
        self.seed, self.history = seed, list[float]()
        self.optimizer = torch.optim.Adam(self.world.parameters(), lr=self.config.lr, eps=1e-6)

    def fit(
        self, steps: int, rng: np.random.Generator, stopped: Callable[[], bool] = lambda: False
    ) -> dict[str, float]:
        """``steps`` of gradient descent on drawn episodes of the buffer; the mean of each term over the last tenth."""
        episodes = self.memories.replay.episodes
        usable = [i for i, one in enumerate(episodes) if len(one)]
        if not usable or not steps:
            return {}
        self.world.train()
        self.memories.refresh()
        rows: list[dict[str, float]] = []
        for step in range(steps):
            if stopped():
                break
            if step and step % 50 == 0:
                self.memories.refresh()
            for group in self.optimizer.param_groups:
                group["lr"] = self.config.lr * (1 - 0.9 * step / steps)
            chosen = rng.choice(usable, min(self.config.batch, len(usable)), replace=False).tolist()
            batch = sequences([episodes[i] for i in chosen], chosen, self.memories)
            rows.append(self._step(batch, rng))
            self.history.append(rows[-1]["model_loss"])
        self.world.eval()
        self.memories.refresh()
        last = rows[-max(1, len(rows) // 10) :]
        return {name: float(np.mean([row[name] for row in last])) for name in rows[0]} if rows else {}

    def _step(self, batch: Sequences, rng: np.random.Generator) -> dict[str, float]:
        terms = losses(self.world, self.memories, batch, rng, self.seed)
        config = self.config
        weights = {"likelihood_loss": 1.0, "reward_loss": config.w_reward, "end_loss": 1.0,
                   "structure_loss": config.w_structure, "reconstruction_loss": config.w_reconstruct,
                   "contrast_loss": config.w_contrast, "kl_loss": config.w_kl}  # fmt: skip
        loss = sum((weights[name] * value for name, value in terms.items()), torch.zeros(()))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.world.parameters(), config.grad_norm)
        self.optimizer.step()
        return {"model_loss": float(loss.detach()), **{name: float(value.detach()) for name, value in terms.items()}}


def losses(
    world: LatentWorld, memories: Memories, batch: Sequences, rng: np.random.Generator, seed: int
) -> dict[str, Tensor]:
    """The terms of the loss; padded steps are in none of them.

    The next latent vector is a target *without* gradient: through it the encoder could raise the likelihood most
    cheaply by making all states alike. What keeps states apart is that a latent vector has to tell what its state
    contains (reconstruction) and be told from the others by the prediction (contrast); what makes it useful is the
    gradient of all predictions, the reward's among them, through the vectors that go *in*.
    """
    z, fresh, kl = _encoded(world, memories, batch, rng)
    fires = _fires(memories, batch)
    before = Fires(fires.counts[:, :-1], fires.best[:, :-1])
    prediction, _, _ = world.unroll(z[:, :-1], before, batch.row, batch.location)
    mask, target = batch.mask, z[:, 1:].detach()
    going = mask & (batch.row > 0)  # after a stop nothing follows
    share = going.sum().clamp(min=1)
    log_prob = prediction.latent.log_prob(target)
    counts = functional.smooth_l1_loss(prediction.log_counts, torch.log1p(fires.counts[:, 1:]), reduction="none")
    best = functional.smooth_l1_loss(prediction.best, fires.best[:, 1:], reduction="none")
    ends = functional.binary_cross_entropy_with_logits(prediction.ends, batch.ends, reduction="none")
    content = content_of([memories.scene(key) for key in fresh], world.vocabulary.op_rows, len(world.vocabulary.ops))
    told = world.decode(torch.stack(list(fresh.values())))
    terms = {
        "likelihood_loss": -(log_prob * going).sum() / share / world.config.latent,
        "reward_loss": reward_loss(prediction.change, batch, seed),
        "end_loss": (ends * mask).sum() / mask.sum().clamp(min=1),
        "structure_loss": (((counts + best).sum(-1)) * going).sum() / share,
        "reconstruction_loss": functional.smooth_l1_loss(told, content, reduction="none").sum(-1).mean(),
        "contrast_loss": contrast(prediction, target, going, batch),
    }
    return terms if kl is None else terms | {"kl_loss": kl}


def reward_loss(change: Tensor, batch: Sequences, seed: int) -> Tensor:
    """Squared error of the predicted gains between one measured state and the next measured one, squashed.

    ``change`` [b, t, ensemble]. Where every state is measured that is each step's own change; where the clock ran every
    few steps, the sum over the steps in between. Each head sees its own share of the episodes.
    """
    steps = unsquash(change) * batch.mask.unsqueeze(-1)
    total = torch.cat((torch.zeros_like(steps[:, :1]), steps.cumsum(1)), dim=1)
    measured = ~batch.gains.isnan()
    at = torch.arange(batch.length + 1).expand_as(measured)
    last = torch.where(measured, at, torch.zeros_like(at)).cummax(1).values  # the latest measured state up to here
    before, here = last[:, :-1], measured[:, 1:] & batch.mask
    known = torch.nan_to_num(batch.gains).float()
    spans = (at[:, 1:] - before) > 1
    wanted = known[:, 1:] - known.gather(1, before)
    index = before.unsqueeze(-1).expand(*before.shape, change.shape[-1])
    summed = squash(total[:, 1:] - total.gather(1, index))
    found = torch.where(spans.unsqueeze(-1), summed, change)
    error = (found - squash(wanted).unsqueeze(-1)).square()
    weight = here.unsqueeze(-1) * _shares(batch.number, change.shape[-1], seed).unsqueeze(1)
    return (error * weight).sum() / weight.sum().clamp(min=1)


def _shares(numbers: Sequence[int], heads: int, seed: int) -> Tensor:
    """[b, heads]: which head is fitted on which episode; all on all where there is one head."""
    if heads == 1:
        return torch.ones(len(numbers), 1)
    drawn = [np.random.default_rng([seed, number]).random(heads) < _SHARE for number in numbers]
    return torch.from_numpy(np.stack(drawn).astype(np.float32))


def contrast(prediction: Prediction, target: Tensor, going: Tensor, batch: Sequences) -> Tensor:
    """InfoNCE (van den Oord et al. 2018): the predicted next latent vector is nearer to the real one than to those of
    the other states of the batch.
    """
    weights = torch.softmax(prediction.latent.logits, -1).unsqueeze(-1)
    mean = (weights * prediction.latent.mean).sum(-2)[going]
    keys = [batch.keys[b][t + 1] for b, t in going.nonzero().tolist()]
    if len(keys) < 2:
        return mean.sum() * 0.0
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    label = torch.tensor([numbers[key] for key in keys])
    others = target[going][torch.tensor([keys.index(key) for key in numbers])]
    nearness = -(mean.unsqueeze(1) - others.unsqueeze(0)).square().mean(-1) * 10
    return functional.cross_entropy(nearness, label)


def _encoded(
    world: LatentWorld, memories: Memories, batch: Sequences, rng: np.random.Generator
) -> tuple[Tensor, dict[Key, Tensor], Tensor | None]:
    """``z`` [b, t + 1, latent]; those that have a gradient, a draw of the batch's states; and of a variational encoder,
    which draws these vectors, the mean divergence from the standard normal. The other states' vectors are as they were
    when last refreshed.
    """
    every = list(dict.fromkeys(key for keys in batch.keys for key in keys))
    some = sorted(rng.permutation(len(every))[: world.config.graphs].tolist())
    vectors, log_std = world.belief([memories.scene(every[i]) for i in some])
    kl = None
    if log_std is not None:
        kl = divergence(vectors, log_std).mean()
        noise = torch.from_numpy(rng.standard_normal(tuple(vectors.shape), dtype=np.float32))
        vectors = vectors + log_std.exp() * noise
    fresh = dict(zip((every[i] for i in some), vectors, strict=True))
    old = memories.latent([key for key in every if key not in fresh]) if len(fresh) < len(every) else ()
    known = {**dict(zip((key for key in every if key not in fresh), old, strict=True)), **fresh}
    return torch.stack([torch.stack([known[key] for key in keys]) for keys in batch.keys]), fresh, kl


def _fires(memories: Memories, batch: Sequences) -> Fires:
    every = [fires_of([memories.scene(key).structure for key in keys]) for keys in batch.keys]
    return Fires(torch.stack([one.counts for one in every]), torch.stack([one.best for one in every]))


def judge(memories: Memories, episodes: Sequence[Recorded]) -> dict[str, float]:
    """Predictions against what really happened: teacher forced (each step from the real state) and free running (each
    from the last prediction, with the real actions). The figures of ``docs/metrics.md``.
    """
    episodes = [one for one in episodes if len(one)]
    if not episodes:
        return {}
    world = memories.world
    with torch.no_grad():
        batch = sequences(episodes, range(len(episodes)), memories)
        z = torch.stack([memories.latent(keys) for keys in batch.keys])
        fires = _fires(memories, batch)
        before = Fires(fires.counts[:, :-1], fires.best[:, :-1])
        forced, _, _ = world.unroll(z[:, :-1], before, batch.row, batch.location)
        free = _free_run(world, z[:, 0], Fires(fires.counts[:, 0], fires.best[:, 0]), batch)
    return {
        **{f"forced_{name}": value for name, value in _errors(forced, fires, batch).items()},
        **{f"free_{name}": value for name, value in _errors(free, fires, batch).items()},
    }


def _free_run(world: LatentWorld, z: Tensor, fires: Fires, batch: Sequences) -> Prediction:
    memory, steps = world.start(len(z)), []
    for t in range(batch.length):
        found, memory = world.step(z, fires, batch.row[:, t], batch.location[:, t], memory)
        z, fires = found.latent.mode(), settled(found.log_counts, found.best)
        steps.append(found)
    return Prediction(steps[0].latent, *(torch.stack([getattr(one, name) for one in steps], dim=1)
                                         for name in ("change", "ends", "log_counts", "best")))  # fmt: skip


def _errors(found: Prediction, fires: Fires, batch: Sequences) -> dict[str, float]:
    going = batch.mask & (batch.row > 0)
    predicted = settled(found.log_counts, found.best).counts
    exact = (predicted == fires.counts[:, 1:]).all(-1)[going]
    real = torch.nan_to_num(batch.gains[:, 1:] - batch.gains[:, :-1], nan=math.inf)
    known = going & real.isfinite()
    change = unsquash(found.change).mean(-1)
    one, two = change[known].double().numpy(), real[known].double().numpy()
    returns = [(change * going).sum(1).double().numpy(), _last_gain(batch.gains.numpy())]
    return {
        "structure_exact": float(exact.float().mean()) if len(exact) else 1.0,
        "reward_error": float(np.abs(one - two).mean()) if len(one) else 0.0,
        "reward_correlation": correlation(one, two),
        "return_error": float(np.abs(returns[0] - returns[1]).mean()),
        "return_correlation": correlation(*returns),
    }


def _last_gain(gains: np.ndarray) -> np.ndarray:
    return np.array([row[~np.isnan(row)][-1] for row in gains])


def correlation(one: np.ndarray, two: np.ndarray) -> float:
    """Pearson's; 0 where either does not vary."""
    if len(one) < 2 or one.std() < _TINY or two.std() < _TINY:
        return 0.0
    return float(np.corrcoef(one, two)[0, 1])
