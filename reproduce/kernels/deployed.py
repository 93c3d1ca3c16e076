"""What kernels cost besides time of runs: the start of a session, memory, and the overhead of a call."""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np
from alone import graph_of
from blocked_models import opened
from onnx import TensorProto, helper, numpy_helper

#: Processes of each kind, in turn.
_PROCESSES = 5
#: Nodes in the two chains whose difference is the price of a node.
_SHORT, _LONG = 20, 420

_CHILD = """
import json, sys, time
import numpy as np, onnxruntime as ort
import rlflow.kernels

how, path = sys.argv[1:]
options = ort.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
began = time.process_time()
if how == "kernels":
    session = rlflow.kernels.session(path, options)
else:
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
start = time.process_time() - began
types = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_}
feeds = {one.name: np.zeros(one.shape, types[one.type]) for one in session.get_inputs()}
for _ in range(3):
    session.run(None, feeds)
status = open("/proc/self/status").read()  # of this program alone; getrusage counts what the parent had
print(json.dumps({"start": start, "memory": int(status.split("VmHWM:")[1].split()[0])}))
"""


def costs_of(original: str, written: str) -> dict[str, float]:
    """Processor seconds of the start and the largest resident memory after three runs: those of the file with its
    kernels over those of the original in ONNX Runtime, medians of processes in turn. The file is prepared before.
    """
    seen: dict[str, list[dict[str, float]]] = {"plain": [], "kernels": []}
    for turn in range(_PROCESSES + 1):
        for how, path in (("plain", original), ("kernels", written)):
            command = [sys.executable, "-c", _CHILD, how, path]
            found = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))
            if turn:  # the first one prepares
                seen[how].append(json.loads(found.stdout.splitlines()[-1]))
    middle = {how: {key: statistics.median(one[key] for one in rows) for key in rows[0]} for how, rows in seen.items()}
    return {
        "start": round(middle["kernels"]["start"] / middle["plain"]["start"], 3),
        "start_seconds": round(middle["plain"]["start"], 3),
        "memory": round(middle["kernels"]["memory"] / middle["plain"]["memory"], 3),
        "memory_mb": round(middle["plain"]["memory"] / 1024, 1),
    }


def chain(length: int, width: int) -> bytes:
    """So many normalisations, one after the other."""
    names = [f"v{number}" for number in range(length + 1)]
    nodes = [
        helper.make_node("LayerNormalization", [one, "scale"], [other], name=f"to {other}")
        for one, other in itertools.pairwise(names)
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, width]) for name in (names[0], names[-1])]
    scale = numpy_helper.from_array(np.ones(width, np.float32), "scale")
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], [scale])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


def overhead(seconds: float) -> dict[str, Any]:
    """Microseconds that a node more takes in a chain of normalisations of 16 numbers: ours, and ONNX Runtime's own."""
    chains = {length: graph_of(chain(length, 16)) for length in (_SHORT, _LONG)}
    sessions = {}
    for length, graph in chains.items():
        names = [site.name for site in graph.sites()]
        assert len(names) == length, "the runtime fused some of them"
        sessions["onnxruntime", length] = opened(graph.with_kernels({}))
        sessions["kernels", length] = opened(graph.with_kernels({name: {} for name in names}))
    feeds = {"v0": np.arange(16, dtype=np.float32)[None]}
    samples: dict[tuple[str, int], list[float]] = {key: [] for key in sessions}
    end = time.process_time() + seconds
    while time.process_time() < end:
        for key, session in sessions.items():
            began = time.process_time()
            session.run(None, feeds)
            samples[key].append(time.process_time() - began)
    middle = {key: float(np.median(kept)) * 1e6 for key, kept in samples.items()}
    each = {who: (middle[who, _LONG] - middle[who, _SHORT]) / (_LONG - _SHORT) for who in ("kernels", "onnxruntime")}
    return {
        "kind": "overhead", "key": "a node of 16 numbers", "us": round(each["kernels"], 3),
        "onnxruntime_us": round(each["onnxruntime"], 3), "samples": len(samples["kernels", _LONG]),
    }  # fmt: skip
