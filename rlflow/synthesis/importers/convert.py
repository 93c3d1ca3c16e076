"""Foreign rules in our term language.

A fused activation is a node of its own. A convolution keeps whatever strides, pads and dilations it has (``..?a``): a
foreign rule says "stride 1, SAME", ours is as true for the others; where kernels are enlarged or constants convolve,
the attributes are written out, SAME as pads computed from the kernel. Groups, which TASO infers from shapes, are
written. A split gets the sizes that were joined before it. Enlarge is a Pad of the weights. What TASO's shape
inference checks at the target is a condition here, because a rule of ours must be well-typed wherever it fires.
"""

from __future__ import annotations

import random
import re
from typing import Any

from rlflow.rewrite import Rule
from rlflow.synthesis.importers.building import (
    INEXPRESSIBLE,
    PLAIN,
    REDUCTIONS,
    Inexpressible,
    permutation,
)
from rlflow.synthesis.importers.foreign import ACTIVATIONS, OUTPUT, SAME, VARIABLE, ForeignRule, ForeignTerm
from rlflow.synthesis.importers.instances import TASO, Instance, Reading, draw
from rlflow.synthesis.importers.shapes import CONSTANTS, Symbols, Window
from rlflow.synthesis.importers.symbols import Dims, Extent, expression, has_window

_HINTS = 8


def slug(origin: str) -> str:
    """A rule's name: "TASO #12" is ``taso-12``."""
    return re.sub(r"[^a-z0-9]+", "-", origin.lower()).strip("-")


def convert(rule: ForeignRule, reading: Reading = TASO, hints: int = _HINTS) -> Rule:
    """The rule in our language, with the conditions of a reading. Raises Inexpressible with the reason."""
    if rule.unreadable:
        raise Inexpressible(rule.unreadable)
    for term in rule.operators():
        if term.op in INEXPRESSIBLE:
            raise Inexpressible(INEXPRESSIBLE[term.op])
    if any(t.op in CONSTANTS for t in rule.operators(source_only=True)):
        raise Inexpressible("a constant of TASO's stands in the source; a constant is known here by its elements only")
    writer = _Writer(rule, reading)
    source = tuple(writer.source(t) for t in rule.sources)
    target = tuple(writer.target(t) for t in rule.targets)
    return Rule(
        name=slug(rule.origin),
        family="imported",
        source=source,
        target=target,
        where=tuple(dict.fromkeys([*writer.conditions(), "not constant($0)"])),
        doc=f"{rule.origin}, under {reading.name}." if reading is not TASO else f"{rule.origin}.",
        origin=rule.origin,
        samples=tuple(_hints(rule, reading, writer, hints)),
    )


