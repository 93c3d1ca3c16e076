"""ONNX Runtime: what it can do, and its sessions inside the worker process. (Those that a caller keeps are opened by
:mod:`rlflow.runtime.inprocess`.)
"""

from __future__ import annotations

import functools
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlflow.errors import RuntimeRefused, RuntimeUnavailable
from rlflow.files import ScratchFolder
from rlflow.runtime.base import CPU_PROVIDER, Runtime
from rlflow.runtime.loops import cpu_model, short
from rlflow.runtime.messages import ModelIO, NodeTime, TensorInfo
from rlflow.runtime.session_options import GENERATED_ENTRY, RuntimeOptions

if TYPE_CHECKING:
    from rlflow.runtime.residence import MemoryTrace

_LEVEL = {
    "disable": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "layout": "ORT_ENABLE_LAYOUT",
    "all": "ORT_ENABLE_ALL",
}
_DTYPE = {"float": "float32", "double": "float64"}
#: ONNX element type numbers of the types that numpy lacks and that travel as raw bits.
_RAW_TYPES = {"bfloat16": (16, np.uint16)}

#: What ONNX Runtime says of an operator that it has no kernel or no schema for.
_UNKNOWN = re.compile(r"(?:Fatal error: )?([\w.\-]*):(\w+)\(-?\d+\) is not a registered function/op")


@functools.lru_cache(maxsize=1)
def _library() -> Any:
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    return onnxruntime


class OnnxRuntime(Runtime):
    """ONNX Runtime, on the processor or by another of its execution providers."""

    name = "onnxruntime"
    title = "ONNX Runtime"
    module = "onnxruntime"
    install = "onnxruntime"
    has_providers = True
    shows_graph = True
    maps_weights = True
    gpu_rank = 0
    gpu_provider = "CUDAExecutionProvider"

    def fusion_table(self, provider: str) -> str:
        """Its own for its processor kernels; what the providers fuse was not studied."""
        return "onnxruntime" if provider == CPU_PROVIDER else "generic"

    def start(self) -> None:
        """Open the library."""
        _library()

    def open(self, source: bytes | str, options: RuntimeOptions) -> Session:
        """As :class:`Session`."""
        return Session(source, options)

    def interface(self, source: bytes | str, options: RuntimeOptions) -> ModelIO:
        """Inputs and outputs of a model, from a session that optimises nothing and lays out no weights."""

        def settings(chosen: Any) -> None:
            chosen.add_session_config_entry("session.disable_prepacking", "1")

        return Session(source, replace(options, level="disable"), settings).io

    def profile(
        self, source: bytes | str, options: RuntimeOptions, feeds: Mapping[str, Any], runs: int
    ) -> list[NodeTime]:
        """Kernel time of each node of the runtime's optimised graph, in execution order, by its own profiler."""
        with ScratchFolder("rlflow-profile-") as folder:

            def settings(chosen: Any) -> None:
                chosen.enable_profiling = True
                chosen.profile_file_prefix = os.path.join(folder, "trace")

            session = Session(source, options, settings)
            for _ in range(runs + 1):
                session.run(feeds)
            events = json.loads(Path(session.ort.end_profiling()).read_text(encoding="utf-8"))
        return _node_times(events)

    def optimized(self, source: bytes | str, options: RuntimeOptions) -> bytes:
        """The graph that the runtime would execute at ``options.level``, serialized."""
        with ScratchFolder("rlflow-optimized-") as folder:
            target = os.path.join(folder, "model.onnx")
            self.write_optimized(source, options, target)
            return Path(target).read_bytes()

    def write_optimized(self, source: bytes | str, options: RuntimeOptions, path: str) -> None:
        """The runtime writes it itself, and leaves weights of other files there, where it did not change them."""

        def settings(chosen: Any) -> None:
            chosen.optimized_model_filepath = path

        Session(source, options, settings)

    def memory_trace(self, source: bytes | str, options: RuntimeOptions, feeds: Mapping[str, Any]) -> MemoryTrace:
        """As the runtime's own allocator counts it."""
        from rlflow.runtime.residence import memory_trace

        return memory_trace(functools.partial(Session, source, options), feeds)

    def describe(self, provider: str) -> dict[str, Any]:
        """Identity of runtime and device, as strings that can key a price."""
        device = None if provider == CPU_PROVIDER else _gpu_model() or f"{provider} on {cpu_model()}"
        ort = _library()
        return self.identity(ort.__version__, provider, device=device, providers=ort.get_available_providers())


