"""``make gpu-check``: what the cudnn back end is worth on this machine's GPU, in ten minutes, as one JSON file.

1. build      the core, in place, where it is not built already
2. cases      the small graphs of tests/gpu/graph_cases.py against ONNX's reference evaluator: does the GPU agree?
3. operators  each operator by the back end and by torch for the same shape: ratio table, and agreement of the outputs
4. calibrate  predicted against replayed time over five models and variants of each, and torch's time of the model
5. optimize   `rlflow optimize --cost cudnn` on five models at batch 1, timed end to end on the GPU

A stage that the time does not reach is named in the file, which is written anew after every row. The last words are a
table of what was measured and what was not (``summary.py``). Runs from a checkout, with whatever Python has torch, onnx
and cython; nothing is installed. Without a GPU: the sentence, the table, and status 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [os.fspath(ROOT), os.fspath(ROOT / "reproduce" / "common"), os.fspath(ROOT / "reproduce" / "gpu")]

MODELS = ("nasrnn", "squeezenet1.1", "resnext-50", "inception-v3", "bert-base")
PRECISIONS = ("float32", "float16")
VARIANTS = 8
#: By precision: how far a result may be off, as a part of the largest value.
NEAR = {"float32": 2e-4, "tf32": 2e-3, "float16": 1e-2, "bfloat16": 6e-2}
#: The cases that are run in every precision; the others in float32.
REDUCED = ("conv residual relu", "matmul bias gelu", "layer norm of a sum", "softmax", "concat")
STAGES = ("cases", "operators", "calibrate", "optimize")
#: The key of a stage's rows.
ROWS = {"cases": "cases", "operators": "operators", "calibrate": "calibration", "optimize": "optimize"}
#: Seconds that a stage needs to be worth beginning.
LEAST = 20.0

OPERATORS = {
    "conv 1x1": "x: f32[1,256,56,56] = input\nw: f32[64,256,1,1] = const\ny = Conv(x, w)\nreturn y",
    "conv 3x3": "x: f32[1,64,56,56] = input\nw: f32[64,64,3,3] = const\ny = Conv{pads=[1,1,1,1]}(x, w)\nreturn y",
    "conv 3x3 bias relu": "x: f32[1,64,56,56] = input\nw: f32[64,64,3,3] = const\nb: f32[64] = const\n"
    "y = Conv{pads=[1,1,1,1]}(x, w, b)\nz = Relu(y)\nreturn z",
    "conv 3x3 bias residual relu": "x: f32[1,256,14,14] = input\nr: f32[1,256,14,14] = input\n"
    "w: f32[256,256,3,3] = const\nb: f32[256] = const\ny = Conv{pads=[1,1,1,1]}(x, w, b)\ns = Add(y, r)\nz = Relu(s)\n"
    "return z",
    "conv 7x7 stride 2": "x: f32[1,3,224,224] = input\nw: f32[64,3,7,7] = const\n"
    "y = Conv{pads=[3,3,3,3], strides=[2,2]}(x, w)\nreturn y",
    "conv 32 groups": "x: f32[1,128,56,56] = input\nw: f32[128,4,3,3] = const\n"
    "y = Conv{pads=[1,1,1,1], group=32}(x, w)\nreturn y",
    "conv depthwise": "x: f32[1,96,112,112] = input\nw: f32[96,1,3,3] = const\n"
    "y = Conv{pads=[1,1,1,1], group=96}(x, w)\nreturn y",
    "matmul 128x768x768": "x: f32[128,768] = input\nw: f32[768,768] = const\ny = MatMul(x, w)\nreturn y",
    "matmul bias": "x: f32[1,128,768] = input\nw: f32[768,3072] = const\nb: f32[3072] = const\ny = MatMul(x, w)\n"
    "z = Add(y, b)\nreturn z",
    "matmul bias gelu": "x: f32[1,128,768] = input\nw: f32[768,3072] = const\nb: f32[3072] = const\ny = MatMul(x, w)\n"
    "z = Add(y, b)\nu = Gelu(z)\nreturn u",
    "matmul one row": "x: f32[1,512] = input\nw: f32[512,512] = const\ny = MatMul(x, w)\nreturn y",
    "matmul 2048": "x: f32[2048,2048] = input\nw: f32[2048,2048] = const\ny = MatMul(x, w)\nreturn y",
    "attention scores": "q: f32[1,12,128,64] = input\nk: f32[1,12,64,128] = input\ny = MatMul(q, k)\nreturn y",
    "softmax": "x: f32[1,12,128,128] = input\ny = Softmax(x)\nreturn y",
    "layer norm": "x: f32[1,128,768] = input\ns: f32[768] = const\nb: f32[768] = const\n"
    "y = LayerNormalization(x, s, b)\nreturn y",
    "max pool": "x: f32[1,64,112,112] = input\n"
    "y = MaxPool{kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]}(x)\nreturn y",
    "average pool": "x: f32[1,192,35,35] = input\n"
    "y = AveragePool{kernel_shape=[3,3], pads=[1,1,1,1]}(x)\nreturn y",
    "global average pool": "x: f32[1,2048,7,7] = input\ny = GlobalAveragePool(x)\nreturn y",
    "relu": "x: f32[1,256,56,56] = input\ny = Relu(x)\nreturn y",
    "add": "x: f32[1,256,56,56] = input\nz: f32[1,256,56,56] = input\ny = Add(x, z)\nreturn y",
    "gelu": "x: f32[1,128,3072] = input\ny = Gelu(x)\nreturn y",
    "batch norm": "x: f32[1,64,112,112] = input\ns: f32[64] = input\nt: f32[64] = input\nm: f32[64] = input\n"
    "y = BatchNormalization(x, s, t, m, m)\nreturn y",
    "transpose heads": "x: f32[1,128,12,64] = input\ny = Transpose{perm=[0,2,1,3]}(x)\nreturn y",
    "transpose matrix": "x: f32[1024,1024] = input\ny = Transpose{perm=[1,0]}(x)\nreturn y",
    "concat channels": "x: f32[1,64,55,55] = input\nz: f32[1,64,55,55] = input\ny = Concat{axis=1}(x, z)\nreturn y",
    "split": "x: f32[1,128,2304] = input\na, b, c = Split{axis=2, split=[768,768,768]}(x)\nd = Neg(a)\nreturn d, b, c",
    "reduce mean": "x: f32[1,128,768] = input\ny = ReduceMean{axes=[2]}(x)\nreturn y",
    "embedding": "t: f32[30522,768] = const\ni: i64[1,128] = input\ny = Gather{axis=0}(t, i)\nreturn y",
}  # fmt: skip


def main() -> int:
    """The exit status: 0 where every stage ran and every output agreed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=ROOT / "reproduce" / "gpu" / "results" / "latest.json")
    parser.add_argument("--minutes", type=float, default=11.0, help="time for all of it")
    parser.add_argument("--calibration-seconds", type=float, default=15.0, help="for one model")
    parser.add_argument(
        "--keep", action="store_true", help="keep the rows of the file's other stages: one stage a call"
    )
    parser.add_argument("--budget", default="60s", help="of each search")
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES))
    options = parser.parse_args()
    started = time.monotonic()
    build_seconds = build()
    reason = missing()
    if reason is not None:
        print(f"gpu-check: {reason}", file=sys.stderr)
        print(summary_table(None, options.models, "no GPU here"))
        return 1
    check = Check(options, started, build_seconds)
    for stage in options.stages:
        getattr(check, stage)()
    check.save()
    check.show()
    return 1 if check.found["problems"] else 0


