"""X-RLflow's agent: proximal policy optimisation (Schulman et al. 2017) over a graph neural network.

Reads from top to bottom: play episodes (``Trainer.train``), compute advantages per episode (``prepare``), improve the
policy on shuffled minibatches of ragged graphs (``improve``). What differs from the published code is in
``docs/agents.md``.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlflow.agents.checkpoint import (
    Checkpoint,
    card_of,
    known_score,
    load_optimizer,
    optimizer_arrays,
    part_of,
    progress_of,
    resumed,
    weights_of,
)
from rlflow.agents.config import TrainConfig
from rlflow.agents.demonstrations import Expert, imitate
from rlflow.agents.logs import TrainingLog
from rlflow.agents.rollouts import LocalPlayers, Players, Task, Trajectory, make_players
from rlflow.env.spec import ProblemSpec
from rlflow.errors import UsageError
from rlflow.nn.advantages import advantages, explained_variance
from rlflow.nn.batch import Batch, Vocabulary
from rlflow.nn.observation import Observation
from rlflow.nn.policy import Policy, make_policy
from rlflow.search import StopToken, generator

_TINY = 1e-8


@dataclass
class Scales:
    """What the returns of each model are divided by: the root mean square of its episodes' returns so far.

    A model in which one per cent can be gained teaches as loudly as one in which fifty can.
    """

    squares: dict[int, float] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)

    def add(self, spec: int, total: float) -> None:
        """Count an episode's return."""
        self.squares[spec] = self.squares.get(spec, 0.0) + total * total
        self.counts[spec] = self.counts.get(spec, 0) + 1

    def of(self, spec: int) -> float:
        """1 where nothing was earned yet."""
        mean = self.squares.get(spec, 0.0) / max(1, self.counts.get(spec, 0))
        return math.sqrt(mean) if mean > _TINY * _TINY else 1.0


@dataclass(frozen=True)
class Sample:
    """Steps to learn from, episodes joined: observations and arrays of one length."""

    observations: list[Observation]
    actions: np.ndarray
    log_probs: np.ndarray
    values: np.ndarray
    advantages: np.ndarray
    returns: np.ndarray

    def __len__(self) -> int:
        return len(self.actions)


def prepare(played: Sequence[Trajectory], scales: Scales, config: TrainConfig) -> Sample:
    """Advantages and returns of each episode, in units of its model's scale. A truncated episode goes on with the
    estimate of its last state, a terminated one with nothing.
    """
    pairs = []
    for one in played:
        rewards = np.array(one.rewards) / scales.of(one.spec)
        bootstrap = 0.0 if one.terminated else one.bootstrap
        pairs.append(advantages(rewards, np.array(one.values), bootstrap, config.gamma, config.lam))
    return Sample(
        [seen for one in played for seen in one.observations],
        np.concatenate([one.actions for one in played]).astype(np.int64),
        np.concatenate([one.log_probs for one in played]).astype(np.float32),
        np.concatenate([one.values for one in played]).astype(np.float32),
        np.concatenate([pair[0] for pair in pairs]).astype(np.float32),
        np.concatenate([pair[1] for pair in pairs]).astype(np.float32),
    )


def improve(
    policy: Policy, optimizer: torch.optim.Optimizer, sample: Sample, config: TrainConfig, rng: np.random.Generator,
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
    policy: Policy, optimizer: torch.optim.Optimizer, sample: Sample, normal: np.ndarray, some: np.ndarray,
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
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - config.clip, 1 + config.clip)
    policy_loss = -torch.min(ratio * advantage, clipped * advantage).mean()
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
            "kl": float((ratio - 1 - log_ratio).mean()),  # Schulman's low-variance estimate of KL(old, new)
            "clip_fraction": float(((ratio - 1).abs() > config.clip).float().mean()),
            "gradient_norm": float(norm),
        }


@dataclass
class Progress:
    """How far a training is; what a resumed one goes on with."""

    updates: int = 0
    steps: int = 0
    episodes: int = 0
    seconds: float = 0.0
    best_score: float = -math.inf
    evaluations_since_best: int = 0
    demonstrated: int = 0  # expansions of the searches that were imitated


