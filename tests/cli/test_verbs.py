"""``bench``, ``diff``, ``optimize --check``, the narrowing of rules, and zoo names wherever a file is taken."""

from __future__ import annotations

import json
from pathlib import Path

import click
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper, numpy_helper

import rlflow
from rlflow import benchmark, zoo
from rlflow.cli import main
from rlflow.errors import UsageError
from rlflow.frontends.difference import difference

SMALL = "nasrnn?steps=1&hidden=4"


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)))


@pytest.fixture(scope="module")
def mergeable() -> onnx.ModelProto:
    """Two products of one input, added: what merging rules are for."""
    import numpy as np

    draw = np.random.default_rng(0).standard_normal
    weights = [numpy_helper.from_array(draw((64, 64)).astype(np.float32), name) for name in "ab"]
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["p"], name="left"),
        helper.make_node("MatMul", ["x", "b"], ["q"], name="right"),
        helper.make_node("Add", ["p", "q"], ["y"], name="sum"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 64]) for name in "xy"]
    graph = helper.make_graph(nodes, "pair", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def file(mergeable: onnx.ModelProto, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("verbs") / "pair.onnx"
    path.write_bytes(mergeable.SerializeToString())
    return path


# --- the front --------------------------------------------------------------------------------------------------------


def test_alone_it_shows_its_help() -> None:
    done = call()
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == call("--help").stdout and "optimize" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect", SMALL),
        ("verify", SMALL, SMALL),
        ("diff", SMALL, SMALL),
        ("optimize", SMALL, "--cost", "analytic", "--budget", "5x"),
        ("search", "run", SMALL, "--budget", "5x"),
        ("explain", SMALL, "--rule", "merge-conv-channels"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_zoo_names_stand_for_files(arguments: tuple[str, ...]) -> None:
    done = call(*arguments)
    assert done.exit_code == 0, done.output


def test_a_zoo_model_is_called_by_its_name() -> None:
    plain = json.loads(call("optimize", SMALL, "--cost", "analytic", "--budget", "5x", "--json", "-").stdout)
    assert plain["model"] == SMALL


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("squeezenett", 2, "Did you mean squeezenet1.1?"),
        ("nasrnn?hidden", 2, "'hidden' has no value"),
        ("gone.onnx", 1, "the file 'gone.onnx' does not exist"),
        ("folder/gone", 1, "the file 'folder/gone' does not exist"),
    ],
)
def test_what_is_no_model_is_said(name: str, code: int, says: str) -> None:
    done = call("inspect", name)
    assert done.exit_code == code and says in done.stderr and done.stderr.count("\n") == 1


def test_a_file_goes_before_a_zoo_model(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nasrnn").write_bytes(file.read_bytes())
    assert "'MatMul': 2" in str(json.loads(call("inspect", "nasrnn", "--json").stdout)[0]["operators"])


def test_json_to_stdout_is_all_of_it(file: Path) -> None:
    done = call("optimize", file, "--cost", "analytic", "--budget", "20x", "--json", "-")
    assert json.loads(done.stdout)["improved"] is True
    assert json.loads(call("search", "run", file, "--budget", "5x", "--json", "-", "-q").stdout)["trace"]


# --- optimize ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "code"), [((), 4), (("--threshold", "1000"), 0), (("--skip-rule", "*"), 2), (("--skip-rule", "merge*"), 4)]
)
def test_check_ends_with_4_where_there_is_a_gain(more: tuple[str, ...], code: int, file: Path) -> None:
    done = call("optimize", file, "--cost", "analytic", "--budget", "50x", "--check", "-q", *more)
    assert done.exit_code == code, done.output


def test_check_writes_nothing(file: Path, tmp_path: Path) -> None:
    done = call("optimize", file, "-o", tmp_path / "o.onnx", "--check")
    assert done.exit_code == 2 and "--check writes nothing" in done.stderr
    assert not (tmp_path / "o.onnx").exists()


def rules_of(file: Path, **options: object) -> set[str]:
    report = rlflow.optimize(file, cost="analytic", budget="50x", **options).report
    return {step["rule"] for step in report.trace or ()}


def test_rules_can_be_left_out_and_used_alone(file: Path) -> None:
    used = rules_of(file)
    assert used
    name = sorted(used)[0]
    assert name not in rules_of(file, skip_rules=[name])
    assert rules_of(file, only_rules=[name]) == {name}
    assert name not in rules_of(file, skip_rules=f"{name[:-1]}*")


@pytest.mark.parametrize("option", ["skip_rules", "only_rules"])
def test_a_rule_that_is_not_there_is_refused(option: str, file: Path) -> None:
    with pytest.raises(UsageError, match="called 'no-such-rule'"):
        rlflow.optimize(file, cost="analytic", budget="5x", **{option: ["no-such-rule"]})


def test_growth_bounds_the_weights() -> None:
    # The product of two factors has 1.2 times their weights, and one operator less.
    import numpy as np

    draw = np.random.default_rng(0).standard_normal
    shapes = {"a": (96, 40), "b": (40, 96)}
    weights = [numpy_helper.from_array(draw(shape).astype(np.float32), name) for name, shape in shapes.items()]
    nodes = [helper.make_node("MatMul", ["x", "a"], ["p"]), helper.make_node("MatMul", ["p", "b"], ["y"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 96]) for name in "xy"]
    graph = helper.make_graph(nodes, "low rank", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def folded(growth: float) -> bool:
        report = rlflow.optimize(model, cost="analytic", budget="50x", max_growth=growth).report
        return report.operators_after.get("MatMul") == 1

    assert folded(1.25) and not folded(1.0)
    with pytest.raises(UsageError, match="above zero"):
        rlflow.optimize(model, max_growth=0.0)


# --- diff -------------------------------------------------------------------------------------------------------------


def changed(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def test_names_of_values_are_no_difference(mergeable: onnx.ModelProto) -> None:
    other = changed(mergeable)
    other.graph.node[0].output[0] = other.graph.node[2].input[0] = "another"
    other.graph.node[0].name = "renamed"
    found = difference(mergeable, other)
    assert found.none and len(found.same) == 3


def test_another_weight_changes_its_node_alone(mergeable: onnx.ModelProto, file: Path, tmp_path: Path) -> None:
    other = changed(mergeable)
    raw = bytearray(other.graph.initializer[0].raw_data)
    raw[0] ^= 1
    other.graph.initializer[0].raw_data = bytes(raw)
    found = difference(mergeable, other)
    assert len(found.same) == 2 and not found.removed and not found.added
    assert found.changed[0].what == ("the weight a has other contents",)
    assert found.others == ("weights and constants: 1 gone, 1 new",)
    path = tmp_path / "other.onnx"
    path.write_bytes(other.SerializeToString())
    plain = json.loads(call("diff", file, path, "--json").stdout)
    assert plain["changed"][0]["before"] == "MatMul left" and plain["same"] == 2


def test_operators_attributes_and_interfaces_are_compared(mergeable: onnx.ModelProto) -> None:
    other = changed(mergeable)
    other.graph.node[2].op_type = "Sub"
    other.graph.node.append(helper.make_node("Softmax", ["y"], ["z"], axis=1))
    other.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [8, "N"]))
    other.metadata_props.add(key="k", value="v")
    found = difference(mergeable, other)
    assert found.changed[0].what == ("Add -> Sub",) and found.added == (3,)
    assert set(found.others) == {"output z: none -> float[8,N]", "metadata k: added"}
    back = difference(other, mergeable)
    assert back.removed == (3,) and not back.added


def test_what_optimize_did_is_seen(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "o.onnx"
    assert call("optimize", file, "-o", out, "--cost", "analytic", "--budget", "50x", "-q").exit_code == 0
    done = call("diff", file, out)
    assert done.exit_code == 0 and done.stdout.startswith("3 -> "), done.output
    assert "- MatMul left" in done.stdout


# --- bench ------------------------------------------------------------------------------------------------------------


def test_bench_times_models_side_by_side(file: Path) -> None:
    done = call("bench", file, SMALL, file, "--seconds", "0.2", "--blocks", "2", "--warmup", "1", "--json", "-q")
    rows = json.loads(done.stdout)
    assert [row["model"] for row in rows] == [f"{file} (1)", SMALL, f"{file} (3)"]
    for row in rows:
        assert row["blocks"] == 2 and row["runs"] >= 2 and row["threads"] == 1
        for clock in ("wall", "cpu"):
            assert 0 < row[clock]["least"] <= row[clock]["median"] <= row[clock]["p90"] <= row[clock]["p99"]
    assert rows[0]["ratio"] == 1.0


def test_bench_prints_a_row_a_clock(file: Path) -> None:
    done = call("bench", file, "--seconds", "0.1", "--blocks", "1", "-q")
    assert done.exit_code == 0 and " wall " in done.stdout and " processor " in done.stdout


@pytest.mark.parametrize("scale", [0.001234, 1.234, 12345.678])
@pytest.mark.parametrize("width", [80, 200])
def test_no_figure_of_bench_is_cut_on_a_terminal(width: int, scale: float) -> None:
    from io import StringIO

    from rich.console import Console

    from rlflow.cli.bench import _ms, _ratios, _times

    latency = benchmark.Latency(1.1 * scale, scale, 1.2 * scale, 0.9 * scale, 1.3 * scale, 1.4 * scale)
    names = ["bert-base?seq=384", "a/very/long/way/to/some/folder/with/a/model.onnx"]
    found = [
        benchmark.Benched(name, threads, 9, 7, latency, latency, 3 * scale, "cpu", 1.25, (1.234, 1.266))
        for name in names
        for threads in (1, 4)
    ]
    stream = StringIO()
    terminal = Console(file=stream, width=width, force_terminal=True, color_system=None)
    terminal.print(_times(found))
    terminal.print(_ratios(found))
    shown = stream.getvalue()
    assert max(map(len, shown.splitlines())) <= width and "…" not in shown
    for figure in (_ms(1.1 * scale), f"{_ms(scale)} to {_ms(1.2 * scale)}", _ms(1.3 * scale), _ms(1.4 * scale)):
        assert shown.count(figure) >= 2 * len(found), figure
    assert shown.count("1.250 (1.234 to 1.266)") == shown.count(_ms(3 * scale)) == len(found)
    assert shown.count("4 threads") == 2 * len(names) or width == 80


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(("--threads", "0"), "--threads 0 cannot be read"), (("--seconds", "0"), "above zero seconds")],
)
def test_bench_refuses_nonsense(arguments: tuple[str, ...], says: str, file: Path) -> None:
    done = call("bench", file, *arguments)
    assert done.exit_code == 2 and says in done.stderr


