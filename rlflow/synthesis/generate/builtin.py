"""The vocabularies of the package, as data (see :mod:`vocabulary`)."""

from __future__ import annotations

from typing import Any

_IMAGE = ["N", "C", "H", "W"]
_SAME3 = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [1, 1], "dilations": [1, 1], "group": 1}
_POOL3 = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [1, 1], "dilations": [1, 1]}
_POINT = {"kernel_shape": [1, 1], "pads": [0, 0, 0, 0], "strides": [1, 1], "dilations": [1, 1], "group": 1}

#: TASO's own: its matrices, images, kernels and scalar; matmul, element-wise sum and product, convolution, Relu,
#: pools,
#: concatenation and split on the first two axes, matrix transposition, enlarged kernels (a Pad of a weight), and
#: convolutions in two groups, which in TASO are what the shapes make them. Its constant operators (pooling, identity
#: and all-ones weights) are declined: the term language has no such literals.
TASO: dict[str, Any] = {
    "worlds": [
        {"M": 2, "K": 3, "N": 2, "C": 3, "H": 4, "W": 3},
        {"M": 3, "K": 2, "N": 3, "C": 2, "H": 3, "W": 4},
    ],
    "inputs": {
        "x": {"shape": ["M", "K"], "count": 4},
        "w": {"shape": ["K", "K"], "count": 3, "weight": True},
        "i": {"shape": _IMAGE, "count": 3},
        "k": {"shape": ["C", "C", 3, 3], "count": 3, "weight": True},
        "p": {"shape": ["C", "C", 1, 3], "weight": True},
        "s": {"shape": []},
    },
    "ops": {
        "MatMul": {"op": "MatMul"},
        "Add": {"op": "Add"},
        "Mul": {"op": "Mul"},
        "Relu": {"op": "Relu"},
        "Concat0": {"op": "Concat", "attributes": {"axis": 0}},
        "Concat1": {"op": "Concat", "attributes": {"axis": 1}},
        "Split0": {"op": "Split", "attributes": {"axis": 0}},
        "Split1": {"op": "Split", "attributes": {"axis": 1}},
        "Transpose": {"op": "Transpose", "attributes": {"perm": [1, 0]}},
        "Conv3x3": {"op": "Conv", "attributes": _SAME3, "operands": ["activation", "weight"]},
        "Conv1x3": {
            "op": "Conv",
            "attributes": {**_SAME3, "kernel_shape": [1, 3], "pads": [0, 1, 0, 1]},
            "operands": ["activation", "weight"],
        },
        "Grouped3x3": {
            "op": "Conv",
            "attributes": {**_SAME3, "group": 2},
            "operands": ["activation", "weight"],
            "like": "Conv3x3",
        },
        "Correlate": {"op": "Conv", "attributes": _SAME3, "operands": ["weight", "weight"]},
        "AveragePool": {"op": "AveragePool", "attributes": {**_POOL3, "count_include_pad": 0}},
        "MaxPool": {"op": "MaxPool", "attributes": _POOL3},
        "Enlarge": {
            "op": "Pad",
            "attributes": {"pads": [0, 0, 1, 0, 0, 0, 1, 0], "mode": "constant", "value": 0.0},
            "operands": ["weight input"],
        },
    },
    "groups": {
        "matrices": {
            "inputs": ["x", "w", "s"],
            "ops": ["MatMul", "Add", "Mul", "Relu", "Concat0", "Concat1", "Split0", "Split1", "Transpose"],
        },
        "images": {
            "inputs": ["i", "k", "p", "s"],
            "ops": [
                "Conv3x3", "Conv1x3", "Grouped3x3", "Add", "Mul", "Relu", "Concat0", "Concat1", "Split0", "Split1",
                "AveragePool", "MaxPool", "Enlarge",
            ],
        },
        "kernels": {"inputs": ["k"], "ops": ["Correlate", "Concat1"]},  # TASO convolves kernels with each other
    },
}  # fmt: skip

