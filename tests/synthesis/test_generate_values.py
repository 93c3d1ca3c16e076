"""The enumerator's evaluator against the prover's exact semantics, on random graphs."""

from __future__ import annotations

import dataclasses
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from rlflow import _core
from rlflow.errors import UsageError
from rlflow.synthesis.domains import Domain, Field, Ordered
from rlflow.synthesis.field import from_fraction
from rlflow.synthesis.generate.graphs import RECORD, Expression, Instances, decode, decode_pairs, leaves, operators
from rlflow.synthesis.generate.vocabulary import Group, input_values, load_vocabulary, make_enumerator
from rlflow.synthesis.operators import exact
from rlflow.synthesis.semantics import Evaluator

#: Meant as they are over rationals, arbitrary functions over the field.
_ORDERED = {"Max", "Min", "Relu", "MaxPool", "ReduceMax"}
_ARBITRARY = {"Softmax", "LogSoftmax", "LayerNormalization", "Tanh"}


def _groups() -> list[Group]:
    return [g for name in ("taso", "wide") for g in load_vocabulary(name).groups]


def _sampled(group: Group, count: int) -> tuple[_core.Enumerator, list[Any]]:
    enumerator = make_enumerator(group, max_ops=3, seed=0)
    rng = random.Random(group.name)
    records: list[Any] = []
    for branch in rng.sample(range(enumerator.branches), min(8, enumerator.branches)):
        result = enumerator.run(branch, 10**6)
        assert result is not None
        found = np.frombuffer(result[0], RECORD)
        records += [found[k] for k in rng.sample(range(len(found)), min(len(found), count))]
    return enumerator, records


def _domain(ops: set[str]) -> Domain | None:
    if ops & _ORDERED:
        return None if ops & _ARBITRARY else Ordered()
    return Field()


def _expected(group: Group, term: Expression, world: int, domain: Domain) -> np.ndarray[Any, Any]:
    exact = input_values(group, world, 0)
    names = [name for name, _ in group.inputs]
    graph = Instances(_plain(group), world).graph([term], range(len(names)))
    feeds = {k: domain.constants(list(exact[name].flat), exact[name].shape) for k, name in enumerate(names)}
    [out] = Evaluator(domain, 0).run(graph, feeds)
    residues = [from_fraction(x) if isinstance(x, (Fraction, int)) else int(x) for x in out.flat]
    return np.array(residues, dtype=np.uint64).reshape(out.shape)


def _plain(group: Group) -> Group:
    """The group with all inputs as graph inputs, so that they may be fed."""
    families = tuple(dataclasses.replace(f, constant=False, positive=False, derived=()) for f in group.families)
    return dataclasses.replace(group, families=families)


@pytest.mark.parametrize("group", _groups(), ids=lambda g: f"{g.name}-{len(g.operators)}")
def test_values_are_those_of_the_prover(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the prover knows to be made of Exp is an arbitrary function to the enumerator, which finds less by it."""
    known = exact.facets_of
    monkeypatch.setattr(exact, "facets_of", lambda op: dataclasses.replace(known(op), in_field=None))
    enumerator, records = _sampled(group, 4)
    compared = 0
    for record in records:
        term = decode(record, group)
        domain = _domain({group.operators[n.op].op for n in operators([term])})
        if domain is None:
            continue
        values = enumerator.evaluate(record.tobytes())
        root = values[int(record["root"]) - enumerator.num_inputs]
        for world, (shape, residues, _) in enumerate(root):
            expected = _expected(group, term, world, domain)
            assert list(expected.shape) == shape, term
            assert expected.ravel().tolist() == residues, term
        compared += 1
    assert compared > 5


def test_the_double_beside_an_element_approximates_it() -> None:
    group = load_vocabulary("taso").groups[1]
    enumerator, records = _sampled(group, 3)
    for record in records:
        term = decode(record, group)
        values = input_values(group, 0, 0)
        graph = Instances(_plain(group), 0).graph([term], range(len(group.inputs)))
        feeds = {k: Ordered().constants(list(values[n].flat), values[n].shape) for k, (n, _) in enumerate(group.inputs)}
        [out] = Evaluator(Ordered(), 0).run(graph, feeds)
        shape, _, reals = enumerator.evaluate(record.tobytes())[int(record["root"]) - enumerator.num_inputs][0]
        assert np.allclose(np.array(reals).reshape(shape), out.astype(float), rtol=1e-9)


def test_inputs_used_are_known_to_the_record() -> None:
    group = load_vocabulary("taso").groups[0]
    _, records = _sampled(group, 5)
    for record in records:
        used = leaves([decode(record, group)])
        by_family: dict[str, list[int]] = {}
        for k in used:
            by_family.setdefault(group.inputs[k][1].name, []).append(k)
        in_order = all(ks == list(range(min(ks), min(ks) + len(ks))) and ks == sorted(ks) for ks in by_family.values())
        first = {f: next(k for k, (_, g) in enumerate(group.inputs) if g.name == f) for f in by_family}
        assert bool(record["canonical"]) == (in_order and all(ks[0] == first[f] for f, ks in by_family.items()))


def test_too_many_graphs_for_the_memory_are_refused() -> None:
    enumerator = make_enumerator(load_vocabulary("taso").groups[0], max_ops=3, seed=0)
    with pytest.raises(UsageError, match="memory budget"):
        enumerator.run(0, 10)


def test_a_set_stop_token_ends_a_branch() -> None:
    enumerator = make_enumerator(load_vocabulary("taso").groups[0], max_ops=3, seed=0)
    stop = _core.StopToken()
    stop.set()
    assert enumerator.run(0, 10**6, stop) is None


def test_a_graph_that_equals_its_own_renaming_is_paired_with_it() -> None:
    """conv(concat(x, y), concat(x, y)) is the same for (y, x): dropped as a renaming, nothing would say so."""
    group = next(g for g in load_vocabulary("taso").groups if g.name == "kernels")
    enumerator = make_enumerator(group, max_ops=2, seed=0)
    results = [enumerator.run(branch, 10**6) for branch in range(enumerator.branches)]
    raw, counts = enumerator.pairs([enumerator.inputs(), *(r[0] for r in results if r is not None)])
    assert counts["pairs"] == counts["parts"] + counts["renamed"] + counts["context"] + counts["kept"]
    equations = {frozenset((_shown(group, e.left[0]), _shown(group, e.right[0]))) for e in decode_pairs(raw, group)}
    swapped = {f"Correlate(Concat1({a},{b}),Concat1({a},{b}))" for a, b in (("k1", "k2"), ("k2", "k1"))}
    assert frozenset(swapped) in equations


def _shown(group: Group, t: Expression) -> str:
    return (
        group.inputs[t][0]
        if isinstance(t, int)
        else (f"{group.operators[t.op].name}({','.join(_shown(group, c) for c in t.operands)})")
    )