def test_bench_tells_how_far_it_is(file: Path) -> None:
    told: list[tuple[int, int]] = []
    benchmark.bench([file], seconds=0.05, blocks=2, on_progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 2), (2, 2)]


def test_completion_offers_zoo_names_and_files() -> None:
    from rlflow.cli.model_files import MODEL

    found = MODEL.shell_complete(None, None, "squeeze")  # type: ignore[arg-type]
    assert [one.value for one in found] == ["squeezenet1.1", "squeeze"] and found[-1].type == "file"
    assert len(MODEL.shell_complete(None, None, "")) == len(zoo.names()) + 1  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "taken"),
    [("taso/batched_resnet", "taso/batched_resnet"), ("taso/nothing.onnx", None), ("./squeezenet1.1", None)],
)
def test_a_zoo_name_may_have_a_slash(given: str, taken: str | None) -> None:
    from rlflow.cli.model_files import MODEL, ZooFile

    with click.Context(click.Command("any")) as context:
        found = MODEL.convert(given, None, context)
        assert str(found) == given
        assert isinstance(found, ZooFile) == (taken is not None)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("optimise", "m.onnx"), "There is no command 'main optimise'. Did you mean optimize?"),
        (("zoo", "exprt"), "There is no command 'main zoo exprt'. Did you mean export?"),
        (("qqq",), "There are: bench, "),
        (("rules", "show", "qqqqqqqq"), "`rlflow rules list` lists them"),
        (("cost", "show", "--database", "gone.db"), "The price database gone.db does not exist"),
        (("run", "."), "'.' is no folder of a split model"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_what_is_not_there_is_told_with_what_is(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = call(*arguments)
    assert done.exit_code in (1, 2)
    assert sentence in done.stderr
    assert not list(tmp_path.iterdir())