_GROUPED = {**_POINT, "group": 2}
_STRIDED = {**_POINT, "strides": [2, 2]}
_CHANNEL = [1, "C", 1, 1]

#: What the ancestors' vocabulary lacks, in groups that are enumerated apart: grouped and strided convolutions,
#: padding, slicing,
#: pooling and resizing, transposition and reduction around products and row-wise functions, and order with constants
#: of known sign.
WIDE: dict[str, Any] = {
    "worlds": [
        {"A": 2, "M": 2, "K": 3, "N": 2, "C": 2, "H": 4, "W": 3, "D": 4, "E": 2},
        {"A": 3, "M": 3, "K": 2, "N": 3, "C": 3, "H": 3, "W": 4, "D": 6, "E": 3},
    ],
    "inputs": {
        "i": {"shape": _IMAGE, "count": 2},
        "j": {"shape": ["N", "D", 3, "A"], "count": 2},
        "k": {"shape": ["C", "C", 3, 3], "weight": True},
        "q": {"shape": ["C", "C", 1, 1], "count": 2, "weight": True},
        "g": {"shape": ["D", "E", 1, 1], "count": 2, "weight": True},
        "h": {"shape": ["D", "D", 1, 1], "weight": True},
        "r": {"shape": []},
        "x": {"shape": ["M", "K"], "count": 3},
        "w": {"shape": ["K", "K"], "count": 2, "weight": True},
        "y": {"shape": ["A", "M", "K"], "count": 2},
        "v": {"shape": ["K"]},
        "m": {"shape": _IMAGE},
        "o": {"shape": ["C", "C", 1, 1], "weight": True},
        "s": {"shape": _CHANNEL, "weight": True, "constant": True, "positive": True},
        "b": {"shape": _CHANNEL, "weight": True, "constant": True},
        "d": {"shape": _CHANNEL, "weight": True, "derived": ["Div", ["Neg", "b"], "s"]},
        "z": {"shape": ["C", "C", 1, 1], "derived": ["Mul", "o", "s"], "weight": True},
        "u": {"shape": _CHANNEL, "weight": True, "derived": ["FoldPoint", "b", "o"]},
    },
    "ops": {
        "Add": {"op": "Add"},
        "Sub": {"op": "Sub"},
        "Mul": {"op": "Mul"},
        "FoldPoint": {"op": "Conv", "attributes": _POINT, "operands": ["activation", "weight"]},
        "Scale": {"op": "Mul", "operands": ["activation", "weight"]},
        "Shift": {"op": "Add", "operands": ["activation", "weight"]},
        "AtLeast": {"op": "Max", "operands": ["activation", "weight"]},
        "Max": {"op": "Max"},
        "Min": {"op": "Min"},
        "Neg": {"op": "Neg"},
        "Relu": {"op": "Relu"},
        "Tanh": {"op": "Tanh"},
        "MatMul": {"op": "MatMul"},
        "Concat0": {"op": "Concat", "attributes": {"axis": 0}},
        "Concat1": {"op": "Concat", "attributes": {"axis": 1}},
        "Split1": {"op": "Split", "attributes": {"axis": 1}},
        "Point": {"op": "Conv", "attributes": _POINT, "operands": ["any", "weight"]},
        "Grouped": {"op": "Conv", "attributes": _GROUPED, "operands": ["any", "weight"]},
        "Strided": {"op": "Conv", "attributes": _STRIDED, "operands": ["any", "weight"]},
        "Valid3x3": {"op": "Conv", "attributes": {**_SAME3, "pads": [0, 0, 0, 0]}, "operands": ["any", "weight"]},
        "Same3x3": {"op": "Conv", "attributes": _SAME3, "operands": ["any", "weight"]},
        "Border": {
            "op": "Pad",
            "attributes": {"pads": [0, 0, 1, 1, 0, 0, 1, 1], "mode": "constant", "value": 0.0},
        },
        "Rows": {"op": "Slice", "attributes": {"axes": [2], "starts": [1], "ends": [3], "steps": [1]}},
        "First": {"op": "Slice", "attributes": {"axes": [0], "starts": [0], "ends": [2], "steps": [1]}},
        "MaxPool": {"op": "MaxPool", "attributes": {**_POOL3, "kernel_shape": [2, 2], "pads": [0, 0, 0, 0]}},
        "AveragePool": {
            "op": "AveragePool",
            "attributes": {**_POOL3, "kernel_shape": [2, 2], "pads": [0, 0, 0, 0], "count_include_pad": 0},
        },
        "GlobalMean": {"op": "ReduceMean", "attributes": {"axes": [2, 3], "keepdims": 1}},
        "GlobalSum": {"op": "ReduceSum", "attributes": {"axes": [2, 3], "keepdims": 1}},
        "Resize": {
            "op": "Resize",
            "attributes": {
                "scales": [1.0, 1.0, 2.0, 2.0],
                "mode": "nearest",
                "nearest_mode": "floor",
                "coordinate_transformation_mode": "asymmetric",
            },
        },
        "Transpose": {"op": "Transpose", "attributes": {"perm": [1, 0]}},
        "Softmax": {"op": "Softmax", "attributes": {"axis": 1}},
        "LogSoftmax": {"op": "LogSoftmax", "attributes": {"axis": 1}},
        "Normalise": {"op": "LayerNormalization", "attributes": {"axis": 1, "epsilon": 1e-05, "stash_type": 1}},
        "RowSum": {"op": "ReduceSum", "attributes": {"axes": [1], "keepdims": 1}},
        "RowMean": {"op": "ReduceMean", "attributes": {"axes": [1], "keepdims": 1}},
        "ColumnSum": {"op": "ReduceSum", "attributes": {"axes": [0], "keepdims": 1}},
        "RowMax": {"op": "ReduceMax", "attributes": {"axes": [1], "keepdims": 1}},
        "Swap": {"op": "Transpose", "attributes": {"perm": [0, 2, 1]}},
        "Turn": {"op": "Transpose", "attributes": {"perm": [1, 0, 2]}},
        "LastSum": {"op": "ReduceSum", "attributes": {"axes": [2], "keepdims": 0}},
        "FirstMean": {"op": "ReduceMean", "attributes": {"axes": [0], "keepdims": 1}},
    },
    "groups": {
        "fold": {
            "inputs": ["m", "o", "s", "b", "d", "z", "u"],
            "ops": ["FoldPoint", "Scale", "Shift", "AtLeast", "Relu"],
        },
        "order": {
            "inputs": ["x", "r"],
            "ops": ["Max", "Min", "Neg", "Relu", "Add", "Sub"],
            "worlds": [{"M": 5, "K": 7}, {"M": 7, "K": 4}],  # an order needs many elements to be told from chance
        },
        "windows": {
            "inputs": ["i", "k", "q", "r"],
            "ops": [
                "Same3x3", "Valid3x3", "Point", "Strided", "Border", "Rows", "MaxPool", "AveragePool",
                "GlobalMean", "GlobalSum", "Resize", "Relu", "Neg", "Max",
            ],
        },
        "channels": {
            "inputs": ["j", "g", "h"],
            "ops": ["Grouped", "Point", "Concat0", "Concat1", "Split1", "Add", "Relu", "First"],
        },
        "rows": {
            "inputs": ["x", "w", "v"],
            "ops": [
                "MatMul", "Transpose", "Softmax", "LogSoftmax", "Normalise", "RowSum", "RowMean", "ColumnSum",
                "RowMax", "Concat0", "Concat1", "Relu", "First", "Add",
            ],
        },
        "batches": {
            "inputs": ["y", "w"],
            "ops": ["MatMul", "Swap", "Turn", "LastSum", "FirstMean", "Concat0", "First", "Neg", "Tanh"],
        },
    },
}  # fmt: skip

VOCABULARIES: dict[str, dict[str, Any]] = {"taso": TASO, "wide": WIDE}
