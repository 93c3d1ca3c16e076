"""What users of other tools ask for: each row of the table in docs/comparison.md, by its command."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.cli.commands import merge_model, plain_model, rlflow

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "comparison.md"
#: Rows that other tests show.
ELSEWHERE = {
    "Models over 2 GB": "tests/frontends/test_external_data.py",
    "Do not let folding blow the model up": "tests/cli/test_verbs.py",
    "Fusion that survives another exporter": "tests/reproduce/test_idioms.py",
    "Memory for large models": "tests/frontends/test_shared_weights.py",
    "Time on large graphs": "tests/pipeline/test_time_given.py",
    "Install without a compiler": ".ci/try_wheel.py",
    "Comparison with other tools": "docs/comparison.md",
    "TASO: “Cannot find input tensor”": "tests/compat/test_taso_graphs.py",
    "Mirage, TASO: can I get your numbers?": "tests/reproduce/test_claims.py",
}
SHOWN: set[str] = set()
ANALYTIC = ("--cost", "analytic", "--budget", "50c", "--quiet")


def shows(*requests: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator: the test shows these rows."""
    SHOWN.update(requests)
    return lambda test: test


def saved(model: onnx.ModelProto, path: Path) -> Path:
    path.write_bytes(model.SerializeToString())
    return path


def done(*arguments: str | Path, code: int = 0) -> str:
    """What a command prints; it ends with ``code``."""
    result = rlflow(*arguments)
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.output


def optimised(before: onnx.ModelProto, folder: Path, *more: str) -> onnx.ModelProto:
    """A model as ``rlflow optimize A -o B`` leaves it; ``A`` and ``B`` stay in the folder."""
    a, b = saved(before, folder / "a.onnx"), folder / "b.onnx"
    done("optimize", a, "-o", b, *ANALYTIC, *more)
    return onnx.load(b)


def open_merge_model(first: str | None = "N") -> onnx.ModelProto:
    """Three products of an input of any number of rows."""
    found = merge_model()
    for info in (*found.graph.input, *found.graph.output):
        dim = info.type.tensor_type.shape.dim[0]
        dim.Clear()
        if first is not None:
            dim.dim_param = first
    return found


def changed(model: onnx.ModelProto, by: float) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    weight = copy.graph.initializer[0]
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * np.float32(by), weight.name))
    return copy


def test_every_row_of_the_table_is_shown() -> None:
    table = PAGE.read_text(encoding="utf-8").split("## What users of these tools ask for")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", table, re.M)[2:]]
    had = {name for name, has, _ in rows if has != "no"}
    assert len(had) > 25 and had == SHOWN | set(ELSEWHERE) and not SHOWN & set(ELSEWHERE)
    assert all((ROOT / place).exists() for place in ELSEWHERE.values())


@shows("Does it compute the same?")
def test_a_difference_is_found(tmp_path: Path) -> None:
    model = merge_model()
    a, b = saved(model, tmp_path / "a.onnx"), saved(changed(model, 1.01), tmp_path / "b.onnx")
    assert "computes what" in done("verify", a, a)
    assert "The output 'y' differs most on" in done("verify", a, b, code=3)


@shows("Is it faster?", "How long it takes to load")
def test_two_models_are_timed(model: Path) -> None:
    told = done("bench", model, model, "--seconds", "0.2", "--blocks", "2", "-q")
    for word in ("wall", "processor", "95 % interval", "load ms"):
        assert word in told


@shows("Never make it slower")
def test_what_gains_nothing_comes_back(tmp_path: Path) -> None:
    assert optimised(plain_model(), tmp_path) == plain_model()


@shows("Keep dynamic shapes dynamic")
def test_an_open_dimension_stays_open(tmp_path: Path) -> None:
    after = optimised(open_merge_model(), tmp_path, "--dim", "N=1..8..64")
    assert len(after.graph.node) < len(merge_model().graph.node)
    assert after.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    done("verify", tmp_path / "a.onnx", tmp_path / "b.onnx", "--dim", "N=1..8..64")


