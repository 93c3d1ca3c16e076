"""The text of our kernels in whole blocks on the host, against numpy; and the emulator on kernels that are wrong."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest


def _beside(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"gpu_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


stand_in, cases, kernel_host = _beside("stand_in"), _beside("kernel_cases"), _beside("kernel_host")
KERNELS = {case.kernel for case in cases.CASES.values()}
needs_compiler = pytest.mark.skipif(
    sys.platform != "linux" or stand_in.compiler() is None, reason="needs Linux and a C++ compiler"
)


@pytest.fixture(scope="module")
def host() -> object:
    return kernel_host.KernelHost(stand_in.library(stand_in.KERNELS))


@pytest.fixture(scope="module")
def faulty() -> object:
    return kernel_host.KernelHost(stand_in.library(stand_in.FAULTS))


@needs_compiler
@pytest.mark.parametrize("name", cases.CASES)
def test_a_kernel_computes_what_numpy_does(host: object, name: str) -> None:
    case = cases.CASES[name]
    for number, launch in enumerate(case.launches):
        outs = [np.empty(right.shape, right.dtype) for right in case.outs]
        fault = host.fault(case.kernel, case.fixed, case.ins, outs, launch, number % 2 == 0, case.sizes)
        assert not fault, f"{launch}: {fault}"
        for found, right in zip(outs, case.outs, strict=True):
            np.testing.assert_allclose(
                found.astype(np.float64), right.astype(np.float64), case.tolerance, case.tolerance, err_msg=str(launch)
            )


def test_every_kernel_has_cases() -> None:
    """And every operation, reduction and type."""
    text = cases.TYPES.read_text(encoding="utf-8")
    structures = set(cases.re.findall(r"^struct (\w+) \{", text, cases.re.MULTILINE))
    assert structures - {"Pointers", "Instruction", "Operand"} == KERNELS
    names = " ".join(cases.CASES)
    absent = {code for code in [*cases.CODE, *cases.REDUCTION] if code not in names}
    assert absent == {"kConst", "kIsInf", "kSelect"}, "these are in the chains, under other names"
    assert set(cases.NUMPY) == set(cases.KIND)


@needs_compiler
@pytest.mark.parametrize(
    ("kernel", "sentence"),
    [
        ("some threads end before a barrier", "waits at a barrier that thread 5 does not reach: it has ended"),
        ("threads wait at two barriers", "does not reach: it waits at another barrier"),
        ("a warp shuffles while another waits at a barrier", ""),
        ("a lane has ended", "thread 0 of block 0 waits in a shuffle for thread 9, which has ended"),
        ("a lane does not name itself", "thread 0 of block 0 shuffles with lanes that do not name its own"),
        ("a lane is not named", "takes the value of lane 16, which its shuffle does not name"),
        ("half a warp shuffles for itself", ""),
        ("lanes wait in two shuffles", "waits in a shuffle for thread 1, which waits in another shuffle"),
        ("behind the end", "thread 63 of block 0 touches memory 0 bytes behind the end of an operand"),
        ("before the start", "thread 0 of block 0 touches memory 4 bytes before the start of an operand"),
        ("nobody's memory", "touches memory that is nobody's"),
        ("an odd place", "takes 16 bytes at once from an address that is no multiple of that"),
        ("beside a shared array", "block 0 writes beside its shared arrays"),
        ("too much shared memory", "a block wants more than 49152 bytes of shared memory"),
        ("none", ""),
    ],
)
def test_the_emulator_names_the_fault(faulty: object, kernel: str, sentence: str) -> None:
    outs = [np.empty(64, np.float32)]
    fault = faulty.fault(kernel, [], [], outs, (1, 64, "forward"), at_end=kernel != "before the start")
    assert sentence in fault
    assert bool(sentence) == bool(fault)
    if kernel == "none":
        np.testing.assert_array_equal(outs[0], np.arange(63, -1, -1) + (np.arange(64) ^ 16))


@needs_compiler
@pytest.mark.parametrize("order", cases.ORDERS)
@pytest.mark.parametrize("kernel", ["a barrier is missing", "shared memory of the block before"])
def test_what_is_not_there_yet_is_not_a_number(faulty: object, kernel: str, order: str) -> None:
    outs = [np.empty(64, np.float32)]
    assert not faulty.fault(kernel, [], [], outs, (2, 64, order), at_end=True)
    assert np.isnan(outs[0]).any()


@needs_compiler
@pytest.mark.parametrize("threads", [0, 16, 48, 1056])
def test_blocks_are_whole_warps(faulty: object, threads: int) -> None:
    fault = faulty.fault("none", [], [], [np.empty(64, np.float32)], (1, threads, "forward"), at_end=True)
    assert fault == f"a block has {threads} threads, expected whole warps up to 1024"
