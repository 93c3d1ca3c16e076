"""TASO's vocabulary: words for padding, activations and element types, and the tables that its modules offer.

Numbers are those of TASO's headers (``include/taso/ops.h`` at f11782c), so that scripts that compare them keep working.
"""

from __future__ import annotations

from typing import Any

from rlflow.errors import UsageError

FLOAT, BOOL, INT64 = 1, 9, 7
FLOATS = frozenset({1, 10, 11, 16})

_PADDING = {"SAME": 0, "VALID": 1}
_ACTIVATION = {"NONE": 0, "SIGMOID": 1, "RELU": 2, "TANH": 3}
_DATA = {
    "FLOAT": 111,
    "DOUBLE": 222,
    "FLOAT16": 333,
    "INT8": 444,
    "UINT8": 555,
    "INT32": 666,
    "INT64": 777,
    "BOOL": 888,
}
ACTIVATION_OPERATORS = {0: None, 1: "Sigmoid", 2: "Relu", 3: "Tanh"}

_ONNX_TYPES = (
    "UNDEFINED", "FLOAT", "UINT8", "INT8", "UINT16", "INT16", "INT32", "INT64", "STRING", "BOOL", "FLOAT16", "DOUBLE",
    "UINT32", "UINT64", "COMPLEX64", "COMPLEX128", "BFLOAT16",
)  # fmt: skip

#: TASO's operator number -> the name under which it is exported. Two of its numbers are additions, two are no-ops.
op_table: dict[int, str] = {
    0: "Input",
    1: "Weight",
    3: "Conv",
    4: "Dropout",
    5: "Gemm",
    6: "MaxPool",
    7: "AveragePool",
    8: "Relu",
    9: "Sigmoid",
    10: "Tanh",
    11: "BatchNormalization",
    12: "Concat",
    13: "Split",
    14: "Reshape",
    15: "Transpose",
    16: "Add",
    17: "Mul",
    18: "MatMul",
    19: "Mul",
    26: "Squeeze",
    27: "Unsqueeze",
    28: "Sub",
    29: "Div",
    30: "Equal",
    31: "Greater",
    32: "Less",
    33: "Max",
    34: "Min",
    35: "ArgMax",
    36: "ArgMin",
    37: "ReduceMax",
    38: "ReduceMean",
    39: "ReduceMin",
    40: "ReduceProd",
    41: "ReduceSum",
    42: "Pad",
    43: "Shape",
    44: "Size",
    45: "TopK",
    46: "Where",
    47: "Ceil",
    48: "Cast",
    49: "Exp",
    50: "Round",
    51: "Log",
    52: "Not",
    53: "Sqrt",
    54: "LeakyRelu",
    55: "Slice",
    56: "Resize",
    57: "PRelu",
    61: "Add",
}

_WINDOW = ["dilations", "kernel_shape", "pads", "strides"]
#: Operator name -> the attributes that an exported node of it may carry.
operator_attrs: dict[str, list[str]] = {
    **{name: [] for name in sorted(set(op_table.values()) - {"Input", "Weight"})},
    "ArgMax": ["axis", "keepdims"],
    "ArgMin": ["axis", "keepdims"],
    "AveragePool": _WINDOW,
    "MaxPool": _WINDOW,
    "BatchNormalization": ["epsilon"],
    "Cast": ["to"],
    "Concat": ["axis"],
    "Conv": ["group", *_WINDOW],
    "Gemm": ["alpha", "beta", "transA", "transB"],
    "LeakyRelu": ["alpha"],
    "Split": ["axis", "split"],
    "Transpose": ["perm"],
    "Squeeze": ["axes"],
    "Unsqueeze": ["axes"],
    "Slice": ["starts", "ends", "axes", "steps"],
    "Reshape": ["shape"],
    "Pad": ["mode", "pads", "value"],
    "Identity": [],
    **{name: ["axes", "keepdims"] for name in ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum")},
}

#: Operator name -> the names of its operands, where one of them is usually a weight.
input_weight_names: dict[str, list[str]] = {
    "Add": ["input1", "input2"],
    "AveragePool": ["input"],
    "BatchNormalization": ["input", "scale", "bias", "mean", "var"],
    "Concat": ["input1", "input2", "input3", "input4", "input5", "input6"],
    "Conv": ["input", "weight", "bias"],
    "MatMul": ["input", "weight"],
    "Mul": ["input1", "input2"],
    "PRelu": ["input", "slope"],
    "Reshape": ["input", "shape"],
    "Transpose": ["input"],
}


def get_padding_mode(padding: str) -> int:
    """The number of a padding word: SAME 0, VALID 1. Raises UsageError for anything else."""
    return _number(_PADDING, padding, "padding")


def get_activation_mode(activation: str) -> int:
    """The number of an activation word: NONE 0, SIGMOID 1, RELU 2, TANH 3. Raises UsageError for anything else."""
    return _number(_ACTIVATION, activation, "activation")


def get_data_type(datatype: str) -> int:
    """The number of an element type's word, such as FLOAT 111. Raises UsageError for anything else."""
    return _number(_DATA, datatype, "datatype")


def onnx_datatype_tostring(dtype: int) -> str:
    """The name of an ONNX element type number, such as 1 -> FLOAT. Raises UsageError for a number beyond 16."""
    if isinstance(dtype, int) and 0 <= dtype < len(_ONNX_TYPES):
        return _ONNX_TYPES[dtype]
    raise UsageError(f"{dtype!r} is no element type; expected a number of 0 to {len(_ONNX_TYPES) - 1}.")


def onnx_datatype(datatype: str | int) -> int:
    """ONNX's number for a word ("FLOAT"), TASO's number (111) or itself. Raises UsageError for anything else."""
    if isinstance(datatype, int) and 0 < datatype < len(_ONNX_TYPES):
        return datatype
    words = {number: word for word, number in _DATA.items()}
    word = words.get(datatype) if isinstance(datatype, int) else datatype.upper() if isinstance(datatype, str) else None
    if word in _ONNX_TYPES[1:]:
        return _ONNX_TYPES.index(word)
    raise UsageError(f"datatype={datatype!r} is not an element type; expected one of {', '.join(_DATA)}.")


def _number(table: dict[str, int], word: Any, what: str) -> int:
    number = table.get(word.upper()) if isinstance(word, str) else None
    if number is None:
        raise UsageError(f"{what}={word!r} is not known; expected one of {', '.join(table)}.")
    return number
