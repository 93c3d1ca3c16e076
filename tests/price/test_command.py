"""A device behind a command: what it prints, how it fails, and who else wants it."""

from __future__ import annotations

import math
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

from rlflow.errors import CostError, RuntimeCrashed, RuntimeRefused, RuntimeUnavailable, UsageError
from rlflow.price.command import CommandSampler, DeviceCommand
from rlflow.race.gate import choose

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the commands of these tests are for a POSIX shell")


def answer(script: str, **options: object) -> DeviceCommand:
    return DeviceCommand(f"{script} # {{model}}", **options)  # type: ignore[arg-type]


class TestAnswers:
    @pytest.mark.parametrize(
        ("printed", "ms"),
        [
            ("12.5", 12.5),
            ("run 3 of 3: 7.25 ms", 7.25),
            ("warm-up 1e3\\nmedian=.5", 0.5),
            ("resnet50: 4ms", 4.0),
            ('{"ms": 3.5, "board": 7}', 3.5),
            ('log line\\n{"median_ms": [1, 5, 2]}', 2.0),
            ("[4.0, 2.0, 3.0]", 3.0),
            ("+1.5E-1", 0.15),
            ("banana 2", 2.0),
        ],
    )
    def test_the_last_number_or_json_counts(self, printed: str, ms: float) -> None:
        assert answer(f"printf {shlex.quote(printed + chr(10))}").milliseconds("m.onnx") == pytest.approx(ms)

    @pytest.mark.parametrize(
        ("script", "error", "words"),
        [
            ("echo hello", RuntimeRefused, "printed no number of milliseconds; its output ends with 'hello'"),
            ("true", RuntimeRefused, "it printed nothing"),
            ("echo nan", RuntimeRefused, "answered nan milliseconds"),
            ("echo NaN ms", RuntimeRefused, "answered nan milliseconds"),
            ("echo -- -3", RuntimeRefused, "answered -3 milliseconds"),
            ("echo 0", RuntimeRefused, "answered 0 milliseconds"),
            ("echo inf", RuntimeRefused, "answered inf milliseconds"),
            ("echo '{\"status\": 1}'", RuntimeRefused, "JSON without a figure"),
            ("echo board is busy >&2; exit 3", RuntimeRefused, "ended with status 3. Its last words: board is busy"),
            ("echo 5; exit 1", RuntimeRefused, "ended with status 1"),
            ("kill -9 $$", RuntimeRefused, "killed by signal 9"),
            ("no-such-program-anywhere", RuntimeUnavailable, "was not found"),
        ],
    )
    def test_anything_else_is_one_sentence(self, script: str, error: type[Exception], words: str) -> None:
        with pytest.raises(error) as found:
            answer(script).milliseconds("m.onnx")
        assert words in str(found.value)
        assert "\n" not in str(found.value)

    def test_a_command_that_hangs_is_ended_with_its_children(self, tmp_path: Path) -> None:
        mark = tmp_path / "still-alive"
        device = answer(f"(sleep 1; touch {mark}) & sleep 30", time_limit=0.3)
        with pytest.raises(RuntimeCrashed, match=r"did not end within 0\.3 s") as found:
            device.milliseconds("m.onnx")
        assert found.value.timed_out
        time.sleep(1.2)
        assert not mark.exists()

    def test_the_path_is_quoted(self, tmp_path: Path) -> None:
        path = tmp_path / "it's a model.onnx"
        path.write_bytes(b"x" * 42)
        assert DeviceCommand("wc -c < {model}").milliseconds(path) == 42

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"command": "run.sh"}, "write {model} in its place"),
            ({"command": "run.sh {model}", "time_limit": 0}, "above zero"),
            ({"command": "run.sh {model}", "jobs": 0}, "at least 1"),
        ],
    )
    def test_mistakes(self, options: dict[str, object], words: str) -> None:
        with pytest.raises(UsageError, match=words):
            DeviceCommand(**options)  # type: ignore[arg-type]


#: Fails when two of it run in one slot at the same time.
EXCLUSIVE = "mkdir {folder}/busy-{{slot}} && sleep 0.05 && rmdir {folder}/busy-{{slot}} && echo {{slot}}1 # {{model}}"
CLIENT = """
import sys
import tempfile
from rlflow.price.command import DeviceCommand
device = DeviceCommand(sys.argv[1], jobs=int(sys.argv[2]))
print([device.milliseconds("m") for _ in range(8)])
"""


