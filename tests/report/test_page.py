"""The HTML report: one file, whole, offline, and with what the run found in it."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

import rlflow
from rlflow import zoo
from rlflow.report import TimeInterval, graph_layout
from rlflow.report.graph_drawing import DrawnNode, around, pieces, svg, tiles
from rlflow.report.graph_layout import layout
from rlflow.report.page import difference_page, page
from rlflow.report.steps import replayed

_VOID = {"meta", "br"}


class Reader(HTMLParser):
    """Every tag must close; keeps ids, classes and addresses."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.headings: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for key, value in attrs if key in ("src", "href")]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Closes itself."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


def cli(*arguments: str | Path) -> Result:
    from rlflow.cli import main

    return CliRunner().invoke(main, list(map(str, arguments)))


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return zoo.build("nasrnn", steps=2, hidden=8)


@pytest.fixture(scope="module")
def result(model: onnx.ModelProto) -> rlflow.OptimizeResult:
    return rlflow.optimize(model, cost="analytic", budget="60x", search="greedy")


@pytest.fixture(scope="module")
def whole(model: onnx.ModelProto, result: rlflow.OptimizeResult) -> str:
    steps = replayed(model, result.report.trace or ())
    told = replace(result.report, environment={"processor": "a <fast> one"}, command="rlflow optimize a b")
    return page(told, model, result.model, steps=steps)


def test_it_is_whole_and_needs_no_other_file(whole: str) -> None:
    read = Reader(whole)
    assert read.addresses == []
    assert "http" not in re.sub(r"<script>.*?</script>", "", whole, flags=re.DOTALL)
    assert not re.search(r"https?:|@import|url\(|fetch\(|XMLHttp", whole)


def test_it_has_what_the_run_found(whole: str, result: rlflow.OptimizeResult) -> None:
    expected = ["Cost", "Memory", "What changed", "Rewrites, step by step", "The rules of these steps", "Operators"]
    headings = Reader(whole).headings
    assert [one for one in headings if one in expected] == expected and "Run it again" in headings
    for step in result.report.trace or ():
        assert f"<b>{step['rule']}</b>" in whole and whole.count(f"<h3>{step['rule']} ") == 1
    assert "a &lt;fast&gt; one" in whole and "<fast>" not in whole
    assert result.report.input["sha256"] in whole
    assert whole.count('class="n removed"') > 0 and whole.count('class="n added"') > 0


def test_steps_name_nodes_and_end_at_the_reported_cost(model: onnx.ModelProto, result: rlflow.OptimizeResult) -> None:
    steps = replayed(model, result.report.trace or ())
    names = {node.name for node in model.graph.node}
    assert {one.split(" ", 1)[1] for one in steps[0].removed} <= names
    assert [one.rule.name for one in steps] == [one["rule"] for one in result.report.trace or ()]
    assert steps[-1].formula_ms == pytest.approx(result.report.cost_after_ms)


def test_a_trace_of_another_model_is_refused(result: rlflow.OptimizeResult) -> None:
    with pytest.raises(rlflow.errors.UsageError, match="recorded on another"):
        replayed(zoo.build("squeezenet1.1", image=64), result.report.trace or ())


def test_where_nothing_is_gained_it_says_so(model: onnx.ModelProto) -> None:
    kept = rlflow.optimize(model, cost="analytic", budget="20x", only_rules="merge-conv-channels")
    text = page(kept.report, model, kept.model)
    Reader(text)
    assert "Nothing gained" in text and "the model is as it came" in text and "step by step" not in text


def test_a_cost_without_a_final_comparison_claims_no_clock(
    model: onnx.ModelProto, result: rlflow.OptimizeResult
) -> None:
    report = replace(result.report, cost_model="onnxruntime", intervals={})
    text = page(report, model, result.model)
    assert "No whole model was timed. These are costs by the model “onnxruntime”" in text


