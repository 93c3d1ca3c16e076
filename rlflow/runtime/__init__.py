"""The one door to the runtimes (ONNX Runtime, OpenVINO, and on a GPU cuDNN and torch): models are loaded, run and timed
in a worker process that may die without harm.
"""

from __future__ import annotations

from rlflow.runtime.client import Worker
from rlflow.runtime.options import (
    CPU_PROVIDER,
    GPU_RUNTIMES,
    LEVELS,
    PRECISIONS,
    RUNTIMES,
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

__all__ = [
    "CPU_PROVIDER",
    "GPU_RUNTIMES",
    "LEVELS",
    "PRECISIONS",
    "RUNTIMES",
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
    "provider_name",
    "random_array",
    "unavailable_reason",
]
