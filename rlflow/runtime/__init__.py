"""The one door to ONNX Runtime: models are loaded, run and timed in a worker process that may die without harm."""

from __future__ import annotations

from rlflow.runtime.client import Worker
from rlflow.runtime.options import (
    LEVELS,
    FeedSpec,
    Handle,
    Measurement,
    ModelIO,
    ModelSource,
    NodeTime,
    RuntimeOptions,
    Samples,
    TensorInfo,
    random_array,
    unavailable_reason,
)

__all__ = [
    "LEVELS",
    "FeedSpec",
    "Handle",
    "Measurement",
    "ModelIO",
    "ModelSource",
    "NodeTime",
    "RuntimeOptions",
    "Samples",
    "TensorInfo",
    "Worker",
    "random_array",
    "unavailable_reason",
]
