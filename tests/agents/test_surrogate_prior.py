"""The prior of the surrogate: what a region may take, guessed from regions that were timed before."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rlflow.agents.bayes import prior
from rlflow.agents.bayes.prior import UNKNOWN, Example, Prior, roofline
from rlflow.errors import ModelError
from rlflow.price import Price
from rlflow.price.traits import SIZES, Traits, traits_by_name


def timed(operator: str, factor: float, sizes: Iterable[float], detail: str = "") -> list[Example]:
    traits = traits_by_name(operator)._replace(detail=detail)
    return [Example("", operator, size, 8 * size, traits, factor * roofline(size, 8 * size)) for size in sizes]


def test_more_alike_regions_say_more() -> None:
    sizes = (1e5, 2e5, 4e5, 8e5)
    prior = Prior([*timed("Transpose", 9.0, sizes, "021"), *timed("Transpose", 1.0, sizes, "102")])
    base = roofline(3e5, 24e5)

    def asked(detail: str, operators: str = "Transpose") -> tuple[float, float]:
        found = prior.guess("", operators, 3e5, 24e5, Traits("Transpose", detail))
        return found.ms / base, math.hypot(found.shared, found.own)

    (slow, sure), (quick, too), (between, less), (_, least) = (
        asked("021"), asked("102"), asked("10"), asked("10", "Transpose Transpose"),
    )  # fmt: skip
    assert slow == pytest.approx(9.0, rel=0.1)
    assert quick == pytest.approx(1.0, rel=0.1)
    assert quick < between < slow
    assert max(sure, too) < 0.2 < less < least
    far = prior.guess("", "Transpose", 3e9, 24e9, Traits("Transpose", "021"))
    assert math.hypot(far.shared, far.own) > sure


def by_definition(known: list[Example], asked: Example) -> tuple[float, float]:
    """Mean and standard deviation of the process where all examples are alike but in size and detail."""
    reach = np.array([1.6, 1.6])

    def place(one: Example) -> np.ndarray:
        return np.log([one.flops + 1e3, one.bytes + 1e2]) / reach

    def kernel(one: Example, other: Example) -> float:
        far = float(((place(one) - place(other)) ** 2).sum())
        near, close = math.exp(-far / 2), 0.01 * math.exp(-4.5 * far)
        found = 0.36 + 0.25 + 0.16 + near * (0.03**2 + 0.15**2 + 0.1**2)
        return found + (0.16 + near * 0.15**2 + close if one.traits == other.traits else 0.0)

    off = np.log([one.ms / roofline(one.flops, one.bytes) for one in known])
    level = float(np.median(off))
    inside = np.array([[kernel(one, other) for other in known] for one in known])
    inside += np.diag([0.05**2 + (0.01 / max(one.ms, roofline(one.flops, one.bytes))) ** 2 for one in known])
    across = np.array([kernel(asked, one) for one in known])
    mean = level + float(across @ np.linalg.solve(inside, off - level))
    variance = kernel(asked, asked) - float(across @ np.linalg.solve(inside, across))
    return mean, math.sqrt(variance + 0.05**2)


def test_a_guess_is_that_of_a_gaussian_process() -> None:
    known = [*timed("Tanh", 3.0, (1e5, 3e6)), *timed("Tanh", 2.0, (1e7,)), *timed("Tanh", 0.8, (4e4,))]
    known += timed("Tanh", 7.0, (1.2e6,), "another")
    asked = timed("Tanh", 1.0, (1e6,))[0]
    mean, spread = by_definition(known, asked)
    found = Prior(known).guess("", "Tanh", asked.flops, asked.bytes)
    assert math.log(found.ms / asked.ms) == pytest.approx(mean, abs=1e-9)
    assert math.hypot(found.shared, found.own) == pytest.approx(spread, rel=1e-6)


def test_the_same_region_timed_often_counts_once_with_its_median() -> None:
    once = [*timed("Tanh", 2.0, (1e6,)), *timed("Tanh", 4.0, (1e7,))]
    often = [*once, *timed("Tanh", 2.0, (1e6,) * 3), *timed("Tanh", 50.0, (1e6,))]
    assert len(Prior(often)) == 2
    assert Prior(often).guess("", "Tanh", 3e6, 3e6) == Prior(once).guess("", "Tanh", 3e6, 3e6)


def test_what_nobody_timed_anything_like_may_take_nearly_anything() -> None:
    prior = Prior([*timed("Tanh", 3.0, (1e5, 1e6)), *timed("Relu", 1.0, (1e5,)), *timed("Exp", 2.0, (1e5,))])
    found = prior.guess("Conv", "Conv", 1e6, 0.0)
    assert found.ms == pytest.approx(2.0 * roofline(1e6, 0.0), rel=0.01)
    assert found[1:] == (UNKNOWN, UNKNOWN)


def test_the_untrained_prior_is_the_roofline() -> None:
    assert Prior().guess("", "Tanh", 6e7, 0.0) == (1.002, UNKNOWN, UNKNOWN)
    assert Prior().guess("", "Tanh", 0.0, 2.4e7).ms == pytest.approx(2.002)


def test_the_prior_reads_rows_of_json(tmp_path: Path) -> None:
    path = tmp_path / "timed.jsonl"
    row = {"region": "", "operators": "Tanh", "flops": 1e5, "bytes": 1e5, "traits": ["Tanh", "", [0.0] * SIZES]}
    rows = [{"kind": "machine"}, {**row, "ms": 0.5}, {**row, "ms": None}]
    path.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    assert len(Prior.read(path)) == 1
    assert Prior.read(path).guess("", "Tanh", 1e5, 1e5).ms == pytest.approx(0.5)


def test_the_prior_reads_prices_of_the_database() -> None:
    told = Traits("Tanh", "x", (1.0, 0.0, 0.0, 0.0, 0.0))
    full = Price(0.5, 0.1, 9, kind="k", operators="Tanh", flops=1e5, bytes=2e5, traits=told.text)
    bare = replace(full, ms=0.25, operators="Tanh Relu", traits="")
    prior = Prior.of_prices([full, bare, replace(full, ms=None, refusal="no"), replace(full, operators="")])
    same = Prior(
        [
            Example("k", "Tanh", 1e5, 2e5, told, 0.5),
            Example("k", "Tanh Relu", 1e5, 2e5, traits_by_name("Tanh Relu"), 0.25),
        ]
    )
    assert len(prior) == 2
    for asked in (told, None):
        assert prior.guess("k", "Tanh", 3e5, 3e5, asked) == same.guess("k", "Tanh", 3e5, 3e5, asked)


def test_of_very_many_regions_some_of_every_kind_and_size_count(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = np.linspace(1e5, 1e7, 200)
    many = [one for detail in "ab" for one in timed("Tanh", 2.0, sizes[:100], detail)]
    many += [one for detail in "ab" for one in timed("Tanh", 6.0, sizes[100:], detail)]
    all_of_them = Prior(many)
    assert len(all_of_them) == 400
    monkeypatch.setattr(prior, "MOST", 20)
    few, backwards = Prior(many), Prior(many[::-1])
    assert len(few) == 20
    for size in (1e5, 1e6, 1e7):
        for detail in ("a", "b"):
            asked = ("", "Tanh", size, 8 * size, Traits("Tanh", detail))
            assert few.guess(*asked) == backwards.guess(*asked)
            assert few.guess(*asked).ms == pytest.approx(all_of_them.guess(*asked).ms, rel=0.4)
    monkeypatch.setattr(prior, "MOST", 400)
    assert Prior(many).guess("", "Tanh", 1e6, 1e6) == all_of_them.guess("", "Tanh", 1e6, 1e6)


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"operators": "Tanh", "ms": 1}', '{"kind": "machine"}'])
def test_a_file_without_timed_regions_is_a_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "timed.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ModelError, match=r"timed region"):
        Prior.read(path)
    with pytest.raises(ModelError, match="cannot be read"):
        Prior.read(tmp_path / "none.jsonl")
