"""Rules of other systems, as they are written there: terms over TASO's operators, not yet given our meaning.

TASO's ``graph_subst.pb`` and Tensat's text files speak of the same operators. Both readers give :class:`ForeignRule`;
:mod:`instances` says what such a term computes at given shapes, :mod:`convert` writes it in our term language.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

VARIABLE, OUTPUT = "var", "output"


@dataclass(frozen=True)
class TasoOperator:
    """An operator of TASO: its number in ``OpType``, its Tensat token ("" where Tensat has none), parameters in the
    order in which Tensat writes them, and the number of tensor operands (-1: any, from two on)."""

    number: int
    name: str
    token: str
    parameters: tuple[str, ...] = ()
    operands: int = 1


#: ``OpType`` of TASO's ops.h, 0 to 61, in order. Names are those used here; what our language cannot say is refused
#: by the reader or by the conversion, with the reason.
OPERATORS: tuple[TasoOperator, ...] = (
    TasoOperator(0, "input", "input", (), 0),
    TasoOperator(1, "weight", "weight", (), 0),
    TasoOperator(2, "any", ""),
    TasoOperator(3, "conv2d", "conv2d", ("stride_h", "stride_w", "pad", "acti"), 2),
    TasoOperator(4, "dropout", "dropout"),
    TasoOperator(5, "linear", "", ("acti",), 2),
    TasoOperator(6, "poolmax", "poolmax", ("kernel_h", "kernel_w", "stride_h", "stride_w", "pad", "acti")),
    TasoOperator(7, "poolavg", "poolavg", ("kernel_h", "kernel_w", "stride_h", "stride_w", "pad", "acti")),
    TasoOperator(8, "relu", "relu"),
    TasoOperator(9, "sigmoid", "sigmoid"),
    TasoOperator(10, "tanh", "tanh"),
    TasoOperator(11, "batchnorm", "batchnorm", (), 5),
    TasoOperator(12, "concat", "concat", ("axis", "rank"), -1),
    TasoOperator(13, "split", "split", ("axis",)),
    TasoOperator(14, "reshape", ""),
    TasoOperator(15, "transpose", "transpose", ("perm", "rank", "shuffle")),
    TasoOperator(16, "ewadd", "ewadd", (), 2),
    TasoOperator(17, "ewmul", "ewmul", (), 2),
    TasoOperator(18, "matmul", "matmul", ("acti",), 2),
    TasoOperator(19, "smul", "smul", (), 2),
    TasoOperator(20, "enlarge", "enlarge", ("kernel_h", "kernel_w"), -1),
    TasoOperator(21, "merge_gconv", "", ("count",)),
    TasoOperator(22, "Imatmul", "Imatmul", (), 0),
    TasoOperator(23, "Iconv", "Iconv", ("kernel_h", "kernel_w"), 0),
    TasoOperator(24, "Iewmul", "Iewmul", (), 0),
    TasoOperator(25, "Cpool", "Cpool", ("kernel_h", "kernel_w"), 0),
    TasoOperator(26, "squeeze", "", ("axes",)),
    TasoOperator(27, "unsqueeze", "", ("axes",)),
    TasoOperator(28, "ewsub", "", (), 2),
    TasoOperator(29, "ewdiv", "", (), 2),
    TasoOperator(30, "ewequal", "", (), 2),
    TasoOperator(31, "ewgreater", "", (), 2),
    TasoOperator(32, "ewless", "", (), 2),
    TasoOperator(33, "ewmax", "", (), 2),
    TasoOperator(34, "ewmin", "", (), 2),
    TasoOperator(35, "reduce_argmax", "", ("axes", "keepdims")),
    TasoOperator(36, "reduce_argmin", "", ("axes", "keepdims")),
    TasoOperator(37, "reduce_max", "", ("axes", "keepdims")),
    TasoOperator(38, "reduce_mean", "", ("axes", "keepdims")),
    TasoOperator(39, "reduce_min", "", ("axes", "keepdims")),
    TasoOperator(40, "reduce_prod", "", ("axes", "keepdims")),
    TasoOperator(41, "reduce_sum", "", ("axes", "keepdims")),
    TasoOperator(42, "pad", ""),
    TasoOperator(43, "shape", ""),
    TasoOperator(44, "size", ""),
    TasoOperator(45, "topk", ""),
    TasoOperator(46, "where", "", (), 3),
    TasoOperator(47, "ceil", ""),
    TasoOperator(48, "cast", ""),
    TasoOperator(49, "exp", ""),
    TasoOperator(50, "round", ""),
    TasoOperator(51, "log", ""),
    TasoOperator(52, "logical_not", ""),
    TasoOperator(53, "sqrt", ""),
    TasoOperator(54, "leakyrelu", ""),
    TasoOperator(55, "slice", ""),
    TasoOperator(56, "resize", ""),
    TasoOperator(57, "prelu", "", (), 2),
    TasoOperator(58, "fuse_conv_batchnorm", "", (), -1),
    TasoOperator(59, "fuse_conv_batchnorm_alpha_var", "", (), -1),
    TasoOperator(60, "fuse_conv_batchnorm_bias", "", (), -1),
    TasoOperator(61, "broadcast_add", "", (), 2),
)
BY_NAME = {operator.name: operator for operator in OPERATORS}

SAME, VALID = 0, 1
ACTIVATIONS = {0: "", 1: "Sigmoid", 2: "Relu", 3: "Tanh"}


@dataclass(frozen=True)
class ForeignTerm:
    """A value: a variable (``op`` "var", with ``name``), output ``index`` of a split (``op`` "output"), or an operator
    with parameters, by name."""

    op: str
    parameters: tuple[tuple[str, int], ...] = ()
    operands: tuple[ForeignTerm, ...] = ()
    name: str = ""

    @functools.cached_property
    def _hash(self) -> int:
        return hash((self.op, self.parameters, self.operands, self.name))

    def __hash__(self) -> int:  # kept: terms are looked up all the time
        return self._hash

    def get(self, parameter: str, default: int | None = None) -> int | None:
        """A parameter's number, or ``default`` where the file does not give it."""
        return dict(self.parameters).get(parameter, default)

    def number(self, parameter: str, default: int = 0) -> int:
        """A parameter's number; ``default`` where the file does not give it."""
        value = self.get(parameter)
        return default if value is None else value

    def walk(self) -> Iterator[ForeignTerm]:
        """Every term in this one, operands first; a repeated term is repeated."""
        for operand in self.operands:
            yield from operand.walk()
        yield self

    def __str__(self) -> str:
        if self.op == VARIABLE:
            return self.name
        numbers = [str(value) for _, value in self.parameters]
        return f"{self.op}({', '.join([*numbers, *map(str, self.operands)])})"