@shows("Dimensions without a name")
def test_a_dimension_is_called_by_its_place(tmp_path: Path) -> None:
    after = optimised(open_merge_model(None), tmp_path, "--dim", "x.0=4")
    assert not after.graph.input[0].type.tensor_type.shape.dim[0].WhichOneof("value")


@shows("No crash, a readable failure")
def test_a_failure_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_bytes(b"no model")
    told = done("optimize", tmp_path / "a.onnx", "-o", tmp_path / "b.onnx", "-q", code=1)
    assert told.startswith("rlflow: error: ") and told.count("\n") == 1
    assert not (tmp_path / "b.onnx").exists()


@shows("Weights that are listed as inputs, too")
def test_weights_become_constants(tmp_path: Path) -> None:
    both = merge_model()
    both.graph.input.extend(
        helper.make_tensor_value_info(one.name, one.data_type, one.dims) for one in both.graph.initializer
    )
    a, b = saved(both, tmp_path / "a.onnx"), tmp_path / "b.onnx"
    for more, names in (((), ["x"]), (("--keep-initializer-inputs",), ["x", "w0", "w1", "w2"])):
        done("simplify", a, b, *more)
        assert [one.name for one in onnx.load(b).graph.input] == names


@shows("Custom operators survive")
def test_an_unknown_operator_is_listed_and_stays(tmp_path: Path) -> None:
    own = merge_model()
    own.opset_import.append(helper.make_opsetid("my.own", 1))
    own.graph.node[-1].output[0] = "sum"
    own.graph.node.append(helper.make_node("Thing", ["sum"], ["y"], name="thing", domain="my.own", size=3))
    a, b = saved(own, tmp_path / "a.onnx"), tmp_path / "b.onnx"
    assert "my.own.Thing" in done("inspect", a)
    done("simplify", a, b, "--no-verify")
    assert onnx.load(b).graph.node[-1] == own.graph.node[-1]


@shows("Keep QDQ nodes")
def test_quantised_nodes_stay(tmp_path: Path) -> None:
    model = merge_model()
    scale, zero = numpy_helper.from_array(np.float32(0.05), "step"), numpy_helper.from_array(np.int8(0), "at")
    model.graph.initializer.extend([scale, zero])
    for node in model.graph.node:
        node.input[:] = ["back" if name == "x" else name for name in node.input]
    model.graph.node.insert(0, helper.make_node("DequantizeLinear", ["q", "step", "at"], ["back"], name="from_int"))
    model.graph.node.insert(0, helper.make_node("QuantizeLinear", ["x", "step", "at"], ["q"], name="to_int"))
    after = optimised(model, tmp_path)
    kinds = [node.op_type for node in after.graph.node]
    assert kinds.count("QuantizeLinear") == kinds.count("DequantizeLinear") == 1 and kinds.count("MatMul") < 3
    told = done("diff", tmp_path / "a.onnx", tmp_path / "b.onnx")
    assert "MatMul" in told and "QuantizeLinear" not in told


@shows("16-, 8- and 4-bit types survive")
def test_half_precision_stays(tmp_path: Path) -> None:
    model = merge_model()
    for info in (*model.graph.input, *model.graph.output):
        info.type.tensor_type.elem_type = TensorProto.FLOAT16
    for weight in model.graph.initializer:
        weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight).astype(np.float16), weight.name))
    after = optimised(model, tmp_path)
    used = {weight.data_type for weight in after.graph.initializer}
    assert TensorProto.FLOAT16 in used and TensorProto.FLOAT not in used
    done("diff", tmp_path / "a.onnx", tmp_path / "b.onnx")


