"""The kernels inside ONNX Runtime against a convolution in double precision."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import blocked_models as models
import numpy as np
import pytest
from blocked_models import opened

from rlflow.kernels import unavailable

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

HERE = Path(__file__).resolve().parent
CASES = [
    (1, 16, 16, 8, 8, (1, 1, 1, 1)),
    (2, 32, 48, 7, 9, (1, 1, 1, 1)),
    (1, 48, 16, 5, 6, (0, 0, 0, 0)),
    (3, 16, 80, 13, 11, (2, 0, 1, 3)),
    (1, 16, 32, 1, 1, (1, 1, 1, 1)),
    (1, 64, 64, 40, 40, (1, 1, 1, 1)),
    (2, 16, 16, 30, 3, (0, 1, 0, 1)),
]
#: Largest error over largest output, by tile and taps: about ten times what is measured.
BOUND = {
    (2, 3, 3): 2e-6, (4, 3, 3): 8e-6, (2, 5, 5): 8e-6, (2, 1, 7): 1e-5, (2, 7, 1): 1e-5, (4, 1, 3): 4e-6,
    (4, 3, 1): 4e-6,
}  # fmt: skip
#: For the forms whose taps are no 3×3.
OTHER_CASES = [
    (1, 16, 16, 9, 8, (3, 3, 3, 3)),
    (2, 32, 48, 7, 10, (2, 2, 2, 2)),
    (1, 48, 32, 17, 17, (0, 3, 0, 3)),
    (3, 16, 80, 8, 11, (1, 0, 4, 2)),
]


def error_of(case, block: int, tile: int, fused: bool, in_threads: int, taps=(3, 3), **how: int) -> float:
    batch, into, out, height, width, pads = case
    rng = np.random.default_rng(1)
    x = rng.standard_normal((batch, into, height, width)).astype(np.float32)
    w = (rng.standard_normal((out, into, *taps)) / np.sqrt(taps[0] * taps[1] * into)).astype(np.float32)
    shape = (batch, out, height + pads[0] + pads[2] - taps[0] + 1, width + pads[1] + pads[3] - taps[1] + 1)
    bias = rng.standard_normal(out).astype(np.float32) if fused else None
    residual = rng.standard_normal(shape).astype(np.float32) if fused else None
    truth = models.convolution(x, w, bias, residual, pads)
    more = {**how, **({"activation": "Relu"} if fused else {})}
    model = models.one_node(w, bias, fused, block=block, tile=tile, pads=list(pads), **more)
    feeds = {"x": models.to_blocks(x, block)} | ({"s": models.to_blocks(residual, block)} if fused else {})
    found = models.from_blocks(opened(model, in_threads).run(None, feeds)[0], block)
    assert found.shape == shape
    truth = np.maximum(truth, 0) if fused else truth
    return float(np.abs(found - truth).max() / np.abs(truth).max())


@pytest.mark.parametrize("block", [8, 16])
@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize(("fused", "threads"), [(False, 1), (True, 2)])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_the_convolution(case, block: int, tile: int, fused: bool, threads: int) -> None:
    assert error_of(case, block, tile, fused, threads) < BOUND[tile, 3, 3]


@pytest.mark.parametrize("block", [8, 16])
@pytest.mark.parametrize("form", [form for form in BOUND if form[1:] != (3, 3)], ids=str)
@pytest.mark.parametrize(("fused", "threads"), [(False, 1), (True, 2)])
@pytest.mark.parametrize("case", OTHER_CASES, ids=str)
def test_other_taps_are_the_convolution(case, form, block: int, fused: bool, threads: int) -> None:
    assert error_of(case, block, form[0], fused, threads, form[1:]) < BOUND[form]


@pytest.mark.parametrize("block", [8, 16])
@pytest.mark.parametrize("form", list(BOUND), ids=str)
@pytest.mark.parametrize(("fused", "threads"), [(False, 1), (True, 2)])
def test_weights_that_are_transformed_before_give_the_convolution(form, block: int, fused: bool, threads: int) -> None:
    for case in CASES if form[1:] == (3, 3) else OTHER_CASES:
        assert error_of(case, block, form[0], fused, threads, form[1:], kept=1) < BOUND[form]


@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize("planned", [1, 2, 3, 64])
@pytest.mark.parametrize("case", [CASES[0], CASES[5], (1, 128, 128, 28, 28, (1, 1, 1, 1))], ids=str)
def test_work_that_is_cut_for_some_threads_is_the_same_in_any_number(case, tile: int, kept: int, planned: int) -> None:
    for threads in (1, 2):
        assert error_of(case, 16, tile, False, threads, kept=kept, threads=planned) < BOUND[tile, 3, 3]


@pytest.mark.parametrize("isa", ["portable", "avx2", "avx512"])
def test_each_instruction_set_by_force(isa: str) -> None:
    """In processes of their own, because the variable is read once; one that is not here is refused in a sentence."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_conformance as t\n"
        "for (tile, *taps), bound in t.BOUND.items():\n"
        "    for block in (8, 16):\n"
        "        case = t.CASES[3] if taps == [3, 3] else t.OTHER_CASES[3]\n"
        "        for kept in (0, 1):\n"
        "            assert t.error_of(case, block, tile, True, 2, tuple(taps), kept=kept) < bound\n"
        "import test_blocked_product as p\n"
        "for strassen, bound in p.BOUND.items():\n"
        "    for block in (8, 16):\n"
        "        assert p.error_of((3, 33), 96, 160, block, strassen=strassen, threads=2) < bound\n"
    )
    environment = {**os.environ, "RLFLOW_KERNELS_ISA": isa}
    command = [sys.executable, "-c", script, os.fspath(HERE)]
    found = subprocess.run(command, env=environment, capture_output=True, text=True)
    if found.returncode:
        assert f"RLFLOW_KERNELS_ISA asks for {isa}, which this processor does not have" in found.stderr
        assert isa != "portable"


