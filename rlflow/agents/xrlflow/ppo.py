"""Proximal policy optimisation (Schulman et al. 2017) over a graph neural network, from top to bottom.

``Player`` plays episodes, ``prepare`` makes advantages of them (one episode at a time), ``improve`` moves the policy
down the clipped loss on shuffled minibatches of ragged graphs, and ``Trainer`` does that again and again, judges what
came of it and logs the figures of ``docs/metrics.md``. What differs from the published code is in ``docs/agents.md``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlflow.agents.logs import TrainingLog
from rlflow.agents.torch_state import weights_of
from rlflow.agents.xrlflow.config import TrainConfig
from rlflow.agents.xrlflow.imitation import taught
from rlflow.agents.xrlflow.players import Players, Task, Trajectory, Weights, make_players
from rlflow.agents.xrlflow.trained import PolicyCheckpoint
from rlflow.agents.xrlflow.training import Scales, Training
from rlflow.env.reward import make_reward
from rlflow.env.spec import ProblemSpec
from rlflow.env.walks import Episode, Walks
from rlflow.nn.advantages import advantages, explained_variance
from rlflow.nn.batch import Batch
from rlflow.nn.clipping import clipped_surrogate, divergence
from rlflow.nn.observation import Observation
from rlflow.nn.policy import Policy
from rlflow.nn.token_vocabulary import TokenVocabulary
from rlflow.search import StopToken, generator

#: States that are encoded side by side when episodes are played; bounds the memory that takes.
STATES_AT_ONCE = 32
_KEEP = 48
_TINY = 1e-8


# --- play -------------------------------------------------------------------------------------------------------------


class Player:
    """Plays episodes of several problems with a policy, all of them in step, so that the network runs on batches."""

    def __init__(self, specs: Sequence[ProblemSpec], config: TrainConfig, vocabulary: TokenVocabulary) -> None:
        self.specs, self.config, self.vocabulary = list(specs), config, vocabulary
        self.policy = Policy(config.policy, vocabulary).eval()
        self._opened: dict[int, tuple[Walks, Any, np.ndarray]] = {}

    def play(self, weights: Weights, tasks: Sequence[Task], keep_observations: bool = True) -> list[Trajectory]:
        """A trajectory a task, in their order."""
        self.policy.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
        episodes = [self._episode(task.spec) for task in tasks]
        generators = [generator(task.seed) for task in tasks]
        played = [Trajectory(task.spec) for task in tasks]
        active = list(range(len(tasks)))
        while active:
            for begin in range(0, len(active), STATES_AT_ONCE):
                some = active[begin : begin + STATES_AT_ONCE]
                self._step(
                    [episodes[i] for i in some],
                    [played[i] for i in some],
                    [generators[i] for i in some],
                    [tasks[i].greedy for i in some],
                    keep_observations,
                )
            active = [i for i in active if not episodes[i].ended]
        self._bootstrap([pair for pair in zip(episodes, played, strict=True) if pair[0].truncated])
        return played

    def _step(
        self,
        episodes: Sequence[Episode],
        played: Sequence[Trajectory],
        generators: Sequence[np.random.Generator],
        greedy: Sequence[bool],
        keep: bool,
    ) -> None:
        seen = [self._seen(episode, one.spec) for episode, one in zip(episodes, played, strict=True)]
        with torch.no_grad():
            choice, values = self.policy(Batch.of(seen, self.vocabulary.op_rows))
            actions = np.where(greedy, choice.mode(), choice.sample(generators))
            log_probs = choice.log_prob(torch.from_numpy(actions))
        for i, (episode, one) in enumerate(zip(episodes, played, strict=True)):
            if keep:
                one.observations.append(seen[i])
            one.actions.append(int(actions[i]))
            one.log_probs.append(float(log_probs[i]))
            one.values.append(float(values[i]))
            one.rewards.append(episode.step(int(actions[i])))
            one.terminated, one.gain = episode.terminated, episode.gain

    def _bootstrap(self, cut: Sequence[tuple[Episode, Trajectory]]) -> None:
        for begin in range(0, len(cut), STATES_AT_ONCE):
            some = cut[begin : begin + STATES_AT_ONCE]
            seen = [self._seen(episode, one.spec) for episode, one in some]
            with torch.no_grad():
                values = self.policy(Batch.of(seen, self.vocabulary.op_rows))[1]
            for (_, one), value in zip(some, values.tolist(), strict=True):
                one.bootstrap = value

    def _seen(self, episode: Episode, spec: int) -> Observation:
        return self.vocabulary.translate(episode.observe(), self._opened[spec][2])

    def _episode(self, spec: int) -> Episode:
        config = self.config
        if spec not in self._opened:
            loaded = self.specs[spec].load(weights=config.reward == "end-to-end")
            walks = Walks(loaded.problem(), _KEEP)
            rows = self.vocabulary.rule_rows(walks.problem.rule_names)
            self._opened[spec] = (walks, make_reward(config.reward, loaded, config.gamma, config.every), rows)
        walks, reward, _ = self._opened[spec]
        return Episode(walks, reward.fork(), config.horizon, config.policy.needs_children, config.patience)

    def close(self) -> None:
        """Nothing to end."""


# --- advantages -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rollout:
    """Steps to learn from, episodes joined: observations and arrays of one length."""

    observations: list[Observation]
    actions: np.ndarray
    log_probs: np.ndarray
    values: np.ndarray
    advantages: np.ndarray
    returns: np.ndarray

    def __len__(self) -> int:
        return len(self.actions)


def prepare(played: Sequence[Trajectory], scales: Scales, config: TrainConfig) -> Rollout:
    """Advantages and returns of each episode, in units of its model's scale. A truncated episode goes on with the
    estimate of its last state, a terminated one with nothing.
    """
    pairs = []
    for one in played:
        rewards = np.array(one.rewards) / scales.of(one.spec)
        bootstrap = 0.0 if one.terminated else one.bootstrap
        pairs.append(advantages(rewards, np.array(one.values), bootstrap, config.gamma, config.lam))
    return Rollout(
        [seen for one in played for seen in one.observations],
        np.concatenate([one.actions for one in played]).astype(np.int64),
        np.concatenate([one.log_probs for one in played]).astype(np.float32),
        np.concatenate([one.values for one in played]).astype(np.float32),
        np.concatenate([pair[0] for pair in pairs]).astype(np.float32),
        np.concatenate([pair[1] for pair in pairs]).astype(np.float32),
    )


# --- the clipped loss -------------------------------------------------------------------------------------------------


def improve(
    policy: Policy, optimizer: torch.optim.Optimizer, sample: Rollout, config: TrainConfig, rng: np.random.Generator,
    *, watch_kl: bool = True, device: str = "cpu",
) -> dict[str, float]:  # fmt: skip
    """One update: ``epochs`` passes over shuffled minibatches, ended early where the policy has moved far enough.

    Returns the figures of ``docs/metrics.md``, averaged over minibatches.
    """
    policy.train()
    spread = sample.advantages.std()
    normal = (sample.advantages - sample.advantages.mean()) / (spread + _TINY)
    rows: list[dict[str, float]] = []
    far, epochs = False, 0
    while epochs < config.epochs and not far:
        order = rng.permutation(len(sample))
        for begin in range(0, len(order), config.minibatch):
            some = order[begin : begin + config.minibatch]
            figures = _step(policy, optimizer, sample, normal, some, config, device)
            rows.append(figures)
        epochs += 1
        last = rows[-math.ceil(len(order) / config.minibatch) :]
        far = watch_kl and float(np.mean([row["kl"] for row in last])) > 1.5 * config.target_kl
    policy.eval()
    means = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    return {
        **means,
        "epochs": epochs,
        "explained_variance": explained_variance(sample.values, sample.returns),
    }


def _step(
    policy: Policy, optimizer: torch.optim.Optimizer, sample: Rollout, normal: np.ndarray, some: np.ndarray,
    config: TrainConfig, device: str,
) -> dict[str, float]:  # fmt: skip
    """One minibatch: the clipped surrogate, the value's error, the entropy; a step down their gradient."""
    batch = Batch.of([sample.observations[i] for i in some], policy.vocabulary.op_rows).to(device)
    tensors = (torch.from_numpy(np.asarray(a)[some]) for a in (
        sample.actions, sample.log_probs, normal, sample.returns,
    ))  # fmt: skip
    action, old, advantage, returns = (tensor.to(device) for tensor in tensors)
    choice, values = policy(batch)
    log_ratio = choice.log_prob(action) - old
    policy_loss = clipped_surrogate(log_ratio, advantage, config.clip)
    value_loss = 0.5 * (values - returns).square().mean()
    entropy = choice.entropy().mean()
    loss = policy_loss + config.value_weight * value_loss - config.entropy_weight * entropy
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(policy.parameters(), config.grad_norm)
    optimizer.step()
    with torch.no_grad():
        return {
            "policy_loss": float(policy_loss),
            "value_loss": float(value_loss),
            "entropy": float(entropy),
            "kl": divergence(log_ratio),
            "clip_fraction": float(((log_ratio.exp() - 1).abs() > config.clip).float().mean()),
            "gradient_norm": float(norm),
        }


