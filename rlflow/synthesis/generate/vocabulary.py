"""Vocabularies: the typed symbolic inputs and the operator templates whose graphs are enumerated.

A vocabulary is plain data (a JSON file, or one of :mod:`builtin`)::

    {"worlds": [{"M": 2, "K": 3}, {"M": 3, "K": 2}],
     "inputs": {"x": {"shape": ["M", "K"], "count": 3}, "w": {"shape": ["K", "K"], "count": 2, "weight": true}},
     "ops": {"MatMul": {"op": "MatMul"}, "Concat0": {"op": "Concat", "attributes": {"axis": 0}}},
     "groups": {"matrices": {"inputs": ["x", "w"], "ops": ["MatMul", "Concat0"]}}}

``worlds`` give every symbolic extent several values, so that coinciding extents do not make false pairs. An input
family has
``count`` interchangeable members; ``weight`` says that it may be where an operand is marked ``weight``; ``constant``
and ``positive``
become conditions of the rules; ``derived`` is a term over constant inputs, which costs nothing as constants are
folded.
A group is enumerated by itself: inputs and operators of different groups do not meet; ``extra_ops`` raises its budget.
"""

from __future__ import annotations

import json
import math
import random
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from rlflow import _core
from rlflow.errors import UsageError
from rlflow.files import mode_of
from rlflow.synthesis.field import from_fraction, key_of
from rlflow.synthesis.generate import builtin, kinds

World = Mapping[str, int]
Exact = np.ndarray[Any, Any]  # of Fractions
_OPERANDS = {"any": 0, "weight": 1, "input": 2, "weight input": 3, "activation": 4}


@dataclass(frozen=True)
class InputFamily:
    """Interchangeable symbolic inputs. ``shape`` names extents; ``derived``: nested lists such as ["Div", ["Neg",
    "b"], "s"]."""

    name: str
    shape: tuple[str | int, ...]
    count: int = 1
    weight: bool = False
    constant: bool = False
    positive: bool = False
    derived: tuple[Any, ...] = ()

    def extents(self, world: World) -> list[int]:
        """The shape in one world."""
        return [d if isinstance(d, int) else world[d] for d in self.shape]


@dataclass(frozen=True)
class OperatorTemplate:
    """An operator with fixed attributes. Integers in attributes may be names of extents. ``like``: the template that
    this one varies; a rule that binds the attributes of one binds those of the other, but for the ones that differ."""

    name: str
    op: str
    attributes: Mapping[str, Any] = field(default_factory=dict, hash=False)
    operands: tuple[str, ...] = ()
    like: str = ""

    @property
    def base(self) -> str:
        """The template that it varies, or itself."""
        return self.like or self.name

    def concrete(self, world: World) -> dict[str, Any]:
        """The attributes in one world."""
        return {k: _bound(v, world) for k, v in self.attributes.items()}


def _bound(value: Any, world: World) -> Any:
    if isinstance(value, list):
        return [_bound(v, world) for v in value]
    return world[value] if isinstance(value, str) and value in world else value


@dataclass(frozen=True)
class Group:
    """What is enumerated together."""

    name: str
    families: tuple[InputFamily, ...]
    operators: tuple[OperatorTemplate, ...]
    worlds: tuple[World, ...] = field(hash=False)
    extra_ops: int = 0

    @property
    def inputs(self) -> list[tuple[str, InputFamily]]:
        """Names of all inputs, in the enumerator's order, with their families."""
        return [(f"{f.name}{k + 1}" if f.count > 1 else f.name, f) for f in self.families for k in range(f.count)]


@dataclass(frozen=True)
class Vocabulary:
    """Named groups."""

    name: str
    groups: tuple[Group, ...]

    @property
    def operators(self) -> list[str]:
        """The operators' names, in order of first appearance."""
        return list(dict.fromkeys(o.name for g in self.groups for o in g.operators))

    def only(self, names: Sequence[str]) -> Vocabulary:
        """The vocabulary with these operators (template names, or ONNX names for all templates of one). UsageError
        for others."""
        known = {o.name for g in self.groups for o in g.operators} | {o.op for g in self.groups for o in g.operators}
        for name in names:
            if name not in known:
                raise UsageError(
                    f"The vocabulary '{self.name}' has no operator '{name}'; it has {', '.join(self.operators)}."
                )
        groups = []
        for g in self.groups:
            kept = tuple(o for o in g.operators if o.name in names or o.op in names)
            if kept:
                groups.append(Group(g.name, g.families, kept, g.worlds, g.extra_ops))
        return Vocabulary(self.name, tuple(groups))

    def only_groups(self, names: Sequence[str]) -> Vocabulary:
        """The vocabulary with these groups. UsageError for others."""
        known = [g.name for g in self.groups]
        for name in names:
            if name not in known:
                raise UsageError(f"The vocabulary '{self.name}' has no group '{name}'; it has {', '.join(known)}.")
        return Vocabulary(self.name, tuple(g for g in self.groups if g.name in names))


