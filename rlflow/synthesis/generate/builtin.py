"""The vocabularies of the package, as data (see :mod:`vocabulary`)."""

from __future__ import annotations

from typing import Any

_IMAGE = ["N", "C", "H", "W"]
_SAME3 = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [1, 1], "dilations": [1, 1], "group": 1}
_POOL3 = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [1, 1]}
_POINT = {"kernel_shape": [1, 1], "pads": [0, 0, 0, 0], "strides": [1, 1], "dilations": [1, 1], "group": 1}

#: TASO's own: its matrices, images, kernels and scalar; matmul, element-wise sum and product, convolution, Relu, pools,
#: concatenation and split on the first two axes, matrix transposition, enlarged kernels (a Pad of a weight). Its constant
#: operators (pooling, identity and all-ones weights) are declined: the term language has no such literals.
TASO: dict[str, Any] = {
    "worlds": [
        {"M": 2, "K": 3, "N": 2, "C": 3, "H": 4, "W": 3},
        {"M": 3, "K": 2, "N": 3, "C": 2, "H": 3, "W": 4},
    ],
    "inputs": {
        "x": {"shape": ["M", "K"], "count": 3},
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
        "Conv3x3": {"op": "Conv", "attributes": _SAME3, "operands": ["any", "weight"]},
        "Conv1x3": {
            "op": "Conv",
            "attributes": {**_SAME3, "kernel_shape": [1, 3], "pads": [0, 1, 0, 1]},
            "operands": ["any", "weight"],
        },
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
                "Conv3x3", "Conv1x3", "Add", "Mul", "Relu", "Concat0", "Concat1", "Split0", "Split1", "AveragePool", "MaxPool", "Enlarge",
            ],
        },
    },
}  # fmt: skip

VOCABULARIES: dict[str, dict[str, Any]] = {"taso": TASO}