# --- the training -----------------------------------------------------------------------------------------------------


class Trainer(Training):
    """Trains an agent on several problems.

    ``specs``: to train on, drawn evenly. ``held_out``: to judge by, every ``evaluate_every`` updates, with greedy
    choices; the weights that score best are kept, and ``patience`` evaluations without a better score end the training
    (0: never). ``start``: weights to begin with, which are judged first, so that what they led to is no worse by that
    score. ``workers``: see :func:`make_players`. ``logs``: folder of JSON lines and TensorBoard. The other options are
    those of :class:`Training`.
    """

    def __init__(
        self, specs: Sequence[ProblemSpec], config: TrainConfig, *, workers: str = "0", logs: str | Path | None = None,
        evaluate_every: int = 10, patience: int = 0, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(specs, config, **options)
        self.workers, self.logs = workers, None if logs is None else Path(logs)
        self.evaluate_every, self.patience = evaluate_every, patience

    def train(
        self, steps: int, *, on_update: Callable[[dict[str, Any]], None] | None = None, stop: StopToken | None = None
    ) -> PolicyCheckpoint:
        """Train until ``steps`` environment steps were made in all, patience ran out, or ``stop`` is set; returns the
        best checkpoint, which is also written to ``out``. Nothing is lost by stopping.
        """
        stop = stop or StopToken()
        make = partial(Player, [*self.specs, *self.held_out], self.config, self.vocabulary)
        players = make_players(self.workers, make)
        try:
            with TrainingLog(self.logs) as log:
                self._begin(players, stop, log)
                if self._ends_between(steps):  # a resumed training that has nothing left to do
                    self._evaluate(players)
                while not self._finished(steps, stop):
                    figures = self._update(players, steps)
                    log.write("update", self.progress.steps, figures)
                    if self._ends_between(steps):
                        self.save_last()
                    if self.progress.updates % self.evaluate_every == 0 or self.progress.steps >= steps:
                        score = self._evaluate(players)
                        log.write("evaluation", self.progress.steps, score)
                        figures = {**figures, **score}
                    if on_update is not None:
                        on_update(figures)
                    if self.progress.updates % self.evaluate_every == 0:
                        self.save_last()
        finally:
            players.close()
        if (self.progress.demonstrated or not self.config.rounds) and not self._ends_between(steps):
            self.save_last()
        return self.save_best()

    def _ends_between(self, steps: int) -> bool:
        """Whether the training ends between two evaluations. It is judged then, for the result alone: what is kept to
        go on from knows nothing of that, so that a training that is resumed is the same as one that nobody stopped.
        """
        return self.progress.steps >= steps and self.progress.updates % self.evaluate_every != 0

    def _begin(self, players: Players, stop: StopToken, log: TrainingLog) -> None:
        """Imitate what is asked for; judge what the training begins with, which may be the best there is."""
        if self.config.rounds:
            begins = not self.progress.demonstrated and taught(self, stop, log)
        else:
            begins = self.start_card is not None and self.progress.updates == 0
        if begins:
            log.write("evaluation", 0, self._evaluate(players))

    def _finished(self, steps: int, stop: StopToken) -> bool:
        tired = self.patience > 0 and self.progress.evaluations_since_best >= self.patience
        return stop.stopped or tired or self.progress.steps >= steps

    def _update(self, players: Players, steps: int) -> dict[str, Any]:
        """Play and learn once; the figures of ``docs/metrics.md``."""
        begun = time.monotonic()
        chosen = self._draw()
        seeds = self.rng.integers(0, 2**62, len(chosen)).tolist()
        played = players.play(weights_of(self.policy), [Task(s, seed) for s, seed in zip(chosen, seeds, strict=True)])
        played_at = time.monotonic()
        for one in played:
            self.scales.add(one.spec, sum(one.rewards))
        sample = prepare(played, self.scales, self.config)
        left = max(0.1, 1 - self.progress.steps / steps) if self.config.anneal else 1.0
        self.optimizer.param_groups[0]["lr"] = (self.config.play_lr or self.config.lr) * left
        watch = self.progress.updates >= self.config.kl_after
        figures = improve(
            self.policy, self.optimizer, sample, self.config, self.rng, watch_kl=watch, device=self.device
        )
        self.progress.updates += 1
        self.progress.steps += len(sample)
        self.progress.episodes += len(played)
        self.progress.seconds += time.monotonic() - begun
        return {
            "update": self.progress.updates,
            "episodes": self.progress.episodes,
            "gain": float(np.mean([one.gain for one in played])),
            "return": float(np.mean([sum(one.rewards) for one in played])),
            "length": float(np.mean([len(one) for one in played])),
            "terminated": float(np.mean([one.terminated for one in played])),
            **figures,
            "lr": float(self.optimizer.param_groups[0]["lr"]),
            "seconds": self.progress.seconds,
            "steps_per_second": len(sample) / max(_TINY, played_at - begun),
        }

    def _draw(self) -> list[int]:
        """As many models as episodes are played: each as often as the others, but for the remainder, drawn."""
        whole, rest = divmod(self.config.episodes, len(self.specs))
        extra = self.rng.choice(len(self.specs), rest, replace=False)
        return sorted([*list(range(len(self.specs))) * whole, *extra.tolist()])

    def _evaluate(self, players: Players) -> dict[str, Any]:
        """Greedy episodes on the held-out problems (or the training's), which judge the weights."""
        specs, first = (self.held_out, len(self.specs)) if self.held_out else (self.specs, 0)
        tasks = [Task(first + i, 0, greedy=True) for i in range(len(specs))]
        weights = weights_of(self.policy)
        played = players.play(weights, tasks, keep_observations=False)
        score = float(np.mean([one.gain for one in played]))
        self.judged(score, weights)
        return {"score": score, "gains": {spec.title: one.gain for spec, one in zip(specs, played, strict=True)}}
