"""The one door to the runtimes (ONNX Runtime, OpenVINO, and on a GPU cuDNN and torch): models are loaded, run and timed
in a worker process that may die without harm. ``docs/add-a-runtime.md`` says how another one is added.
"""

from __future__ import annotations

from rlflow.runtime.base import CPU_PROVIDER, RUNTIMES, Runtime, Session, runtime
from rlflow.runtime.client import Worker
from rlflow.runtime.messages import (
    DEFAULT_RUNTIME,
    LEVELS,
    PRECISIONS,
    FeedSpec,
    Handle,
    Measurement,
    ModelIO,
    ModelSource,
    NodeTime,
    RuntimeOptions,
    Samples,
    TensorInfo,
    provider_name,
    random_array,
    unavailable_reason,
)
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
    "Worker",
    "provider_name",
    "random_array",
    "runtime",
    "unavailable_reason",
]
