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
class Operator:
    """An operator of TASO: its number in ``OpType``, its Tensat token ("" where Tensat has none), parameters in the
    order in which Tensat writes them, and the number of tensor operands (-1: any, from two on)."""

    number: int
    name: str
    token: str
    parameters: tuple[str, ...] = ()
    operands: int = 1


#: ``OpType`` of TASO's ops.h, 0 to 61, in order. Names are those used here; what our language cannot say is refused
#: by the reader or by the conversion, with the reason.
OPERATORS: tuple[Operator, ...] = (
    Operator(0, "input", "input", (), 0),
    Operator(1, "weight", "weight", (), 0),
    Operator(2, "any", ""),
    Operator(3, "conv2d", "conv2d", ("stride_h", "stride_w", "pad", "acti"), 2),
    Operator(4, "dropout", "dropout"),
    Operator(5, "linear", "", ("acti",), 2),
    Operator(6, "poolmax", "poolmax", ("kernel_h", "kernel_w", "stride_h", "stride_w", "pad", "acti")),
    Operator(7, "poolavg", "poolavg", ("kernel_h", "kernel_w", "stride_h", "stride_w", "pad", "acti")),
    Operator(8, "relu", "relu"),
    Operator(9, "sigmoid", "sigmoid"),
    Operator(10, "tanh", "tanh"),
    Operator(11, "batchnorm", "batchnorm", (), 5),
    Operator(12, "concat", "concat", ("axis", "rank"), -1),
    Operator(13, "split", "split", ("axis",)),
    Operator(14, "reshape", ""),
    Operator(15, "transpose", "transpose", ("perm", "rank", "shuffle")),
    Operator(16, "ewadd", "ewadd", (), 2),
    Operator(17, "ewmul", "ewmul", (), 2),
    Operator(18, "matmul", "matmul", ("acti",), 2),
    Operator(19, "smul", "smul", (), 2),
    Operator(20, "enlarge", "enlarge", ("kernel_h", "kernel_w"), -1),
    Operator(21, "merge_gconv", "", ("count",)),
    Operator(22, "Imatmul", "Imatmul", (), 0),
    Operator(23, "Iconv", "Iconv", ("kernel_h", "kernel_w"), 0),
    Operator(24, "Iewmul", "Iewmul", (), 0),
    Operator(25, "Cpool", "Cpool", ("kernel_h", "kernel_w"), 0),
    Operator(26, "squeeze", "", ("axes",)),
    Operator(27, "unsqueeze", "", ("axes",)),
    Operator(28, "ewsub", "", (), 2),
    Operator(29, "ewdiv", "", (), 2),
    Operator(30, "ewequal", "", (), 2),
    Operator(31, "ewgreater", "", (), 2),
    Operator(32, "ewless", "", (), 2),
    Operator(33, "ewmax", "", (), 2),
    Operator(34, "ewmin", "", (), 2),
    Operator(35, "reduce_argmax", "", ("axes", "keepdims")),
    Operator(36, "reduce_argmin", "", ("axes", "keepdims")),
    Operator(37, "reduce_max", "", ("axes", "keepdims")),
    Operator(38, "reduce_mean", "", ("axes", "keepdims")),
    Operator(39, "reduce_min", "", ("axes", "keepdims")),
    Operator(40, "reduce_prod", "", ("axes", "keepdims")),
    Operator(41, "reduce_sum", "", ("axes", "keepdims")),
    Operator(42, "pad", ""),
    Operator(43, "shape", ""),
    Operator(44, "size", ""),
    Operator(45, "topk", ""),
    Operator(46, "where", "", (), 3),
    Operator(47, "ceil", ""),
    Operator(48, "cast", ""),
    Operator(49, "exp", ""),
    Operator(50, "round", ""),
    Operator(51, "log", ""),
    Operator(52, "logical_not", ""),
    Operator(53, "sqrt", ""),
    Operator(54, "leakyrelu", ""),
    Operator(55, "slice", ""),
    Operator(56, "resize", ""),
    Operator(57, "prelu", "", (), 2),
    Operator(58, "fuse_conv_batchnorm", "", (), -1),
    Operator(59, "fuse_conv_batchnorm_alpha_var", "", (), -1),
    Operator(60, "fuse_conv_batchnorm_bias", "", (), -1),
    Operator(61, "broadcast_add", "", (), 2),
)
BY_NAME = {operator.name: operator for operator in OPERATORS}

SAME, VALID = 0, 1
ACTIVATIONS = {0: "", 1: "Sigmoid", 2: "Relu", 3: "Tanh"}


@dataclass(frozen=True)
class Term:
    """A value: a variable (``op`` "var", with ``name``), output ``index`` of a split (``op`` "output"), or an operator
    with parameters, by name."""

    op: str
    parameters: tuple[tuple[str, int], ...] = ()
    operands: tuple[Term, ...] = ()
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

    def walk(self) -> Iterator[Term]:
        """Every term in this one, operands first; a repeated term is repeated."""
        for operand in self.operands:
            yield from operand.walk()
        yield self

    def __str__(self) -> str:
        if self.op == VARIABLE:
            return self.name
        numbers = [str(value) for _, value in self.parameters]
        return f"{self.op}({', '.join([*numbers, *map(str, self.operands)])})"


def variable(name: str) -> Term:
    """A variable."""
    return Term(VARIABLE, name=name)


def make(op: str, *operands: Term, **parameters: int) -> Term:
    """An operator's term; parameters in the order given."""
    return Term(op, tuple(parameters.items()), operands)


@dataclass(frozen=True)
class ForeignRule:
    """A rule as its file has it: ``sources[k]`` is replaced by ``targets[k]``. ``index``: its place in the file, from
    0; ``origin``: "TASO #12" and the like; ``unreadable``: why it cannot be read, where it cannot; ``numbered``: the
    variables' numbers are those of TASO's generator, which give their ranks."""

    index: int
    origin: str
    sources: tuple[Term, ...]
    targets: tuple[Term, ...]
    unreadable: str = ""
    numbered: bool = False

    def variables(self) -> list[str]:
        """Names of the variables, in order of first use in the sources, then in the targets."""
        terms = [t for side in (*self.sources, *self.targets) for t in side.walk()]
        return list(dict.fromkeys(t.name for t in terms if t.op == VARIABLE))

    def operators(self, source_only: bool = False) -> list[Term]:
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
