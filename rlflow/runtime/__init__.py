"""The one door to the runtimes (ONNX Runtime, OpenVINO, and on a GPU cuDNN and torch): models are loaded, run and timed
in a worker process that may die without harm. ``docs/add-a-runtime.md`` says how another one is added.

What only clients need is imported when it is first used: the worker process, which starts with each command, does not
wait for it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rlflow.runtime.base import CPU_PROVIDER, RUNTIMES, Runtime, Session, runtime
from rlflow.runtime.messages import (
    FeedSpec,
    Measurement,
    ModelIO,
    ModelSource,
    NodeTime,
    Samples,
    TensorInfo,
    TimingPlan,
    random_array,
)
from rlflow.runtime.session_options import (
    DEFAULT_RUNTIME,
    LEVELS,
    PRECISIONS,
    Handle,
    RuntimeOptions,
    provider_name,
    unavailable_reason,
)

if TYPE_CHECKING:
    from rlflow.runtime.client import Worker
    from rlflow.runtime.models import LoadedModel

__all__ = [
    "CPU_PROVIDER",
    "DEFAULT_RUNTIME",
    "LEVELS",
    "PRECISIONS",
    "RUNTIMES",
    "FeedSpec",
    "Handle",
    "LoadedModel",
    "Measurement",
    "ModelIO",
    "ModelSource",
    "NodeTime",
    "Runtime",
    "RuntimeOptions",
    "Samples",
    "Session",
    "TensorInfo",
    "TimingPlan",
    "Worker",
    "provider_name",
    "random_array",
    "runtime",
    "unavailable_reason",
]

_HOMES = {"LoadedModel": "models", "Worker": "client"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rlflow.runtime' has no attribute {name!r}")
    globals()[name] = value = getattr(importlib.import_module(f"rlflow.runtime.{_HOMES[name]}"), name)
    return value
