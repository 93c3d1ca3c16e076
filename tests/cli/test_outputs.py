"""No verb writes over what it reads, and no two outputs go to one place; both are said before the work."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.cli.commands import merge_model, plain_model, rlflow

ANALYTIC = ("--cost", "analytic", "--budget", "5x", "-q")
BOTH, ITSELF, EMPTY = "cannot both be written", "is the input itself", "empty; give the name of a"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with what the verbs below read."""
    monkeypatch.chdir(tmp_path)
    Path("a.onnx").write_bytes(merge_model().SerializeToString())
    Path("b.onnx").write_bytes(plain_model().SerializeToString())
    Path("external").mkdir()
    onnx.save(merge_model(), "external/a.onnx", save_as_external_data=True, location="a.bin", size_threshold=0)
    np.savez("in.npz", x=np.zeros((4, 64), np.float32))
    Path("devices.json").write_text(json.dumps({"devices": [{"name": "a"}, {"name": "b"}]}))
    Path("egraph.json").write_text("{}")
    Path("tuned").mkdir()
    Path("tuned/model.onnx").write_bytes(merge_model().SerializeToString())
    return tmp_path


def _content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(folder: Path, line: str, says: str, *more: str) -> None:
    """The command line ends with this sentence, and every file is as it was."""
    before = _content(folder)
    done = rlflow(*line.split(), *more)
    assert says in done.stderr, done.output
    assert done.stderr.count("rlflow: error: ") == 1
    assert "mistake in rlflow" not in done.stderr
    assert done.exit_code in (1, 2)
    assert _content(folder) == before


@pytest.mark.parametrize(
    "line",
    [
        "optimize a.onnx --search eqsat -o o --egraph-out o",
        "optimize a.onnx --search eqsat --json o --egraph-out o",
        "optimize a.onnx -o o --report ./o",
        "optimize a.onnx --report o --json external/../o",
    ],
)
def test_two_outputs_of_optimize_at_one_place(line: str, folder: Path) -> None:
    refused(folder, line, BOTH, *ANALYTIC)


@pytest.mark.parametrize(
    "line",
    [
        "shrink a.onnx -o o --json o",
        "shrink a.onnx --plot o.png --json o.png",
        "place a.onnx --devices devices.json -o o --json o",
        "diff a.onnx b.onnx --html o --json o",
        "compare a.onnx --search greedy --cost analytic --budget 5x --keep o --json o",
        "compare a.onnx --search greedy --cost analytic --budget 5x --csv o --json o",
        "compare a.onnx --search greedy --cost analytic --budget 5x --csv o --keep o",
        "search run a.onnx --search eqsat --json o --egraph-out o",
        "search run a.onnx --json o --checkpoint o",
        "cost calibrate a.onnx --json o.png --plot o.png",
        "rules generate --out o --statistics o",
        "tune a.onnx -o tuned --json tuned/report.json",
    ],
)
def test_two_outputs_at_one_place(line: str, folder: Path) -> None:
    refused(folder, line, BOTH)