def weights(out: int = 16, into: int = 16, taps: tuple[int, int] = (3, 3)) -> np.ndarray:
    return np.ones((out, into, *taps), np.float32)


@pytest.mark.parametrize(("tile", "taps"), [(4, (5, 5)), (2, (1, 3)), (4, (7, 1)), (2, (1, 1)), (2, (3, 5))])
def test_forms_without_a_kernel_are_refused(tile: int, taps: tuple[int, int]) -> None:
    with pytest.raises(Exception, match="There is no Winograd kernel for tiles of"):
        opened(models.one_node(weights(taps=taps), None, False, block=8, tile=tile, pads=[1] * 4))


@pytest.mark.parametrize(
    ("attributes", "sentence"),
    [
        ({"tile": 3}, "the attributes tile"),
        ({"tile": 2, "block": 4}, "the attributes tile"),
        ({"tile": 2, "pads": [1, 1]}, "pads has 2 numbers"),
        ({"tile": 2, "pads": [1, 1, 1, -1]}, "The padding -1"),
        ({"tile": 2, "activation": "Mish"}, "no activation Mish"),
        ({"tile": 2, "chunk": -5}, "A chunk of -5"),
        ({"tile": 2, "part": 12}, "A part of 12 channels"),
        ({"tile": 2, "threads": -1}, "A number of -1 threads"),
        ({"tile": 2, "taps": [3]}, "taps has another count"),
        ({"tile": 2, "taps": [3, 3]}, "the transformed weights have another shape"),
        ({"tile": 4, "kept": 1, "taps": [5, 5]}, "the transformed weights have another shape"),
    ],
)
def test_what_a_node_may_not_say_is_refused(attributes, sentence: str) -> None:
    with pytest.raises(Exception, match=sentence):
        opened(models.one_node(weights(), None, False, **{"block": 8, "pads": [1] * 4, **attributes}))


@pytest.mark.parametrize(
    ("x", "s", "sentence"),
    [
        ((1, 24, 8, 8), None, "another number of channels"),
        ((1, 16, 0, 8), None, "height 0 leaves no output"),
        ((1, 16, 8, 8), (1, 16, 8, 7), "another shape than the output"),
    ],
)
def test_inputs_of_other_shapes_are_refused(x, s, sentence: str) -> None:
    session = opened(models.one_node(weights(), None, s is not None, block=8, tile=2, pads=[1] * 4))
    feeds = {"x": np.ones(x, np.float32)} | ({} if s is None else {"s": np.ones(s, np.float32)})
    with pytest.raises(Exception, match=sentence):
        session.run(None, feeds)


def test_an_empty_batch_has_an_empty_output() -> None:
    session = opened(models.one_node(weights(), None, False, block=8, tile=4, pads=[1] * 4))
    assert session.run(None, {"x": np.ones((0, 16, 5, 5), np.float32)})[0].shape == (0, 16, 5, 5)
