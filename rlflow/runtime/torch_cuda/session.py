"""A model in torch: translated for the shapes of its inputs, captured as one CUDA graph, replayed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from rlflow.errors import RuntimeRefused, RuntimeUnavailable
from rlflow.runtime.loops import short
from rlflow.runtime.models import LoadedModel
from rlflow.runtime.session_options import RuntimeOptions
from rlflow.runtime.torch_cuda.program import DTYPES, Program
from rlflow.runtime.torch_cuda.torch_calls import Tensor

_HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
_WARM_RUNS = 3


def unavailable() -> str | None:
    """Why torch cannot compute on a GPU here, or ``None``."""
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} sees no CUDA device here; expected a CUDA build of torch and an NVIDIA GPU."
    return None


def identity() -> dict[str, Any]:
    """Version and device, as strings that can key a price. Raises :class:`RuntimeUnavailable`."""
    reason = unavailable()
    if reason is not None:
        raise RuntimeUnavailable(reason)
    facts = torch.cuda.get_device_properties(0)
    return {
        "version": f"{torch.__version__}, cuDNN {torch.backends.cudnn.version()}",
        "device": f"{facts.name} (sm_{facts.major}{facts.minor}, {facts.multi_processor_count} processors)",
        "threads": torch.get_num_threads(),
    }


class Session:
    """One model: translated for the shapes of its inputs (anew where they change), captured on first use."""

    def __init__(
        self,
        source: bytes | str,
        options: RuntimeOptions,
        settings: Mapping[str, Any] | None = None,
        device: str = "cuda",
    ) -> None:
        started = time.perf_counter()
        reason = unavailable() if device == "cuda" else None
        if reason is not None:
            raise RuntimeUnavailable(reason)
        self.options, self._device = options, device
        self.model = LoadedModel(source, "torch")
        self.io = self.model.io
        self._shapes: Any = None
        self.load_seconds = time.perf_counter() - started

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """Outputs by name."""
        self._bind(feeds)
        self._once()
        names = list(outputs) if outputs is not None else self.model.output_names
        return {name: self._output(self.model.output_names.index(name)) for name in names}

    def runner(self, feeds: Mapping[str, Any]) -> Callable[[], None]:
        """A call that replays the captured model once and waits."""
        self._bind(feeds)
        self._once()
        return self._once

    def _bind(self, feeds: Mapping[str, Any]) -> None:
        arrays = self.model.feeds(feeds)
        shapes = tuple(array.shape for array in arrays.values())
        if shapes != self._shapes:
            with _refusals(), torch.inference_mode(), products(self.options.precision):
                self._translate(arrays)
            self._shapes = shapes
        with torch.inference_mode():
            for held, tensor in zip(self._inputs, self._tensors(arrays), strict=True):
                held.copy_(tensor)

    def _tensors(self, arrays: Mapping[str, np.ndarray]) -> list[Tensor]:
        graph = self._program.graph
        types = {graph.input_name(node): graph.dtype(graph.node_outputs(node)[0]) for node in graph.inputs()}
        return [self._program.tensor(array, types[name]) for name, array in arrays.items()]

    def _translate(self, arrays: Mapping[str, np.ndarray]) -> None:
        graph = self.model.bound(arrays)
        constants = self.model.folded(graph)
        self._program = Program(graph, constants, self._device, _HALVES.get(self.options.precision))
        self._inputs = self._tensors(arrays)
        self._replay: Any = None
        if self._device != "cuda":
            self._outputs = self._program(self._inputs)
            return
        side = torch.cuda.Stream()  # lazy initialisation and the choice of routines must not be captured
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_RUNS):
                self._program(self._inputs)
        torch.cuda.current_stream().wait_stream(side)
        self._replay = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._replay):
            self._outputs = self._program(self._inputs)

    def _once(self) -> None:
        with _refusals():
            if self._replay is not None:
                self._replay.replay()
                torch.cuda.synchronize()
            else:
                with torch.inference_mode(), products(self.options.precision):
                    self._outputs = self._program(self._inputs)

    def _output(self, index: int) -> np.ndarray:
        graph = self._program.graph
        dtype = graph.dtype(graph.outputs()[index])
        tensor = self._outputs[index].detach().cpu()
        wanted = DTYPES[dtype]
        tensor = tensor.to(torch.float32 if wanted == torch.bfloat16 else wanted)
        return np.asarray(tensor.numpy(), order="C")


class products:  # noqa: N801 - reads as a statement
    """How float32 products are computed, and cuDNN's routines chosen by the clock."""

    def __init__(self, precision: str) -> None:
        self._tf32 = precision == "tf32"

    def __enter__(self) -> None:
        self._was = (
            torch.backends.cuda.matmul.allow_tf32,
            torch.backends.cudnn.allow_tf32,
            torch.backends.cudnn.benchmark,
        )
        torch.backends.cuda.matmul.allow_tf32 = self._tf32
        torch.backends.cudnn.allow_tf32 = self._tf32
        torch.backends.cudnn.benchmark = True

    def __exit__(self, *_: object) -> None:
        (
            torch.backends.cuda.matmul.allow_tf32,
            torch.backends.cudnn.allow_tf32,
            torch.backends.cudnn.benchmark,
        ) = self._was


class _refusals:  # noqa: N801 - reads as a statement
    """Torch's errors as refusals."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, (RuntimeRefused, RuntimeUnavailable)) or not isinstance(error, Exception):
            return
        raise RuntimeRefused(f"torch failed to run the model: {short(error)}") from error
