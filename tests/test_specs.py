"""``name:option=value``: what is read, written back, and refused."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlflow import specs
from rlflow.errors import UsageError

WORDS = st.text("abcdefgh-_", min_size=1, max_size=8)


class Base:
    """Counts. ``depth``: how far; ``names``, ``table``: what only Python can say."""

    def __init__(
        self,
        *,
        depth: int = 1,
        speed: float | None = None,
        place: str | os.PathLike[str] | None = None,
        table: Mapping[str, int] | None = None,
        loud: bool = False,
    ) -> None:
        self.given = {"depth": depth, "speed": speed, "place": place, "table": table, "loud": loud}


class Derived(Base):
    """``width``: as wide as this."""

    def __init__(self, width: int = 2, **options: Any) -> None:
        super().__init__(**options)
        self.given["width"] = width


@dataclass(frozen=True)
class Value:
    """A value. ``a``, ``b``: its parts."""

    a: int = 1
    b: float = 0.5


def anything(**options: Any) -> dict[str, Any]:
    return options


@given(WORDS, st.dictionaries(WORDS, st.one_of(st.integers(), st.booleans(), WORDS), max_size=4))
def test_what_is_written_is_read_back(name: str, options: dict[str, Any]) -> None:
    found = specs.split(specs.written(name, options), "thing")
    assert found == (name, {key: specs.text_of(value) for key, value in options.items()})


@pytest.mark.parametrize(
    ("text", "spec"),
    [("beam", "beam"), ("beam(width=4;twins=1)", "beam:width=4,twins=1"), (" a(b=1) ", "a:b=1")],
)
def test_inside_an_option_brackets_stand_for_the_colon(text: str, spec: str) -> None:
    assert specs.nested(text) == spec


@pytest.mark.parametrize(
    ("maker", "given_", "expected"),
    [
        (Value, {"a": "3", "b": "0.25"}, {"a": 3, "b": 0.25}),
        (Base, {"depth": "4", "speed": "2", "loud": "on", "place": "here"},
         {"depth": 4, "speed": 2.0, "loud": True, "place": "here"}),
        (Base, {"depth": 7, "table": {"x": 1}}, {"depth": 7, "table": {"x": 1}}),
        (Derived, {"width": "5", "depth": "2"}, {"width": 5, "depth": 2}),
        (anything, {"a": "1", "b": "1.5", "c": "word"}, {"a": 1, "b": 1.5, "c": "word"}),
    ],
)  # fmt: skip
def test_texts_are_read_as_the_types_say(maker: Any, given_: dict[str, Any], expected: dict[str, Any]) -> None:
    assert specs.arguments(maker, given_, "thing") == expected


@pytest.mark.parametrize(
    ("maker", "given_", "says"),
    [
        (Value, {"a": "x"}, "The option 'a' of thing is 'x'; expected a whole number"),
        (Value, {"b": "x"}, "expected a number"),
        (Base, {"loud": "maybe"}, "expected true or false"),
        (Base, {"table": "x=1"}, "cannot be written as text"),
        (Derived, {"widht": "1"}, "The thing has no option 'widht'. Did you mean width?"),
        (Derived, {"dept": "1"}, "Did you mean depth?"),
        (Value, {"zzz": "1"}, "There are: a, b."),
    ],
)
def test_mistakes_are_sentences(maker: Any, given_: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as error:
        specs.arguments(maker, given_, "thing")
    assert says in str(error.value)


def test_a_missing_value_is_named() -> None:
    with pytest.raises(UsageError, match="The option 'width' of strategy 'beam' has no value; write beam:width=…"):
        specs.split("beam:width", "strategy")


def test_options_are_documented_by_the_first_docstring_that_names_them() -> None:
    found = {row["name"]: (row["type"], row["default"], row["doc"]) for row in specs.about(Derived)}
    assert found["width"] == ("int", "2", "as wide as this.")
    assert found["depth"] == ("int", "1", "how far")
    assert found["table"] == ("object", "None", "what only Python can say.")
    assert specs.title_of(Base) == "Counts."


@pytest.mark.parametrize(
    ("word", "known", "says"),
    [
        ("beem", ["beam", "greedy"], "Did you mean beam?"),
        ("alpha", ["alphas", "alphb", "zzz"], "Did you mean alphas or alphb?"),
        ("zzz", ["b", "a"], "There are: a, b."),
        ("zzz", [f"x{k}" for k in range(100)], "There are 100 others."),
        ("zzz", [], "There is none."),
    ],
)
def test_near_matches_only_where_they_are_near(word: str, known: list[str], says: str) -> None:
    assert specs.did_you_mean(word, known) == says


class Told:
    """Tells of :class:`Base` things.

    ``limit``: how many (``None``: any number); ``kind``, ``rank``: of :mod:`a.b` each. ``repeats`` runs make a sum of
    ``parts``; ``mode="lazy"``: only some.

    The end. ``late``: last. Raises :class:`UsageError` for others.
    """

    def __init__(
        self,
        limit: int | None = None,
        kind: str = "",
        rank: int = 0,
        repeats: int = 1,
        parts: int = 1,
        mode: str = "",
        late: int = 0,
        silent: int = 0,
    ) -> None: ...


def test_what_a_docstring_says_about_each_option() -> None:
    assert specs.title_of(Told) == "Tells of Base things."
    assert {name: one.doc for name, one in specs.options_of(Told).items()} == {
        "limit": "how many (None: any number)",
        "kind": "of a.b each.",
        "rank": "of a.b each.",
        "repeats": "repeats runs make a sum of parts",
        "parts": "repeats runs make a sum of parts",
        "mode": 'mode="lazy": only some.',
        "late": "last.",
        "silent": "",
    }


@pytest.mark.parametrize("kind", ["strategies", "costs", "runtimes", "decoders", "importers"])
def test_what_is_told_of_shipped_options_has_no_markup(kind: str) -> None:
    from rlflow.cli.info import registries

    for row in registries()[kind].rows():
        for text in (row["doc"], *(one["doc"] for one in row.get("options", ()))):
            assert "`" not in text and "Raises" not in text and text.count("(") == text.count(")"), text
