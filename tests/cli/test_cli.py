"""The command line in process: what each verb prints and writes; every mistake as one sentence with its exit code."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper, numpy_helper

from rlflow.cli import main
from rlflow.rewrite import RuleLibrary, load_rules

RNG = np.random.default_rng(0)


def rlflow(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def _weight(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(RNG.standard_normal(shape).astype(np.float32), name)


def merge_model(width: int = 64) -> onnx.ModelProto:
    """Three products of one input, summed: merging them is cheaper by every cost model."""
    nodes = [helper.make_node("MatMul", ["x", f"w{k}"], [f"p{k}"], name=f"product{k}") for k in range(3)]
    nodes += [helper.make_node("Add", ["p0", "p1"], ["s"]), helper.make_node("Add", ["s", "p2"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "merge",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, width])],
        [_weight(f"w{k}", width, width) for k in range(3)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def plain_model(nodes: list[onnx.NodeProto] | None = None, **options: Any) -> onnx.ModelProto:
    nodes = nodes or [helper.make_node("Sin", ["x"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "plain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, options.pop("shape", [2, 3]))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        options.pop("weights", []),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(merge_model().SerializeToString())
    return path


# --- optimize ---------------------------------------------------------------------------------------------------------

REPORT_SCHEMA = {
    "type": "object",
    "required": [
        "model", "original_ms", "baseline_ms", "optimized_ms", "speedup", "speedup_ci95", "improved", "verified",
        "cost_before_ms", "cost_after_ms", "strategy", "seed", "stop_reason", "candidates", "expansions",
        "measurements", "seconds", "trace", "runtime",
    ],
    "properties": {
        "improved": {"type": "boolean"},
        "verified": {
            "type": ["object", "null"],
            "required": ["outputs"],
            "properties": {
                "outputs": {"type": "array", "items": {"type": "object", "required": ["name", "max_abs", "max_rel"]}},
            },
        },
        "trace": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["rule", "match"],
                "properties": {"rule": {"type": "string"}, "match": {"type": "array", "items": {"type": "integer"}}},
            },
        },
        "runtime": {"type": "object", "required": ["name", "version", "threads"]},
        "stop_reason": {"type": "string"},
        "candidates": {"type": "integer"},
        "seconds": {"type": "number"},
    },
}  # fmt: skip


def test_optimize_profiles_the_rules(model: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    result = rlflow("optimize", model, "--cost", "analytic", "--budget", "50x", "--profile-rules", "--json", report)
    assert result.exit_code == 0, result.output
    assert "Rules by time" in result.output
    found = json.loads(report.read_text())
    uses = found["rule_profile"]
    times = [use["match_ms"] + use["build_ms"] for use in uses]
    assert times == sorted(times, reverse=True) and times[0] > 0
    assert sum(use["applied"] for use in uses) == len(found["trace"]) > 0
    assert all(use["tried"] > 0 and use["file"].endswith(".json") and use["line"] > 0 for use in uses)


def test_optimize_writes_a_model_and_a_report(model: Path, tmp_path: Path) -> None:
    out, report = tmp_path / "out.onnx", tmp_path / "report.json"
    done = rlflow("optimize", model, out, "--cost", "analytic", "--budget", "200x", "--json", report)
    assert done.exit_code == 0, done.output
    onnx.checker.check_model(onnx.load(out), full_check=True)
    plain = json.loads(report.read_text())
    jsonschema.validate(plain, REPORT_SCHEMA)
    assert plain["improved"]
    assert plain["cost_after_ms"] < plain["cost_before_ms"]
    assert plain["speedup"] is None  # no clock, no claim about time
    assert plain["verified"]["outputs"][0]["name"] == "y"
    assert plain["verified"]["outputs"][0]["max_rel"] < 1e-4
    assert plain["trace"]
    assert plain["written"] == str(out)
    for heading in ("Analytic cost", "Operators", "Substitutions applied", "Outputs against the original's"):
        assert heading in done.stdout
    assert "rlflow: searching" in done.stderr


def test_the_result_computes_what_the_model_computes(model: Path, tmp_path: Path) -> None:
    import onnxruntime

    out = tmp_path / "out.onnx"
    assert rlflow("optimize", model, "-o", out, "--cost", "analytic", "--budget", "200x", "--quiet").exit_code == 0
    feeds = {"x": RNG.standard_normal((4, 64)).astype(np.float32)}
    before, after = (onnxruntime.InferenceSession(path.read_bytes()).run(None, feeds)[0] for path in (model, out))
    np.testing.assert_allclose(before, after, rtol=1e-4, atol=1e-4)


def test_quiet_prints_nothing(model: Path) -> None:
    done = rlflow("optimize", model, "--cost", "analytic", "--budget", "20x", "--quiet")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")


def test_without_an_output_only_the_report_is_made(model: Path) -> None:
    before = sorted(model.parent.iterdir())
    done = rlflow("optimize", model, "--cost", "analytic", "--budget", "20x")
    assert done.exit_code == 0
    assert sorted(model.parent.iterdir()) == before


def test_a_model_without_a_gain_is_written_as_it_came(tmp_path: Path) -> None:
    source, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    source.write_bytes(plain_model().SerializeToString())
    done = rlflow("optimize", source, out, "--cost", "analytic", "--budget", "20x")
    assert done.exit_code == 0
    assert out.read_bytes() == source.read_bytes()
    assert "Nothing gained" in done.stdout


@pytest.mark.parametrize("search", ["greedy", "random", "backtracking:alpha=1.2,queue=50"])
def test_every_strategy_can_be_asked_for(model: Path, search: str) -> None:
    done = rlflow("optimize", model, "--cost", "analytic", "--budget", "50x", "--search", search)
    assert done.exit_code == 0, done.output
    assert search in done.stdout


def test_a_frozen_dimension_is_set_for_good(tmp_path: Path) -> None:
    source, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    source.write_bytes(plain_model(shape=["N", 3]).SerializeToString())
    assert rlflow("optimize", source, out, "--cost", "analytic", "--budget", "5x", "--freeze", "N=4").exit_code == 0
    shape = onnx.load(out).graph.input[0].type.tensor_type.shape
    assert [dim.dim_value for dim in shape.dim] == [4, 3]


def test_input_data_are_used_to_verify(model: Path, tmp_path: Path) -> None:
    data = tmp_path / "x.npz"
    np.savez(data, x=np.ones((4, 64), np.float32))
    done = rlflow("optimize", model, "--cost", "analytic", "--budget", "50x", "--input-data", data)
    assert done.exit_code == 0, done.output
    wrong = rlflow("optimize", model, "--cost", "analytic", "--budget", "50x", "--input-data", "y=" + str(data))
    assert wrong.exit_code == 2


# --- mistakes ---------------------------------------------------------------------------------------------------------


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
        "unknown cost": (["optimize", good, "--cost", "analytical"], 2, "no cost model"),
        "zero budget": (["optimize", good, "--budget", "0s"], 2, "above zero"),
        "negative budget": (["optimize", good, "--budget", "-5c"], 2, "above zero"),
        "budget without a unit": (["optimize", good, "--budget", "60"], 2, "write 60s"),
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
        "report = input": (["optimize", good, "--json", good], 1, "is the input itself"),
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
        "input data missing": (["optimize", good, "--input-data", folder / "none.npz", *analytic], 2, "does not exist"),
        "unknown verb": (["optimise", good], 2, "optimise"),
        "unknown zoo model": (["zoo", "export", "bert", "-o", folder / "z.onnx"], 2, "no model 'bert'"),
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


# --- verification -----------------------------------------------------------------------------------------------------


@pytest.fixture
def lying_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that the prover would refuse, put in by the back door: Sin(x) = x and MatMul before Relu exchanged."""
    from rlflow.pipeline import loading
    from rlflow.rewrite import Rule

    lie = Rule(
        name="drop-sine", family="lies", source=("(Sin ?x)",), target=("(Identity ?x)",), where=("is_float(?x)",)
    )
    library = RuleLibrary([*load_rules().values(), lie])
    monkeypatch.setattr(loading, "load_library", lambda rules: library)


