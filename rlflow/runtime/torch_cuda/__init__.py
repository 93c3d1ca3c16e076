"""Torch as a runtime on an NVIDIA GPU: a model's graph as torch calls, captured as one CUDA graph and replayed.

The files of this folder import torch, and are imported where a model is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlflow.errors import RuntimeRefused
from rlflow.runtime.base import Runtime, Session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rlflow.runtime.messages import NodeTime
    from rlflow.runtime.session_options import RuntimeOptions


class TorchCuda(Runtime):
    """Torch's plain calls on an NVIDIA GPU, captured once and replayed."""

    name = "torch"
    title = "PyTorch"
    module = "torch"
    install = "[rl]"
    on_processor = False
    sets_threads = False
    precisions = ("float32", "tf32", "float16", "bfloat16")
    prices_regions = False
    gpu_rank = 1

    def start(self) -> None:
        """Open torch."""
        import torch  # noqa: F401

    def open(self, source: bytes | str, options: RuntimeOptions) -> Session:
        """As :class:`rlflow.runtime.torch_cuda.session.Session`."""
        from rlflow.runtime.torch_cuda import session

        return session.Session(source, options)

    def profile(
        self, source: bytes | str, options: RuntimeOptions, feeds: Mapping[str, Any], runs: int
    ) -> list[NodeTime]:
        """Torch's calls are not nodes; always refused."""
        raise RuntimeRefused("The torch runtime does not profile nodes; `profile` of the cudnn runtime does.")

    def describe(self, provider: str) -> dict[str, Any]:
        """Identity of torch and the GPU, as strings that can key a price."""
        from rlflow.runtime.torch_cuda import session

        return self.identity(provider=provider, clock_state="", **session.identity())
