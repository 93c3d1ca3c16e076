"""Rule files of TASO's that tests write themselves."""

from __future__ import annotations

from collections.abc import Sequence

CONV, RELU, CONCAT, SPLIT, ADD, MUL, MATMUL = 3, 8, 12, 13, 16, 17, 18
AXIS, RANK, ACTIVATION, OUTPUTS = 11, 10, 9, 2

#: One operator: its type, its operands (negative: variables; or (operator, output)), and its parameters.
Op = tuple[int, Sequence["int | tuple[int, int]"], dict[int, int]]


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def message(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def operator(op: Op) -> bytes:
    kind, operands, parameters = op
    places = [(o, 0) if isinstance(o, int) else o for o in operands]
    return (
        number(1, kind)
        + b"".join(message(2, number(1, o) + number(2, t)) for o, t in places)
        + b"".join(message(3, number(1, key) + number(2, value)) for key, value in parameters.items())
    )


def rule(source: Sequence[Op], target: Sequence[Op], *outputs: tuple[int, int, int, int]) -> bytes:
    """``outputs``: (source operator, its output, target operator, its output); by default the last ones."""
    pairs = outputs or [(len(source) - 1, 0, len(target) - 1, 0)]
    return message(
        1,
        b"".join(message(1, operator(op)) for op in source)
        + b"".join(message(2, operator(op)) for op in target)
        + b"".join(message(3, number(1, a) + number(2, c) + number(3, b) + number(4, d)) for a, b, c, d in pairs),
    )


PLAIN = {9: 0}
CONVOLUTION = {6: 1, 7: 1, 8: 0, 9: 0}
#: Associativity; a fused activation; (x+y)*z = x*z (false); concatenated convolutions (false with groups).
TINY = (
    rule([(MATMUL, (-1, -2), PLAIN), (MATMUL, (0, -3), PLAIN)], [(MATMUL, (-2, -3), PLAIN), (MATMUL, (-1, 0), PLAIN)])
    + rule([(CONV, (-1, -2), CONVOLUTION), (RELU, (0,), {})], [(CONV, (-1, -2), {**CONVOLUTION, 9: 2})])
    + rule([(ADD, (-1, -2), {}), (MUL, (0, -3), {})], [(MUL, (-1, -3), {})])
    + rule(
        [(CONV, (-1, -2), CONVOLUTION), (CONV, (-1, -3), CONVOLUTION), (CONCAT, (0, 1), {AXIS: 1, RANK: 4})],
        [(CONCAT, (-2, -3), {AXIS: 0, RANK: 4}), (CONV, (-1, 0), CONVOLUTION)],
    )
)