def _refusal(error: Exception) -> str:
    """Why a model was not loaded; an operator that ONNX Runtime does not know is named, with its domain."""
    unknown = _UNKNOWN.search(str(error))
    if unknown is None:
        return f"ONNX Runtime refused to load the model: {short(error)}"
    domain, operator = unknown.groups()
    return (
        f"ONNX Runtime cannot run the model: it does not know the operator {operator} of the domain "
        f"{domain or 'ai.onnx'}, so nothing can be timed or compared. Give it a runtime that does, or write that "
        "operator with ONNX's own."
    )


class Session:
    """One open session and what was asked for when it was opened."""

    def __init__(
        self, source: bytes | str, options: RuntimeOptions, settings: Callable[[Any], None] | None = None
    ) -> None:
        self.options = options
        self.first_run_counts = options.provider == CPU_PROVIDER
        _require_provider(options.provider)
        chosen = session_options(options)
        if settings is not None:
            settings(chosen)
        started = time.perf_counter()
        try:
            self.ort = _library().InferenceSession(source, chosen, providers=_providers(options.provider))
        except Exception as error:  # the runtime raises a dozen unrelated classes
            raise RuntimeRefused(_refusal(error)) from error
        self.load_seconds = time.perf_counter() - started
        if self.ort.get_providers()[0] != options.provider:
            raise RuntimeUnavailable(
                f"ONNX Runtime could not start its {options.provider} and fell back to {self.ort.get_providers()[0]}; "
                "check its driver and libraries, or choose another provider."
            )
        self.io = ModelIO(tuple(map(_info, self.ort.get_inputs())), tuple(map(_info, self.ort.get_outputs())))
        self._types = {info.name: info.dtype for info in self.io.inputs + self.io.outputs}

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """Outputs by name; bfloat16 comes back as float32 (exact), sequences as lists."""
        names = list(outputs) if outputs is not None else [info.name for info in self.io.outputs]
        raw = [name for name in names if self._types.get(name) in _RAW_TYPES]
        plain = [name for name in names if name not in raw]
        try:
            if not raw and not any(self._types.get(name) in _RAW_TYPES for name in feeds):
                return dict(zip(names, self.ort.run(names, dict(feeds)), strict=True))
            found = self._run_values(feeds, plain, raw)
        except RuntimeRefused:
            raise
        except Exception as error:
            raise RuntimeRefused(f"ONNX Runtime failed to run the model: {short(error)}") from error
        return {name: found[name] for name in names}

    def _run_values(self, feeds: Mapping[str, Any], plain: list[str], raw: list[str]) -> dict[str, Any]:
        """The way round numpy's missing types: bits in, bits out, the shape of raw outputs learnt from a first run."""
        values = {name: self._value(name, value) for name, value in feeds.items()}
        first = dict(zip(plain + raw, self.ort.run_with_ort_values(plain + raw, values), strict=True))
        found = {name: first[name].numpy() for name in plain}
        if raw:
            binding, buffers = self.ort.io_binding(), {}
            for name, value in values.items():
                binding.bind_ortvalue_input(name, value)
            for name in raw:
                number, bits = _RAW_TYPES[self._types[name]]
                buffers[name] = np.empty(first[name].shape(), bits)
                binding.bind_output(name, "cpu", 0, number, first[name].shape(), buffers[name].ctypes.data)
            self.ort.run_with_iobinding(binding)
            found |= {name: _bfloat16_to_float32(bits) for name, bits in buffers.items()}
        return found

    def _value(self, name: str, array: Any) -> Any:
        dtype = self._types.get(name, "")
        if dtype in _RAW_TYPES:
            return _library().OrtValue.ortvalue_from_numpy_with_onnx_type(
                _float32_to_bfloat16(array), _RAW_TYPES[dtype][0]
            )
        return _library().OrtValue.ortvalue_from_numpy(np.asarray(array, order="C"))

    def runner(self, feeds: Mapping[str, Any]) -> Callable[[], None]:
        """A call without arguments that runs the model once on bound inputs, with as little Python around it as there
        is.
        """
        known = {info.name for info in self.io.inputs}
        if not all(info.is_tensor and info.dtype != "string" for info in self.io.inputs + self.io.outputs):
            taken = {name: value for name, value in feeds.items() if name in known}
            self.run(taken)
            return lambda: self.ort.run(None, taken)
        binding = self.ort.io_binding()
        try:
            for name, value in feeds.items():
                if name in known:
                    binding.bind_ortvalue_input(name, self._value(name, value))
            for info in self.io.outputs:
                binding.bind_output(info.name)
        except Exception as error:
            raise RuntimeRefused(f"ONNX Runtime refused the inputs: {short(error)}") from error
        run, bound = self.ort._sess.run_with_iobinding, binding._iobinding

        # The binding owns the inputs' OrtValues, which alias the caller's arrays: the closure must keep it alive.
        def once(kept_alive: Any = binding) -> None:
            run(bound, None)

        try:
            once()
        except Exception as error:
            raise RuntimeRefused(f"ONNX Runtime failed to run the model: {short(error)}") from error
        return once