def load_vocabulary(name: str) -> Vocabulary:
    """A vocabulary of the package ("taso", "wide") or of a JSON file. Raises UsageError with the reason."""
    if name in builtin.VOCABULARIES:
        return read_vocabulary(name, builtin.VOCABULARIES[name])
    path = Path(name)
    if not stat.S_ISREG(mode_of(path, "The vocabulary", UsageError)):
        raise UsageError(
            f"There is no vocabulary '{name}': neither one of {', '.join(builtin.VOCABULARIES)} nor a JSON file."
        )
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"The vocabulary file {name} cannot be read: {error}.") from error
    return read_vocabulary(path.stem, data)


def read_vocabulary(name: str, data: Mapping[str, Any]) -> Vocabulary:
    """Checks a vocabulary's data. Raises UsageError with what is wrong."""
    try:
        worlds = tuple(dict(w) for w in data["worlds"])
        families = {k: _family(k, v) for k, v in data["inputs"].items()}
        operators = {k: _operator(k, v) for k, v in data["ops"].items()}
        groups = [
            Group(
                g,
                tuple(families[f] for f in spec["inputs"]),
                tuple(operators[o] for o in spec["ops"]),
                tuple(dict(w) for w in spec.get("worlds", worlds)),
                int(spec.get("extra_ops", 0)),
            )
            for g, spec in data["groups"].items()
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"The vocabulary '{name}' is malformed: {error!r} (see docs/generator.md).") from error
    return Vocabulary(name, tuple(groups))


def _family(name: str, spec: Mapping[str, Any]) -> InputFamily:
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in spec.items()}
    return InputFamily(name, **fields)


def _operator(name: str, spec: Mapping[str, Any]) -> OperatorTemplate:
    if not _core.has_operator(spec["op"]):
        raise UsageError(f"The vocabulary's operator '{name}' names '{spec['op']}', which the operator table lacks.")
    for operand in spec.get("operands", ()):
        if operand not in _OPERANDS:
            raise UsageError(f"The operator '{name}': an operand is one of {', '.join(_OPERANDS)}, not '{operand}'.")
    return OperatorTemplate(
        name,
        spec["op"],
        dict(spec.get("attributes", {})),
        tuple(spec.get("operands", ())),
        str(spec.get("like", "")),
    )


# ---- for the native core --------------------------------------------------------------------------------------------


def _numbers(family: InputFamily, count: int, world: int, rng: random.Random) -> list[Fraction]:
    """Rationals n/1024 below 2 in size, none of them zero.

    Signs must not make chance identities (a Relu that does nothing, a maximum that is always positive): the first
    element's sign
    alternates with the world, and in odd worlds nine in ten are negative.
    """
    out = [Fraction(rng.randint(1, 2047), 1024) for _ in range(count)]
    if family.positive:
        return out
    signs = [1 if rng.random() < (0.1 if world % 2 else 0.5) else -1 for _ in out]
    return [x * (s if k else (-1) ** world) for k, (x, s) in enumerate(zip(out, signs, strict=True))]


_DERIVED: dict[str, Callable[..., Exact]] = {
    "Neg": np.negative,
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Conv": lambda x, w: np.tensordot(w[:, :, 0, 0], x[0, :, 0, 0], 1).reshape(
        1, -1, 1, 1
    ),  # of one pixel, by a 1x1 kernel
}


def _derive(term: Any, known: Mapping[str, Exact], operators: Mapping[str, str]) -> Exact:
    if isinstance(term, str):
        return known[term]
    operands = [_derive(t, known, operators) for t in term[1:]]
    return np.asarray(_DERIVED[operators.get(term[0], term[0])](*operands), dtype=object)


def input_values(group: Group, world: int, seed: int) -> dict[str, Exact]:
    """The values of all inputs in one world."""
    values: dict[str, Exact] = {}
    operators = {o.name: o.op for o in group.operators}
    for name, family in group.inputs:
        shape = family.extents(group.worlds[world])
        if family.derived:
            values[name] = _derive(list(family.derived), values, operators).reshape(shape)
        else:
            rng = random.Random(key_of("generate", seed, group.name, name, world))
            values[name] = np.array(_numbers(family, math.prod(shape), world, rng), dtype=object).reshape(shape)
    return values


def make_enumerator(group: Group, *, max_ops: int, seed: int) -> _core.Enumerator:
    """The native enumerator of a group."""
    values = [input_values(group, w, seed) for w in range(len(group.worlds))]
    index = {f.name: k for k, f in enumerate(group.families)}
    inputs = []
    for name, family in group.inputs:
        exact = [x for world in values for x in world[name].flat]
        shapes = [family.extents(w) for w in group.worlds]
        residues = [from_fraction(x) for x in exact]
        inputs.append((index[family.name], family.weight, shapes, residues, [float(x) for x in exact]))
    templates = []
    for o in group.operators:
        kind = kinds.of(o.op, o.concrete(group.worlds[0]))
        operands = [_OPERANDS[k] for k in o.operands] or [0] * kind.arity
        attributes = [o.concrete(w) for w in group.worlds]
        lists = [kinds.of(o.op, one).attributes for one in attributes]
        commutative = kind.commutative and len(set(operands)) == 1  # else the operands' roles tell them apart
        templates.append((kind.kind, kind.outputs, commutative, operands, kind.key, lists, o.op, attributes))
    return _core.Enumerator(inputs, templates, worlds=len(group.worlds), max_ops=min(max_ops + group.extra_ops, 5))