def test_a_wrong_result_is_not_written_and_the_step_is_named(tmp_path: Path, lying_rules: None) -> None:
    source, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], perm=[1, 0]),
        helper.make_node("Transpose", ["a"], ["b"], perm=[1, 0]),
        helper.make_node("Sin", ["b"], ["c"]),
        helper.make_node("Cos", ["c"], ["y"]),
    ]
    source.write_bytes(plain_model(nodes, shape=[32, 32]).SerializeToString())
    done = rlflow("optimize", source, out, "--cost", "analytic", "--budget", "50x", "--json", tmp_path / "r.json")
    assert done.exit_code == 3, done.output
    assert "rule 'drop-sine'" in done.stderr
    assert "smallest prefix" in done.stderr
    assert not out.exists()
    assert not (tmp_path / "r.json").exists()
    trusting = rlflow("optimize", source, out, "--cost", "analytic", "--budget", "50x", "--no-verify")
    assert trusting.exit_code == 0
    assert out.exists()


# --- other verbs ------------------------------------------------------------------------------------------------------


def test_inspect_shows_what_a_model_is_made_of(model: Path) -> None:
    done = rlflow("inspect", model)
    assert done.exit_code == 0, done.output
    for word in ("MatMul", "opset", "Inputs", "f32[4,64]", "Rules that could fire"):
        assert word in done.stdout
    (plain,) = json.loads(rlflow("inspect", model, "--json").stdout)
    assert plain["operators"] == {"MatMul": 3, "Add": 2}
    assert plain["parameters_bytes"] == 3 * 64 * 64 * 4
    assert plain["rules"]
    assert plain["outside_table"] == []


