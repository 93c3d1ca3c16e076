"""The border between ONNX's forms of an operator (one per opset) and the canonical form that the core and the rules
use.

Most operators have one form: attributes by the same names, operands in the same places. Those are translated by
:func:`read_plain` and :func:`write_plain`, from the operator table and the ONNX schema alone. The others register an
adaptor each way, ``form("Slice", read=…, write=…)``. An adaptor that is not certain declines, and the node is
carried as it came.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Protocol

import numpy as np
from onnx import defs

from rlflow.frontends.constants import Array
from rlflow.frontends.symbolic import Dim
from rlflow.ops import extension, op_names, op_row

AttrValue = Any
Operand = int | Array | None
INT64_MAX = int(np.iinfo(np.int64).max)


class Declined(Exception):  # noqa: N818 - an answer, not a failure; always caught inside this package
    """An adaptor cannot say for certain what a node means, or cannot write it; the text says why."""


@dataclass(frozen=True)
class Canonical:
    """A node in canonical form.

    ``inputs``: an original operand's slot, an array (a new constant), or None (absent). ``op`` "Identity" forwards its
    operand. ``otherwise``: the form to take where the core refuses this one.
    """

    op: str
    attrs: Mapping[str, AttrValue]
    inputs: Sequence[Operand]
    outputs: int = 1
    otherwise: Canonical | None = None


@dataclass(frozen=True)
class Form:
    """A node as ONNX writes it: operands are value names, "" where absent."""

    op: str
    attrs: Mapping[str, AttrValue]
    inputs: Sequence[str]
    domain: str = ""


class Source(Protocol):
    """An ONNX node that is being read, and what is known about its operands."""

    op: str
    opset: int
    attrs: Mapping[str, AttrValue]
    inputs: int  # operands, absent ones included
    outputs: int  # up to the last one that is used; all of them where their number varies
    declared: int  # outputs that have a name, used or not

    def has(self, slot: int) -> bool:
        """Whether the operand is present."""

    def const(self, slot: int) -> Array | None:
        """The operand's elements, if it is a constant."""

    def ints(self, slot: int) -> list[Dim] | None:
        """The operand's integer elements as far as they are known (constants and shape arithmetic); None where nothing
        is.
        """

    def shape(self, slot: int) -> list[Dim] | None:
        """The operand's dimensions, None where not even their number is known."""

    def dtype(self, slot: int) -> int:
        """The operand's element type, 0 where it is not known."""


@dataclass
class Target:
    """A canonical node that is being written for ``opset``.

    ``shapes`` and ``dtypes`` are those of its operands; ``constant`` makes an array an operand and returns its name;
    ``dims`` does so for a list of dimensions, which may be expressions over named ones; ``known`` gives the elements of
    an operand that is a constant.
    """

    op: str
    opset: int
    attrs: Mapping[str, AttrValue]
    inputs: Sequence[str]
    shapes: Sequence[list[Dim] | None]
    dtypes: Sequence[int]
    outputs: int
    constant: Callable[[Array], str]
    dims: Callable[[Sequence[Dim]], str]
    known: Callable[[int], Array | None]
    strict: bool = True  # refuse element types that the opset's schema does not list

    def ints(self, values: Sequence[Dim]) -> str:
        """A 1-D int64 constant operand; computed from the graph's inputs where an element is symbolic."""
        return self.dims(values)

    def rank(self, slot: int) -> int | None:
        """The number of dimensions of an operand, or None."""
        shape = self.shapes[slot] if slot < len(self.shapes) else None
        return None if shape is None else len(shape)


Reader = Callable[[Source], Canonical]
Writer = Callable[[Target], Form]


@dataclass(frozen=True)
class OnnxForms:
    """What is registered for an operator's name: how ONNX's forms are read, how the canonical form is written (None:
    attributes and operands by the same names and places), and the first opset whose form means what the row does.
    """

    read: Reader | None = None
    write: Writer | None = None
    means_since: int = 0


_FORMS: dict[str, OnnxForms] = {}
_PLAIN = OnnxForms()


def form(*operators: str, read: Reader | None = None, write: Writer | None = None, means_since: int = 0) -> None:
    """Registers the forms of operators: ``read`` by ONNX's names, ``write`` by those of the table. Once for each."""
    for operator in operators:
        if operator in _FORMS:
            raise ValueError(f"the forms of {operator} are registered twice")
        _FORMS[operator] = OnnxForms(read, write, means_since)


def forms_of(operator: str) -> OnnxForms:
    """What is registered for an operator."""
    return _FORMS.get(operator, _PLAIN)


