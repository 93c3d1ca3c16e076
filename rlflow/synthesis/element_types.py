"""Element types by the core's names: those that are drawn, and those that are known only."""

from __future__ import annotations

#: Element types that are drawn, with ONNX's numbers.
DTYPES = {
    "f32": 1, "u8": 2, "i8": 3, "u16": 4, "i16": 5, "i32": 6, "i64": 7, "bool": 9, "f16": 10, "f64": 11, "u32": 12,
    "u64": 13, "bf16": 16,
}  # fmt: skip
#: Names that mean something and are not drawn: the prover has no numbers of these types.
NOT_DRAWN = frozenset(
    ("any", "string", "c64", "c128", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "u4", "i4", "f4e2m1")
)
#: Integer types in which every rule is tried that fires there, the widths and signs that matter first.
INTEGERS = (3, 2, 6, 7, 5, 4, 12, 13)
