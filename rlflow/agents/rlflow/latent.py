"""The paper's world model, trained whole: graph encoder → latent vector z → MDN-RNN over (rule, location).

After Ha and Schmidhuber (2018) and RLFlow (2022). From a state and an action it predicts the next latent vector, the
change of the price, whether the episode ends, and the *structure* of the next state: which rules fire, how often, and
what the best match of each is priced at. That structure is the next state's action space, so that a dream needs no
engine. ``docs/worldmodel.md`` says what differs from the published code and why the losses are what they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rlflow.agents.rlflow.config import WorldConfig
from rlflow.agents.rlflow.replay import Structure
from rlflow.graph.features import GraphFeatures
from rlflow.nn.batch import GraphBatch
from rlflow.nn.encoder import GraphEncoder
from rlflow.nn.mdn import MAX_STD, MIN_STD, Mixture, MixtureHead
from rlflow.nn.observation import GLOBAL_COLUMNS
from rlflow.nn.token_vocabulary import STOP_ROW, TokenVocabulary

#: What of ``Observation.globals`` is a fact of the graph, not of the walk that led there.
OWN_GLOBALS = tuple(map(GLOBAL_COLUMNS.index, ("log cost", "gain so far", "log nodes", "log candidates")))
_RULE, _PLACE, _HEADS = 16, 8, 4

#: Hidden and cell state of the LSTM, [1, b, hidden] each.
Memory = tuple[Tensor, Tensor]


class Scene(NamedTuple):
    """A real state as the encoder reads it. ``facts`` [len(OWN_GLOBALS)]: its own globals."""

    graph: GraphFeatures
    facts: np.ndarray
    structure: Structure


class Fires(NamedTuple):
    """Which rules fire, of states side by side: ``counts`` [..., rows], and ``best`` [..., rows], squashed gains."""

    counts: Tensor
    best: Tensor


@dataclass
class Prediction:
    """What follows. ``latent``: a mixture over [..., latent]; ``change`` [..., ensemble]: log of the price before over
    the price after, squashed; ``ends`` [...]: logit of the episode's end; ``log_counts``, ``best`` [..., rows]: log1p
    of the next counts, and the next best gains.
    """

    latent: Mixture
    change: Tensor
    ends: Tensor
    log_counts: Tensor
    best: Tensor


class LatentWorld(nn.Module):
    """The world model. ``encode`` real states, then ``step`` or ``unroll`` without the engine."""

    def __init__(self, config: WorldConfig, vocabulary: TokenVocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        rows, size = 2 + len(vocabulary.rules), config.latent
        self.rows = rows
        info = len(OWN_GLOBALS) + 2 * rows
        self.graph = GraphEncoder(len(vocabulary.ops), config.encoder_hidden, config.encoder_layers, _HEADS,
                                  config.message)  # fmt: skip
        self.variational = config.encoder == "variational"
        first = nn.Linear(config.encoder_hidden + info, 128)
        second = nn.Linear(128, 2 * size if self.variational else size)
        normed: list[nn.Module] = [] if self.variational else [nn.LayerNorm(size, elementwise_affine=False)]
        self.project = nn.Sequential(first, nn.ReLU(), second, *normed)
        self.decode = nn.Sequential(nn.Linear(size, 128), nn.ReLU(), nn.Linear(128, info + 1 + len(vocabulary.ops)))
        self.rule = nn.Embedding(rows, _RULE)
        self.place = nn.Embedding(config.locations, _PLACE)
        inputs = size + _RULE + _PLACE + 2 + 2 * rows
        self.memory = nn.LSTM(inputs, config.hidden, batch_first=True)
        self.trunk = nn.Sequential(nn.Linear(config.hidden + inputs, config.hidden), nn.ReLU())
        self.next_latent = MixtureHead(config.hidden, size, config.mixtures)
        lasts = [nn.Linear(64, 1) for _ in range(config.ensemble)]
        self.change = nn.ModuleList(nn.Sequential(nn.Linear(config.hidden, 64), nn.ReLU(), last) for last in lasts)
        self.ends = nn.Linear(config.hidden, 1)
        self.structure = nn.Linear(config.hidden, 2 * rows)
        with torch.no_grad():  # begin with: nothing changes
            self.structure.weight.mul_(0.01)
            self.structure.bias.zero_()
            for last in lasts:
                last.weight.mul_(0.1)
                last.bias.zero_()

    def encode(self, scenes: Sequence[Scene]) -> Tensor:
        """[n, latent]: each of mean 0 and variance 1 over its entries; of a variational encoder the likeliest."""
        return self.belief(scenes)[0]

    def belief(self, scenes: Sequence[Scene]) -> tuple[Tensor, Tensor | None]:
        """The vectors [n, latent], and of a variational encoder the logarithms of their standard deviations."""
        _, pooled = self.graph(GraphBatch.of([one.graph for one in scenes], self.vocabulary.op_rows))
        found = self.project(torch.cat((pooled, info_of(scenes)), dim=1))
        if not self.variational:
            return found, None
        mean, log_std = found.chunk(2, 1)
        return mean, log_std.clamp(math.log(MIN_STD), math.log(MAX_STD))

    def tidied(self, z: Tensor) -> Tensor:
        """Drawn vectors [n, latent] as encodings are: of mean 0 and variance 1, or of a variational encoder as is."""
        if self.variational:
            return z
        return (z - z.mean(1, keepdim=True)) / (z.std(1, unbiased=False, keepdim=True) + 1e-5)

    def start(self, count: int) -> Memory:
        """The memory at the beginning of an episode: nothing."""
        zero = self.ends.weight.new_zeros((1, count, self.config.hidden))
        return zero, zero.clone()

    def unroll(
        self, z: Tensor, fires: Fires, row: Tensor, location: Tensor, memory: Memory | None = None
    ) -> tuple[Prediction, Memory, Tensor]:
        """Over time: ``z`` [b, t, latent], ``fires`` [b, t, rows], ``row``, ``location`` [b, t] int64. Returns the
        predictions [b, t, …], the memory after the last step, and the hidden state after each, [b, t, hidden].
        """
        inputs = self._inputs(z, fires, row, location)
        hidden, memory = self.memory(inputs, memory or self.start(len(z)))
        seen = self.trunk(torch.cat((hidden, inputs), dim=-1))
        mixture = self.next_latent(seen)
        mixture = mixture._replace(mean=mixture.mean + z.unsqueeze(-2))
        priced = fires.best.gather(-1, row.unsqueeze(-1))  # what the rule's best match is priced at, corrected
        change = torch.cat([head(seen) for head in self.change], dim=-1) + priced
        log_counts, best = self.structure(seen).chunk(2, -1)
        prediction = Prediction(
            mixture, change, self.ends(seen).squeeze(-1), torch.log1p(fires.counts) + log_counts, fires.best + best
        )
        return prediction, memory, hidden

    def step(self, z: Tensor, fires: Fires, row: Tensor, location: Tensor, memory: Memory) -> tuple[Prediction, Memory]:
        """One step of [b] states side by side: as :meth:`unroll` without the time."""
        lifted = Fires(fires.counts.unsqueeze(1), fires.best.unsqueeze(1))
        found, memory, _ = self.unroll(z.unsqueeze(1), lifted, row.unsqueeze(1), location.unsqueeze(1), memory)
        mixture = Mixture(*(part.squeeze(1) for part in found.latent))
        rest = (found.change, found.ends, found.log_counts, found.best)
        return Prediction(mixture, *(part.squeeze(1) for part in rest)), memory

    def _inputs(self, z: Tensor, fires: Fires, row: Tensor, location: Tensor) -> Tensor:
        share = location / fires.counts.gather(-1, row.unsqueeze(-1)).squeeze(-1).clamp(min=1)
        priced = fires.best.gather(-1, row.unsqueeze(-1))
        place = self.place(location.clamp(max=self.config.locations - 1))
        known = (z, self.rule(row), place, share.unsqueeze(-1), priced, torch.log1p(fires.counts), fires.best)
        return torch.cat(known, dim=-1)


def divergence(mean: Tensor, log_std: Tensor) -> Tensor:
    """[n]: of normal distributions from the standard one, in nats (Kingma and Welling 2014, appendix B)."""
    return 0.5 * (mean.square() + (2 * log_std).exp() - 2 * log_std - 1).sum(-1)


def info_of(scenes: Sequence[Scene]) -> Tensor:
    """[n, facts + 2 rows]: what is known of states beside the graph."""
    rows = [np.concatenate((one.facts, np.log1p(one.structure.counts), one.structure.best)) for one in scenes]
    return torch.from_numpy(np.stack(rows).astype(np.float32))


def content_of(scenes: Sequence[Scene], op_rows: np.ndarray, ops: int) -> Tensor:
    """[n, info + 1 + ops]: what a latent vector has to tell: :func:`info_of`, and how often each operator occurs."""
    counted = [np.bincount(op_rows[one.graph.op], minlength=1 + ops)[: 1 + ops] for one in scenes]
    return torch.cat((info_of(scenes), torch.from_numpy(np.log1p(np.stack(counted)).astype(np.float32))), dim=1)


def fires_of(structures: Sequence[Structure]) -> Fires:
    """[n, rows] of real states."""
    counts, best = (np.stack([getattr(one, name) for one in structures]) for name in ("counts", "best"))
    return Fires(torch.from_numpy(counts), torch.from_numpy(best))


def settled(log_counts: Tensor, best: Tensor) -> Fires:
    """A predicted structure as one that can be acted in: whole counts, stop once, no gain where nothing fires."""
    counts = torch.expm1(log_counts).round().clamp(min=0)
    counts[..., STOP_ROW] = 1
    return Fires(counts, torch.where(counts > 0, best, torch.zeros_like(best)))


def squash(gain: Tensor) -> Tensor:
    """As :func:`rlflow.nn.observation.squash`, of tensors."""
    return gain.sign() * torch.log1p(1000.0 * gain.abs()) / 5.0


def unsquash(squashed: Tensor) -> Tensor:
    """The reverse; what is far beyond every gain (a factor of e^4) is cut there, so that a bad guess stays finite."""
    inside = squashed.clamp(-1.66, 1.66)
    return inside.sign() * torch.expm1(5.0 * inside.abs()) / 1000.0


def make_world(config: WorldConfig, vocabulary: TokenVocabulary, seed: int) -> LatentWorld:
    """A world model with fresh weights that depend on the seed alone; torch's own generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LatentWorld(config, vocabulary)