@shows("If, Loop and Scan")
def test_bodies_are_cleaned_up(tmp_path: Path) -> None:
    def body(operator: str) -> onnx.GraphProto:
        nodes = [
            helper.make_node("Identity", ["x"], ["i"]),
            helper.make_node("Identity", ["i"], ["j"]),
            helper.make_node(operator, ["j"], ["out"]),
        ]
        return helper.make_graph(nodes, operator, [], [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)])

    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Cast", ["s"], ["c"], to=TensorProto.BOOL),
        helper.make_node("If", ["c"], ["y"], then_branch=body("Sin"), else_branch=body("Cos")),
    ]
    a, b = saved(plain_model(nodes), tmp_path / "a.onnx"), tmp_path / "b.onnx"
    done("simplify", a, b)
    branches = [one.g for one in onnx.load(b).graph.node[-1].attribute]
    assert [[node.op_type for node in branch.node] for branch in branches] in ([["Sin"], ["Cos"]], [["Cos"], ["Sin"]])


@shows("Inputs and outputs keep names and order", "Metadata, opset and IR version stay")
def test_the_interface_and_what_is_said_of_it_stay(tmp_path: Path) -> None:
    before = merge_model()
    before.graph.input.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, [2]))  # that nobody reads
    before.metadata_props.add(key="author", value="me")
    before.doc_string = "A model."
    after = optimised(before, tmp_path)
    assert len(after.graph.node) < len(before.graph.node)
    assert list(after.graph.input) == list(before.graph.input) and list(after.graph.output) == list(before.graph.output)
    assert (after.ir_version, after.opset_import, after.doc_string) == (8, before.opset_import, "A model.")
    assert {one.key for one in after.metadata_props} == {"author", "rlflow.rules"}
    told = done("diff", tmp_path / "a.onnx", tmp_path / "b.onnx")
    said = [line for line in told.splitlines() if re.match(r"(input|output|opset|IR version|metadata) ", line)]
    assert said == ["metadata rlflow.rules: added"]


@shows("Stable node names")
def test_untouched_nodes_keep_their_names(tmp_path: Path) -> None:
    model = merge_model()
    model.graph.node[-1].output[0] = "sum"
    model.graph.node.append(helper.make_node("Sin", ["sum"], ["y"], name="wave"))
    after = optimised(model, tmp_path)
    assert next(node.name for node in after.graph.node if node.op_type == "Sin") == "wave"


@shows("What changed?")
def test_both_graphs_are_drawn(tmp_path: Path) -> None:
    page, drawn = tmp_path / "out.html", tmp_path / "diff.html"
    optimised(merge_model(), tmp_path, "--report", str(page))
    told = done("diff", tmp_path / "a.onnx", tmp_path / "b.onnx", "--html", drawn)
    assert re.match(r"\d+ -> \d+ nodes: ", told)
    assert all("</html>" in one.read_text(encoding="utf-8") for one in (page, drawn))


@shows("Leave one rule out")
def test_a_rule_is_left_out(tmp_path: Path) -> None:
    def used(*more: str) -> list[str]:
        optimised(merge_model(), tmp_path, "--json", str(tmp_path / "report.json"), *more)
        return [step["rule"] for step in json.loads((tmp_path / "report.json").read_text())["trace"] or ()]

    first = used()[0]
    assert first not in used("--skip-rule", first)
    assert set(used("--only-rules", first)) == {first}


@shows("Merge parallel products and convolutions")
def test_products_are_merged(model: Path) -> None:
    assert re.search(r"the rule fires \(\d+ way", done("explain", "merge-matmul-columns", model))


@shows("The same bytes every time")
def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    model, found = merge_model(), []
    for _ in range(2):
        optimised(model, tmp_path, "--seed", "0", "--fresh")
        found.append((tmp_path / "b.onnx").read_bytes())
    assert found[0] == found[1]


@shows("For continuous integration")
def test_a_gain_ends_with_4(model: Path) -> None:
    done("optimize", model, *ANALYTIC, "--check", code=4)
