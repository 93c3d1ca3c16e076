"""What a model takes of memory while it runs in ONNX Runtime: as the runtime plans it, and as the system counts it."""

from __future__ import annotations

import contextlib
import csv
import ctypes
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlflow.errors import RuntimeRefused
from rlflow.files import ScratchFolder

if TYPE_CHECKING:
    from rlflow.runtime.client import Worker
    from rlflow.runtime.messages import ModelSource

#: How the profiler calls the time of a node's kernel.
_KERNEL = "_kernel_time"
#: Environment of a process that keeps no freed memory (glibc's allocator; others take no notice).
GIVES_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_TOP_PAD_": "0"}
#: A line of the system's list of mappings that is of code or constants of a library.
_LIBRARY = re.compile(r"(?P<begin>[0-9a-f]+)-(?P<end>[0-9a-f]+) r-[x-]p .*/[^/]+\.so[.0-9]*$")
_PAGE = 4096


@dataclass(frozen=True)
class NodeMemory:
    """One node of the runtime's graph in a run. ``outputs``: (the runtime's type, shape) of each; ``held``: bytes that
    its allocator has given out, beside the weights, when the node ends; ``fresh``: those of new buffers for outputs;
    ``workspace``: those that it took beside, ``None`` where the runtime's count has no such node.
    """

    name: str
    operator: str
    outputs: tuple[tuple[str, tuple[int, ...]], ...]
    held: int
    fresh: int | None
    workspace: int


@dataclass(frozen=True)
class MemoryTrace:
    """A run, node by node, in their order; ``block``: bytes that the runtime takes at once for the values between
    operators from the second run on. ``graph``: the runtime's own, serialized, of the same session: another session
    may order it otherwise.
    """

    nodes: tuple[NodeMemory, ...]
    block: int
    graph: bytes


@dataclass(frozen=True)
class Resident:
    """Bytes of a process's resident memory: ``loaded``, with the model open and its inputs made, and ``peak``, the most
    over some runs.
    """

    loaded: int
    peak: int

    @property
    def growth(self) -> int:
        """What running adds to a loaded model."""
        return self.peak - self.loaded


def trace_of(worker: Worker, model: ModelSource, feeds: Mapping[str, Any]) -> MemoryTrace:
    """What each node of the runtime's graph takes of memory in a run (in a session of its own)."""
    found: MemoryTrace = worker.with_source(model, None, None, "memory_trace", dict(feeds))
    return found


def resident_of(worker: Worker, model: ModelSource, feeds: Mapping[str, Any], runs: int) -> Resident:
    """The resident memory of a new process with this model alone, before and in so many runs.

    The process gives memory back to the system as soon as it is free. Else what loading a model left over would hide
    what running it takes.
    """
    with type(worker)(worker.options, time_limit=worker.time_limit) as alone:
        alone.settings = GIVES_BACK
        found: Resident = alone.with_source(model, None, None, "resident", dict(feeds), runs)
    return found


def memory_trace(session_of: Callable[[Callable[[Any], None]], Any], feeds: Mapping[str, Any]) -> MemoryTrace:
    """What each node of the runtime's graph takes, as the runtime's allocator counts it, and the block.

    ``session_of`` makes a session of a function that changes its options. Refused where the runtime does not say.
    """
    with ScratchFolder("rlflow-memory-") as folder:
        target, graph = os.path.join(folder, "nodes.csv"), os.path.join(folder, "model.onnx")

        def settings(chosen: Any) -> None:
            chosen.optimized_model_filepath = graph
            chosen.enable_profiling = True
            chosen.profile_file_prefix = os.path.join(folder, "trace")
            chosen.add_session_config_entry("session.collect_node_memory_stats_to_file", target)

        session = session_of(settings)
        session.run(feeds)
        session.run(feeds)
        events = json.loads(Path(session.ort.end_profiling()).read_text(encoding="utf-8"))
        del session  # the counts are written when the session ends
        nodes = [one for one in events if one.get("cat") == "Node" and one["name"].endswith(_KERNEL)]
        return _trace(nodes, _counts(target), Path(graph).read_bytes())


def _trace(
    events: Sequence[Mapping[str, Any]], counts: Mapping[str, list[tuple[int, int]]], graph: bytes
) -> MemoryTrace:
    runs = [events[: len(events) // 2], events[len(events) // 2 :]]
    if not events or "mem_bytes_requested_in_use" not in events[0]["args"]:
        raise RuntimeRefused("This ONNX Runtime does not say what its nodes take of memory.")
    before = [_held(run[0]) - int(run[0]["args"]["mem_requested_in_use_delta"]) for run in runs]
    nodes = []
    for event in runs[0]:
        name, args = event["name"].removesuffix(_KERNEL), event["args"]
        outputs = tuple(
            (kind, tuple(map(int, shape))) for one in args.get("output_type_shape", ()) for kind, shape in one.items()
        )
        found = counts.get(name, [])
        fresh, workspace = found[0] if len(found) == 1 else (None, max([one for _, one in found], default=0))
        nodes.append(NodeMemory(name, args["op_name"], outputs, _held(event) - before[0], fresh, workspace))
    return MemoryTrace(tuple(nodes), before[1] - before[0], graph)


def _held(event: Mapping[str, Any]) -> int:
    return int(event["args"]["mem_bytes_requested_in_use"])


def _counts(path: str) -> dict[str, list[tuple[int, int]]]:
    """(Bytes of new outputs, bytes of workspace) by the name of nodes; several may have one."""
    found: dict[str, list[tuple[int, int]]] = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8", newline="") as stream:
            for row in csv.reader(stream):
                if len(row) > 4 and row[3].isdigit():
                    found.setdefault(row[0].rpartition("_")[0], []).append((int(row[3]), int(row[4])))
    return found


def resident(session: Any, feeds: Mapping[str, Any], runs: int) -> Resident:
    """The resident memory of this process before and in so many runs. The first run of a session allocates value by
    value, the later ones in one block; the peak is over all of them. The code of all libraries is brought in before,
    so that the pages of kernels that run for the first time are not counted as memory of the model; nor is the rest of
    that code. Refused where the system does not say.
    """
    loaded = _status("VmRSS")
    _bring_code_in()
    code = _status("VmRSS") - loaded
    _forget_peak()
    for _ in range(runs):
        session.run(feeds)
    return Resident(loaded, _status("VmHWM") - code)


def _status(key: str) -> int:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    raise RuntimeRefused("This system does not say how much memory a process uses.")


def _bring_code_in() -> None:
    """Read a byte of each page that is mapped from a library's file."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
            mapped = _LIBRARY.match(line)
            if mapped is not None:
                for page in range(int(mapped["begin"], 16), int(mapped["end"], 16), _PAGE):
                    ctypes.string_at(page, 1)


def _forget_peak() -> None:
    """Let the peak of this process count from now."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
