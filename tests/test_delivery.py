"""What reaches users besides the package: the container's recipe, its entry point, release notes, pins."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import rlflow._core

ROOT = Path(__file__).resolve().parents[1]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def stages() -> list[str]:
    return re.split(r"^FROM ", text("Dockerfile"), flags=re.MULTILINE)[1:]


def test_the_last_stage_has_neither_a_compiler_nor_root_nor_measurements() -> None:
    first, last = stages()
    assert "g++" in first and not re.search(r"\b(g\+\+|gcc|clang|build-essential)\b", last)
    user = last.index("USER rlflow")
    assert user < last.index("make install-wheelhouse") < last.index("ENTRYPOINT")
    assert "USER root" not in last and "apt-get" not in last[user:]
    assert not re.search(r"make (demo|micro|test)|rlflow optimize", first + last)


def test_its_steps_are_targets_of_make_and_its_files_are_here() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", text("Makefile"), re.MULTILINE))
    used = re.findall(r"^ *(?:RUN )?make ([a-z-]+)", "".join(stages()), re.MULTILINE)
    assert used == ["wheelhouse", "install-wheelhouse"] and set(used) <= targets
    for path in re.findall(r"/opt/rlflow/([\w./-]+) ", stages()[1].split("RUN --mount")[0]):
        assert (ROOT / path).exists(), path


def test_every_service_of_the_compose_file_names_extras_that_exist() -> None:
    extras = set(re.findall(r"^(\w+) = \[", text("pyproject.toml").split("[project.optional-dependencies]")[1], re.M))
    named = re.findall(r"EXTRAS[:=] ?([a-z,]+)", text("compose.yaml") + text("Dockerfile") + text("Makefile"))
    assert len(named) >= 3
    assert {extra for one in named for extra in one.split(",")} <= extras


def test_what_the_compose_file_mounts_belongs_to_the_containers_user() -> None:
    """A folder that the image lacks would be made by the engine, for root; likewise one of the host."""
    owned = re.findall(r"install --directory --owner=rlflow (.*)", text("Dockerfile"))[0].split()
    mounts = re.findall(r"- (?:(\S+?):(/[\w./-]+)$|\{type: bind, source: (\S+), target: ([\w./-]+),(.*)\})",
                        text("compose.yaml"), re.MULTILINE)  # fmt: skip
    assert len(mounts) == 3
    for source, target, bound, target_of_bound, how in mounts:
        assert (target or target_of_bound) in owned
        assert "create_host_path: false" in how if bound else source in (".", "prices")


@pytest.mark.skipif(os.name == "nt", reason="the entry point is a shell script, for the runtime of containers")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["optimize", "a b.onnx"], "rlflow|optimize|a b.onnx"),
        (["--help"], "rlflow|--help"),
        ([], "rlflow"),
        (["rlflow", "info"], "rlflow|info"),
        (["make", "reproduce-quick"], f"make|-C|{ROOT}/.ci/..|reproduce-quick"),
        (["python", "-c", "1"], "python|-c|1"),
    ],
    ids=lambda value: " ".join(value) or "nothing" if isinstance(value, list) else "",
)
def test_the_entry_point_lets_rlflow_and_make_through(arguments: list[str], expected: str, tmp_path: Path) -> None:
    for name in ("rlflow", "make", "python"):
        stub = tmp_path / name
        stub.write_text(f'#!/bin/sh\nprintf {name}\nfor one in "$@"; do printf "|%s" "$one"; done\n', encoding="utf-8")
        stub.chmod(0o755)
    path = os.pathsep.join([str(tmp_path), "/usr/bin", "/bin"])
    entry = ["sh", str(ROOT / ".ci" / "entrypoint"), *arguments]
    done = subprocess.run(entry, env={"PATH": path}, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (0, expected), done.stderr


@pytest.fixture
def rlflow_stub(tmp_path: Path) -> dict[str, str]:
    """An environment in which rlflow writes its arguments, and ends with 4 for a model called slow.onnx."""
    stub = tmp_path / "rlflow"
    stub.write_text(
        '#!/bin/sh\nfor one in "$@"; do printf "%s|" "$one"; done; echo\ncase "$2" in *slow*) exit 4 ;; esac\n', "utf-8"
    )
    stub.chmod(0o755)
    return {"PATH": os.pathsep.join([str(tmp_path), "/usr/bin", "/bin"])}


@pytest.mark.skipif(os.name == "nt", reason="a shell script")
@pytest.mark.parametrize(
    ("inputs", "expected", "code"),
    [
        ({"OUTPUT": "b.onnx"}, "optimize|a b.onnx|--budget|9s|--report|r.html|--output|b.onnx|\n", 0),
        ({"CHECK": "true", "OUTPUT": "b.onnx"}, "optimize|a b.onnx|--budget|9s|--report|r.html|--check|\n", 0),
        ({"ARGUMENTS": "--cost analytic"}, "optimize|a b.onnx|--budget|9s|--report|r.html|--cost|analytic|\n", 0),
        ({"MODEL": "slow.onnx"}, "optimize|slow.onnx|--budget|9s|--report|r.html|\n", 4),
    ],
)
def test_the_action_hands_its_inputs_on(
    inputs: dict[str, str], expected: str, code: int, rlflow_stub: dict[str, str]
) -> None:
    given = {"MODEL": "a b.onnx", "BUDGET": "9s", "REPORT": "r.html", **inputs, **rlflow_stub}
    done = subprocess.run(["bash", str(ROOT / ".ci" / "action")], env=given, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (code, expected), done.stderr
    declared = set(re.findall(r"^        ([A-Z]+): \$\{\{ inputs", text("action.yml"), re.MULTILINE))
    assert declared == {"MODEL", "OUTPUT", "CHECK", "BUDGET", "ARGUMENTS", "REPORT"}


@pytest.mark.skipif(os.name == "nt", reason="a shell script")
def test_the_hook_looks_at_each_file_and_stops_at_the_first_that_could_be_faster(rlflow_stub: dict[str, str]) -> None:
    entry = re.search(r"^  entry: (.*)$", text(".pre-commit-hooks.yaml"), re.MULTILINE)
    assert entry
    command = [*shlex.split(entry[1]), "a b.onnx", "slow.onnx", "never.onnx"]
    done = subprocess.run(command, env=rlflow_stub, capture_output=True, text=True)
    shown = [line.split("|")[1] for line in done.stdout.splitlines()]
    assert (done.returncode, shown) == (4, ["a b.onnx", "slow.onnx"]), done.stderr


def wheel_of(folder: Path, files: dict[str, Path]) -> Path:
    """A wheel as setuptools makes it, with these files in it."""
    made = folder / f"rlflow-0-cp3{sys.version_info[1]}-cp3{sys.version_info[1]}-linux_x86_64.whl"
    described = "Metadata-Version: 2.1\nName: rlflow\nVersion: 0\n"
    tag = made.stem.split("-", 2)[2]
    with zipfile.ZipFile(made, "w") as archive:
        for name, path in files.items():
            archive.write(path, name)
        archive.writestr("rlflow-0.dist-info/METADATA", described)
        archive.writestr("rlflow-0.dist-info/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n")
        archive.writestr("rlflow-0.dist-info/RECORD", "".join(f"{name},,\n" for name in archive.namelist()))
    return made


@pytest.mark.skipif(sys.platform != "linux", reason="manylinux is of Linux")
def test_a_local_wheel_gets_the_tag_that_the_compiler_allows(tmp_path: Path) -> None:
    core = Path(rlflow._core.__file__)
    wheel = wheel_of(tmp_path, {f"rlflow/{core.name}": core})
    tag_wheel = [sys.executable, str(ROOT / ".ci" / "tag_wheel.py")]
    for _ in range(2):  # the second takes the place of the first
        done = subprocess.run([*tag_wheel, str(wheel), "--into", str(tmp_path / "out")], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        (tagged,) = (tmp_path / "out").iterdir()
        assert re.search(r"-manylinux_2_\d+_", tagged.name) and "linux_x86_64.whl" not in tagged.name.split("-")
        assert done.stdout.startswith(f"{tagged}: this machine's compiler allows manylinux_2_")
    pure = wheel_of(tmp_path, {"rlflow/__init__.py": ROOT / "rlflow" / "__init__.py"})
    done = subprocess.run([*tag_wheel, str(pure), "--into", str(tmp_path / "out")], capture_output=True, text=True)
    assert done.returncode == 1 and "has no manylinux tag; auditwheel ended with" in done.stderr


def test_release_notes_are_a_section_of_the_change_log() -> None:
    notes = runpy.run_path(str(ROOT / ".ci" / "release_notes.py"))["notes"]
    page = "# Changes\n\n## Unreleased\n\n* new\n\n## 0.2.0, 2026-11-30\n\n* two\n* three\n\n## 0.1.0\n\n"
    assert notes(page, "0.2.0") == "* two\n* three" and notes(page, "Unreleased") == "* new"
    for version in ("0.3.0", "0.1.0"):
        with pytest.raises(SystemExit, match=f"says nothing of {version}; it knows Unreleased, 0.2.0, 0.1.0"):
            notes(page, version)


def test_release_notes_of_this_change_log_are_printed() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / ".ci" / "release_notes.py"), "v0.1.0"], capture_output=True, text=True
    )
    assert done.returncode == 0 and len(done.stdout) > 100, done.stderr


def test_the_version_is_the_same_everywhere() -> None:
    version = re.search(r'^version = "([^"]+)"', text("pyproject.toml"), re.MULTILINE)
    assert version and f"\nversion: {version[1]}\n" in text("CITATION.cff")


def test_each_library_is_pinned_once_for_each_python() -> None:
    """A pin that a promised Python cannot have is for the others only."""
    lines = [line for line in text("constraints.txt").splitlines() if line and not line.startswith("#")]
    names = [re.split(r"[=<>!;\s]", line, maxsplit=1)[0] for line in lines]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r'[\w-]+==[\w.]+(; python_version >= "3\.\d+")?', line) for line in lines)
