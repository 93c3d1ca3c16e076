"""The Gymnasium environment: a graph, its candidates, and what a rewrite is worth (DESIGN C8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlflow.env.observations import Views, view
from rlflow.env.reward import EndToEnd, Improvement, Potential
from rlflow.env.spec import OpenProblem, ProblemSpec, RewriteState
from rlflow.env.timer import EndToEndTimer
from rlflow.env.walks import STOP, Episode, Walks
from rlflow.errors import UsageError
from rlflow.graph import Graph
from rlflow.search import TraceStep, read_trace
from rlflow.specs import did_you_mean

REWARDS = ("improvement", "potential", "end-to-end")


class Actions(spaces.Discrete):
    """0 to stop, or a candidate's number; how many there are changes with every step."""

    def resize(self, n: int) -> None:
        """From now on there are ``n`` actions."""
        self.n = np.int64(n)


class RewriteEnv(gymnasium.Env[Any, Any]):
    """Rewrite one of ``models`` step by step.

    ``models``: one or several of what :class:`ProblemSpec` takes; ``reset`` picks one (``options={"model": 2}`` or a
    name to choose). ``rules``, ``cost``, ``cost_options``: see there. ``horizon``: most rewrites an episode, then it is
    *truncated*; it *terminates* by action 0 or where nothing is left to do. ``reward``: ``improvement``, ``potential``
    or ``end-to-end`` (with ``every=5`` steps between measurements), with ``gamma`` for the potential, or an object of
    one's own. ``observation``: which of :data:`rlflow.env.observations.VIEWS` ``reset`` and ``step`` return; all are in
    ``env.observation``. ``keep``: opened graphs to remember per model. ``macros``: offer macro moves of the starting
    graph as actions too, after the single rewrites.

    An action out of range raises :class:`UsageError`. ``action_space.n`` is always the present number of actions.
    """

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012 - Gymnasium's name and form

    def __init__(
        self,
        models: str | Graph | Sequence[str | Graph],
        rules: Any = None,
        cost: str = "analytic",
        horizon: int = 100,
        reward: str | Any = "improvement",
        *,
        gamma: float = 0.99,
        every: int = 5,
        cost_options: Mapping[str, Any] | None = None,
        observation: str = "ragged",
        keep: int = 256,
        macros: bool = False,
        render_mode: str | None = None,
    ) -> None:
        if horizon < 1:
            raise UsageError(f"The environment's horizon is {horizon}; expected 1 rewrite or more.")
        given = [models] if isinstance(models, (str, Graph)) else list(models)
        if not given:
            raise UsageError("The environment was made without a model; give one, or several.")
        self.specs = [ProblemSpec.of(model, rules, cost, cost_options) for model in given]
        self.horizon, self.render_mode = horizon, render_mode
        self._reward_name, self._gamma, self._every, self._keep, self._macros = reward, gamma, every, keep, macros
        if isinstance(reward, str) and reward not in REWARDS:
            raise UsageError(f"There is no reward {reward!r}. {did_you_mean(reward, REWARDS)}")
        self._view = view(observation)
        self.observation_space = self._view.space()
        self.action_space: Actions = Actions(1)
        self.observation = Views(lambda: self.episode)
        self._loaded: dict[int, tuple[OpenProblem, Walks, Any]] = {}
        self._episode: Episode | None = None
        self._chosen = 0

    # --- Gymnasium's five ---------------------------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode. ``options``: ``{"model": number or name}``, or ``{"state": RewriteState}`` to begin there
        (the steps that lead there count against the horizon).
        """
        super().reset(seed=seed)
        asked = dict(options or {})
        state = asked.get("state")
        if state is not None:
            asked.setdefault("model", state.model)
        self._chosen = self._choose(asked.get("model"))
        _, walks, reward = self._open(self._chosen)
        self._episode = Episode(walks, reward, self.horizon)
        if state is not None:
            self.apply(state.trace)
            self._check_digest(state)
        self.action_space.resize(self.episode.candidates)
        return self._observed(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take an action: 0 to stop, or a candidate's number from 1."""
        episode = self.episode
        reward = episode.step(self._number(action))
        self.action_space.resize(episode.candidates)
        return self._observed(), reward, episode.terminated, episode.truncated, self._info()

    def render(self) -> str | None:
        """The graph as text, where ``render_mode`` is ``ansi``."""
        return str(self.observation["text"]) if self.render_mode == "ansi" else None

    def close(self) -> None:
        """Ends what was opened: cost models and the timing process."""
        for loaded, _, reward in self._loaded.values():
            loaded.cost_model.close()
            if isinstance(reward, EndToEnd) and isinstance(reward.timer, EndToEndTimer):
                reward.timer.close()
        self._loaded.clear()

    # --- more than Gymnasium asks for ---------------------------------------------------------------------------------

    @property
    def episode(self) -> Episode:
        """The present episode; raises :class:`UsageError` before the first reset."""
        if self._episode is None:
            raise UsageError("While using the environment: no episode has begun; call reset() first.")
        return self._episode

    @property
    def rule_names(self) -> list[str]:
        """Names of the rules, by the numbers that observations use."""
        return self.episode.walks.problem.rule_names

    @property
    def state(self) -> RewriteState:
        """Where the episode is: ``reset(options={"state": …})`` leads there, in any process. (The trace is *a* way to
        the graph: where several lead there, the one that was walked first.)
        """
        node = self.episode.place.node
        return RewriteState(self.specs[self._chosen].model, node.trace, node.graph.digest)

    def move(self, action: int) -> TraceStep | None:
        """The action as (rule, match key), which replays anywhere; ``None`` for stop. Raises :class:`UsageError` for a
        macro, which is several: see :meth:`steps`.
        """
        steps = self.steps(action)
        if len(steps) > 1:
            raise UsageError(f"The action {action} is a macro of {len(steps)} rewrites; ask for its steps.")
        return steps[0] if steps else None

    def steps(self, action: int) -> tuple[TraceStep, ...]:
        """The action as the rewrites that it makes, each as :meth:`move` writes it; none for stop."""
        k = self._number(action) - 1
        table = self.episode.place.table
        if not k < len(table):
            raise UsageError(f"There is no action {action}; there are {self.episode.candidates}, from 0.")
        return () if k < 0 else table.node.steps(int(table.index[k]), self.rule_names)

    def action(self, move: TraceStep | Mapping[str, Any] | Sequence[Any] | None) -> int:
        """The reverse of :meth:`move`; raises :class:`UsageError` where the move does not apply here."""
        if move is None:
            return STOP
        rule, match = read_trace([move])[0]
        table = self.episode.place.table
        i = table.node.state.find(rule, list(match))
        at = np.flatnonzero(table.index == i)
        if i < 0 or not len(at):
            raise UsageError(f"The rule {rule!r} at {list(match)} does not apply to the graph of this state.")
        return 1 + int(at[0])

    def apply(self, trace: Iterable[Any]) -> float:
        """Take several moves without observing in between; returns the sum of their rewards."""
        total = 0.0
        for step in trace:
            total += self.episode.step(self.action(step))
        self.action_space.resize(self.episode.candidates)
        return total

    def fork(self) -> RewriteEnv:
        """An environment that continues from this state on its own; opened graphs are shared."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._episode = None if self._episode is None else self._episode.fork()
        twin._np_random = deepcopy(self._np_random)
        twin.action_space = deepcopy(self.action_space)
        twin.observation = Views(lambda: twin.episode)
        return twin

    # --- inside -------------------------------------------------------------------------------------------------------

    def _choose(self, model: Any) -> int:
        if model is None:
            return int(self.np_random.integers(len(self.specs))) if len(self.specs) > 1 else 0
        if isinstance(model, str):
            names = [spec.model for spec in self.specs]
            if model not in names:
                raise UsageError(f"The environment has no model {model[:60]!r}. {did_you_mean(model, names)}")
            return names.index(model)
        if not 0 <= int(model) < len(self.specs):
            raise UsageError(f"The environment has no model number {model}; it has {len(self.specs)}, from 0.")
        return int(model)

    def _open(self, number: int) -> tuple[OpenProblem, Walks, Any]:
        if number not in self._loaded:
            loaded = self.specs[number].load(weights=self._reward_name == "end-to-end")
            walks = Walks(loaded.problem(macros=self._macros), self._keep)
            self._loaded[number] = (loaded, walks, self._make_reward(loaded))
        return self._loaded[number]

    def _make_reward(self, loaded: OpenProblem) -> Any:
        if self._reward_name == "improvement":
            return Improvement()
        if self._reward_name == "potential":
            return Potential(self._gamma)
        if self._reward_name != "end-to-end":
            return self._reward_name
        if loaded.imported is None:
            raise UsageError(
                "The reward 'end-to-end' runs whole models, and a graph has no weights; give a model's file or a name "
                "of the zoo."
            )
        return EndToEnd(EndToEndTimer(loaded.imported), self._every)

    def _check_digest(self, state: RewriteState) -> None:
        found = self.episode.place.node.graph.digest
        if state.digest and found != state.digest:
            raise UsageError(
                f"The state's {len(state.trace)} rewrites lead to digest {found}, not {state.digest}: it was recorded "
                "on another model, or with other rules."
            )

    def _observed(self) -> Any:
        return self._view.compute(self.episode)

    @staticmethod
    def _number(action: Any) -> int:
        try:
            number = int(action)
            if number == action and number >= 0:
                return number
        except (TypeError, ValueError):
            pass
        raise UsageError(f"The action is {action!r}; expected 0 to stop, or the number of a candidate.")

    def _info(self) -> dict[str, Any]:
        episode = self.episode
        return {
            "model": self._chosen,
            "cost_ms": episode.place.node.cost,
            "best_ms": episode.best_ms,
            "start_ms": episode.start_ms,
            "steps": episode.steps,
            "actions": episode.candidates,
        }
