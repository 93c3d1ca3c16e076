"""OpenVINO: what it can do, and its sessions inside the worker process. The only file that imports openvino."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlflow.errors import RuntimeRefused
from rlflow.runtime.base import Runtime
from rlflow.runtime.interface import interface_names
from rlflow.runtime.loops import short
from rlflow.runtime.messages import ModelIO, NodeTime, TensorInfo
from rlflow.runtime.session_options import RuntimeOptions

_DEVICE = "CPU"
_DTYPES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "boolean": "bool", "string": "string",
    **{f"{sign}{bits}": f"{name}{bits}" for sign, name in (("i", "int"), ("u", "uint")) for bits in (4, 8, 16, 32, 64)},
}  # fmt: skip


@functools.lru_cache(maxsize=1)
def _core() -> Any:
    import openvino

    return openvino.Core()


class OpenVino(Runtime):
    """OpenVINO on the processor."""

    name = "openvino"
    title = "OpenVINO"
    module = "openvino"
    install = "[openvino]"

    def start(self) -> None:
        """Open the library."""
        _core()

    def open(self, source: bytes | str, options: RuntimeOptions) -> Session:
        """As :class:`Session`."""
        return Session(source, options)

    def profile(
        self, source: bytes | str, options: RuntimeOptions, feeds: Mapping[str, Any], runs: int
    ) -> list[NodeTime]:
        """Time of each node of OpenVINO's own graph, in execution order, by its own counters."""
        session = Session(source, options, {"PERF_COUNT": True})
        once = session.runner(feeds)
        times: dict[tuple[str, str], list[float]] = {}
        for _ in range(runs):
            once()
            for entry in session.request.profiling_info:
                spent = entry.real_time.total_seconds() * 1e6
                times.setdefault((entry.node_name, entry.node_type), []).append(spent)
        return [NodeTime(name, kind, float(np.median(spent)), len(spent)) for (name, kind), spent in times.items()]

    def optimized(self, source: bytes | str, options: RuntimeOptions) -> bytes:
        """OpenVINO has no ONNX form of what it executes; always refused."""
        raise RuntimeRefused("OpenVINO does not hand out the graph that it executes as ONNX; ask ONNX Runtime for one.")

    def describe(self, provider: str) -> dict[str, Any]:
        """Identity of runtime and device, as strings that can key a price."""
        import openvino

        return self.identity(openvino.__version__.split("-")[0], provider, providers=_core().available_devices)


class Session:
    """One compiled model and what was asked for when it was compiled.

    OpenVINO has no levels of optimisation. At ``disable`` its code generator for chains of pointwise operators is off
    and accuracy goes before speed, which is as near as it comes; the precision is float32 at every level.
    """

    def __init__(self, source: bytes | str, options: RuntimeOptions, settings: Mapping[str, Any] | None = None) -> None:
        self.options = options
        started = time.perf_counter()
        try:
            model = _core().read_model(source)
            self.compiled = _core().compile_model(model, _DEVICE, {**_settings(options), **(settings or {})})
        except Exception as error:  # the bindings raise RuntimeError, TypeError and their own
            raise RuntimeRefused(f"OpenVINO refused to load the model: {short(error)}") from error
        self.request = self.compiled.create_infer_request()
        self.load_seconds = time.perf_counter() - started
        _, outputs = interface_names(source)
        self._inputs = {port.get_any_name(): port for port in self.compiled.inputs}
        self._outputs = dict(zip(_output_names(self.compiled.outputs, outputs), self.compiled.outputs, strict=True))
        self.io = ModelIO(
            tuple(_info(name, port) for name, port in self._inputs.items()),
            tuple(_info(name, port) for name, port in self._outputs.items()),
        )

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """Outputs by name."""
        names = list(outputs) if outputs is not None else list(self._outputs)
        try:
            self._bind(feeds)
            self.request.infer()
            return {name: np.array(self.request.get_tensor(self._outputs[name]).data) for name in names}
        except RuntimeRefused:
            raise
        except Exception as error:
            raise RuntimeRefused(f"OpenVINO failed to run the model: {short(error)}") from error

    def runner(self, feeds: Mapping[str, Any]) -> Callable[[], None]:
        """A call without arguments that runs the model once on bound inputs."""
        request = self.request
        try:
            self._bind(feeds)
            request.infer()
        except RuntimeRefused:
            raise
        except Exception as error:
            raise RuntimeRefused(f"OpenVINO failed to run the model: {short(error)}") from error

        def once(kept_alive: Any = self) -> None:
            request.start_async()
            request.wait()

        return once

    def _bind(self, feeds: Mapping[str, Any]) -> None:
        missing = [name for name in self._inputs if name not in feeds]
        if missing:
            raise RuntimeRefused(f"OpenVINO failed to run the model: the input {missing[0]!r} was not given.")
        from openvino import Tensor

        for name, port in self._inputs.items():
            self.request.set_tensor(port, Tensor(np.asarray(feeds[name], order="C")))


def _settings(options: RuntimeOptions) -> dict[str, Any]:
    chosen: dict[str, Any] = {
        "INFERENCE_NUM_THREADS": options.threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        # Processors with bfloat16 units would otherwise compute in it, and no output could be compared.
        "INFERENCE_PRECISION_HINT": "f32",
    }
    if options.level == "disable":
        chosen |= {"EXECUTION_MODE_HINT": "ACCURACY", "SNIPPETS_MODE": "DISABLE"}
    return chosen


def _output_names(ports: Sequence[Any], wanted: Sequence[str]) -> list[str]:
    """A tensor may carry several names once OpenVINO has removed copies; the model's own is the one that counts."""
    if len(ports) == len(wanted) and all(name in port.names for name, port in zip(wanted, ports, strict=True)):
        return list(wanted)
    return [next((name for name in wanted if name in port.names), port.get_any_name()) for port in ports]


def _info(name: str, port: Any) -> TensorInfo:
    kind = port.get_element_type().get_type_name()
    shape = port.get_partial_shape()
    if shape.rank.is_dynamic:
        raise RuntimeRefused(f"OpenVINO does not know the rank of {name!r}, so it cannot be timed.")
    dims = tuple(dim.get_length() if dim.is_static else None for dim in shape)
    return TensorInfo(name, _DTYPES.get(kind, kind), dims)