class Trainer:
    """Trains an agent on several problems.

    ``specs``: to train on, drawn evenly; all use the same rules. ``held_out``: to judge by, every ``evaluate_every``
    updates, with greedy choices (default: the training's own); the weights that score best are kept, and ``patience``
    evaluations without a better score end the training (0: never). ``out``: the checkpoint; ``<out>.last`` is what
    ``resume`` goes on from. ``start``: weights to begin with, which are judged first, so that what they led to is no
    worse by that score. ``workers``: see :func:`make_players`. ``logs``: folder of JSON lines and TensorBoard.
    """

    def __init__(
        self,
        specs: Sequence[ProblemSpec],
        config: TrainConfig,
        *,
        out: str | Path | None = None,
        held_out: Sequence[ProblemSpec] = (),
        seed: int = 0,
        workers: str = "0",
        logs: str | Path | None = None,
        evaluate_every: int = 10,
        patience: int = 0,
        device: str = "cpu",
        resume: bool = False,
        start: Checkpoint | None = None,
    ) -> None:
        if not specs:
            raise UsageError("The training was given no model; give at least one to learn on.")
        if device != "cpu" and not torch.cuda.is_available():
            raise UsageError(f"The device {device!r} was asked for, and torch finds no GPU here; use cpu.")
        self.specs, self.held_out, self.config = list(specs), list(held_out), config
        self.out = None if out is None else Path(out)
        self.seed, self.device, self.logs = seed, device, None if logs is None else Path(logs)
        self.evaluate_every, self.patience, self.workers = evaluate_every, patience, workers
        self.start_card = start.card if start else None
        self.progress, self.scales, self.rng = Progress(), Scales(), generator(seed)
        self.vocabulary = start.vocabulary if start else Vocabulary.of(self._rule_names())
        self.policy = start.policy() if start else make_policy(config.policy, self.vocabulary, seed)
        self.best_weights = weights_of(self.policy)
        if start:
            self.config = config = dataclasses.replace(config, policy=start.config.policy)
        self.policy.to(device)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=config.lr, eps=1e-5)
        if resume:
            self._resume()

    def train(
        self, steps: int, *, on_update: Callable[[dict[str, Any]], None] | None = None, stop: StopToken | None = None
    ) -> Checkpoint:
        """Train until ``steps`` environment steps were made in all, patience ran out, or ``stop`` is set; returns the
        best checkpoint, which is also written to ``out``. Nothing is lost by stopping.
        """
        stop = stop or StopToken()
        everything = [*self.specs, *self.held_out]
        players = make_players(self.workers, everything, self.config, self.vocabulary)
        judges = players if isinstance(players, LocalPlayers) else None
        try:
            with TrainingLog(self.logs) as log:
                if self.config.rounds and not self.progress.demonstrated and self._imitate(stop, log):
                    log.write("evaluation", 0, self._evaluate(judges or players))
                elif self.start_card is not None and self.progress.updates == 0 and not self.config.rounds:
                    log.write("evaluation", 0, self._evaluate(judges or players))  # it may be the best there is
                while not self._finished(steps, stop):
                    figures = self._update(players, steps)
                    log.write("update", self.progress.steps, figures)
                    if self.progress.updates % self.evaluate_every == 0 or self.progress.steps >= steps:
                        score = self._evaluate(judges or players)
                        log.write("evaluation", self.progress.steps, score)
                        figures = {**figures, **score}
                        self._save_last()
                    if on_update is not None:
                        on_update(figures)
        finally:
            players.close()
        if self.progress.demonstrated or not self.config.rounds:
            self._save_last()
        return self._save_best()

    def _finished(self, steps: int, stop: StopToken) -> bool:
        tired = self.patience > 0 and self.progress.evaluations_since_best >= self.patience
        return stop.stopped or tired or self.progress.steps >= steps

    def _imitate(self, stop: StopToken, log: TrainingLog) -> bool:
        """Begin with what patient searches found, then with what the policy finds that way. Returns whether it came to
        its end: what was stopped before begins anew, and is not kept to be resumed.
        """
        begun, expansions = time.monotonic(), 0
        experts = [Expert(spec, number, self.config, self.vocabulary) for number, spec in enumerate(self.specs)]
        for turn in range(self.config.rounds):
            for expert in experts:
                if stop.stopped:
                    return False
                if turn == 0:
                    expert.consult()
                if turn > 0 or self.start_card is not None:
                    expert.practise(self.policy, self.rng)
            shown = [one for expert in experts for one in expert.shown()]
            self.scales = Scales()
            heard = [expert for expert in experts if expert.shown()]
            for expert in heard:
                self.scales.add(expert.number, sum(expert.shown()[0].rewards))
            scales = [self.scales.of(one.spec) for one in shown]
            figures = imitate(self.policy, self.optimizer, shown, scales, self.config, self.rng)
            expansions = sum(expert.expansions for expert in experts)
            gains = [sum(expert.shown()[0].rewards) if expert.shown() else None for expert in experts]
            log.write("imitation", 0, {**figures, "expansions": expansions, "gains": gains})
        self.progress.demonstrated = expansions
        self.progress.seconds += time.monotonic() - begun
        return True

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
        """Greedy episodes on the held-out problems (or the training's); keeps the weights where the mean gain is the
        best so far.
        """
        first = len(self.specs) if self.held_out else 0
        judged = range(first, first + len(self.held_out or self.specs))
        weights = weights_of(self.policy)
        played = players.play(weights, [Task(spec, 0, greedy=True) for spec in judged], keep_observations=False)
        score = float(np.mean([one.gain for one in played]))
        self.progress.evaluations_since_best += 1
        if score > self.progress.best_score:
            self.progress.best_score, self.progress.evaluations_since_best = score, 0
            self.best_weights = weights
            self._save_best()
        titles = [(self.held_out or self.specs)[i].title for i in range(len(played))]
        return {"score": score, "gains": {title: one.gain for title, one in zip(titles, played, strict=True)}}

    # --- what is kept -------------------------------------------------------------------------------------------------

    def _rule_names(self) -> list[str]:
        return list(self.specs[0].load().ruleset.names)

    def _card(self) -> dict[str, Any]:
        more = {name: getattr(self.progress, name) for name in ("updates", "steps", "episodes", "demonstrated")}
        more |= {"seconds": round(self.progress.seconds, 1), "score": known_score(self.progress.best_score)}
        more |= {"start": self.start_card} if self.start_card else {}
        return card_of(self.specs, self.seed, held_out=[spec.title for spec in self.held_out], **more)

    def _save_best(self) -> Checkpoint:
        kept = self.best_weights if not math.isinf(self.progress.best_score) else weights_of(self.policy)
        checkpoint = Checkpoint(self.config, self.vocabulary, kept, card=self._card())
        if self.out is not None:
            checkpoint.save(self.out)
        return checkpoint

    @property
    def _last(self) -> Path | None:
        return None if self.out is None else self.out.with_name(self.out.name + ".last")

    def _save_last(self) -> None:
        if self._last is None:
            return
        state = {f"best/{name}": array for name, array in self.best_weights.items()}
        state |= optimizer_arrays(self.optimizer, self.policy, "adam")
        progress = {
            **dataclasses.asdict(self.progress),
            "best_score": known_score(self.progress.best_score),
            "scales": [[spec, self.scales.squares[spec], self.scales.counts[spec]] for spec in self.scales.squares],
            "rng": self.rng.bit_generator.state,
            "seed": self.seed,
            "models": [spec.model for spec in self.specs],
        }
        Checkpoint(self.config, self.vocabulary, weights_of(self.policy), state, progress, self._card()).save(
            self._last
        )

    def _resume(self) -> None:
        """Go on where ``<out>.last`` ended. Raises :class:`UsageError` where that was another training."""
        last = resumed(self._last, Checkpoint.load, self.config, [spec.model for spec in self.specs], self.seed)
        plain = last.progress
        for spec, squares, count in plain["scales"]:
            self.scales.squares[spec], self.scales.counts[spec] = squares, count
        self.rng.bit_generator.state = plain["rng"]
        self.progress = progress_of(Progress, plain)
        self.policy.load_state_dict({name: torch.from_numpy(array) for name, array in last.weights.items()})
        load_optimizer(self.optimizer, self.policy, "adam", last.extra)
        self.best_weights = part_of(last.extra, "best/")