class TestConcurrency:
    @pytest.mark.parametrize("jobs", [1, 2])
    def test_processes_wait_for_one_another(self, tmp_path: Path, jobs: int) -> None:
        command = EXCLUSIVE.format(folder=tmp_path)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        running = [
            subprocess.Popen(
                [sys.executable, "-c", CLIENT, command, str(jobs)], env=environment, stderr=subprocess.PIPE
            )
            for _ in range(3)
        ]
        errors = [child.communicate(timeout=120)[1] for child in running]
        assert [child.returncode for child in running] == [0, 0, 0], errors

    def test_one_sampler_uses_all_slots(self, tmp_path: Path) -> None:
        """Once there is a folder to meet in, each run ends only when three are at work."""
        meeting = tmp_path / "meeting"
        together = f"cd {meeting} 2>/dev/null && touch {{slot}} && until [ $(ls | wc -l) = 3 ]; do sleep 0.01; done"
        device = DeviceCommand(f"{together}; echo 1{{slot}} # {{model}}", jobs=3, time_limit=60)
        with CommandSampler(device, dict.fromkeys("abc", b"model")) as sampler:
            assert [sampler.screen(name) for name in "abc"] == [{}, {}, {}]
            meeting.mkdir()
            found = sampler.block(["a", "b", "c"], 0, 0.0)
        assert sorted(found.wall_ms[0]) == [10, 11, 12]

    def test_a_block_ends_with_the_round_at_hand(self) -> None:
        asked = iter([False, False, True])
        with CommandSampler(DeviceCommand("echo 5 # {model}"), {"a": b"model"}, lambda: next(asked)) as sampler:
            assert sampler.screen("a") == {}
            assert len(sampler.block(["a"], 0, 3600.0).wall_ms) == 3
            assert next(asked, None) is None


def board(path: Path, ms: dict[str, float], noise: float = 0.01) -> DeviceCommand:
    """A board whose models take as long as their content says, with a little noise."""
    script = path / "board.py"
    script.write_text(
        "import random, sys\n"
        f"ms = {ms!r}\n"
        "content = open(sys.argv[1], 'rb').read().decode()\n"
        "if content == 'crash': sys.exit('the board rebooted')\n"
        f"print('took', ms[content] * random.gauss(1, {noise}), 'ms')\n"
    )
    return DeviceCommand(f"{sys.executable} {script} {{model}}")


class TestGate:
    def test_a_faster_model_wins_and_a_crashing_one_is_dropped(self, tmp_path: Path) -> None:
        device = board(tmp_path, {"slow": 10.0, "fast": 8.0})
        found = choose(device, b"slow", {"fast": b"fast", "bad": b"crash"}, {}, seconds=0.1)
        assert found.winner == "fast"
        assert math.isclose(found.speedup or 0, 1.25, rel_tol=0.03)
        assert "the board rebooted" in found.dropped["bad"]

    def test_an_equal_model_is_no_gain(self, tmp_path: Path) -> None:
        found = choose(board(tmp_path, {"one": 10.0, "two": 10.0}, 0.0), b"one", {"two": b"two"}, {}, seconds=0.1)
        assert found.winner is None

    def test_a_board_that_cannot_run_the_original_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(CostError, match=r"cannot be timed: .*the board rebooted"):
            choose(board(tmp_path, {}), b"crash", {"a": b"a"}, {}, seconds=0.1)

    def test_files_go_away(self, tmp_path: Path) -> None:
        sampler = CommandSampler(board(tmp_path, {"a": 1.0}))
        sampler.add("a", b"a")
        path = Path(sampler._paths["a"])
        assert path.read_bytes() == b"a"
        assert np.isfinite(sampler.block(["a"], 0, 0.0).wall_ms).all()
        sampler.drop("a")
        assert not path.exists()
        sampler.close()
        assert not path.parent.exists()


HOSTILE_NAMES = [
    "semi;touch X.onnx", "back`touch X`.onnx", "$(touch X).onnx", "and & touch X.onnx", "pipe|touch X.onnx", "a b.onnx",
    "quote'; touch X; '.onnx", 'double"; touch X; ".onnx', "new\nline\ntouch X\n.onnx", "-rf.onnx", "~.onnx", "*.onnx",
    "!x.onnx", "#x.onnx", "ünïcode.onnx", "back\\slash.onnx", ">X", "{slot}{model}.onnx",
]  # fmt: skip


class TestHostileNames:
    """``sh -c`` on the joined words is what ``ssh board …`` does on the other side."""

    @pytest.mark.parametrize("name", HOSTILE_NAMES)
    @pytest.mark.parametrize("command", ["sh fake_ssh board cat {model}", "cat {model}"])
    def test_a_second_shell_reads_the_path_as_one(
        self, name: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Path("fake_ssh").write_text('shift; exec sh -c "$*"\n')
        Path(name).write_text("4.25")
        before = sorted(tmp_path.iterdir())
        assert DeviceCommand(command).milliseconds(name) == 4.25
        with CommandSampler(DeviceCommand(command)) as sampler:
            sampler.add(name, b"1.5")
            sampler.add("original", name)
        assert sorted(tmp_path.iterdir()) == before

    def test_data_files_come_along(self, tmp_path: Path) -> None:
        tensor = onnx.numpy_helper.from_array(np.ones(2, np.float32), "w")
        output = onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [2])
        model = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [output], [tensor]))
        place = tmp_path / "a folder; of models"
        place.mkdir()
        onnx.external_data_helper.convert_model_to_external_data(model, location="d a;t.a", size_threshold=0)
        onnx.save(model, place / "m.onnx")
        assert DeviceCommand('cd "$(dirname {model})"; cat d*.a | wc -c; : ').milliseconds(place / "m.onnx") == 8

    def test_a_temporary_folder_of_such_a_name_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "t;mp").mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "t;mp"))
        (tmp_path / "a b").write_text("1")
        with pytest.raises(UsageError, match="point TMPDIR"):
            DeviceCommand("cat {model}").milliseconds(tmp_path / "a b")
