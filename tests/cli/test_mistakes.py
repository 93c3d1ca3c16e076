"""Every mistake is one sentence with its exit code, and leaves the files as they are."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper

from tests.cli.commands import merge_model, plain_model, rlflow


def _bad_inputs(folder: Path) -> dict[str, tuple[list[str | Path], int, str]]:
    good = folder / "good.onnx"
    good.write_bytes(merge_model().SerializeToString())
    truncated = folder / "truncated.onnx"
    truncated.write_bytes(merge_model().SerializeToString()[:-100])
    text = folder / "text.onnx"
    text.write_text("This is not a model. " * 10)
    empty = folder / "empty.onnx"
    empty.write_bytes(b"")
    cycle = folder / "cycle.onnx"
    loop = [
        helper.make_node("Add", ["x", "b"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    cycle.write_bytes(plain_model(loop).SerializeToString())
    norun = folder / "norun.onnx"
    custom = [helper.make_node("Nonsense", ["x"], ["y"], domain="nowhere")]
    unknown = plain_model(custom)
    unknown.opset_import.append(helper.make_opsetid("nowhere", 1))
    norun.write_bytes(unknown.SerializeToString())
    false_rule = folder / "false.json"
    rule = {"name": "wrong", "source": ["(Relu ?x)"], "target": ["?x"], "where": ["is_float(?x)"]}
    false_rule.write_text(json.dumps({"format": 1, "family": "false", "rules": [rule]}))
    broken_rule = folder / "broken.json"
    broken_rule.write_text("{")
    analytic = ["--cost", "analytic", "--budget", "5x"]
    return {
        "missing file": (["optimize", folder / "none.onnx", *analytic], 1, "does not exist"),
        "a directory": (["optimize", folder, *analytic], 1, "directory"),
        "truncated file": (["optimize", truncated, *analytic], 1, "truncated"),
        "not ONNX": (["optimize", text, *analytic], 1, "not a serialised ONNX"),
        "empty file": (["optimize", empty, *analytic], 1, "empty"),
        "a cycle": (["optimize", cycle, *analytic], 1, "cycl"),
        "unknown search": (["optimize", good, "--search", "backtrack"], 2, "Did you mean backtracking"),
        "unknown option of a search": (["optimize", good, "--search", "greedy:alpha=2"], 2, "no option 'alpha'"),
        "alpha where there is none": (
            ["optimize", good, "--search", "greedy", "--alpha", "1.1"],
            2,
            "Leave out --alpha",
        ),
        "alpha that admits nothing": (["optimize", good, "--alpha", "0", *analytic], 2, "expected at least 1"),
        "unknown cost": (["optimize", good, "--cost", "analytical"], 2, "no cost model"),
        "negative seed": (["optimize", good, "--seed", "-3", *analytic], 2, "is not in the range x>=0"),
        "no time to compare": (["optimize", good, "--gate-seconds", "-1", *analytic], 2, "above zero seconds"),
        "time that is no number": (["optimize", good, "--gate-seconds", "nan", *analytic], 2, "above zero seconds"),
        "threshold that is no number": (["optimize", good, "--check", "--threshold", "nan"], 2, "from 0 on"),
        "a rule and no model": (["explain", "merge-conv-channels"], 2, "Name one rule and one model"),
        "neither file nor model": (["inspect", "nothere"], 2, "There is no file 'nothere', and the zoo has no"),
        "unknown kind": (["info", "strategie"], 2, "'[KIND]'"),
        "unknown tuning method": (["tune", good, "-o", folder / "tuned", "--method", "harll"], 2, "Did you mean harl"),
        "zero budget": (["optimize", good, "--budget", "0s"], 2, "above zero"),
        "negative budget": (["optimize", good, "--budget", "-5c"], 2, "above zero"),
        "budget without a unit": (["optimize", good, "--budget", "60"], 2, "write 60s"),
        "budget that never ends": (
            ["optimize", good, "--cost", "analytic", "--budget", "9meas"],
            2,
            "9meas never ends",
        ),
        "search that never ends": (["search", "run", good, "--budget", "9meas"], 2, "9meas never ends"),
        "race that never ends": (
            ["compare", good, "--search", "greedy,beam", "--cost", "analytic", "--budget", "9meas"],
            2,
            "9meas never ends",
        ),
        "output in no directory": (
            ["optimize", good, folder / "no" / "out.onnx", *analytic],
            1,
            "there is no directory",
        ),
        "output is a directory": (["optimize", good, folder, *analytic], 1, "is a directory"),
        "output = input": (["optimize", good, good, *analytic], 1, "is the input itself"),
        "output = input by another name": (
            ["optimize", good, folder / "." / "good.onnx", *analytic],
            1,
            "is the input itself",
        ),
        "output twice": (["optimize", good, "a.onnx", "-o", "b.onnx"], 2, "given twice"),
        "report = output": (["optimize", good, folder / "o", "--json", folder / "o"], 2, "both be written"),
        "report = input": (["optimize", good, "--json", good], 2, "a file that holds something else"),
        "runtime cannot run it": (["optimize", norun], 1, "Nonsense"),
        "a false rule": (["optimize", good, "--rules", false_rule, *analytic], 1, "wrong"),
        "a broken rule file": (["optimize", good, "--rules", broken_rule, *analytic], 1, "not JSON"),
        "an unknown family": (["optimize", good, "--rules", "nofamily", *analytic], 2, "nofamily"),
        "quiet and verbose": (["optimize", good, "-q", "-v"], 2, "contradict"),
        "unknown flag": (["optimize", good, "--fast"], 2, "--fast"),
        "no threads": (["optimize", good, "--threads", "0"], 2, "threads"),
        "dim without a size": (["optimize", good, "--dim", "N", *analytic], 2, "--dim N"),
        "dim of two sizes": (["optimize", good, "--dim", "N=1", "--dim", "N=2", *analytic], 2, "says two things"),
        "freezing what is not there": (["optimize", good, "--freeze", "N=1", *analytic], 2, "N"),
        "input data of a long name": (
            ["optimize", good, "--input-data", "x=" + "n" * 300 + ".npy", *analytic],
            2,
            "File name too long",
        ),
        "input data missing": (["optimize", good, "--input-data", folder / "none.npz", *analytic], 2, "does not exist"),
        "unknown verb": (["optimise", good], 2, "optimise"),
        "unknown zoo model": (["zoo", "export", "bert", "-o", folder / "z.onnx"], 2, "no model 'bert'"),
        "zoo model with a size twice": (
            ["zoo", "export", "nasrnn", "-o", folder / "z.onnx", "--set", "hidden=8", "--set", "hidden=9"],
            2,
            "'hidden' of the model is given twice",
        ),
        "zoo model with its batch twice": (
            ["zoo", "export", "nasrnn", "-o", folder / "z.onnx", "--batch", "2", "--set", "batch=1"],
            2,
            "'batch' of the model is given twice",
        ),
        "zoo model with a name of its own": (["bench", "nasrnn?name=x"], 2, "unknown option 'name'"),
        "zoo model with a negative seed": (["bench", "nasrnn?seed=-1"], 2, "'seed' is '-1'"),
        "zoo model with a seed twice": (["bench", "nasrnn?seed=1&seed=2"], 2, "'seed' is given twice"),
        "zoo model of no number": (
            ["zoo", "export", "nasrnn", "-o", folder / "z.onnx", "--set", "hidden=--5"],
            2,
            "'hidden' is '--5'; expected a whole number",
        ),
        "zoo model of another number": (["bench", "nasrnn?seq=²"], 2, "'steps' is '²'"),
        "zoo model beyond all sizes": (
            ["zoo", "export", "nasrnn", "-o", folder / "z.onnx", "--set", "hidden=99999999999"],
            2,
            "at most 2147483647",
        ),
        "freezing at a sign": (["optimize", good, "--freeze", "N=²", *analytic], 2, "--freeze N=² cannot be read"),
        "a dimension beyond all sizes": (["bench", good, "--dim", f"N={'9' * 20}"], 2, "from 1 to 2147483647"),
        "a dimension of thousands of digits": (["bench", good, "--dim", f"N={'9' * 5000}"], 2, "cannot be read"),
        "three sizes beyond all": (["optimize", good, "--dim", f"N=1..2..{'9' * 20}"], 2, "at most 2147483647"),
        "threads at a sign": (["bench", good, "--threads", "²"], 2, "--threads ² cannot be read"),
        "training at a sign": (
            ["optimize", good, "--search", "xrlflow", "--train-budget", "²", *analytic],
            2,
            "'²'; expected steps",
        ),
        "workers at a sign": (
            ["compare", good, "--search", "greedy,beam", "--workers", "²"],
            2,
            "'²'; expected a whole number",
        ),
        "a node at a sign": (["explain", "merge-conv-channels", good, "--node", "²"], 2, "The model has no node '²'"),
        "growth without end": (["optimize", good, "--max-growth", "inf", *analytic], 2, "at most 1000000, not inf"),
        "growth beyond all": (["optimize", good, "--max-growth", "1e308", *analytic], 2, "at most 1000000"),
        "a comparison without end": (["optimize", good, "--gate-seconds", "inf", *analytic], 2, "above zero seconds"),
        "a command without end": (
            ["optimize", good, "--measure-cmd", "run {model}", "--measure-timeout", "nan", *analytic],
            2,
            "measuring command must be above zero seconds",
        ),
        "a command of no time": (
            ["optimize", good, "--measure-cmd", "run {model}", "--measure-timeout", "-5", *analytic],
            2,
            "measuring command must be above zero seconds",
        ),
        "memory beyond all": (["shrink", good, "--memory", "9" * 400], 2, "cannot be read"),
        "a search that is no time": (["shrink", good, "--search-seconds", "nan"], 2, "The time for the search must be"),
        "a race that is no time": (["shrink", good, "--race-seconds", "0"], 2, "by the clock must be above zero"),
        "a slowdown without end": (["shrink", good, "--slower", "inf"], 2, "at most 1000000, not inf"),
        "a benchmark without end": (["bench", good, "--seconds", "inf"], 2, "a benchmark must be above zero seconds"),
        "a benchmark of no time": (["bench", good, "--seconds", "nan"], 2, "a benchmark must be above zero seconds"),
        "threads beyond all": (["bench", good, "--threads", "99999999999"], 2, "from 1 to 4096"),
        "silence without end": (["run", folder, "--timeout", "1e300"], 2, "may be silent must be above zero seconds"),
        "silence of no time": (["run", folder, "--timeout", "nan"], 2, "may be silent must be above zero seconds"),
        "an age that is none": (["cost", "prune", "--older-than", "nan"], 2, "--older-than nan is no age"),
        "an age without end": (["cost", "prune", "--older-than", "1e300"], 2, "--older-than 1e+300 is no age"),
        "an output that is no text": (["simplify", good, "-o", folder / "p\udcff.onnx"], 2, "is not UTF-8"),
        "a report that is no text": (
            ["optimize", good, "--report", folder / "p\udcff.html", *analytic],
            2,
            "is not UTF-8",
        ),
        "JSON that is no text": (["optimize", good, "--json", folder / "p\udcff.json", *analytic], 2, "is not UTF-8"),
        "a difference that is no text": (["diff", good, good, "--html", folder / "p\udcff.html"], 2, "is not UTF-8"),
        "parts that are no text": (["split", good, "-n", "2", "-o", folder / "p\udcff"], 2, "is not UTF-8"),
        "a tuning that is no text": (["tune", good, "-o", folder / "p\udcff"], 2, "is not UTF-8"),
        "a path that is no text": (["inspect", folder / "p\udcff.onnx"], 2, "is not UTF-8"),
        "unknown rule": (["rules", "show", "nothing"], 2, "no rule 'nothing'"),
        "inspecting nothing": (["inspect", folder / "none.onnx"], 1, "does not exist"),
        "proving a false rule": (["rules", "prove", false_rule], 1, "1 refuted"),
    }


def _cases() -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        return list(_bad_inputs(Path(folder)))


@pytest.mark.parametrize("case", _cases())
def test_every_mistake_is_one_sentence_with_its_exit_code(case: str, tmp_path: Path) -> None:
    arguments, code, says = _bad_inputs(tmp_path)[case]
    files = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    done = rlflow(*arguments)
    assert done.exit_code == code, done.output
    errors = [line for line in done.stderr.splitlines() if line.startswith("rlflow: error: ")]
    assert len(errors) == 1, done.stderr
    assert says in errors[0]
    assert "Traceback" not in done.stderr
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == files, (
        "a file was written or changed"
    )


def test_an_unwritable_output_is_refused_before_the_search(model: Path, tmp_path: Path) -> None:
    done = rlflow("optimize", model, tmp_path / "no" / "out.onnx", "--cost", "analytic")
    assert "searching" not in done.stderr


@pytest.mark.parametrize(
    ("value", "status"), [(np.nan, 1), (-np.inf, 0)], ids=["NaN is refused", "a mask's -inf is fine"]
)
def test_weights_that_are_not_finite(value: float, status: int, tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.full(3, value, np.float32), "w")
    path, out = tmp_path / "odd.onnx", tmp_path / "out.onnx"
    path.write_bytes(plain_model([helper.make_node("Add", ["x", "w"], ["y"])], weights=[weight]).SerializeToString())
    done = rlflow("optimize", path, out, "--cost", "analytic", "--budget", "20x")
    assert done.exit_code == status, done.output
    assert out.exists() == (status == 0)
    assert ("the weight 'w' holds NaN" in done.stderr) == (status == 1)