def summary_table(found: dict[str, Any] | None, models: list[str], reason: str = "") -> str:
    """What is measured and what is not, of all that this check can measure."""
    import summary

    planned = {
        "cases": len(case_names()),
        "operators": len(OPERATORS) * len(PRECISIONS),
        "calibration": len(models),
        "optimize": len(models),
    }
    return summary.text(found, planned, reason)


def cases() -> dict[str, tuple[str, str]]:
    """The tests' graphs by name, each with a part of what its steps are called."""
    path = ROOT / "tests" / "gpu" / "graph_cases.py"
    spec = importlib.util.spec_from_file_location("cuda_graph_cases", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.GRAPHS)


def case_names() -> list[tuple[str, str]]:
    """(case, precision) of all that the first stage runs."""
    return [(name, precision) for name in cases() for precision in (NEAR if name in REDUCED else ("float32",))]


def build() -> float:
    """Compiles the core in place where it cannot be imported; seconds that took."""
    started = time.monotonic()
    probe = "from rlflow._core import GpuDevice"
    environment = {**os.environ, "PYTHONPATH": os.fspath(ROOT)}
    if subprocess.run([sys.executable, "-c", probe], cwd=ROOT, env=environment, capture_output=True).returncode == 0:
        return 0.0
    print("Building the core in place.", flush=True)
    subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=ROOT, check=True)
    return time.monotonic() - started