class _Writer(Symbols):
    """Writes terms in our language."""

    def conditions(self) -> list[str]:
        """All conditions: ranks, those of the reading, those of the target's types."""
        ranks = [f"rank({self.variable(name)}) == {rank}" for name, rank in self.ranks.items()]
        scalars = {v for t in self.rule.operators() if t.op == "smul" for v in [t.operands[1].name]}
        ranks = [r for name, r in zip(self.ranks, ranks, strict=True) if name in self._sourced() or name in scalars]
        return [*ranks, *self.extra, *self._window_conditions(), *self.known.conditions]

    def _sourced(self) -> set[str]:
        return {t.name for s in self.rule.sources for t in s.walk() if t.op == VARIABLE}

    def _window_conditions(self) -> list[str]:
        out: list[str] = []
        convs = list(self.windows.values())
        for window in convs:
            n = window.name
            if not self.reading.groups:
                out.append(f"?g{n} == 1")
            if self.written_out:
                stride = [window.term.number("stride_h", 1), window.term.number("stride_w", 1)]
                out += [f"?s{n} == {stride}", f"?d{n} == 1"]
                same = window.term.number("pad") == SAME
                out.append(f"?p{n} * 2 == cat(?k{n}, ?k{n}) - 1" if same else f"?p{n} == 0")
        if self.reading.equal_channels:
            for window in convs[1:]:
                for operand, axis in ((0, 1), (1, 0)):
                    a, b = (self.dims(w.term.operands[operand]) for w in (convs[0], window))
                    if a and b:
                        self.known.demand(a[axis], b[axis])
        return out

    # ---- terms

    def source(self, term: ForeignTerm) -> str:
        """A term of the source."""
        if term.op == "conv2d":
            n = self.windows[term].name
            rest = f"dilations=?d{n}, group=?g{n}, kernel_shape=?k{n}, pads=?p{n}, strides=?s{n}, ..?r{n}"
            attributes = rest if self.written_out else f"group=?g{n}, ..?a{n}"
            inner = " ".join(self.source(t) for t in term.operands)
            return self._active(term, f"(Conv{{{attributes}}} {inner})")
        return self._common(term, self.source)

    def target(self, term: ForeignTerm) -> str:
        """A term of the target; writes down what its types need."""
        if term.op == "conv2d":
            return self._target_conv(term)
        self._typed(term)
        if term.op == "enlarge":
            return self._enlarged(term)
        return self._common(term, self.target)

    def _common(self, term: ForeignTerm, say: Any) -> str:
        if term.op == VARIABLE:
            return self.variable(term.name)
        operands = " ".join(say(t) for t in term.operands)
        if term.op in PLAIN:
            return f"({PLAIN[term.op]} {operands})"
        if term.op == "smul":
            return f"(Mul {operands})"
        if term.op in REDUCTIONS:
            return f"({REDUCTIONS[term.op]}{{axes={_axes(term)}, keepdims={term.number('keepdims', 1)}}} {operands})"
        if term.op == "dropout":
            return operands
        if term.op == "concat":
            return f"(Concat{{axis={term.number('axis')}}} {operands})"
        if term.op == "transpose":
            return f"(Transpose{{perm={permutation(term)}}} {operands})"
        if term.op == "matmul":
            return self._active(term, f"(MatMul {operands})")
        if term.op in ("poolmax", "poolavg"):
            return self._active(term, f"({self._pool(term)} {operands})")
        if term.op in ("squeeze", "unsqueeze"):
            return f"({term.op.capitalize()}{{axes={_axes(term)}}} {operands})"
        if term.op == OUTPUT:
            return f"{operands}:{term.number('index')}"
        if term.op == "split":
            sizes = ", ".join(expression(e) for e in self._cut(term.operands[0], term.number("axis")))
            return f"(Split{{axis={term.number('axis')}, split=[{sizes}]}} {operands})"
        raise Inexpressible(f"{term.op} cannot be written here")

    def _pool(self, term: ForeignTerm) -> str:
        kernel = [term.number("kernel_h", 1), term.number("kernel_w", 1)]
        stride = [term.number("stride_h", 1), term.number("stride_w", 1)]
        if term.number("pad") == SAME and (stride != [1, 1] or any(k % 2 == 0 for k in kernel)):
            raise Inexpressible("SAME padding of a strided pool depends on the extents")
        half = [k // 2 if term.number("pad") == SAME else 0 for k in kernel]
        attributes = f"kernel_shape={kernel}, pads={half + half}, strides={stride}, dilations=[1, 1]"
        counted = f", count_include_pad={int(self.reading.count_pad)}" if term.op == "poolavg" else ""
        return f"{'AveragePool' if term.op == 'poolavg' else 'MaxPool'}{{{attributes}{counted}}}"

    def _active(self, term: ForeignTerm, text: str) -> str:
        activation = ACTIVATIONS.get(term.number("acti"))
        if activation is None:
            raise Inexpressible(f"activation {term.number('acti')} does not exist")
        return f"({activation} {text})" if activation else text

    def _target_conv(self, term: ForeignTerm) -> str:
        image, weight = (self.dims(t) for t in term.operands)
        window = self._window_of(term)
        group = self._group(window, image, weight)
        n = window.name
        operands = [self._kernel_operand(t, image) for t in term.operands]
        if not self.written_out:
            return self._active(term, f"(Conv{{group={group}, ..?a{n}}} {' '.join(operands)})")
        kernel = self._kernel(term.operands[1])
        stride = [term.number("stride_h", 1), term.number("stride_w", 1)]
        pads = f"cat(({kernel} - 1) / 2, ({kernel} - 1) / 2)" if term.number("pad") == SAME else "[0, 0, 0, 0]"
        attributes = f"dilations=[1, 1], group={group}, kernel_shape={kernel}, pads={pads}, strides={stride}"
        return self._active(term, f"(Conv{{{attributes}}} {' '.join(operands)})")

    def _kernel_operand(self, term: ForeignTerm, image: Dims) -> str:
        if term.op in ("Iconv", "Cpool"):
            raise Inexpressible("a constant kernel of TASO's, whose channels follow from its use only")
        return self.target(term)

    def _kernel(self, weight: ForeignTerm) -> str:
        if weight.op == "enlarge":
            return f"[{weight.number('kernel_h', 1)}, {weight.number('kernel_w', 1)}]"
        if weight.op == VARIABLE:
            return f"shape({self.variable(weight.name)})[2:]"
        return self._kernel(weight.operands[0])

    def _group(self, window: Window, image: Dims, weight: Dims) -> str:
        """The group that TASO infers for a convolution of the target."""
        before = [self.dims(t) for t in window.term.operands]
        if not image or not weight or not before[0] or not before[1]:
            return f"?g{window.name}"
        pairs = ((image, weight), (before[0], before[1]))
        inside = [(self.known.canonical(x[1]), self.known.canonical(w[1])) for x, w in pairs]
        if inside[0] == inside[1] or has_window(inside[0][0]) or has_window(inside[0][1]):
            return f"?g{window.name}"
        if inside[0][0] == inside[0][1]:
            return "1"
        if inside[0][0][0] == "sum" and inside[0][1][0] != "sum":
            parts = {self.known.canonical(e) for e in inside[0][0][1]}
            if parts == {inside[0][1]}:
                return str(len(inside[0][0][1]))
        return f"({expression(inside[0][0])}) / ({expression(inside[0][1])})"

    def _enlarged(self, term: ForeignTerm) -> str:
        weight, kernel = term.operands[0], self._kernel(term.operands[0])
        if len(term.operands) > 1:
            raise Inexpressible("ENLARGE to the kernel of another weight (rlflow's merge-conv-enlarged is that rule)")
        to = [term.number("kernel_h", 1), term.number("kernel_w", 1)]
        half = f"({to} - {kernel}) / 2"
        self.extra += [f"{kernel} <= {to}", f"({to} - {kernel}) % 2 == 0"]
        return f'(Pad{{pads=cat([0, 0], {half}, [0, 0], {half}), value=0.0, mode="constant"}} {self.target(weight)})'

    def _cut(self, term: ForeignTerm, axis: int) -> list[Extent]:
        """The extents of the parts that a split along this axis takes apart."""
        if term.op == "concat" and term.number("axis") == axis:
            shapes = [self.dims(t) for t in term.operands]
            if all(s is not None for s in shapes):
                return [s[axis] for s in shapes if s is not None]
        elif term.op in PLAIN or term.op == "smul" or (term.op == "concat" and term.number("axis") != axis):
            return self._cut(term.operands[0], axis)
        elif term.op == "conv2d" and axis < 2:
            return self._cut(term.operands[axis], 0)
        elif term.op == "matmul":
            rank = self.ranks.get(self._ranked_name(term), 2)
            if axis >= rank - 2:
                return self._cut(term.operands[axis - rank + 2], axis)
        raise Inexpressible(f"a split along axis {axis} undoes no concatenation: its sizes are not known")

    def _ranked_name(self, term: ForeignTerm) -> str:
        return term.name if term.op == VARIABLE else self._ranked_name(term.operands[0])


def _axes(term: ForeignTerm) -> list[int]:
    return [a for a in range(8) if term.number("axes") >> a & 1]


def _hints(rule: ForeignRule, reading: Reading, writer: _Writer, count: int) -> list[dict[str, Any]]:
    """Types for the prover's sampler: those of drawn instances."""
    rng = random.Random(f"hints/{rule.origin}")
    found: list[dict[str, Any]] = []
    for _ in range(60 * count):
        item = draw(rule, rng, reading) if len(found) < count else None
        if item is not None and item.target is not None and item.source.digest != item.target.digest:
            hint = _hint(item, writer)
            if hint not in found:
                found.append(hint)
    return found


def _hint(item: Instance, writer: _Writer) -> dict[str, Any]:
    hint: dict[str, Any] = {
        writer.variable(name): f"f32[{','.join(map(str, shape))}]" for name, shape in item.shapes.items()
    }
    for window in writer.windows.values():
        image, weight = window.term.operands
        n = window.name
        if weight.op == VARIABLE and len(item.shapes[weight.name]) == 4:
            kernel = list(item.shapes[weight.name][2:])
            if writer.written_out:
                half = [k // 2 if window.term.number("pad") == SAME else 0 for k in kernel]
                hint.update({f"?k{n}": kernel, f"?p{n}": half + half, f"?s{n}": [1, 1], f"?d{n}": [1, 1]})
            if image.op == VARIABLE:
                hint[f"?g{n}"] = item.shapes[image.name][1] // item.shapes[weight.name][1]
    return hint
