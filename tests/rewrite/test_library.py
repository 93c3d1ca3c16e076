"""Rule files are refused with file, line and reason; libraries select and compile."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from rlflow import _core
from rlflow.errors import RuleError, UsageError
from rlflow.rewrite import Rule, RuleLibrary, all_shipped, compiled, explain, load_rules, read_rules
from rlflow.rewrite import paths as rule_paths
from rlflow.rewrite.library import _family_of, _read_data, _shipped_in, checked

GOOD = {"name": "good", "source": ["(Relu (Relu ?x))"], "target": ["(Relu ?x)"]}


def file_of(path: Path, *rules: object, **head: object) -> Path:
    data = {"format": 1, "family": "f", "rules": list(rules)} | head
    path.write_text(json.dumps(data, indent=1), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "reason", "line"),
    [
        ('{\n "format": 1,\n oops', "not JSON", 3),
        ("[]", "expected an object", 1),
        ('{"format": 2, "family": "f", "rules": []}', "expected an object", 1),
        ('{"format": 1, "rules": []}', '"family" is missing', 1),
        ('{"format": 1, "family": "f", "rules": [3]}', "not an object", None),
    ],
)
def test_a_malformed_file_is_refused(tmp_path: Path, text: str, reason: str, line: int | None) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RuleError, match=reason) as caught:
        read_rules([path])
    assert caught.value.file == str(path) and caught.value.line == line


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sauce": []}, 'unknown field "sauce"'),
        ({"source": "(Relu ?x)"}, '"source" is not a list'),
        ({"source": []}, "missing"),
        ({"numerics": "fine"}, '"numerics" is'),
        ({"let": []}, '"let" is not'),
        ({"samples": [1]}, '"samples"'),
        ({"doc": 3}, '"doc" is not a text'),
        ({"proof": {"method": "field"}}, '"proof" is malformed'),
        ({"s" * 100_000: []}, 'unknown field "sss'),
        ({"numerics": "s" * 100_000}, '"numerics" is'),
    ],
)
def test_a_malformed_rule_is_refused_with_its_line(tmp_path: Path, change: dict, reason: str) -> None:
    path = file_of(tmp_path / "bad.json", GOOD, {**GOOD, "name": "bad", **change})
    with pytest.raises(RuleError, match=reason) as caught:
        read_rules([path])
    lines = path.read_text(encoding="utf-8").splitlines()
    assert caught.value.line is not None and '"bad"' in lines[caught.value.line - 1]
    assert len(caught.value.reason) < 500


@pytest.mark.parametrize(("length", "refused"), [(200, False), (201, True), (100_000, True)])
def test_a_name_is_no_longer_than_a_sentence_can_show(tmp_path: Path, length: int, refused: bool) -> None:
    path = file_of(tmp_path / "long.json", {**GOOD, "name": "n" * length})
    if refused:
        with pytest.raises(RuleError, match=f"its name has {length} characters; expected at most 200") as caught:
            read_rules([path])
        assert len(caught.value.reason) < 500
    else:
        assert [rule.name for rule in read_rules([path])] == ["n" * length]


def test_a_rule_that_does_not_compile_is_refused_with_its_line(tmp_path: Path) -> None:
    path = file_of(tmp_path / "bad.json", {**GOOD, "target": ["(Relu ?y)"]})
    with pytest.raises(RuleError, match="not bound") as caught:
        load_rules([path], prove=lambda rule: pytest.fail("it does not compile"))
    assert caught.value.line == 6


def test_shipped_rules_need_a_record_that_covers_them(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = next(iter(load_rules().values()))
    assert checked(rule, None) is rule
    with pytest.raises(RuleError, match="no proof record"):
        checked(dataclasses.replace(rule, proof=None), None)
    changed = dataclasses.replace(rule, where=(*rule.where, "rank(?x) == 2"))
    with pytest.raises(RuleError, match="statement was changed"):
        checked(changed, None)
    for field, value, reason in (
        ("prover", 0, "version 0 of the prover"),
        ("semantics", "0" * 16, "means something else"),
    ):
        with pytest.raises(RuleError, match=reason):
            checked(dataclasses.replace(rule, proof=dataclasses.replace(rule.proof, **{field: value})), None)


def test_names_are_unique() -> None:
    a = Rule("same", "f", ("(Relu ?x)",), ("(Relu ?x)",))
    with pytest.raises(RuleError, match="the name is taken"):
        RuleLibrary([a, dataclasses.replace(a, family="g")])


def test_selection_by_family_and_name() -> None:
    library = load_rules(families=["shape"])
    assert library.families == ["shape"]
    one = library.select(["transpose-of-transpose"])
    assert list(one) == ["transpose-of-transpose"]
    with pytest.raises(UsageError, match="neither a rule nor a family"):
        load_rules(families=["shapes"])
    with pytest.raises(UsageError, match="no file or folder"):
        load_rules(["nowhere.json"])


def test_compiling_keeps_the_order_and_is_done_once() -> None:
    library = load_rules()
    ruleset = compiled(library)
    assert ruleset.names == list(library) and compiled(library) is ruleset and compiled(ruleset) is ruleset
    assert library.digest == ruleset.digest
    some = list(library.values())[:3]
    assert compiled(some).names == [rule.name for rule in some]


def test_explain_says_why_not() -> None:
    rule = load_rules()["transpose-in-place"]
    graph = _core.Graph.parse("x: f32[2,3] = input\ny = Transpose{perm=[1,0]}(x)\nreturn y")
    assert "?p == iota(len(?p))" in explain(graph, rule)[0]


def test_the_shipped_files_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_rules()

    def refuse(*_: object) -> None:
        raise AssertionError("a file was read again")

    monkeypatch.setattr("rlflow.rewrite.library.read_rules", refuse)
    again = load_rules()
    assert [one is other for one, other in zip(first.values(), again.values(), strict=True)].count(True) == len(first)


def test_the_rules_are_found_in_a_source_tree_and_missing_ones_are_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert rule_paths.library_files() and all(rule_paths.is_shipped(path) for path in rule_paths.library_files())
    assert not rule_paths.is_shipped(tmp_path / "mine.json")
    monkeypatch.setattr(rule_paths, "_PACKAGE", tmp_path / "rlflow")
    with pytest.raises(RuleError, match="rule library is missing"):
        rule_paths.substitutions_dir()


@pytest.mark.parametrize("names", [["fold"], ["generated", "linear"], ["fold", "linear-to-gemm"]])
def test_reading_few_families_gives_what_reading_all_does(names: list[str]) -> None:
    found = load_rules(families=names)
    assert list(found) == list(all_shipped().select(names))
    rule = next(iter(found.values()))
    assert rule.file is not None
    assert rule.line is not None
    assert f'"{rule.name}"' in Path(rule.file).read_text(encoding="utf-8").splitlines()[rule.line - 1]


def test_files_of_other_families_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []

    def counted(path: Path) -> object:
        read.append(path.stem)
        return _read_data(path)

    monkeypatch.setattr("rlflow.rewrite.library._shipped_in", _shipped_in.__wrapped__)
    monkeypatch.setattr("rlflow.rewrite.library._read_data", counted)
    assert load_rules(families=["linear"]).families == ["linear"]
    assert read == ["linear"]


@pytest.mark.parametrize("text", ['{"family": "f", "format": 1, "rules": []}', '{"format": 1, "family": "f"}'])
def test_a_file_that_does_not_begin_with_its_family_is_read(text: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    path.write_text(text, encoding="utf-8")
    if "rules" in text:
        assert _family_of(path) == "f"
    else:
        with pytest.raises(RuleError, match='"rules"'):
            _family_of(path)