def test_inspect_names_operators_outside_the_table(tmp_path: Path) -> None:
    custom = plain_model([helper.make_node("Nonsense", ["x"], ["y"], domain="nowhere")])
    custom.opset_import.append(helper.make_opsetid("nowhere", 1))
    path = tmp_path / "custom.onnx"
    path.write_bytes(custom.SerializeToString())
    (plain,) = json.loads(rlflow("inspect", path, "--json").stdout)
    assert plain["outside_table"] == ["nowhere.Nonsense"]


def test_rules_are_listed_shown_and_explained(model: Path) -> None:
    listed = json.loads(rlflow("rules", "list", "--json").stdout)
    assert len(listed) == len(load_rules())
    assert {"name", "family", "source", "target", "proof"} <= set(listed[0])
    name = listed[0]["name"]
    assert name in rlflow("rules", "list").stdout
    shown = rlflow("rules", "show", name).stdout
    for word in ("source:", "target:", "proof:"):
        assert word in shown
    explained = rlflow("rules", "explain", "merge-matmul-columns", model)
    assert explained.exit_code == 0, explained.output
    assert "fires" in explained.stdout
    assert rlflow("rules", "explain", "merge-matmul-columns", model, "--node", "999").exit_code == 2


def own_rules(path: Path, *rules: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"format": 1, "family": "own", "rules": list(rules)}))
    return path


TWICE = {"name": "twice", "source": ["(Relu (Relu ?x))"], "target": ["(Relu ?x)"], "where": ["is_float(?x)"]}
LIE = {"name": "lie", "source": ["(Sub ?x ?y)"], "target": ["(Sub ?y ?x)"]}


def test_rules_are_proved(tmp_path: Path) -> None:
    path = own_rules(tmp_path / "own.json", TWICE)
    done = rlflow("rules", "prove", path, "--jobs", "1", "--samples", "40", "--write")
    assert done.exit_code == 0, done.output
    assert "twice: proved; exact rationals: 40 samples" in done.stdout and "1 rule: 1 proved." in done.stdout
    record = json.loads(path.read_text())["rules"][0]["proof"]
    assert record["fired"] == 40 and record["small"] > 0 and record["scope"].startswith("exact rationals:")
    floats = rlflow("rules", "prove", path, "--jobs", "1", "--method", "float")
    assert floats.exit_code == 0 and "runs in floats" in floats.stdout
    assert rlflow("rules", "prove", path, "--method", "float", "--write").exit_code == 2
    assert rlflow("rules", "prove").exit_code == 2


def test_a_counterexample_is_shown_with_its_values(tmp_path: Path) -> None:
    path = own_rules(tmp_path / "own.json", TWICE, LIE)
    done = rlflow("rules", "prove", path, "--jobs", "2", "--samples", "40", "--json")
    assert done.exit_code == 1 and "1 proved, 1 refuted" in done.stderr
    proved, refuted = json.loads(done.stdout)
    assert proved["status"] == "proved" and refuted["kind"] == "value"
    example = refuted["counterexample"]
    assert example["before"] != example["after"] and set(example["values"]) == {"x0", "x1"}


def test_rules_are_repaired_and_counted(tmp_path: Path) -> None:
    path = own_rules(tmp_path / "own.json", TWICE, {**LIE, "name": "lie", "where": ["is_float(?x)"]})
    done = rlflow("rules", "repair", path, "twice", "--jobs", "1", "--samples", "30")
    assert done.exit_code == 0 and "twice: true as it stands" in done.stdout
    assert rlflow("rules", "repair", path, "nothing").exit_code == 2
    counts = json.loads(rlflow("rules", "stats", "--json").stdout)
    assert counts["rules"] == len(load_rules()) == sum(counts["families"].values())
    assert counts["proofs"]["over the field"] > counts["proofs"]["over ordered rationals"] > 0
    assert "operator (in sources)" in rlflow("rules", "stats").stdout


def test_the_zoo_is_listed_and_exported(tmp_path: Path) -> None:
    listed = rlflow("zoo", "list")
    assert listed.exit_code == 0
    assert "squeezenet1.1" in listed.stdout
    assert {entry["name"] for entry in json.loads(rlflow("zoo", "list", "--json").stdout)} >= {
        "squeezenet1.1",
        "nasrnn",
    }
    out = tmp_path / "s.onnx"
    done = rlflow("zoo", "export", "squeezenet1.1", "-o", out, "--batch", "2")
    assert done.exit_code == 0, done.output
    exported = onnx.load(out)
    assert exported.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 2
    assert rlflow("zoo", "export", "squeezenet1.1", "-o", out, "--set", "nothing=1").exit_code == 2