def test_the_verb_writes_it(tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    done = cli("optimize", "nasrnn?steps=1&hidden=4", "--cost", "analytic", "--budget", "20x", "--report", out, "-q")
    assert done.exit_code == 0, done.output
    text = out.read_text(encoding="utf-8")
    Reader(text)
    assert "nasrnn?steps=1&amp;hidden=4" in text and "rlflow optimize" not in done.output


def test_a_report_never_takes_the_place_of_another(tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    for more in (("-o", out), ("--json", out)):
        done = cli("optimize", "nasrnn?steps=1&hidden=4", "--report", out, *more)
        assert done.exit_code == 2 and "cannot both be written" in done.stderr
    assert not out.exists()


def test_diff_draws_both_graphs(tmp_path: Path) -> None:
    out = tmp_path / "d.html"
    done = cli("diff", "nasrnn?steps=1&hidden=4", "nasrnn?steps=2&hidden=4", "--html", out)
    assert done.exit_code == 0, done.output
    text = out.read_text(encoding="utf-8")
    Reader(text)
    shown, *printed = text.split('<div class="print">')
    assert shown.count("<svg") == 2 and 'class="n added"' in shown
    assert "nothing changed on this side" in printed[0] and printed[1].count("<svg") > 0


def test_names_are_escaped(model: onnx.ModelProto) -> None:
    other = onnx.ModelProto()
    other.CopyFrom(model)
    other.graph.node[-1].name = "<script>alert(1)</script>"
    other.graph.node[-1].op_type = "Relu"
    text = difference_page(model, other, "<a>", "<b>")
    Reader(text)
    assert "<script>alert" not in text and "<a>" not in text


@st.composite
def graphs(draw: st.DrawFn) -> list[DrawnNode]:
    size = draw(st.integers(1, 25))
    states = st.sampled_from(["same", "changed", "removed"])
    nodes = [DrawnNode("Op", "0", (), draw(states))]
    for place in range(1, size):
        read = draw(st.sets(st.integers(0, place - 1), max_size=3))
        nodes.append(DrawnNode("Op", str(place), tuple(sorted(read)), draw(states)))
    return nodes


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_boxes_never_overlap_and_edges_go_down(nodes: list[DrawnNode]) -> None:
    drawing = svg(nodes, "g")
    places = [tuple(map(int, pair)) for pair in re.findall(r"translate\((-?\d+) (-?\d+)\)", drawing)]
    assert len(places) == len(nodes)
    for one, (x, y) in enumerate(places):
        assert x >= 0 and y >= 0
        assert all(abs(x - a) >= 168 or abs(y - b) >= 38 for a, b in places[one + 1 :])
        assert all(places[other][1] < y for other in nodes[one].inputs)


def lines(drawing: str) -> list[list[tuple[float, float]]]:
    """Points of each line of a drawing, close to each other, from its first to its last."""
    found = []
    for path in re.findall(r' d="([^"]+)"', drawing):
        points: list[tuple[float, float]] = []
        for command, text in re.findall(r"([MVC])([^MVC]*)", path):
            *rest, x, y = map(float, f"{points[-1][0] if command == 'V' else ''} {text}".split())
            if command == "M":
                points.append((x, y))
                continue
            a = points[-1]
            b, c = ((rest[0], rest[1]), (rest[2], rest[3])) if rest else (a, (x, y))
            steps = [step / 12 for step in range(1, 13)]
            curve = [((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3) for t in steps]
            corners = (a, b, c, (x, y))
            points += [
                (sum(w * q[0] for w, q in zip(ws, corners, strict=True)),
                 sum(w * q[1] for w, q in zip(ws, corners, strict=True))) for ws in curve
            ]  # fmt: skip
        found.append(points)
    return found


def corners_of(drawing: str) -> list[tuple[int, int]]:
    return [(int(x), int(y)) for x, y in re.findall(r"translate\((-?\d+) (-?\d+)\)", drawing)]


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_no_line_passes_behind_a_box_and_each_edge_ends_where_it_should(nodes: list[DrawnNode]) -> None:
    drawing = svg(nodes, "g")
    boxes = corners_of(drawing)
    drawn = lines(drawing)
    for line in drawn:
        for x, y in line:
            assert not any(a - 8 < x < a + 176 and b + 1 < y < b + 37 for a, b in boxes), (x, y)
        assert all(one[1] <= other[1] + 1e-6 for one, other in pairwise(line)), "a line goes up"
    for node, (x, y) in zip(nodes, boxes, strict=True):
        assert sum(line[-1] == (x + 84, y) for line in drawn) == len(node.inputs)
    begun = {line[0] for line in drawn}
    for place, (x, y) in enumerate(boxes):
        assert ((x + 84, y + 38) in begun) == any(place in node.inputs for node in nodes)
    below = {(x + 84, y + 38) for x, y in boxes}
    for line in drawn:  # a line begins at a box, or on a line that goes further
        assert line[0] in below or any(passes(other, line[0]) for other in drawn if other is not line)


def passes(line: list[tuple[float, float]], point: tuple[float, float]) -> bool:
    steps = pairwise(line)
    return any(abs(x - point[0]) < 1 and y - 1 <= point[1] <= lower + 1 for (x, y), (_, lower) in steps)


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_lines_of_a_part_stay_near_it(nodes: list[DrawnNode]) -> None:
    for drawing in tiles(nodes, "g"):
        y, height = map(int, re.findall(r'viewBox="-?\d+ (-?\d+) \d+ (\d+)"', drawing)[0])
        for line in lines(drawing):
            assert all(y - 250 < b < y + height + 250 for _, b in line)


def test_a_long_edge_is_straight_and_the_drawing_narrow() -> None:
    """A mask that twelve layers read, beside a column with a skip in each layer."""
    nodes = [DrawnNode("Mask", "mask", ()), DrawnNode("Relu", "x", ())]
    for layer in range(12):
        at = len(nodes)
        nodes += [
            DrawnNode("MatMul", f"{layer}.a", (at - 1,)), DrawnNode("Where", f"{layer}.b", (at, 0)),
            DrawnNode("MatMul", f"{layer}.c", (at + 1,)), DrawnNode("Add", f"{layer}.d", (at + 2, at - 1)),
        ]  # fmt: skip
    drawing = svg(nodes, "g")
    wide = int(re.findall(r'viewBox="0 0 (\d+) ', drawing)[0])
    assert wide < 800
    trunk = max(lines(drawing), key=lambda line: line[-1][1] - line[0][1])
    assert max(x for x, _ in trunk) - min(x for x, _ in trunk) < 150


def test_large_graphs_are_drawn_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [DrawnNode("Input", str(place), ()) for place in range(4)]
    while len(nodes) < 3000:
        at = len(nodes)
        last = at - 1 if at > 4 else 0
        nodes += [DrawnNode("Add", "n", (last, 1 + at % 3)), *(DrawnNode("MatMul", one, (at,)) for one in "qkv")]
        nodes += [DrawnNode("MatMul", "s", (at + 1, at + 2)), DrawnNode("Where", "m", (at + 4, 3))]
        nodes += [DrawnNode("MatMul", "o", (at + 5, at + 3)), DrawnNode("Add", "r", (at + 6, last))]
    began = time.process_time()
    svg(nodes, "g")
    assert time.process_time() - began < 5.0
    every = layout([one.inputs for one in nodes])
    monkeypatch.setattr(graph_layout, "_LANES", 2000)
    few = layout([one.inputs for one in nodes])  # the longest edges are one curve each
    assert len(few.centre) - few.boxes <= 2000 < len(every.centre) - every.boxes
    assert set(few.lanes) < set(every.lanes)


@settings(max_examples=60, deadline=None)
@given(graphs(), st.integers(0, 3))
def test_what_changed_is_never_hidden(nodes: list[DrawnNode], hops: int) -> None:
    kept = around(nodes, hops)
    assert [one.name for one in kept if one.state != "same"] == [one.name for one in nodes if one.state != "same"]
    by_name = {one.name: one for one in nodes}
    for one in kept:
        read = {nodes[other].name for other in by_name[one.name].inputs}
        assert {kept[other].name for other in one.inputs} <= read


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_pieces_hold_what_changed_with_its_neighbours(nodes: list[DrawnNode]) -> None:
    found = pieces(nodes)
    changed = [one.operator for one in nodes if one.state != "same"]
    assert sum(times * sum(one.state != "same" for one in piece) for piece, times in found) == len(changed)
    by_name = {one.name: one for one in nodes}
    for piece, _ in found:
        for one in piece:
            read = {piece[other].name for other in one.inputs}
            assert read <= {nodes[other].name for other in by_name[one.name].inputs}
            if one.state != "same":
                assert len(read) == len(by_name[one.name].inputs)


def test_pieces_that_look_alike_are_drawn_once() -> None:
    nodes = [DrawnNode("MatMul", "shared", ())]
    for layer in range(9):
        at = len(nodes)
        nodes += [
            DrawnNode("Div", f"{layer}.div", (0,), "removed"), DrawnNode("Add", f"{layer}.add", (at,), "changed"),
            DrawnNode("Softmax", f"{layer}.softmax", (at + 1,)),
        ]  # fmt: skip
    assert [([one.operator for one in piece], times) for piece, times in pieces(nodes)] == [
        (["MatMul", "Div", "Add", "Softmax"], 9)
    ]
    merged = [DrawnNode("Relu", "x", ()), *(DrawnNode("MatMul", name, (0,), "removed") for name in "qkv")]
    assert [len(piece) for piece, _ in pieces(merged)] == [4]


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_on_paper_every_change_is_there_once_and_large_enough(nodes: list[DrawnNode]) -> None:
    drawings = tiles(nodes, "g")
    every = svg(nodes, "g")
    for state in ("changed", "removed"):
        assert sum(one.count(f'class="n {state}"') for one in drawings) == every.count(f'class="n {state}"')
    for one in drawings:
        Reader(one)
        box = re.match(r'<svg viewBox="(-?\d+) (-?\d+) (\d+) (\d+)" width="(\d+)"', one)
        assert box is not None
        x, y, width, height, pixels = map(int, box.groups())
        assert pixels <= 730 and pixels >= 0.69 * width and height * 0.7 <= 1000  # A4 at 96 pixels an inch
        for a, b in re.findall(r"translate\((-?\d+) (-?\d+)\)", one):
            assert x <= int(a) and int(a) + 168 <= x + width and y <= int(b) and int(b) + 38 <= y + height


def test_the_clock_has_a_column_a_model_so_that_a_narrow_window_holds_it(
    model: onnx.ModelProto, result: rlflow.OptimizeResult
) -> None:
    timings = {str(ms): {"ms": ms, "p99": ms + 1, "wall_ms": ms + 2, "wall_p99": 9.0} for ms in (4.0, 3.0)}
    intervals = {"original": TimeInterval(4.0, 3.5, 4.5), "optimized": TimeInterval(3.0, 2.5, 3.5)}
    report = replace(result.report, intervals=intervals, gate={"clock": "cpu", "timings": timings})
    shown = page(report, model, result.model).split('<table class="times">')[1].split("</table>")[0]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in shown.split("<tr>")[1:]]
    assert rows == [
        ["", "as it came", "optimised"],
        ["median (p50), processor time, ms", "4", "3"],
        ["95 % interval", "3.5 to 4.5", "2.5 to 3.5"],
        ["p99", "5", "4"],
        ["median (p50), wall clock, ms", "6", "5"],
        ["p99", "9", "9"],
    ]