def missing() -> str | None:
    """Why nothing can be measured here."""
    from rlflow._core import gpu_missing
    from rlflow.runtime.cuda_libraries import search_path

    folders, system = search_path()
    return " ".join(gpu_missing(folders, system=system)) or None


class Check:
    """The stages, and what they found."""

    def __init__(self, options: argparse.Namespace, started: float, build_seconds: float) -> None:
        import machine

        self.options, self._started = options, started
        self.found: dict[str, Any] = {
            "machine": machine.header(["make", "gpu-check"]),
            "build_seconds": build_seconds,
            **{key: [] for key in ROWS.values()},
            "problems": [],
        }
        from rlflow.runtime import cuda

        self.found["gpu"] = gpu = cuda.Cudnn().describe("gpu")
        gpu["libraries"] = [os.path.basename(path) for path in gpu["libraries"]]
        if options.keep and options.json.exists():
            before = json.loads(options.json.read_text(encoding="utf-8"))
            for stage, key in ROWS.items():
                if stage not in options.stages:
                    self.found[key] = before.get(key, [])
                    self.found["problems"] += [one for one in before["problems"] if one.startswith(f"{stage}:")]

    def left(self) -> float:
        """Seconds that remain."""
        return self.options.minutes * 60 - (time.monotonic() - self._started)

    def save(self) -> None:
        """Writes what there is, through a temporary file."""
        self.found["seconds"] = time.monotonic() - self._started
        path = self.options.json
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        partial.write_text(json.dumps(self.found, indent=1), encoding="utf-8")
        partial.replace(path)

    def each(self, stage: str, names: list[Any], run: Callable[[Any], Any]) -> Iterator[Any]:
        """Results one by one; what fails, or is not reached in time, is a problem with its sentence."""
        for name in names:
            if self.left() < LEAST:
                self.found["problems"].append(f"{stage}: {name} was not reached in {self.options.minutes:g} minutes")
                continue
            try:
                yield run(name)
            except Exception as error:  # noqa: BLE001 - the other rows are still worth having
                self.found["problems"].append(f"{stage}: {name}: {type(error).__name__}: {str(error)[:400]}")
            self.save()

    # --- stages -----------------------------------------------------------------------------------------------------

    def cases(self) -> None:
        """The tests' graphs against the reference."""
        for row in self.each("cases", case_names(), self._case):
            self.found["cases"].append(row)
        print(f"  {len(self.found['cases'])} of {len(case_names())} cases computed", flush=True)

    def _case(self, what: tuple[str, str]) -> dict[str, Any]:
        import numpy as np

        from rlflow.frontends import evaluate, graph_to_model
        from rlflow.graph import Graph
        from rlflow.price.feed_specs import input_specs
        from rlflow.runtime import RuntimeOptions, cuda
        from rlflow.runtime.messages import feeds_from_specs

        name, precision = what
        graph = Graph.parse(cases()[name][0])
        feeds = feeds_from_specs(input_specs(graph, {}), np.random.default_rng(1))
        options = RuntimeOptions(runtime="cudnn", precision=precision)
        session = cuda.Session(graph_to_model(graph).SerializeToString(), options)
        found = session.run(feeds)
        expected = dict(zip(found, evaluate(graph, feeds), strict=True))
        off = max(_difference(found[key], expected[key]) for key in found)
        if not off < NEAR[precision]:
            self.found["problems"].append(f"cases: {name} in {precision} differs from the reference by {off:.2g}")
        assert session.executable is not None
        return {"case": name, "precision": precision, "difference": off, "steps": session.executable.steps()}

    def operators(self) -> None:
        """Each operator beside torch."""
        names = [(name, precision) for precision in PRECISIONS for name in OPERATORS]
        for row in self.each("operators", names, self._operator):
            self.found["operators"].append(row)
            print(
                f"  {row['operator']:30} {row['precision']:8} {row['cudnn_us']:9.2f} us  torch {row['torch_us']:9.2f} "
                f"us  ratio {row['ratio']:.2f}  {'; '.join(row['steps'])[:60]}",
                flush=True,
            )

    def _operator(self, what: tuple[str, str]) -> dict[str, Any]:
        import numpy as np

        from rlflow.frontends import graph_to_model
        from rlflow.graph import Graph
        from rlflow.price.feed_specs import input_specs
        from rlflow.runtime import RuntimeOptions, cuda
        from rlflow.runtime.messages import feeds_from_specs
        from rlflow.runtime.torch_cuda.session import Session as TorchSession

        name, precision = what
        graph = Graph.parse(OPERATORS[name])
        model = graph_to_model(graph).SerializeToString()
        feeds = feeds_from_specs(input_specs(graph, {}), np.random.default_rng(0))
        if name == "batch norm":
            feeds["m"] = np.abs(feeds["m"]) + 0.5
        session = cuda.Session(model, RuntimeOptions(runtime="cudnn", precision=precision))
        outputs = session.run(feeds)
        times = session.time(feeds, 9, 2.0)
        assert session.executable is not None
        other = TorchSession(model, RuntimeOptions(runtime="torch", precision=precision))
        expected = other.run(feeds)
        torch_ms = torch_time(other)
        off = max(_difference(outputs[key], expected[key]) for key in outputs)
        if not off < (1e-3 if precision == "float32" else 3e-2):
            self.found["problems"].append(f"operators: {name} in {precision} differs from torch by {off:.2g}")
        ms = float(np.median(times))
        low, high = np.percentile(times, [25, 75])
        return {"operator": name, "precision": precision, "cudnn_us": ms * 1e3, "spread_us": float(high - low) * 1e3,
                "torch_us": torch_ms * 1e3, "ratio": ms / torch_ms, "difference": off,
                "steps": session.executable.steps()}  # fmt: skip

    def calibrate(self) -> None:
        """Prices against replayed graphs."""
        for row in self.each("calibrate", self.options.models, self._calibrate):
            self.found["calibration"].append(row)
            print(
                f"  {row['model']:16} {row['graphs']} graphs, error {row['error']:.1%}, one factor "
                f"{row['scaled_error']:.1%}, rank correlation {row['spearman']}, "
                f"{row['seconds']:.0f} s",
                flush=True,
            )

    def _calibrate(self, name: str) -> dict[str, Any]:
        from rlflow import zoo
        from rlflow.fidelity import variants
        from rlflow.frontends import load_model
        from rlflow.price.agreement import agreement
        from rlflow.price.cudnn import CudnnCost
        from rlflow.rulesets import load_library

        begun = time.monotonic()
        source = zoo.build(name)
        graph = load_model(source).graph
        graphs = [graph, *(one.graph for one in variants(graph, load_library(None), VARIANTS, 0))]
        predicted: list[float] = []
        measured: list[float] = []
        with CudnnCost() as model:
            for one in graphs:
                if len(measured) > 1 and time.monotonic() - begun > self.options.calibration_seconds:
                    break
                predicted.append(model.cost(one).total_ms)
                measured.append(model.run_time(one))
        found = agreement(predicted, measured, [0.005] * len(measured))
        return {"model": name, "seconds": time.monotonic() - begun, **found._asdict(), "predicted_ms": predicted,
                "measured_ms": measured, "torch_ms": self._torch_ms(graph)}  # fmt: skip

    @staticmethod
    def _torch_ms(graph: Any) -> float:
        """Of the whole model, as plain calls of torch captured in one CUDA graph."""
        import numpy as np

        from rlflow.frontends import graph_to_model
        from rlflow.price.feed_specs import input_specs
        from rlflow.runtime import RuntimeOptions
        from rlflow.runtime.messages import feeds_from_specs
        from rlflow.runtime.torch_cuda.session import Session as TorchSession

        session = TorchSession(graph_to_model(graph).SerializeToString(), RuntimeOptions(runtime="torch"))
        session.run(feeds_from_specs(input_specs(graph, {}), np.random.default_rng(0)))
        return torch_time(session, chain=4)

    def optimize(self) -> None:
        """The command line, end to end on the GPU."""
        for row in self.each("optimize", self.options.models, self._optimize):
            self.found["optimize"].append(row)
            print(f"  {row['model']:16} {row['gain']}  ({row['seconds']:.0f} s)", flush=True)

    def _optimize(self, name: str) -> dict[str, Any]:
        (ROOT / "build" / "gpu-check").mkdir(parents=True, exist_ok=True)
        folder = Path("build", "gpu-check")  # what the report says of files holds in every checkout
        source, report = folder / f"{name}.onnx", folder / f"{name}.json"
        begun = time.monotonic()
        rlflow(["zoo", "export", name, "-o", os.fspath(source)], self.left())
        arguments = ["optimize", os.fspath(source), "-o", os.fspath(folder / f"{name}.optimized.onnx")]
        arguments += ["--cost", "cudnn", "--budget", self.options.budget, "--json", os.fspath(report)]
        rlflow([*arguments, "--quiet"], self.left())
        found = json.loads((ROOT / report).read_text(encoding="utf-8"))
        seen = max(found["gate"]["first_sample"].values(), default=1.0)
        gain = f"{float(found['speedup']):.3f} times as fast" if found["improved"] else f"no claim; seen {seen:.3f}"
        return {"model": name, "seconds": time.monotonic() - begun, "gain": gain, "report": found}

    def show(self) -> None:
        """What went wrong, where the rest is, and what was measured."""
        for problem in self.found["problems"]:
            print(f"problem: {problem}")
        print(f"{self.found['seconds']:.0f} s; everything is in {self.options.json}")
        print(summary_table(self.found, self.options.models))