def test_info_shows_brackets_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["rlflow.cli.info"], "_availability", lambda _: "rlflow[gpu]")
    assert "rlflow[gpu]" in rlflow("info").stdout


def test_info_says_what_is_there() -> None:
    done = rlflow("info")
    assert done.exit_code == 0, done.output
    for word in (
        "cost model analytic",
        "cost model onnxruntime",
        "search backtracking",
        "CPUExecutionProvider",
        "prices",
    ):
        assert word in done.stdout
    plain = json.loads(rlflow("info", "--json").stdout)
    assert plain["cost_models"]["analytic"] == "available"
    assert sum(plain["rules"].values()) == len(load_rules())


@pytest.mark.parametrize("arguments", [["--help"], ["optimize", "--help"], ["rules", "--help"], ["--version"]])
def test_help_and_version(arguments: list[str]) -> None:
    done = rlflow(*arguments)
    assert done.exit_code == 0
    assert done.stdout


# --- search, compare, explain -----------------------------------------------------------------------------------------


def test_strategies_are_listed_with_their_options() -> None:
    listed = json.loads(rlflow("search", "list", "--json").stdout)
    options = {row["name"]: {option["name"]: option["default"] for option in row["options"]} for row in listed}
    assert options["beam"]["width"] == "8"
    assert {"annealing", "backtracking", "beam", "genetic", "greedy", "mcts", "portfolio", "random"} <= set(options)
    shown = rlflow("search", "list").stdout
    assert "beam: " in shown
    assert "  width=8 (int): " in shown


def test_a_search_alone_writes_its_result_and_goes_on(model: Path, tmp_path: Path) -> None:
    report, checkpoint = tmp_path / "search.json", tmp_path / "checkpoint.json"
    options = ("--search", "beam:width=2", "--budget", "30x", "--checkpoint", checkpoint, "--json", report)
    done = rlflow("search", "run", model, *options, "--stats")
    assert done.exit_code == 0, done.output
    assert "winning" in done.stdout
    first = json.loads(report.read_text())
    assert first["cost_after_ms"] < first["cost_before_ms"]
    assert first["statistics"]["opened"] == first["expansions"]
    assert rlflow("search", "run", model, *options, "--resume", "--quiet").exit_code == 0
    again = json.loads(report.read_text())
    assert again["cost_before_ms"] == first["cost_before_ms"]
    assert again["cost_after_ms"] <= first["cost_after_ms"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--resume",), "--checkpoint FILE"),
        (("--workers", "2", "--search", "greedy"), "draws no random numbers"),
        (("--workers", "2", "--stats"), "one worker"),
        (("--search", "beam:widht=2"), "Did you mean width"),
    ],
)
def test_mistakes_of_a_search_are_sentences(arguments: tuple[str, ...], says: str, model: Path) -> None:
    failed = rlflow("search", "run", model, *arguments)
    assert failed.exit_code == 2
    assert says in failed.stderr


def test_strategies_are_compared(model: Path, tmp_path: Path) -> None:
    plain, table = tmp_path / "race.json", tmp_path / "race.csv"
    files = ("--json", plain, "--csv", table, "--keep", tmp_path / "race.jsonl")
    options = ("--search", "greedy,random(length=2;walks=1)", "--cost", "analytic", "--budget", "20x", "--seeds", "2")
    done = rlflow("compare", model, *options, *files)
    assert done.exit_code == 0, done.output
    assert "greedy" in done.stdout
    assert {row["strategy"] for row in json.loads(plain.read_text())["summary"]} == {
        "greedy",
        "random:length=2,walks=1",
    }
    assert len(json.loads(plain.read_text())["runs"]) == len(table.read_text().splitlines()) - 1 == 4
    alone = rlflow("compare", model, "--search", "greedy")
    assert alone.exit_code == 2
    assert "two or more" in alone.stderr


def test_a_rule_is_explained_at_a_node_by_name(model: Path) -> None:
    everywhere = rlflow("explain", model, "--rule", "merge-matmul-columns")
    assert everywhere.stdout == rlflow("rules", "explain", "merge-matmul-columns", model).stdout
    there = rlflow("explain", model, "--rule", "merge-matmul-columns", "--node", "product0")
    assert there.exit_code == 0, there.output
    assert there.stdout.strip() in everywhere.stdout
    by_value = rlflow("explain", model, "--rule", "merge-matmul-columns", "--node", "p0")
    assert by_value.stdout == there.stdout
    lost = rlflow("explain", model, "--rule", "merge-matmul-columns", "--node", "produkt0")
    assert lost.exit_code == 2
    assert "Did you mean product0" in lost.stderr
