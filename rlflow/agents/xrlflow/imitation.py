"""Learning from demonstrations, before a policy plays itself: behavioural cloning, round after round."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch

from rlflow.agents.logs import TrainingLog
from rlflow.agents.xrlflow.config import TrainConfig
from rlflow.agents.xrlflow.demonstrations import Demonstration, Expert
from rlflow.agents.xrlflow.training import Scales, Training
from rlflow.nn.batch import Batch
from rlflow.nn.policy import Policy
from rlflow.search import StopToken


def taught(training: Training, stop: StopToken, log: TrainingLog) -> bool:
    """Begin with what patient searches found, then with what the policy finds that way. Returns whether it came to its
    end: what was stopped before begins anew, and is not kept to be resumed.
    """
    begun, config = time.monotonic(), training.config
    experts = [Expert(spec, number, config, training.vocabulary) for number, spec in enumerate(training.specs)]
    for turn in range(config.rounds):
        for expert in experts:
            if stop.stopped:
                return False
            if turn == 0:
                expert.consult()
            if turn > 0 or training.start_card is not None:
                expert.practise(training.policy, training.rng)
        log.write("imitation", 0, _round(training, experts))
    training.progress.demonstrated = sum(expert.expansions for expert in experts)
    training.progress.seconds += time.monotonic() - begun
    return True


def _round(training: Training, experts: Sequence[Expert]) -> dict[str, object]:
    """Imitate the best that was shown of each model; the figures of ``docs/metrics.md``."""
    shown = [one for expert in experts for one in expert.shown()]
    training.scales = Scales()
    for expert in experts:
        if expert.shown():
            training.scales.add(expert.number, sum(expert.shown()[0].rewards))
    scales = [training.scales.of(one.spec) for one in shown]
    figures = imitate(training.policy, training.optimizer, shown, scales, training.config, training.rng)
    gains = [sum(expert.shown()[0].rewards) if expert.shown() else None for expert in experts]
    return {**figures, "expansions": sum(expert.expansions for expert in experts), "gains": gains}


def imitate(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    shown: Sequence[Demonstration],
    scales: Sequence[float],
    config: TrainConfig,
    rng: np.random.Generator,
) -> dict[str, float]:
    """``config.imitate`` passes over what was shown; returns the mean loss and agreement of the last one.

    The policy learns to choose among the good actions, evenly; the value, what the way earns from there (divided by
    ``scales``, one a demonstration). Every demonstration counts alike, however long.
    """
    steps = [(d, t) for d, one in enumerate(shown) for t in range(len(one))]
    returns = [one.returns(config.gamma) / scales[d] for d, one in enumerate(shown)]
    figures: list[tuple[float, float]] = []
    policy.train()
    for _ in range(config.imitate):
        figures = []
        order = rng.permutation(len(steps))
        for begin in range(0, len(order), config.minibatch):
            some = [steps[i] for i in order[begin : begin + config.minibatch]]
            figures.append(_step(policy, optimizer, shown, returns, some, config))
    policy.eval()
    loss, agreed = (float(np.mean(column)) for column in zip(*figures, strict=True)) if figures else (0.0, 0.0)
    return {"imitation_loss": loss, "imitation_agreement": agreed}


def _step(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    shown: Sequence[Demonstration],
    returns: Sequence[np.ndarray],
    some: Sequence[tuple[int, int]],
    config: TrainConfig,
) -> tuple[float, float]:
    batch = Batch.of([shown[d].observations[t] for d, t in some], policy.vocabulary.op_rows)
    batch = batch.to(policy.score.weight.device)
    choice, values = policy(batch)
    begins = choice.begins.tolist()
    good = [shown[d].good[t] for d, t in some]
    rows = torch.tensor([begins[i] + action for i, actions in enumerate(good) for action in actions])
    shares = torch.tensor([1 / len(actions) for actions in good for _ in actions], dtype=torch.float32)
    aims = torch.tensor([float(returns[d][t]) for d, t in some], dtype=torch.float32)
    rows, shares, aims = (one.to(values.device) for one in (rows, shares, aims))
    loss = -(shares * choice.log_probs[rows]).sum() / len(some)
    total = loss + config.value_weight * 0.5 * (values - aims).square().mean()
    optimizer.zero_grad(set_to_none=True)
    total.backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), config.grad_norm)
    optimizer.step()
    agreed = float(np.mean([mode in actions for mode, actions in zip(choice.mode().tolist(), good, strict=True)]))
    return float(loss.detach()), agreed
