"""What the runtime is handed when whole models are timed and compared: the place, inputs, graphs as ONNX."""

from __future__ import annotations

from rlflow.deployment.export import Export
from rlflow.deployment.inputs import Inputs, verified
from rlflow.deployment.kept_comparisons import kept_comparisons
from rlflow.deployment.place import ON_GPU, Deployment, gpu_runtime, open_worker
from rlflow.deployment.source import as_source, shared_weights, source_of

__all__ = [
    "ON_GPU",
    "Deployment",
    "Export",
    "Inputs",
    "as_source",
    "gpu_runtime",
    "kept_comparisons",
    "open_worker",
    "shared_weights",
    "source_of",
    "verified",
]
