"""Gymnasium environments over the problems of :mod:`rlflow.search` (needs ``pip install 'rlflow[rl]'``).

>>> from rlflow import env
>>> world = env.make("squeezenet1.1", horizon=50)
>>> seen, info = world.reset(seed=0)
>>> seen, reward, terminated, truncated, info = world.step(1)

The same as ``gymnasium.make("rlflow/Rewrite-v0", models="squeezenet1.1")`` after ``import rlflow.env``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rlflow.env.reward import EndToEnd, Improvement, Potential
from rlflow.env.spec import OpenProblem, ProblemSpec, RewriteState
from rlflow.env.walks import STOP, Episode, Place, Walks
from rlflow.errors import UsageError
from rlflow.registry import not_installed

if TYPE_CHECKING:
    from rlflow.env.padded import Padded, RewriteVectorEnv
    from rlflow.env.rewrite_env import RewriteEnv

__all__ = [
    "STOP",
    "EndToEnd",
    "Episode",
    "Improvement",
    "OpenProblem",
    "Padded",
    "Place",
    "Potential",
    "ProblemSpec",
    "RewriteEnv",
    "RewriteState",
    "RewriteVectorEnv",
    "Walks",
    "available",
    "make",
    "make_vec",
    "restore",
]

ID = "rlflow/Rewrite-v0"
PADDED_ID = "rlflow/PaddedRewrite-v0"
#: What needs Gymnasium, and where it is.
_HOMES = {"RewriteEnv": "rewrite_env", "Padded": "padded", "RewriteVectorEnv": "padded"}


def available() -> str | None:
    """``None``, or why there are no environments here."""
    return not_installed("gymnasium", "gymnasium", "[rl]")


def make(models: Any, rules: Any = None, cost: str = "analytic", horizon: int = 100, **options: Any) -> RewriteEnv:
    """An environment; the options are those of :class:`rlflow.env.RewriteEnv`. Raises :class:`UsageError` where
    Gymnasium is not installed.
    """
    _need_gymnasium()
    from rlflow.env.rewrite_env import RewriteEnv

    return RewriteEnv(models, rules, cost, horizon, **options)


def make_padded(models: Any, sizes: dict[str, int] | None = None, **options: Any) -> Padded:
    """As :func:`make`, in arrays of fixed ``sizes`` (``nodes``, ``edges``, ``candidates``, ``touched``) with a mask."""
    world = make(models, **options)
    from rlflow.env.padded import Padded

    return Padded(world, **(sizes or {}))


def make_vec(count: int, models: Any, **options: Any) -> RewriteVectorEnv:
    """``count`` environments in step."""
    _need_gymnasium()
    from rlflow.env.padded import RewriteVectorEnv

    return RewriteVectorEnv([make(models, **options) for _ in range(count)])


def restore(state: RewriteState, **options: Any) -> RewriteEnv:
    """An environment of the state's model, in that state."""
    world = make(state.model, **options)
    world.reset(options={"state": state})
    return world


def _need_gymnasium() -> None:
    reason = available()
    if reason is not None:
        raise UsageError(f"The environment cannot be made: {reason}.")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rlflow.env' has no attribute {name!r}")
    _need_gymnasium()
    return getattr(importlib.import_module(f"rlflow.env.{_HOMES[name]}"), name)


def _register() -> None:
    import gymnasium

    for name, maker in ((ID, "make"), (PADDED_ID, "make_padded")):
        if name not in gymnasium.registry:
            gymnasium.register(name, entry_point=f"rlflow.env:{maker}")


if available() is None:
    _register()