def variable(name: str) -> ForeignTerm:
    """A variable."""
    return ForeignTerm(VARIABLE, name=name)


def make(op: str, *operands: ForeignTerm, **parameters: int) -> ForeignTerm:
    """An operator's term; parameters in the order given."""
    return ForeignTerm(op, tuple(parameters.items()), operands)


@dataclass(frozen=True)
class ForeignRule:
    """A rule as its file has it: ``sources[k]`` is replaced by ``targets[k]``. ``index``: its place in the file, from
    0; ``origin``: "TASO #12" and the like; ``unreadable``: why it cannot be read, where it cannot; ``numbered``: the
    variables' numbers are those of TASO's generator, which give their ranks."""

    index: int
    origin: str
    sources: tuple[ForeignTerm, ...]
    targets: tuple[ForeignTerm, ...]
    unreadable: str = ""
    numbered: bool = False

    def variables(self) -> list[str]:
        """Names of the variables, in order of first use in the sources, then in the targets."""
        terms = [t for side in (*self.sources, *self.targets) for t in side.walk()]
        return list(dict.fromkeys(t.name for t in terms if t.op == VARIABLE))

    def operators(self, source_only: bool = False) -> list[ForeignTerm]:
        """Distinct operator terms, operands first."""
        sides = self.sources if source_only else (*self.sources, *self.targets)
        return list(dict.fromkeys(t for side in sides for t in side.walk() if t.op not in (VARIABLE, OUTPUT)))

    def reversed(self) -> ForeignRule:
        """The rule read from right to left."""
        return ForeignRule(self.index, self.origin, self.targets, self.sources, self.unreadable, self.numbered)

    def __str__(self) -> str:
        if self.unreadable:
            return self.unreadable
        return " ; ".join(map(str, self.sources)) + "  =>  " + " ; ".join(map(str, self.targets))
