"""Libraries of generated code, written by hand and compiled by the system's compiler, and models that call them."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from rlflow.frontends import blocked
from rlflow.frontends.generated_sites import tensor_shapes
from rlflow.kernels import KEY, KernelPlan, preparing, unavailable
from rlflow.kernels.generated_code import CodeChoice, GeneratedCode

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
NEEDS = [
    pytest.mark.skipif(unavailable() is not None, reason=str(unavailable())),
    pytest.mark.skipif(COMPILER is None, reason="there is no C compiler"),
]
DEPTH, COLUMNS = 5, 7
#: The product of one row by a matrix, whose result is a thousand too large: so one can tell who computed it.
SOURCE = """
#include <stdint.h>
static int32_t product(const float *const *in, float *out) {
  for (int column = 0; column < 7; ++column) {
    out[column] = 1000.0f;
    for (int row = 0; row < 5; ++row) out[column] += in[0][row] * in[1][row * 7 + column];
  }
  return %(status)d;
}
static const int64_t shapes[] = {%(shapes)s};
static const struct { int32_t inputs; const int64_t *shapes; int32_t (*call)(const float *const *, float *); }
functions[] = {{%(inputs)d, shapes, product}};
__attribute__((visibility("default"))) const struct { const char *isa; int32_t count; const void *functions; }
%(symbol)s = {"%(isa)s", 1, functions};
"""
USUAL = {
    "status": 0, "shapes": "2, 1, 5, 2, 5, 7, 2, 1, 7", "inputs": 2, "symbol": "rlflow_generated_1", "isa": "portable",
}  # fmt: skip


def library(path: Path, **changes: object) -> Path:
    """A library at ``path`` that nobody else may write to."""
    source = path.with_suffix(".c")
    source.write_text(SOURCE % {**USUAL, **changes})
    subprocess.run([str(COMPILER), "-shared", "-fPIC", str(source), "-o", str(path)], check=True)
    path.chmod(0o644)
    return path


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def product_model(rows: int | str = 1, picky: bool = False) -> bytes:
    """x · w. ``picky``: as many columns as a second input says, which may say no other number than there are."""
    rng = np.random.default_rng(3)
    weights = rng.standard_normal((DEPTH, COLUMNS)).astype(np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, DEPTH])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, COLUMNS])
    nodes, ends = [node], [x]
    if picky:
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["z"], name="product"),
            helper.make_node("Reshape", ["z", "n"], ["y"]),
        ]
        ends, y = (
            [x, helper.make_tensor_value_info("n", TensorProto.INT64, [1])],
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [COLUMNS]),
        )
    graph = helper.make_graph(nodes, "g", ends, [y], [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return model.SerializeToString()


def sites(raw: bytes) -> list:
    from rlflow.runtime import inprocess

    return blocked.BlockedGraph(inprocess.optimised(raw), preparing.block_here()).code_sites()


def code_of(path: Path, raw: bytes, first: tuple[int, ...] = (1, DEPTH), **changes: object) -> GeneratedCode:
    """What a plan says of the library, which does the model's first site."""
    site = sites(raw)[0]
    shapes = tensor_shapes(site, first)
    choice = CodeChoice(site.name, site.kind, tuple(site.sizes), 0, 1.5)
    fields = {"digest": digest(path), "isa": "portable", "functions": (tuple(shapes),), "choices": (choice,), **changes}
    return GeneratedCode(**fields)


def with_plan(raw: bytes, code: GeneratedCode | None, choices: tuple = ()) -> bytes:
    plan = KernelPlan("1.0", preparing.block_here(), 1, 1.5, choices, code)
    return blocked.with_metadata(raw, KEY, plan.text())


def feeds() -> dict[str, np.ndarray]:
    return {"x": np.arange(DEPTH, dtype=np.float32)[None]}