def adapted() -> list[str]:
    """The operators with an adaptor in either direction, sorted."""
    return sorted(name for name, forms in _FORMS.items() if forms.read or forms.write)


@cache
def row(op: str) -> Mapping[str, Any] | None:
    """The operator table's row, or None for an operator that it does not know."""
    return op_row(op) if op in _table() else None


@lru_cache(maxsize=1)
def _table() -> frozenset[str]:
    return frozenset(op_names()) - {"Input", "Constant", "Opaque"}


@cache
def schema(op: str, opset: int) -> defs.OpSchema | None:
    """The default domain's operator schema at ``opset``, or None where it does not exist there (or is deprecated)."""
    if not defs.has(op, "") or opset < 1:
        return None
    try:
        found = defs.get_schema(op, opset, "")
    except defs.SchemaError:
        return None
    return None if found.deprecated else found


@cache
def schema_defaults(op: str, opset: int) -> Mapping[str, AttrValue]:
    """Attribute -> default of the default domain's operator at ``opset``, in Python values, without attributes that
    have none.
    """
    from onnx import AttributeProto, helper

    found = schema(op, opset)
    if found is None:
        return {}
    values = {}
    for name, attribute in found.attributes.items():
        default = attribute.default_value
        if default.type != AttributeProto.UNDEFINED:
            values[name] = python_value(helper.get_attribute_value(default))
    return values


def python_value(value: AttrValue) -> AttrValue:
    """An attribute's value in Python types: text for bytes, lists for repeated fields, floats by their shortest decimal
    text.

    ONNX floats are single precision; 0.1 stands for the nearest single, which reads as 0.10000000149011612 in double
    precision. The shortest text that rounds to the same single is what was written, compares equal to the table's
    defaults, and is exact on the way back.
    """
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, float):
        return float(str(np.float32(value)))
    if isinstance(value, (list, tuple)) or (
        hasattr(value, "__len__") and not isinstance(value, str) and hasattr(value, "append")
    ):
        return [python_value(item) for item in value]
    return value


def same_value(a: AttrValue, b: AttrValue) -> bool:
    """Whether two attribute values are one as ONNX stores them (floats in single precision)."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return False
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same_value(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        left, right = np.float32(a), np.float32(b)
        return a == b or bool(left == right) or bool(np.isnan(left) and np.isnan(right))
    return type(a) is type(b) and bool(a == b)


def read(source: Source) -> Canonical:
    """The canonical form of an ONNX node of the default domain. Raises Declined with the reason where there is none."""
    forms = forms_of(source.op)
    if source.opset < forms.means_since:
        raise Declined(f"its form before opset {forms.means_since} is another one")
    return read_plain(source) if extension(source.op) or forms.read is None else forms.read(source)


def read_plain(source: Source, op: str | None = None, drop: Sequence[str] = ()) -> Canonical:
    """An operator whose canonical form is ONNX's own; ``drop`` names attributes that make no difference.

    Raises Declined for an operator outside the table, and for an attribute or output that the table's row does not
    have.
    """
    op = op or source.op
    table = row(op)
    if table is None:
        raise Declined("the operator table has no such operator")
    attrs = plain_attrs(source, op, drop)
    outputs = max(source.outputs, 1)
    if outputs > table["outputs"] and "variadic_outputs" not in flags(op):
        raise Declined(f"it has {outputs} outputs in use, the table's row has {table['outputs']}")
    inputs: list[Operand] = [slot if source.has(slot) else None for slot in range(source.inputs)]
    while inputs and inputs[-1] is None:
        inputs.pop()
    return Canonical(op, attrs, inputs, outputs)


def flags(op: str) -> frozenset[str]:
    """The table's flags of an operator, in lower case with underscores."""
    table = row(op)
    return frozenset() if table is None else frozenset(_snake(flag) for flag in table["flags"])


def _snake(flag: str) -> str:
    text = flag[1:] if flag[:1] == "k" and flag[1:2].isupper() else flag
    return "".join("_" + char.lower() if char.isupper() and index else char.lower() for index, char in enumerate(text))