def rlflow(arguments: list[str], seconds: float) -> None:
    """Runs the command line from this checkout; raises with its last words where it fails."""
    environment = {**os.environ, "PYTHONPATH": os.fspath(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "rlflow", *arguments],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=max(seconds, 1.0),
    )
    if done.returncode != 0:
        raise RuntimeError(f"rlflow {arguments[0]} ended with status {done.returncode}: {done.stderr[-400:]}")


def torch_time(session: Any, chain: int = 32, samples: int = 9) -> float:
    """Milliseconds per run in a captured chain of runs, between events: as the back end is timed."""
    import numpy as np
    import torch

    from rlflow.runtime.torch_cuda.session import products

    program, inputs = session._program, session._inputs
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), products(session.options.precision), torch.cuda.graph(graph):
        for _ in range(chain):
            for tensor in program(inputs):
                tensor.contiguous()  # a view costs nothing, and the back end writes its result out
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times = []
    for _ in range(samples + 2):
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / chain)
    return float(np.median(times[2:]))


def _difference(one: Any, other: Any) -> float:
    import numpy as np

    scale = max(float(np.abs(other.astype(np.float64)).max(initial=0)), 1e-6)
    return float(np.abs(one.astype(np.float64) - other.astype(np.float64)).max(initial=0)) / scale


if __name__ == "__main__":
    sys.exit(main())
