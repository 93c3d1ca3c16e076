"""What each layer knows of each operator: a facet is there, or follows from the row, or is declined with a reason.

python tests/test_operators.py --write     renews docs/operators.md, which is made from what is found here
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from onnx import defs

from rlflow.frontends.canonical import forms_of
from rlflow.ops import extension, op_features, op_names, op_row
from rlflow.synthesis.operators import derived_facet, facets_of, native_of

PAGE = Path(__file__).resolve().parents[1] / "docs" / "operators.md"
OWN, DERIVED, DECLINED = "own", "derived", "declined"

#: Facet -> reason -> the operators that have no such facet.
DECLINES: dict[str, dict[str, str]] = {
    "shape": {"what it computes is not known": "Input Opaque"},
    "import": {
        "it is no operator of ONNX, but what the importer makes of inputs and unknown nodes": "Input Opaque",
    },
    "export": {
        "it is no operator of ONNX, but what the exporter makes of inputs and carried nodes": "Input Opaque",
    },
    "meaning": {
        "it is not computed from operands": "Input Constant Opaque",
        "it computes in small integers, which the domains do not model": (
            "MatMulInteger ConvInteger QuantizeLinear DequantizeLinear DynamicQuantizeLinear QLinearConv QLinearMatMul"
        ),
        "no rule is about it yet": (
            "Det LpPool GlobalLpPool GridSample TopK GatherND ScatterElements ScatterND OneHot Compress"
            " ReverseSequence ConstantOfShape Range"
        ),
        "its shape depends on its operand's elements": "NonZero",
    },
    "sampler": {
        "it is not computed from operands": "Input Constant Opaque",
        "it has no exact meaning, so that samples of it would say nothing": (
            "MatMulInteger ConvInteger QuantizeLinear DequantizeLinear DynamicQuantizeLinear QLinearConv QLinearMatMul"
            " Det GlobalLpPool GridSample TopK GatherND ScatterElements ScatterND OneHot Compress"
            " ReverseSequence ConstantOfShape Range NonZero"
        ),
        "it stands in targets of rules only, or in their examples": (
            "MeanVarianceNormalization LRN GatherElements Trilu Shape Size MultiHeadAttention RotaryEmbedding"
        ),
    },
    "enumerator": {
        "it is not computed from operands": "Input Constant Opaque",
        "it has no exact meaning": (
            "MatMulInteger ConvInteger QuantizeLinear DequantizeLinear DynamicQuantizeLinear QLinearConv QLinearMatMul"
            " Det LpPool GlobalLpPool GridSample TopK GatherND ScatterElements ScatterND OneHot Compress"
            " ReverseSequence ConstantOfShape Range NonZero"
        ),
        "its values are no elements of the field, or its operands are none": (
            "Equal Greater GreaterOrEqual Less LessOrEqual And Or Xor BitShift BitwiseAnd BitwiseOr BitwiseXor Where"
            " ArgMax ArgMin Gather GatherElements Shape Size Trilu CumSum"
        ),
        "the native evaluator has no such kind": (
            "Pow PRelu Mod Sum Mean Gemm ConvTranspose GlobalMaxPool BatchNormalization InstanceNormalization"
            " GroupNormalization RMSNormalization LpNormalization MeanVarianceNormalization Hardmax LRN ReduceMin"
            " ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare Reshape Flatten Squeeze"
            " Unsqueeze Expand Tile DepthToSpace SpaceToDepth EyeLike Einsum Attention MultiHeadAttention"
            " RotaryEmbedding"
        ),
    },
}  # fmt: skip


def _shape(op: str) -> str:
    added = extension(op)
    if added is not None and added.shape is not None:
        return OWN
    rule = op_features(op)["shape"]
    return {"its own": OWN, "as the first operand": DERIVED}.get(rule, DECLINED)


def _form(way: str) -> Callable[[str], str]:
    """Adaptors are the operator's own; without one, attributes and operands go by the names of the row."""

    def status(op: str) -> str:
        if getattr(forms_of(op), way) is not None:
            return OWN
        return DERIVED if defs.has(op) or extension(op) else DECLINED

    return status


def _facet(name: str) -> Callable[[str], str]:
    def status(op: str) -> str:
        if getattr(facets_of(op), name) is not None:
            return OWN
        return DERIVED if derived_facet(op, name) is not None else DECLINED

    return status


def _enumerator(op: str) -> str:
    if facets_of(op).native is not None:
        return OWN
    return DERIVED if native_of(op) is not None else DECLINED


FACETS: dict[str, Callable[[str], str]] = {
    "shape": _shape,
    "import": _form("read"),
    "export": _form("write"),
    "meaning": _facet("meaning"),
    "sampler": _facet("draw"),
    "enumerator": _enumerator,
}


def reasons(facet: str) -> dict[str, str]:
    """Operator -> why it declines a facet."""
    return {op: reason for reason, ops in DECLINES.get(facet, {}).items() for op in ops.split()}


@pytest.mark.parametrize("facet", FACETS)
def test_each_operator_has_the_facet_or_says_why_not(facet: str) -> None:
    lacking = {op for op in op_names() if FACETS[facet](op) == DECLINED}
    stated = set(reasons(facet))
    assert not lacking - stated, f"these have no {facet}, and no reason is stated: {sorted(lacking - stated)}"
    assert not stated - lacking, f"these have a {facet}, or are no operators: {sorted(stated - lacking)}"


def test_no_reason_is_stated_twice() -> None:
    for facet, table in DECLINES.items():
        listed = [op for ops in table.values() for op in ops.split()]
        assert len(listed) == len(set(listed)), facet


@pytest.mark.parametrize("op", ["Relu", "Conv", "Gelu", "Softmax", "Split"])
def test_every_layer_knows_the_operators_of_every_network(op: str) -> None:
    assert DECLINED not in {status(op) for status in FACETS.values()}


def page() -> str:
    """docs/operators.md."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# The operators, and what each layer knows of them"
    yield ""
    yield "Made by `python tests/test_operators.py --write`. *own*: registered for the operator; *derived*: follows"
    yield "from its row in the operator table; a number: declined, for the reason of that number below. How to add one:"
    yield "[add an operator](add-an-operator.md)."
    yield ""
    yield "| Operator | since | shape | float operations | fusion | " + " | ".join(list(FACETS)[1:]) + " |"
    yield "|---" * (len(FACETS) + 4) + "|"
    numbers: dict[str, int] = {}
    for op in op_names():
        row, cells = op_row(op), []
        for facet, status in FACETS.items():
            reason = reasons(facet).get(op, "")
            cells.append(f"{numbers.setdefault(reason, len(numbers) + 1)}" if reason else status(op))
        yield (
            f"| {op} | {row['since']} | {cells[0]} | {op_features(op)['flops']} | {row['fusion']} | "
            + " | ".join(cells[1:])
            + " |"
        )
    yield ""
    yield from (f"{number}. {reason[0].upper()}{reason[1:]}." for reason, number in numbers.items())


def test_the_page_is_what_the_layers_say() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(), "docs/operators.md is out of date: run python tests/test_operators.py --write"


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    PAGE.write_text(page(), encoding="utf-8")
