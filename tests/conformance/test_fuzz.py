"""100 random sequences of rewrites from the whole library; `make fuzz` runs thousands (see fuzz.py)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fuzz import Fuzzer, sequence

from rlflow._core import Rule, RuleSet
from rlflow.rewrite import load_rules
from rlflow.runtime import Worker

BLOCK, SEQUENCES = 10, 100


@pytest.fixture(scope="module")
def fuzzer() -> Iterator[Fuzzer]:
    with Worker() as worker:
        yield Fuzzer(worker, load_rules())


@pytest.mark.xdist_group("fuzz")
@pytest.mark.parametrize("first", range(0, SEQUENCES, BLOCK))
def test_random_rewrites_compute_the_same(first: int, fuzzer: Fuzzer) -> None:
    outcomes = [fuzzer.check(seed) for seed in range(first, first + BLOCK)]
    failures = [f"seed {one.seed}, step {one.step}: {one.failure}\n{one.before}" for one in outcomes if one.failure]
    assert not failures, "\n".join(failures)
    assert sum(len(one.rules) for one in outcomes) > 8 * BLOCK


def test_a_seed_gives_one_sequence(fuzzer: Fuzzer) -> None:
    once, again = ([(step.rule, step.key) for step in sequence(fuzzer.start(8)[0], 8, fuzzer.rules)] for _ in range(2))
    assert once == again
    assert len(once) > 5


def test_a_false_rule_is_caught_and_named(fuzzer: Fuzzer) -> None:
    liar = Fuzzer(fuzzer.worker, fuzzer.library)
    truth = Rule("truth", ["(Add ?a ?b)"], ["(Neg (Sub (Neg ?a) ?b))"])
    liar.rules = RuleSet([truth, Rule("lie", ["(Sub ?a ?b)"], ["(Sub ?b ?a)"], ["same_shape(?a, ?b)"])])
    failures = [one for one in (liar.check(seed) for seed in range(0, 20, 2)) if one.failure]
    assert failures
    for one in failures:
        assert one.step is not None and one.rules[one.step - 1] == "lie", one.failure
