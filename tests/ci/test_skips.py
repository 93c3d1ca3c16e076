"""The judge of skipped tests: every reason is known, and no test hides behind one that its environment lacks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from skips import judged, reason_of

from rlflow import env, nn
from rlflow.runtime import unavailable_reason

TORCH = "torch is not installed; pip install 'rlflow[rl]'"


@pytest.mark.parametrize(
    ("why", "name"),
    [
        (TORCH, "an extra"),
        ("could not import 'torch': No module named 'torch'", "an extra"),
        ("gymnasium is not installed; pip install 'rlflow[rl]'", "an extra"),
        ("OpenVINO is not installed in this Python environment", "OpenVINO"),
        ("torch-scatter (the extra [scatter]) is not installed", None),
        ("the outside data (../shared/data beside the repository) is not on this machine", "outside data"),
        ("z3 is not installed: pip install '.[prove]'", None),
        ("could not import 'matplotlib': No module named 'matplotlib'", None),
        ("I do not feel like it", None),
    ],
)
def test_every_reason_has_a_kind(why: str, name: str | None) -> None:
    found = reason_of(why)
    assert (None if found is None else found.name) == name


def test_the_library_s_own_sentences_are_known() -> None:
    sentences = [nn.available(), env.available(), unavailable_reason("openvino")]
    assert all(reason_of(why) is not None for why in sentences if why is not None)


@pytest.mark.parametrize(
    ("environment", "again", "wrong"), [("base", ["a.py"], ["c.py::z"]), ("extras", [], ["a.py", "c.py::z"])]
)
def test_what_an_environment_may_skip(environment: str, again: list[str], wrong: list[str]) -> None:
    skipped = {"a.py": TORCH, "b.py::y": "there is no GPU here", "c.py::z": "too slow"}
    counts, runs_elsewhere, refused = judged(skipped, environment)
    assert dict(counts) == {"an extra": 1, "GPU": 1, "no known reason": 1}
    assert runs_elsewhere == again
    assert [line.partition(": ")[0] for line in refused] == wrong


def test_a_run_writes_what_it_skipped_and_the_judge_exits_by_it(tmp_path: Path) -> None:
    (tmp_path / "test_module.py").write_text(
        "import pytest\npytest.importorskip('torch_of_tomorrow', reason='torch is not installed')\n"
    )
    (tmp_path / "test_few.py").write_text(
        "import pytest\n"
        "def test_runs(): pass\n"
        "@pytest.mark.parametrize('n', [1, 2])\n"
        "@pytest.mark.skipif(True, reason='OpenVINO is not installed')\n"
        "def test_marked(n): pass\n"
        "def test_inside(): pytest.skip('no reason')\n"
    )  # fmt: skip
    plugin = "from pathlib import Path\nfrom skips import Skips\ndef pytest_configure(config):\n"
    (tmp_path / "conftest.py").write_text(
        f"import sys\nsys.path.append({str(Path(__file__).parent)!r})\n{plugin}"
        "    config.pluginmanager.register(Skips(Path('skips.json')))\n"
    )
    subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=tmp_path, capture_output=True)
    found = json.loads((tmp_path / "skips.json").read_text())
    assert found["ran"] == 1
    assert sorted(found["skipped"]) == [
        "test_few.py::test_inside",
        "test_few.py::test_marked[1]",
        "test_few.py::test_marked[2]",
        "test_module.py",
    ]
    judge = [sys.executable, str(Path(__file__).with_name("skips.py")), "skips.json", "--in", "base"]
    done = subprocess.run([*judge, "--again", "again.txt"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout == "base: 1 run, 4 skipped (2 OpenVINO, 1 an extra, 1 no known reason)\n"
    assert done.stderr == "base: must not be skipped here: test_few.py::test_inside: no reason\n"
    assert (tmp_path / "again.txt").read_text() == "test_module.py\n"
