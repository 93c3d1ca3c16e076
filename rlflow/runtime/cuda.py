"""The cudnn back end as a runtime, inside the worker process: graphs on an NVIDIA GPU, by cuDNN, cuBLASLt and kernels
of our own. NVIDIA's libraries are opened on first use.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlflow._core import (
    GpuDevice,
    GpuExecutable,
    gpu_missing,
    gpu_storage_dtype,
)
from rlflow.errors import RuntimeRefused, RuntimeUnavailable
from rlflow.runtime.base import Runtime
from rlflow.runtime.cuda_libraries import search_path
from rlflow.runtime.loops import random_feeds, short, summary
from rlflow.runtime.messages import Measurement, NodeTime, TimingPlan
from rlflow.runtime.models import LoadedModel, numpy_type, plain
from rlflow.runtime.session_options import RuntimeOptions

NAME = "The cudnn back end"
#: Memory that a routine may take beside its operands; RLFLOW_CUDNN_WORKSPACE_MB sets another bound.
WORKSPACE_MB = 256


class Cudnn(Runtime):
    """cuDNN, cuBLASLt and kernels of our own, on an NVIDIA GPU."""

    name = "cudnn"
    title = NAME
    on_processor = False
    sets_threads = False
    precisions = ("float32", "tf32", "float16", "bfloat16")
    gpu_rank = 2  # what is missing is said by the worker, which opens the libraries

    def open(self, source: bytes | str, options: RuntimeOptions) -> Session:
        """As :class:`Session`."""
        return Session(source, options)

    def measure(
        self,
        source: bytes,
        specs: Mapping[str, Any] | None,
        options: RuntimeOptions,
        timing: TimingPlan,
        reference: Callable[[], None] | None = None,
    ) -> Measurement:
        """By the GPU's own clock, since the wall clock would add what starting a replay costs. With ``flush_bytes``
        weights are read from memory, not from the cache.
        """
        samples: list[float] = []
        for number in range(timing.sessions):
            session = Session(source, options, rotate=timing.flush_bytes)
            feeds = random_feeds(session, specs, timing.seed)
            samples += session.time(feeds, max(timing.share(number), 1), timing.min_sample * 1e3)
        return summary(samples)

    def profile(
        self, source: bytes | str, options: RuntimeOptions, feeds: Mapping[str, Any], runs: int
    ) -> list[NodeTime]:
        """Time of each step, started one by one between events."""
        session = Session(source, options)
        with _refusals():
            executable = session.bind(feeds)
            return [NodeTime(what, what.split(" ")[0], ms * 1e3, runs) for what, ms in executable.profile(max(runs, 1))]

    def optimized(self, source: bytes | str, options: RuntimeOptions) -> bytes:
        """There is no ONNX form of a plan; always refused."""
        raise RuntimeRefused(
            "The cudnn back end does not hand out what it executes as ONNX; `profile` lists its steps."
        )

    def describe(self, provider: str) -> dict[str, Any]:
        """Identity of the GPU and the libraries, as strings that can key a price."""
        found = device().report()
        return self.identity(
            f"cuDNN {found['cudnn']}, cuBLASLt {found['cublas']}, driver {found['driver']}",
            provider,
            device=f"{found['name']} ({found['architecture']}, {found['processors']} processors)",
            clock_state="",
            cache_bytes=found["cache"],
            memory_bytes=found["memory"],
            libraries=found["libraries"],
        )


@functools.lru_cache(maxsize=1)
def device() -> GpuDevice:
    """The first GPU; raises :class:`RuntimeUnavailable` with a sentence for each missing piece."""
    folders, system = search_path()
    missing = gpu_missing(folders, system=system)
    if missing:
        raise RuntimeUnavailable(" ".join(missing))
    try:
        return GpuDevice(folders, system=system)
    except RuntimeError as error:
        raise RuntimeUnavailable(str(error)) from error


class Session:
    """One model on the GPU. It is planned for the shapes of its inputs, anew where they change.

    ``rotate``: repeated runs of a measurement read other copies of the constants, until so many bytes were read.
    """

    def __init__(
        self, source: bytes | str, options: RuntimeOptions, settings: Mapping[str, Any] | None = None, rotate: int = 0
    ) -> None:
        started = time.perf_counter()
        self.options, self._rotate = options, rotate
        self._device = device()
        self.model = LoadedModel(source, NAME)
        self.io = self.model.io
        self._shapes: Any = None
        self.executable: GpuExecutable | None = None
        self.load_seconds = time.perf_counter() - started

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """Outputs by name."""
        with _refusals():
            executable = self.bind(feeds)
            executable.run()
            names = list(outputs) if outputs is not None else self.model.output_names
            return {name: self._output(executable, self.model.output_names.index(name)) for name in names}

    def runner(self, feeds: Mapping[str, Any]) -> Callable[[], None]:
        """A call that replays the captured model once and waits."""
        with _refusals():
            executable = self.bind(feeds)
            executable.run()

        def once(kept_alive: Any = self) -> None:
            executable.run()

        return once

    def time(self, feeds: Mapping[str, Any], samples: int, least_ms: float) -> list[float]:
        """Milliseconds per run between events on the GPU: a captured chain of runs, replayed."""
        with _refusals():
            executable = self.bind(feeds)
            executable.prepare()
            return executable.time(samples, least_ms)

    def bind(self, feeds: Mapping[str, Any]) -> GpuExecutable:
        """The model planned for these inputs, which are on the GPU then."""
        arrays = self.model.feeds(feeds)
        shapes = tuple(array.shape for array in arrays.values())
        if self.executable is None or shapes != self._shapes:
            self.executable, self._shapes = self._planned(arrays), shapes
        for index, (name, array) in enumerate(arrays.items()):
            data = np.ascontiguousarray(array.astype(self._stored(self.graph, self._input(name)), copy=False))
            self.executable.set_input(index, data.reshape(-1).view(np.uint8))
        return self.executable

    def _planned(self, arrays: Mapping[str, np.ndarray]) -> GpuExecutable:
        self.graph = self.model.bound(arrays)
        values = self.model.folded(self.graph)
        constants = [
            (value, np.ascontiguousarray(array.astype(self._stored(self.graph, value), copy=False)).tobytes())
            for value, array in values.items()
        ]
        megabytes = int(os.environ.get("RLFLOW_CUDNN_WORKSPACE_MB", WORKSPACE_MB))
        return GpuExecutable(
            self._device,
            self.graph,
            constants,
            precision=self.options.precision,
            workspace=megabytes << 20,
            rotate=self._rotate,
        )

    def _input(self, name: str) -> int:
        node = next(node for node in self.graph.inputs() if self.graph.input_name(node) == name)
        return self.graph.node_outputs(node)[0]

    def _stored(self, graph: Any, value: int) -> np.dtype[Any]:
        return numpy_type(gpu_storage_dtype(graph.dtype(value), self.options.precision))

    def _output(self, executable: GpuExecutable, index: int) -> np.ndarray:
        value = self.graph.outputs()[index]
        data = np.frombuffer(executable.get_output(index), self._stored(self.graph, value))
        array = data.reshape(self.graph.shape(value)).astype(numpy_type(self.graph.dtype(value)))
        return plain(array)


class _refusals:  # noqa: N801 - reads as a statement
    """The back end's sentences as refusals."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, RuntimeError) and not isinstance(error, (RuntimeRefused, RuntimeUnavailable)):
            raise RuntimeRefused(short(error)) from error
