"""The third level of HARL: an actor and a critic over edits of a program, trained by proximal policy optimisation.

A program is a set of tokens, one a column of its row: so one network serves sketches and subgraphs of any shape. An
edit is scored from the tokens that it takes from and gives to. Illegal edits have no score at all. The file needs torch
(extra ``[rl]``).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rlflow.nn.advantages import advantages
from rlflow.nn.clipping import clipped_surrogate, divergence
from rlflow.nn.ragged import RaggedCategorical
from rlflow.tuner.spaces import GROUPS, NOWHERE, TILE, Sketch, row_features

#: Columns of a token, of what is said of the whole program, and of an edit.
TOKEN, GLOBAL, EDIT = 11, 4, 8
_LOG = 12.0  # base-2 logarithms of loops are divided by this
_TINY = 1e-8


@dataclass(frozen=True)
class ActorConfig:
    """``hidden``: width of the layers. ``actor_lr``, ``critic_lr``: Adam's rates. ``gamma``, ``lam``: discount, and
    decay of generalised advantages. ``clip``: of the ratio of probabilities. ``epochs``: passes over the steps of one
    training. ``value_weight``, ``entropy_weight``: of these terms of the loss. ``grad_norm``: gradients are cut to.
    """

    hidden: int = 48
    actor_lr: float = 3e-3
    critic_lr: float = 3e-3
    gamma: float = 0.9
    lam: float = 0.95
    clip: float = 0.2
    epochs: int = 2
    value_weight: float = 0.5
    entropy_weight: float = 0.01
    grad_norm: float = 0.5


class ProgramView(NamedTuple):
    """Programs of one sketch as the network sees them. ``tokens`` [n, width + 1, TOKEN], the last one blank: nowhere;
    ``whole`` [n, GLOBAL]. For each legal edit: ``state``, ``source``, ``target`` [k] int64, ``edit`` [k, EDIT], and
    ``owner`` [k], ascending: its state and group. ``move`` [k]: its number among the sketch's.
    """

    tokens: Tensor
    whole: Tensor
    state: Tensor
    source: Tensor
    target: Tensor
    edit: Tensor
    owner: Tensor
    move: np.ndarray


def view(sketch: Sketch, values: np.ndarray, whole: np.ndarray) -> ProgramView:
    """Rows [n, width] with what is known of each [n, GLOBAL]."""
    moves = sketch.moves
    state, move = np.nonzero(sketch.legal(values))
    group = moves.group[move]
    source, target = moves.source[move], moves.target[move]
    edit = np.zeros((len(move), EDIT), dtype=np.float32)
    edit[np.arange(len(move)), group] = 1.0
    edit[:, 4] = source == NOWHERE
    edit[:, 5] = moves.step[move]
    split = (group == TILE) & (source != NOWHERE) & (moves.step[move] == 0)
    edit[split, 6] = np.log2(sketch.smallest_factors[values[state[split], source[split]]]) / 3.0
    edit[split, 7] = np.sign(target[split] - source[split])
    blank = values.shape[1]
    return ProgramView(
        torch.from_numpy(_tokens(sketch, values)),
        torch.from_numpy(np.asarray(whole, dtype=np.float32)),
        torch.from_numpy(state),
        torch.from_numpy(np.where(source == NOWHERE, blank, source)),
        torch.from_numpy(np.where(target == NOWHERE, blank, target)),
        torch.from_numpy(edit),
        torch.from_numpy(state * len(GROUPS) + group),
        move,
    )


def _tokens(sketch: Sketch, values: np.ndarray) -> np.ndarray:
    """[n, width + 1, TOKEN]"""
    split = sketch.split_columns
    out = np.zeros((len(values), sketch.width + 1, TOKEN), dtype=np.float32)
    out[:, : sketch.width, :8] = _columns(sketch)
    seen = row_features(sketch, values)
    out[:, :split, 8] = seen[:, :split] / _LOG
    out[:, :split, 9] = seen[:, split : 2 * split] / _LOG
    out[:, split : sketch.width, 10] = seen[:, 2 * split :]
    return out


@functools.lru_cache(maxsize=256)
def _columns(sketch: Sketch) -> np.ndarray:
    """[width, 8] What does not depend on the program: the group of each column; for parts whether the loop sums, the
    part's place among its fellows, whether it is the innermost, and the loop's extent.
    """
    rows = [
        [1.0, 0, 0, 0, tile.reduction, part / max(1, tile.parts - 1), part == tile.parts - 1,
         np.log2(tile.extent) / _LOG]
        for tile in sketch.tiles
        for part in range(tile.parts)
    ]  # fmt: skip
    for one in sketch.steps:
        rows.append([float(group == one.group) for group in GROUPS] + [0.0, 0.0, 0.0, len(one.values) / _LOG])
    return np.array(rows, dtype=np.float32).reshape(len(rows), 8)


class ActorCritic(nn.Module):
    """``forward(view) -> (a choice for each state and group, the worth of each state [n])``."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.token = nn.Sequential(nn.Linear(TOKEN, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.state = nn.Sequential(nn.Linear(2 * hidden + GLOBAL, hidden), nn.ReLU())
        last = nn.Linear(hidden, 1, bias=False)
        self.edit = nn.Sequential(nn.Linear(3 * hidden + EDIT, hidden), nn.ReLU(), last)
        self.critic = nn.Sequential(nn.Linear(2 * hidden + GLOBAL, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        with torch.no_grad():
            last.weight.mul_(0.01)  # begin near the uniform choice

    def forward(self, seen: ProgramView) -> tuple[RaggedCategorical, Tensor]:
        tokens = self.token(seen.tokens)
        loops = tokens[:, :-1]  # all but the blank one
        pooled = torch.cat((loops.mean(1), loops.amax(1), seen.whole), dim=1)
        state = self.state(pooled)
        parts = (state[seen.state], tokens[seen.state, seen.source], tokens[seen.state, seen.target], seen.edit)
        logits = self.edit(torch.cat(parts, dim=1)).squeeze(1)
        choice = RaggedCategorical(logits, seen.owner, len(GROUPS) * len(seen.whole))
        return choice, self.critic(pooled).squeeze(1)


class Acted(NamedTuple):
    """``moves`` [n, 4]: the edits; ``actions`` [4 n]: their places among the legal ones of their group; ``log_probs``,
    ``worths`` [n].
    """

    moves: np.ndarray
    actions: np.ndarray
    log_probs: np.ndarray
    worths: np.ndarray


@dataclass
class Experience:
    """Steps of tracks of one sketch. Arrays [steps, tracks, ...], the latter as of :class:`Acted`; ``following``
    [tracks]: the worth of the states after the last step.
    """

    sketch: Sketch
    values: np.ndarray
    whole: np.ndarray
    actions: np.ndarray
    log_probs: np.ndarray
    worths: np.ndarray
    rewards: np.ndarray
    following: np.ndarray


class Agent:
    """Acts, and learns from what came of it. The weights depend on ``seed`` alone; torch's own generator is left as it
    was.
    """

    def __init__(self, config: ActorConfig, seed: int) -> None:
        self.config = config
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = ActorCritic(config.hidden)
        critic = list(self.network.critic.parameters())
        own = {id(one) for one in critic}
        actor = [one for one in self.network.parameters() if id(one) not in own]
        rates = [{"params": actor, "lr": config.actor_lr}, {"params": critic, "lr": config.critic_lr}]
        self._optimizer = torch.optim.Adam(rates)

    def act(self, sketch: Sketch, values: np.ndarray, whole: np.ndarray, rng: np.random.Generator) -> Acted:
        """An edit of each row of ``values`` [n, width], drawn from the policy."""
        seen = view(sketch, values, whole)
        with torch.no_grad():
            choice, worths = self.network(seen)
            actions = choice.sample([rng] * choice.count)
            log_probs = choice.log_prob(torch.from_numpy(actions)).view(len(values), -1).sum(1)
        moves = seen.move[choice.begins.numpy() + actions].reshape(len(values), len(GROUPS))
        return Acted(moves, actions, log_probs.numpy(), worths.numpy())

    def worths(self, sketch: Sketch, values: np.ndarray, whole: np.ndarray) -> np.ndarray:
        """[n] What the critic expects of these rows."""
        with torch.no_grad():
            return self.network(view(sketch, values, whole))[1].numpy()

    def learn(self, made: Experience) -> dict[str, float]:
        """Some passes down the clipped loss over all steps at once; the figures of the last one."""
        pairs = [
            advantages(made.rewards[:, at], made.worths[:, at], float(made.following[at]), self.config.gamma,
                       self.config.lam)
            for at in range(made.rewards.shape[1])
        ]  # fmt: skip
        gained = np.stack([one for one, _ in pairs], axis=1).ravel()
        returns = torch.from_numpy(np.stack([one for _, one in pairs], axis=1).ravel().astype(np.float32))
        gained = (gained - gained.mean()) / (gained.std() + _TINY)
        seen = view(made.sketch, _joined(made.values), _joined(made.whole))
        figures: dict[str, float] = {}
        for _ in range(self.config.epochs):
            figures = self._pass(seen, made, torch.from_numpy(gained.astype(np.float32)), returns)
        return figures

    def _pass(self, seen: ProgramView, made: Experience, gained: Tensor, returns: Tensor) -> dict[str, float]:
        config = self.config
        choice, worths = self.network(seen)
        log_probs = choice.log_prob(torch.from_numpy(made.actions.ravel())).view(len(returns), -1).sum(1)
        log_ratio = log_probs - torch.from_numpy(made.log_probs.ravel())
        policy_loss = clipped_surrogate(log_ratio, gained, config.clip)
        value_loss = 0.5 * (worths - returns).square().mean()
        entropy = choice.entropy().view(len(returns), -1).sum(1).mean()
        loss = policy_loss + config.value_weight * value_loss - config.entropy_weight * entropy
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), config.grad_norm)
        self._optimizer.step()
        with torch.no_grad():
            return {
                "policy_loss": float(policy_loss), "value_loss": float(value_loss), "entropy": float(entropy),
                "kl": divergence(log_ratio),
            }  # fmt: skip

    # --- weights ----------------------------------------------------------------------------------------------------

    def weights(self) -> dict[str, np.ndarray]:
        """By name."""
        return {name: value.detach().numpy().copy() for name, value in self.network.state_dict().items()}

    def load(self, weights: Mapping[str, np.ndarray]) -> None:
        """Take over the weights of another agent of the same width."""
        self.network.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})


def _joined(steps: np.ndarray) -> np.ndarray:
    return steps.reshape(-1, steps.shape[-1])