@pytest.mark.parametrize("place", ["parts", "./parts/", "tuned/../parts"])
def test_json_in_place_of_the_folder_of_a_split(place: str, folder: Path) -> None:
    refused(folder, f"split a.onnx -o parts --json {place}", "cannot be written")
    assert not Path("parts").exists()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("optimize external/a.onnx --report external/a.bin --cost analytic", "holds weights of the input"),
        ("optimize a.onnx -o in.npz --input-data in.npz --cost analytic", ITSELF),
        ("optimize a.onnx -o in.npz --input-data x=in.npz --cost analytic", ITSELF),
        ("simplify external/a.onnx -o external/a.bin", "holds weights of the input"),
        ("shrink a.onnx --plot a.onnx", ITSELF),
        ("place a.onnx --devices devices.json -o devices.json", ITSELF),
        ("place a.onnx --devices devices.json -o o --json devices.json", ITSELF),
        ("compare b.onnx a.onnx --search greedy --cost analytic --csv a.onnx", ITSELF),
        ("compare a.onnx --search greedy --cost analytic --keep a.onnx", ITSELF),
        ("cost calibrate a.onnx --plot a.onnx", ITSELF),
        ("search run a.onnx --egraph-out a.onnx --search eqsat", ITSELF),
        ("search extract egraph.json --json egraph.json", ITSELF),
        ("diff a.onnx b.onnx --html b.onnx", ITSELF),
        ("tune tuned/model.onnx -o tuned", ITSELF),
        ("rules import egraph.json -o egraph.json", ITSELF),
        ("train xrlflow --models a.onnx --out a.onnx", ITSELF),
    ],
)
def test_what_is_read_is_not_written_over(line: str, says: str, folder: Path) -> None:
    if line.startswith("train"):
        pytest.importorskip("torch", reason="torch is not installed")
    refused(folder, line, says)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("cost export b.onnx", "holds something else than exported prices"),
        ("cost export egraph.json", "holds something else than exported prices"),
        ("rules show fold-normalisation-into-conv --html b.onnx", "holds something else than HTML"),
        ("diff a.onnx a.onnx --html b.onnx", "holds something else than HTML"),
        ("optimize a.onnx --cost analytic --report b.onnx", "holds something else than HTML"),
    ],
)
def test_files_of_another_kind_are_not_replaced(line: str, says: str, folder: Path) -> None:
    refused(folder, line, says)


@pytest.mark.parametrize("line", ["cost export o", "diff a.onnx b.onnx --html o"])
def test_files_of_the_same_kind_and_empty_ones_are_replaced(line: str, folder: Path) -> None:
    Path("o").touch()
    for _ in range(2):
        done = rlflow(*line.split())
        assert done.exit_code == 0, done.output
        assert Path("o").read_bytes()


def test_a_split_model_is_not_written_over_by_its_run(folder: Path) -> None:
    made = rlflow("split", "a.onnx", "-n", "2", "-o", "parts", "--cost", "analytic", "--no-verify")
    assert made.exit_code == 0, made.output
    for options in (
        "-o parts/part-0.onnx",
        "--json=parts/manifest.json",
        "-o in.npz --input-data in.npz",
        "-o a.onnx --against a.onnx",
    ):
        refused(folder, f"run parts {options}", ITSELF)
    refused(folder, "run parts -o o --json o", BOTH)
    refused(folder, "run parts -o nowhere/o.npz", "there is no directory")


@pytest.mark.parametrize(
    "line",
    [
        "optimize a.onnx --cost analytic -o",
        "optimize a.onnx --cost analytic --report",
        "simplify a.onnx -o",
        "simplify a.onnx",
        "shrink a.onnx -o",
        "place a.onnx --devices devices.json -o",
        "split a.onnx -o",
        "tune a.onnx -o",
        "diff a.onnx b.onnx --html",
        "compare a.onnx --search greedy --cost analytic --csv",
        "zoo export nasrnn -o",
        "cost export",
    ],
)
def test_an_output_without_a_name(line: str, folder: Path) -> None:
    refused(folder, line, EMPTY, "")
    assert not Path("model.onnx").exists()


