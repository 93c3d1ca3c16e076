"""The stand-in for cuDNN's graph interface checks every descriptor: a right sequence of calls, one fault at a time."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

API = Path(__file__).resolve().parents[2] / "cext" / "src" / "cudnn" / "api.h"
NUMBER = {name: int(value) for name, value in re.findall(r"F\((k\w+), \w+, (\d+)\)", API.read_text(encoding="utf-8"))}
SIZED = {"kTypeBoolean": ctypes.c_bool, "kTypeInt64": ctypes.c_int64, "kTypeFloat": ctypes.c_float,
         "kTypeDouble": ctypes.c_double, "kTypePointer": ctypes.c_void_p, "kTypeDescriptor": ctypes.c_void_p,
         "kTypeHandle": ctypes.c_void_p}  # fmt: skip

Attribute = tuple[str, Sequence[Any]]
Descriptors = dict[str, tuple[str, dict[str, Attribute]]]


def tensor(identity: int, dims: Sequence[int], virtual: bool = False) -> tuple[str, dict[str, Attribute]]:
    strides = [int(np.prod(dims[i + 1 :])) for i in range(len(dims))]
    found: dict[str, Attribute] = {
        "kTensorId": ("kTypeInt64", [identity]), "kTensorType": ("kTypeDataType", [NUMBER["kDnnFloat"]]),
        "kTensorAlignment": ("kTypeInt64", [16]), "kTensorDims": ("kTypeInt64", dims),
        "kTensorStrides": ("kTypeInt64", strides),
    }  # fmt: skip
    if virtual:
        found["kTensorVirtual"] = ("kTypeBoolean", [True])
    return "kDescribeTensor", found


def named(*names: str) -> Attribute:
    return "kTypeDescriptor", names


def valid() -> Descriptors:
    """relu(conv(x, w) + bias), from the tensors to a plan; the operands are named by 1, 2, 5 and 3."""
    both: Attribute = ("kTypeInt64", [1, 1])
    compute: Attribute = ("kTypeDataType", [NUMBER["kDnnFloat"]])
    return {
        "x": tensor(1, [1, 2, 5, 5]),
        "w": tensor(2, [3, 2, 3, 3]),
        "bias": tensor(5, [1, 3, 1, 1]),
        "convolved": tensor(16, [1, 3, 5, 5], virtual=True),
        "sum": tensor(17, [1, 3, 5, 5], virtual=True),
        "y": tensor(3, [1, 3, 5, 5]),
        "convolution": ("kDescribeConvolution", {
            "kConvolutionCompute": compute, "kConvolutionMode": ("kTypeConvolutionMode", [1]),
            "kConvolutionAxes": ("kTypeInt64", [2]), "kConvolutionDilations": both, "kConvolutionStrides": both,
            "kConvolutionPaddingBefore": both, "kConvolutionPaddingAfter": both}),
        "convolve": ("kDescribeConvolve", {
            "kConvolveAlpha": ("kTypeFloat", [1.0]), "kConvolveBeta": ("kTypeFloat", [0.0]),
            "kConvolveHow": named("convolution"), "kConvolveX": named("x"), "kConvolveW": named("w"),
            "kConvolveY": named("convolved")}),
        "addition": ("kDescribePointwise", {
            "kPointwiseMode": ("kTypePointwiseMode", [NUMBER["kModeAdd"]]), "kPointwiseCompute": compute}),
        "add": ("kDescribeApply", {"kApplyHow": named("addition"), "kApplyX": named("convolved"),
                                   "kApplyB": named("bias"), "kApplyY": named("sum")}),
        "relu": ("kDescribePointwise", {
            "kPointwiseMode": ("kTypePointwiseMode", [NUMBER["kModeRelu"]]), "kPointwiseCompute": compute}),
        "activate": ("kDescribeApply", {"kApplyHow": named("relu"), "kApplyX": named("sum"), "kApplyY": named("y")}),
        "graph": ("kDescribeGraph", {"kGraphHandle": ("kTypeHandle", [1]),
                                     "kGraphOperations": named("convolve", "add", "activate")}),
        "heuristic": ("kDescribeHeuristic", {"kHeuristicGraph": named("graph"),
                                             "kHeuristicMode": ("kTypeHeuristicMode", [NUMBER["kHeuristicBest"]])}),
    }  # fmt: skip


class RefusedError(Exception):
    """What the stand-in said."""


class Calls:
    """cuDNN's functions, and what was made with them."""

    def __init__(self, folder: Path) -> None:
        self.library = ctypes.CDLL(str(folder / "libcudnn.so.9"))
        self.made: dict[str, ctypes.c_void_p] = {}

    def check(self, status: int) -> None:
        if status:
            said = ctypes.create_string_buffer(512)
            self.library.cudnnGetLastErrorString(said, ctypes.c_size_t(511))
            raise RefusedError(said.value.decode())

    def create(self, name: str, kind: str) -> ctypes.c_void_p:
        found = ctypes.c_void_p()
        self.check(self.library.cudnnBackendCreateDescriptor(NUMBER[kind], ctypes.byref(found)))
        self.made[name] = found
        return found

    def set(self, name: str, attribute: str, value: Attribute) -> None:
        kind, values = value
        values = [self.made[one].value if isinstance(one, str) else one for one in values]
        array = (SIZED.get(kind, ctypes.c_int) * len(values))(*values)
        self.check(self.library.cudnnBackendSetAttribute(
            self.made[name], NUMBER[attribute], NUMBER[kind], ctypes.c_int64(len(values)), array))  # fmt: skip

    def finish(self, name: str) -> None:
        self.check(self.library.cudnnBackendFinalize(self.made[name]))

    def describe(self, descriptors: Descriptors, unfinished: str = "") -> None:
        for name, (kind, attributes) in descriptors.items():
            self.create(name, kind)
            for attribute, value in attributes.items():
                self.set(name, attribute, value)
            if name != unfinished:
                self.finish(name)

    def ask(self, name: str, attribute: str, kind: str, array: Any) -> int:
        """How many values there are; as many as fit are in the array."""
        found = ctypes.c_int64()
        length = ctypes.c_int64(len(array))
        made, number = self.made[name], NUMBER[attribute]
        self.check(
            self.library.cudnnBackendGetAttribute(made, number, NUMBER[kind], length, ctypes.byref(found), array)
        )
        return found.value

    def plan(self, number: int = 3) -> None:
        """A plan of the engine that is proposed at this place."""
        configs = [self.create(f"config {i}", "kDescribeEngineConfig") for i in range(number + 1)]
        self.ask("heuristic", "kHeuristicResults", "kTypeDescriptor", (ctypes.c_void_p * len(configs))(*configs))
        attributes = {"kPlanHandle": ("kTypeHandle", [1]), "kPlanConfig": named(f"config {number}")}
        self.describe({"plan": ("kDescribePlan", attributes)})

    def execute(self, operands: Mapping[int, Any], workspace: Any) -> None:
        pointers = [None if array is None else array.ctypes.data for array in operands.values()]
        space = None if workspace is None else workspace.ctypes.data
        self.describe({"pack": ("kDescribePack", {
            "kPackIds": ("kTypeInt64", list(operands)), "kPackPointers": ("kTypePointer", pointers),
            "kPackWorkspace": ("kTypePointer", [space])})})  # fmt: skip
        self.check(self.library.cudnnBackendExecute(None, self.made["plan"], self.made["pack"]))