def plain_attrs(source: Source, op: str, drop: Sequence[str] = ()) -> dict[str, AttrValue]:
    """The attributes of a node under the table's names, with the defaults of *its* opset where they differ from the
    table's.
    """
    table = row(op)
    if table is None:
        raise Declined("the operator table has no such operator")
    allowed = table["attributes"]
    ours: Mapping[str, AttrValue] = dict(table["defaults"])
    theirs = schema_defaults(source.op, source.opset)
    attrs: dict[str, AttrValue] = {}
    for name, value in {**theirs, **source.attrs}.items():
        if name in drop:
            continue
        if name not in allowed:
            if name in source.attrs and not (name in theirs and same_value(value, theirs[name])):
                raise Declined(f"the table's row has no attribute '{name}'")
            continue
        attrs[name] = ours[name] if name in ours and same_value(value, ours[name]) else value
    return attrs


def write(target: Target) -> Form:
    """The ONNX form of a canonical node at the target's opset.

    Raises Declined with the reason where the opset has none.
    """
    return (forms_of(target.op).write or write_plain)(target)


#: (operator, attribute, value) -> the first opset that has the value, where the attribute is older. Schemas do not say.
_VALUES_SINCE = {
    ("Pad", "mode", "wrap"): 19,
    ("Resize", "coordinate_transformation_mode", "half_pixel_symmetric"): 19,
}


def write_plain(target: Target, op: str | None = None, attrs: Mapping[str, AttrValue] | None = None,
                inputs: Sequence[str] | None = None) -> Form:  # fmt: skip
    """Attributes and operands by the same names and places; those that equal the schema's defaults are left out.

    Raises Declined for an operator, attribute, operand or element type that the opset does not have.
    """
    added = extension(target.op)
    if added is not None:
        return Form(added.onnx_name, dict(target.attrs), list(target.inputs), added.domain)
    op = op or target.op
    attrs = target.attrs if attrs is None else attrs
    operands = list(target.inputs if inputs is None else inputs)
    while operands and not operands[-1]:
        operands.pop()
    table = row(target.op)
    since = table["since"] if table else 1
    found = schema(op, target.opset)
    if found is None or (op == target.op and target.opset < since):
        raise Declined(f"opset {target.opset} has no such operator; it came with opset {since}")
    if len(operands) > found.max_input:
        raise Declined(f"opset {target.opset} allows {found.max_input} inputs, this node has {len(operands)}")
    if len(operands) < found.min_input:
        raise Declined(f"opset {target.opset} needs {found.min_input} inputs, this node has {len(operands)}")
    if target.strict:
        check_types(found, target)
    return Form(op, written_attrs(op, target, attrs), operands)


def written_attrs(op: str, target: Target, attrs: Mapping[str, AttrValue]) -> dict[str, AttrValue]:
    """``attrs`` without those that need not be written.

    Raises Declined for one that the opset lacks and that makes a difference.
    """
    found = schema(op, target.opset)
    theirs = schema_defaults(op, target.opset)
    table = row(target.op)
    ours: Mapping[str, AttrValue] = dict(table["defaults"]) if table else {}
    written = {}
    for name, value in attrs.items():
        if found is not None and name in found.attributes:
            since = _VALUES_SINCE.get((op, name, value if isinstance(value, str) else ""), 0)
            if target.opset < since:
                raise Declined(f"{name} {value!r} came with opset {since}")
            if not (name in theirs and same_value(value, theirs[name])):
                written[name] = value
        elif not _neutral(name, value, ours):
            raise Declined(f"opset {target.opset} has no attribute '{name}', which is {value!r} here")
    return written


def _neutral(name: str, value: AttrValue, defaults: Mapping[str, AttrValue]) -> bool:
    """Whether an attribute that the opset does not have may be left out: it has its default (dilations: all ones)."""
    if name in defaults:
        return same_value(value, defaults[name])
    return name == "dilations" and all(item == 1 for item in value)


def check_types(found: defs.OpSchema, target: Target) -> None:
    """Raises Declined where the opset's schema does not take an operand's element type (Relu of integers before opset
    14, …).
    """
    for slot, dtype in enumerate(target.dtypes):
        if dtype == 0 or slot >= len(target.inputs) or not target.inputs[slot] or not found.inputs:
            continue
        formal = found.inputs[min(slot, len(found.inputs) - 1)]
        name = tensor_type_name(dtype)
        if name is not None and formal.types and name not in formal.types:
            raise Declined(f"opset {target.opset} does not take {name} as input {slot}")


@cache
def tensor_type_name(dtype: int) -> str | None:
    """An element type as schemas spell it, "tensor(float)"; None for an unknown number."""
    from onnx import TensorProto

    names = {1: "float", 11: "double"}
    if dtype in names:
        return f"tensor({names[dtype]})"
    try:
        return f"tensor({TensorProto.DataType.Name(dtype).lower()})"
    except ValueError:
        return None