@pytest.mark.parametrize(
    "line",
    ["optimize a.onnx --cost analytic -o", "optimize a.onnx --cost analytic --report", "simplify a.onnx -o"],
)
def test_only_json_can_go_to_the_standard_output(line: str, folder: Path) -> None:
    refused(folder, line, "cannot be the standard output", "-")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("shrink a.onnx --plot nowhere/o.png", "there is no directory"),
        ("shrink a.onnx --plot o.xyz", "unknown kind"),
        ("compare a.onnx --search greedy --cost analytic --plot o.xyz", "unknown kind"),
        ("cost calibrate a.onnx --plot o.xyz", "unknown kind"),
    ],
)
def test_plots_are_refused_before_the_work(line: str, says: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    monkeypatch.setattr("rlflow.frontends.load_model", lambda *_, **__: pytest.fail("the work began"))
    monkeypatch.setattr("rlflow.fidelity.calibrate", lambda *_, **__: pytest.fail("the work began"))
    monkeypatch.setattr("rlflow.comparison.compare", lambda *_, **__: pytest.fail("the work began"))
    refused(folder, line, says)


def test_a_tuning_that_is_refused_leaves_no_folder(folder: Path) -> None:
    refused(folder, "tune b.onnx -o new/sub --method evolutionary --budget 2s", "")
    assert not Path("new").exists()
    Path("mine").mkdir()
    refused(folder, "tune b.onnx -o mine --method evolutionary --budget 2s", "")
    assert Path("mine").is_dir(), "who made it keeps it"


def test_check_writes_no_egraph(folder: Path) -> None:
    refused(folder, "optimize a.onnx --check --search eqsat --egraph-out o", "--check writes nothing", *ANALYTIC)


def test_two_outputs_may_go_to_one_device(folder: Path) -> None:
    try:
        os.mknod("null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        Path("null").write_bytes(b"x")
    except (AttributeError, OSError) as error:
        pytest.skip(f"a device cannot be made or used here: {error}")
    done = rlflow("diff", "a.onnx", "b.onnx", "--html", "null", "--json", "null")
    assert done.exit_code == 0, done.output
    assert Path("null").is_char_device()


@pytest.mark.parametrize(
    "line",
    [
        "optimize a.onnx --cost analytic -o NAME",
        "optimize a.onnx --cost analytic --report NAME",
        "optimize a.onnx --cost analytic --json NAME",
        "optimize a.onnx --cost analytic --rules NAME",
        "compare a.onnx --search greedy --cost analytic --keep NAME",
        "split a.onnx -o NAME",
        "run NAME",
        "cost show --database NAME",
        "cost import - --database NAME",
        "rules prove NAME",
        "rules repair NAME",
        "rules import NAME",
        "rules generate --vocabulary NAME --out o",
    ],
)
def test_a_name_that_is_too_long_is_a_sentence(line: str, folder: Path) -> None:
    refused(folder, line.replace("NAME", "x" * 300 + ".json"), "x.json")


@pytest.mark.parametrize(
    "line",
    [
        "optimize a.onnx --cost analytic -o sub/o",
        "optimize a.onnx --cost analytic --json sub/o",
        "split a.onnx -o sub/o",
        "run sub/o",
        "rules prove sub/o.json",
        "rules import sub/o",
    ],
)
def test_a_folder_that_may_not_be_searched_is_a_sentence(
    line: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = os.stat

    def stat_(path: object, *rest: object, **named: object) -> os.stat_result:
        if "sub" in Path(os.fsdecode(path)).parts:  # type: ignore[arg-type]
            raise PermissionError(13, "Permission denied", path)
        return plain(path, *rest, **named)  # type: ignore[arg-type]

    before = _content(folder)
    monkeypatch.setattr("os.stat", stat_)  # whoever runs the tests may be allowed to search every folder
    done = rlflow(*line.split())
    monkeypatch.undo()
    assert done.exit_code in (1, 2)
    assert done.stderr.startswith("rlflow: error: ") and "Permission denied" in done.stderr
    assert "mistake in rlflow" not in done.stderr
    assert _content(folder) == before


def test_a_json_file_that_may_not_be_read_is_a_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused_open(path: object, *rest: object, **named: object) -> object:
        if str(path) == "devices.json":
            raise PermissionError(13, "Permission denied", path)
        return plain(path, *rest, **named)  # type: ignore[arg-type, call-overload]

    plain = open
    monkeypatch.setattr("builtins.open", refused_open)
    refused_by = rlflow("info", "decoders", "--json", "devices.json")
    assert "cannot be read: Permission denied" in refused_by.stderr, refused_by.output
