"""Playing episodes: here, in other processes, or on a Ray cluster; all three give the learner the same thing."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from rlflow.agents.config import TrainConfig
from rlflow.env.reward import EndToEnd, Improvement, Potential
from rlflow.env.spec import ProblemSpec
from rlflow.env.walks import Episode, Walks
from rlflow.errors import RlflowError, UsageError
from rlflow.nn.batch import Batch, Vocabulary
from rlflow.nn.observation import Observation
from rlflow.nn.policy import Policy
from rlflow.processes import safe_context
from rlflow.search import generator

Weights = dict[str, np.ndarray]
#: States that are encoded side by side when episodes are played; bounds the memory that takes.
STATES_AT_ONCE = 32
_KEEP = 48


class Task(NamedTuple):
    """An episode to play: of which problem, by which seed; ``greedy``: take the likeliest candidate always."""

    spec: int
    seed: int
    greedy: bool = False


@dataclass
class Trajectory:
    """What was played. ``observations`` [t] with embedding rows for rules; ``actions``, ``log_probs``, ``values``,
    ``rewards`` [t]; ``bootstrap``: value of the last state where the episode was truncated, else 0. ``gain``:
    ``log(start / best)``.
    """

    spec: int
    observations: list[Observation] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    bootstrap: float = 0.0
    terminated: bool = False
    gain: float = 0.0

    def __len__(self) -> int:
        return len(self.actions)


class Player:
    """Plays episodes of several problems with a policy, all of them in step, so that the network runs on batches."""

    def __init__(self, specs: Sequence[ProblemSpec], config: TrainConfig, vocabulary: Vocabulary) -> None:
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
        if spec not in self._opened:
            loaded = self.specs[spec].load(weights=self.config.reward == "end-to-end")
            walks = Walks(loaded.problem(), _KEEP)
            rows = self.vocabulary.rule_rows(walks.problem.rule_names)
            self._opened[spec] = (walks, make_reward(self.config, loaded), rows)
        walks, reward, _ = self._opened[spec]
        config = self.config
        return Episode(walks, reward.fork(), config.horizon, config.policy.needs_children, config.patience)


def make_reward(config: TrainConfig, loaded: Any) -> Any:
    """The reward that a training asks for; raises :class:`UsageError` for an unknown one."""
    if config.reward == "improvement":
        return Improvement()
    if config.reward == "potential":
        return Potential(config.gamma)
    if config.reward == "end-to-end" and loaded.imported is not None:
        from rlflow.env.endtoend import EndToEndTimer

        return EndToEnd(EndToEndTimer(loaded.imported), config.every)
    raise UsageError(
        f"The reward {config.reward!r} cannot be had for {loaded.spec.title}; there are improvement, potential, and, "
        "for models with weights, end-to-end."
    )


class Players(Protocol):
    """Who plays a batch of episodes."""

    def play(self, weights: Weights, tasks: Sequence[Task], keep_observations: bool = True) -> list[Trajectory]: ...

    def close(self) -> None: ...


class LocalPlayers:
    """One player, in this process."""

    def __init__(self, specs: Sequence[ProblemSpec], config: TrainConfig, vocabulary: Vocabulary) -> None:
        self._player = Player(specs, config, vocabulary)

    def play(self, weights: Weights, tasks: Sequence[Task], keep_observations: bool = True) -> list[Trajectory]:
        return self._player.play(weights, tasks, keep_observations)

    def close(self) -> None:
        """Nothing to end."""


class ProcessPlayers:
    """``count`` players in processes of their own, with one thread each; task ``i`` goes to player ``i % count``."""

    def __init__(
        self, specs: Sequence[ProblemSpec], config: TrainConfig, vocabulary: Vocabulary, count: int = 2
    ) -> None:
        context = safe_context()
        self._workers: list[tuple[Any, Any]] = []
        for _ in range(count):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, list(specs), config, vocabulary), daemon=True)
            process.start()
            there.close()
            self._workers.append((process, here))

    def play(self, weights: Weights, tasks: Sequence[Task], keep_observations: bool = True) -> list[Trajectory]:
        """As :meth:`Player.play`. Raises what a player raised, or :class:`RlflowError` where one died."""
        count = len(self._workers)
        for number, (_, pipe) in enumerate(self._workers):
            pipe.send((weights, list(tasks[number::count]), keep_observations))
        out: list[Trajectory | None] = [None] * len(tasks)
        for number, (process, pipe) in enumerate(self._workers):
            try:
                good, answer = pipe.recv()
            except EOFError:
                process.join(5)
                raise RlflowError(
                    f"Player {number + 1} of {count} died (exit code {process.exitcode}) while playing episodes; "
                    "use fewer workers if memory ran out."
                ) from None
            if not good:
                raise RlflowError(f"Player {number + 1} of {count} failed while playing episodes: {answer}")
            out[number::count] = answer
        return [one for one in out if one is not None]

    def close(self) -> None:
        """Ends the processes."""
        for process, pipe in self._workers:
            pipe.close()
            process.join(5)
            if process.is_alive():
                process.terminate()
        self._workers.clear()


def _serve(pipe: Any, specs: list[ProblemSpec], config: TrainConfig, vocabulary: Vocabulary) -> None:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the learner's to handle
    torch.set_num_threads(1)
    player = Player(specs, config, vocabulary)
    while True:
        try:
            weights, tasks, keep = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            pipe.send((True, player.play(weights, tasks, keep)))
        except Exception as error:  # noqa: BLE001 - whatever it is, the learner has to hear of it
            last = traceback.extract_tb(error.__traceback__)[-1]
            pipe.send((False, f"{type(error).__name__} in {last.name}, line {last.lineno}: {error}"))


class RayPlayers:
    """Players on a Ray cluster (``pip install 'rlflow[ray]'``), one an actor."""

    def __init__(
        self, specs: Sequence[ProblemSpec], config: TrainConfig, vocabulary: Vocabulary, count: int = 0
    ) -> None:
        try:
            import ray
        except ImportError as error:
            raise UsageError(
                "The workers 'ray' were asked for, and Ray is not installed; pip install 'rlflow[ray]', or give a "
                "number of processes of this machine."
            ) from error
        self._ray = ray
        if not ray.is_initialized():
            ray.init()
        actor = ray.remote(Player)
        self._count = count or max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._actors = [actor.remote(list(specs), config, vocabulary) for _ in range(self._count)]

    def play(self, weights: Weights, tasks: Sequence[Task], keep_observations: bool = True) -> list[Trajectory]:
        shared = self._ray.put(weights)
        answers = self._ray.get(
            [
                actor.play.remote(shared, list(tasks[number :: self._count]), keep_observations)
                for number, actor in enumerate(self._actors)
            ]
        )
        out: list[Any] = [None] * len(tasks)
        for number, answer in enumerate(answers):
            out[number :: self._count] = answer
        return out

    def close(self) -> None:
        """Ends the actors; the cluster stays."""
        for actor in self._actors:
            self._ray.kill(actor)


def make_players(workers: str, specs: Sequence[ProblemSpec], config: TrainConfig, vocabulary: Vocabulary) -> Players:
    """``workers``: ``"0"`` for this process, a number of processes, or ``"ray"``; raises :class:`UsageError`."""
    if workers == "ray":
        return RayPlayers(specs, config, vocabulary)
    if not workers.isdigit():
        raise UsageError(f"The number of workers is {workers!r}; expected a whole number, 0 for none, or ray.")
    if int(workers) == 0:
        return LocalPlayers(specs, config, vocabulary)
    return ProcessPlayers(specs, config, vocabulary, int(workers))
