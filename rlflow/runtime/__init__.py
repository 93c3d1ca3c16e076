"""The one door to the runtimes (ONNX Runtime, OpenVINO, and on a GPU cuDNN and torch): models are loaded, run and timed
in a worker process that may die without harm. ``docs/add-a-runtime.md`` says how another one is added.
"""

from __future__ import annotations

from rlflow.runtime.base import CPU_PROVIDER, RUNTIMES, Runtime, Session, runtime
from rlflow.runtime.client import Worker
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
from rlflow.runtime.models import LoadedModel
from rlflow.runtime.session_options import (
    DEFAULT_RUNTIME,
    LEVELS,
    PRECISIONS,
    Handle,
    RuntimeOptions,
    provider_name,
    unavailable_reason,
)

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