@pytest.fixture
def calls(fake_folder: Path) -> Calls:
    return Calls(fake_folder)


def aligned(shape: Sequence[int], seed: int = 0) -> np.ndarray:
    """Random numbers at a multiple of 64 bytes."""
    count = int(np.prod(shape))
    whole = np.zeros(count + 16, np.float32)
    start = -whole.ctypes.data % 64 // 4
    whole[start : start + count] = np.random.default_rng(seed).standard_normal(count)
    return whole[start : start + count].reshape(shape)


def operands() -> dict[int, Any]:
    return {1: aligned([1, 2, 5, 5]), 2: aligned([3, 2, 3, 3], 1), 5: aligned([3], 2), 3: aligned([1, 3, 5, 5], 3)}


def test_a_right_sequence_computes(calls: Calls) -> None:
    calls.describe(valid())
    assert calls.ask("heuristic", "kHeuristicResults", "kTypeDescriptor", (ctypes.c_void_p * 0)()) == 5
    calls.plan()
    workspace = (ctypes.c_int64 * 1)()
    assert calls.ask("plan", "kPlanWorkspace", "kTypeInt64", workspace) == 1
    assert workspace[0] == 4096
    given = operands()
    calls.execute(given, aligned([1024]))
    around = np.pad(given[1], ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(around, (3, 3), axis=(2, 3))
    right = np.maximum(np.einsum("nchwab,kcab->nkhw", windows, given[2]) + given[5][:, None, None], 0)
    np.testing.assert_allclose(given[3], right, rtol=1e-5, atol=1e-5)


SHAPE: Attribute = ("kTypeInt64", [1, 3, 4, 5])
#: descriptor, attribute, its value (None: it is not set), what is said
FAULTS = [
    ("x", "kTensorId", None, "attribute 906 of a descriptor of kind 17 is missing"),
    ("x", "kTensorId", ("kTypeDouble", [1.0]), "attribute 906 of a descriptor of kind 17 has the type 3, not 5"),
    ("x", "kTensorId", ("kTypeInt64", [1, 2]), "has 2 elements"),
    ("x", "kPointwiseMode", ("kTypePointwiseMode", [0]), "attribute 0 of a descriptor of kind 17 cannot be set"),
    ("heuristic", "kHeuristicResults", named("x"), "cannot be set"),
    ("x", "kTensorStrides", ("kTypeInt64", [60, 30, 5, 1]), "a tensor's strides leave gaps or overlap"),
    ("x", "kTensorStrides", ("kTypeInt64", [50, 25, 5]), "a tensor has 4 dims and 3 strides"),
    ("x", "kTensorDims", ("kTypeInt64", [1, 2, 0, 5]), "a dim or a stride below 1"),
    ("x", "kTensorAlignment", ("kTypeInt64", [2]), "a tensor of items of 4 bytes is aligned to 2"),
    ("x", "kTensorType", ("kTypeDataType", [77]), "a tensor has the unknown type 77"),
    ("x", "kTensorType", ("kTypeDataType", [2]), "operands are of other types than its sums"),
    ("x", "kTensorStrides", ("kTypeInt64", [50, 1, 10, 2]), "a convolution's tensors have two layouts"),
    ("x", "kTensorVirtual", ("kTypeBoolean", [True]), "a convolution reads a virtual tensor"),
    ("w", "kTensorId", ("kTypeInt64", [1]), "the identity 1 is that of two tensors"),
    ("convolved", "kTensorVirtual", None, "a graph stores 2 results, expected one"),
    ("y", "kTensorVirtual", ("kTypeBoolean", [True]), "nothing reads the virtual tensor 3"),
    ("y", "kTensorDims", SHAPE, "a tensor's strides leave gaps or overlap"),
    (
        "convolution",
        "kConvolutionStrides",
        ("kTypeInt64", [1]),
        "a convolution of 2 axes has 1 numbers in attribute 103",
    ),
    ("convolution", "kConvolutionStrides", ("kTypeInt64", [2, 1]), "result has the extent 5, expected 3"),
    ("convolution", "kConvolutionPaddingAfter", ("kTypeInt64", [0, 1]), "result has the extent 5, expected 4"),
    ("convolution", "kConvolutionPaddingBefore", ("kTypeInt64", [1, -1]), "a convolution has -1 in attribute 105"),
    ("convolution", "kConvolutionDilations", ("kTypeInt64", [0, 1]), "a convolution has 0 in attribute 102"),
    ("convolution", "kConvolutionMode", ("kTypeConvolutionMode", [0]), "a convolution turns its filter around"),
    ("convolution", "kConvolutionCompute", ("kTypeDataType", [2]), "a convolution sums in type 2"),
    ("convolve", "kConvolveAlpha", ("kTypeDouble", [1.0]), "scales are of another type than its sums"),
    ("convolve", "kConvolveX", named("convolution"), "names a descriptor of kind 1"),
    ("convolve", "kConvolveX", named("bias"), "channels are not those of whole groups"),
    ("convolve", "kConvolveX", ("kTypeDescriptor", [1]), "names no descriptor"),
    ("relu", "kPointwiseMode", ("kTypePointwiseMode", [999]), "there is no pointwise mode 999"),
    ("relu", "kPointwiseEluAlpha", ("kTypeDouble", [1.0]), "an alpha is for Elu alone"),
    ("addition", "kPointwiseUpperClip", ("kTypeDouble", [1.0]), "is for Relu alone"),
    ("add", "kApplyB", None, "an addition has one operand"),
    ("add", "kApplyB", named("w"), "operands cannot be broadcast"),
    ("add", "kApplyY", named("bias"), "result has other dims or strides than its operand"),
    ("activate", "kApplyB", named("bias"), "an activation has two operands"),
    ("graph", "kGraphHandle", None, "attribute 800 of a descriptor of kind 15 is missing"),
    ("graph", "kGraphOperations", named("convolve", "activate"), "the virtual tensor 17 is read before it is made"),
    ("graph", "kGraphOperations", named("convolve", "add"), "nothing reads the virtual tensor 17"),
    ("graph", "kGraphOperations", named("convolve", "convolve", "add", "activate"), "the tensor 16 is made twice"),
    ("graph", "kGraphOperations", named("convolve", "x"), "names a descriptor of kind 17"),
]


@pytest.mark.parametrize(("descriptor", "attribute", "value", "sentence"), FAULTS)
def test_a_wrong_descriptor_is_refused(
    calls: Calls, descriptor: str, attribute: str, value: Attribute | None, sentence: str
) -> None:
    descriptors = valid()
    attributes = descriptors[descriptor][1]
    if value is None:
        del attributes[attribute]
    else:
        attributes[attribute] = value
    with pytest.raises(RefusedError, match=re.escape(sentence)):
        calls.describe(descriptors)


@pytest.mark.parametrize("name", [name for name in valid() if name != "heuristic"])
def test_what_is_not_finished_cannot_be_used(calls: Calls, name: str) -> None:
    with pytest.raises(RefusedError, match="names a descriptor that is not finished"):
        calls.describe(valid(), unfinished=name)


def test_what_is_finished_stays_as_it_is(calls: Calls) -> None:
    calls.describe(valid())
    with pytest.raises(RefusedError, match="is set after it was finished"):
        calls.set("x", "kTensorId", ("kTypeInt64", [4]))
    with pytest.raises(RefusedError, match="finished twice"):
        calls.finish("x")
    with pytest.raises(RefusedError, match="fills descriptors that the caller has made"):
        calls.ask("heuristic", "kHeuristicResults", "kTypeDescriptor", (ctypes.c_void_p * 1)(1))
    with pytest.raises(RefusedError, match="does not take this convolution"):
        calls.plan(2)


@pytest.mark.parametrize(
    ("change", "workspace", "sentence"),
    [
        ({5: "absent"}, True, "a pack does not name the tensor 5"),
        ({5: None}, True, "the tensor 5 has no pointer"),
        ({16: "more"}, True, "a pack names the tensor 16, which the graph does not store"),
        ({1: "moved"}, True, "the tensor 1 is not aligned as it was described"),
        ({}, False, "the plan needs 4096 bytes of workspace and got none"),
    ],
)
def test_wrong_operands_are_refused(
    calls: Calls, change: dict[int, str | None], workspace: bool, sentence: str
) -> None:
    calls.describe(valid())
    calls.plan()
    given = operands()
    for identity, how in change.items():
        if how == "absent":
            del given[identity]
        else:
            given[identity] = None if how is None else aligned([64])[1:] if how == "moved" else aligned([75])
    with pytest.raises(RefusedError, match=re.escape(sentence)):
        calls.execute(given, aligned([1024]) if workspace else None)


def test_too_small_a_workspace_is_seen(calls: Calls) -> None:
    """It ends at a page that nobody may touch."""
    calls.describe(valid())
    calls.plan()
    calls.library.fake_take.restype = ctypes.c_void_p
    space = calls.library.fake_take(ctypes.c_size_t(2048), 1)
    array = np.ctypeslib.as_array((ctypes.c_float * 512).from_address(space))
    with pytest.raises(RefusedError):
        calls.execute(operands(), array)
    calls.library.cuGetErrorString(719, ctypes.byref(text := ctypes.c_char_p()))
    assert text.value == b"a routine touches memory 0 bytes behind the end of an operand"
