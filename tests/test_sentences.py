"""Pages that a newcomer reads first have short sentences, and the README's figures are those of their files."""

from __future__ import annotations

import json
import re

import pytest

from tests.sentences import HELD, LONGEST, ROOT, average, faults, sentences

README = (ROOT / "README.md").read_text(encoding="utf-8")
#: How the README calls the models of reproduce/foundation.
CALLED = {
    "nasrnn": "NasRNN",
    "llama-decoder-step": "LLaMA",
    "bert6-classifier": "BERT",
    "repvgg-a0": "RepVGG",
    "densenet-121": "DenseNet",
    "squeezenet1.1": "SqueezeNet",
    "inception-v3": "Inception",
}


@pytest.mark.parametrize("name", [name for name in HELD if (ROOT / name).exists()])
def test_pages_for_newcomers_have_short_sentences(name: str) -> None:
    found = faults(name, (ROOT / name).read_text(encoding="utf-8"))
    assert not found, "\n".join(found)


def test_the_first_pages_are_held() -> None:
    assert {"README.md", "docs/tour.md"} <= set(HELD)


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("One two three. Four five.", [3, 2]),
        ("One two\nthree, `four five` six. 7 eight!", [5, 2]),
        ("# Not this\n\nOne [two three](https://a.b/c d) four.", [4]),
        ("* One two\n* three four five", [2, 3]),
        ("One:\n\n```bash\nnot this. Or This.\n```\n\ntwo three", [1, 2]),
        ("e.g. One version 1.2 of vs. two", [7]),
        ("<!-- not. This -->One", [1]),
    ],
)
def test_what_a_sentence_is(page: str, words: list[int]) -> None:
    assert [one.words for one in sentences(page)] == words


def test_cells_are_measured_and_do_not_count_in_the_average() -> None:
    found = sentences("One two three four.\n\n| a | b c. D |\n|---|---|\n")
    assert [one.words for one in found if one.in_table] == [1, 2, 1]
    assert average(found) == 4.0


def test_long_sentences_and_a_long_average_are_faults() -> None:
    long = " ".join(["word"] * (LONGEST + 1)) + "."
    assert len(faults("page", long)) == 2
    assert len(faults("page", long + " A b." * 4)) == 1
    assert faults("page", "Short. Words.") == []


@pytest.mark.parametrize("name", CALLED)
def test_the_readmes_figures_are_those_of_the_last_run(name: str) -> None:
    rows = map(json.loads, (ROOT / "reproduce/foundation/results/latest.jsonl").read_text("utf-8").splitlines())
    row = next(one for one in rows if one["kind"] == "report" and one["name"] == name)
    (line,) = re.findall(rf"^\| {CALLED[name]}.*$", README, re.MULTILINE)
    before, after, gain = (cell.strip() for cell in line.strip("|").split("|")[1:4])
    assert float(before) == pytest.approx(row["baseline_ms"], rel=0.005)
    if not row["improved"]:
        assert gain.startswith("none")
        return
    assert float(after) == pytest.approx(row["optimized_ms"], rel=0.005)
    low, high = row["speedup_ci95"]
    assert gain == f"{row['speedup']:.2f} ({low:.2f} to {high:.2f})"


def test_the_page_on_the_generator_says_how_many_of_its_rules_ship() -> None:
    files = (ROOT / "substitutions" / "generated").glob("*.json")
    shipped = sum(len(json.loads(path.read_text(encoding="utf-8"))["rules"]) for path in files)
    page = (ROOT / "docs" / "generator.md").read_text(encoding="utf-8")
    told = re.search(r"^(\d+) of these rules ship in `substitutions/generated/`", page, re.MULTILINE)
    assert told is not None and int(told[1]) == shipped


def test_the_page_on_prices_says_when_the_race_is_looked_at() -> None:
    from rlflow.race.sequential import LOOKS

    first, *others = LOOKS
    *more, last = map(str, others)
    assert first == 8, "the page says eight in a word"
    page = " ".join((ROOT / "docs" / "cost.md").read_text(encoding="utf-8").split())
    assert "Eight are enough if all show a gain" in page and f"again after {', '.join(more)} and {last} blocks." in page