def session_options(options: RuntimeOptions) -> Any:
    """Session options with pinned thread counts.

    Threads wait for work by spinning while a run lasts, as they do by default; to wake one takes longer than many an
    operator. They stop when it ends: sessions that are timed in turn would otherwise take the processor from one
    another, by a factor of two on two cores.
    """
    ort = _library()
    chosen = ort.SessionOptions()
    chosen.intra_op_num_threads = options.threads
    chosen.inter_op_num_threads = 1
    chosen.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    chosen.graph_optimization_level = getattr(ort.GraphOptimizationLevel, _LEVEL[options.level])
    chosen.add_session_config_entry("session.force_spinning_stop", "1")
    chosen.log_severity_level = 3
    if options.generated is not None:
        chosen.add_session_config_entry(GENERATED_ENTRY, options.generated)
    if options.library is not None:
        chosen.register_custom_ops_library(options.library)
    return chosen


def _node_times(events: Sequence[Mapping[str, Any]]) -> list[NodeTime]:
    durations: dict[tuple[str, str], list[float]] = {}
    shapes: dict[tuple[str, str], tuple[int, ...] | None] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            known = event.get("args", {})
            key = (event["name"].removesuffix("_kernel_time"), known.get("op_name", ""))
            durations.setdefault(key, []).append(float(event["dur"]))
            first: dict[str, list[int]] = next(iter(known.get("input_type_shape", [])), {})  # {"float": [1, 3]}
            shapes[key] = next((tuple(shape) for shape in first.values()), None)
    found = []
    for key, times in durations.items():
        warm = times[1:] or times
        found.append(NodeTime(*key, float(np.median(warm)), len(times) - 1, shapes[key], min(warm)))
    return found


def _info(arg: Any) -> TensorInfo:
    if not arg.type.startswith("tensor("):
        return TensorInfo(arg.name, arg.type, (), is_tensor=False)
    dtype = arg.type[len("tensor(") : -1]
    shape = tuple(dim if isinstance(dim, int) or (isinstance(dim, str) and dim) else None for dim in arg.shape)
    return TensorInfo(arg.name, _DTYPE.get(dtype, dtype), shape)


def _require_provider(provider: str) -> None:
    ort = _library()
    if provider not in ort.get_available_providers():
        raise RuntimeUnavailable(
            f"This ONNX Runtime ({ort.__version__}) has no {provider}; "
            f"it offers {', '.join(ort.get_available_providers())}."
        )


def _providers(provider: str) -> list[str]:
    return [provider] if provider == CPU_PROVIDER else [provider, CPU_PROVIDER]


def _float32_to_bfloat16(array: Any) -> np.ndarray:
    """Bits of the nearest bfloat16 (ties to even); arrays that already hold 16-bit words pass as they are."""
    array = np.asarray(array, order="C")
    if array.dtype.itemsize == 2 and array.dtype != np.float16:
        return array.view(np.uint16)
    bits = array.astype(np.float32).view(np.uint32)
    rounded = ((bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(array.astype(np.float32)), np.uint16(0x7FC0), rounded).astype(np.uint16)


def _bfloat16_to_float32(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _gpu_model() -> str | None:
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("Model:"):
                return " ".join(line.split(":", 1)[1].split())
    return None
