"""What is shipped: the metadata, the sdist's and the wheel's content, and how light ``import rlflow`` is."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ["onnx", "onnx_ir", "onnxruntime", "onnxscript", "onnxslim", "torch", "z3", "highspy", "scipy", "click", "rich"]
SOURCES = {".cc", ".h", ".cpp", ".pyx", ".pxd", ".pxi"}


def python(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    env = {**os.environ, "PYTHONPATH": path, **environment}
    result = subprocess.run([sys.executable, *arguments], cwd=cwd, env=env, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]
    return result


def tracked_copy(target: Path) -> Path:
    """The files of a fresh clone: what git tracks, or would (untracked and not ignored); no build products."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout: the list of source files is not known")
    for name in listed.stdout.splitlines():
        source, copy = ROOT / name, target / name
        if source.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(source.read_bytes())
    return target


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tracked_copy(tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="module")
def sdist(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sdist")
    python("setup.py", "-q", "sdist", "--formats=gztar", "-d", str(out), cwd=checkout)
    return next(out.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def built_package(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pure half of a wheel (no compiling): what ``build_py`` puts into the package folder."""
    out = tmp_path_factory.mktemp("lib")
    python("setup.py", "-q", "build_py", "--build-lib", str(out), cwd=checkout)
    return out / "rlflow"


def test_the_change_log_knows_the_version() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    version = re.search(r'^version = "([^"]+)"', text, re.MULTILINE)
    assert version
    assert f"## {version.group(1)}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_version_shown_is_the_one_installed() -> None:
    try:
        installed = metadata.version("rlflow")
    except metadata.PackageNotFoundError:
        pytest.skip("rlflow runs from a source tree that is not installed, so it has no version")
    assert python("-c", "import rlflow; print(rlflow.__version__)", cwd=ROOT).stdout.strip() == installed
    assert f'version = "{installed}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_the_sdist_holds_all_that_a_build_needs(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    native = {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "cext").rglob("*") if path.suffix in SOURCES - {".cpp"}
    }
    rules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "substitutions").rglob("*.json")}
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "rlflow").rglob("*.py")}
    tests = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*.py")}
    assert native
    assert rules
    others = {"setup.py", "pyproject.toml", "LICENSE", "README.md", "rlflow/py.typed"}
    missing = sorted((native | rules | modules | tests | others) - names)
    assert not missing, f"not in the sdist: {missing}"
    assert not [name for name in names if name.endswith((".so", ".cpp", ".pyc", ".o"))]


def test_the_wheel_carries_rules_stub_and_marker(built_package: Path) -> None:
    shipped = {path.relative_to(built_package).as_posix() for path in built_package.rglob("*") if path.is_file()}
    rules = {path.relative_to(ROOT / "substitutions").as_posix() for path in (ROOT / "substitutions").rglob("*.json")}
    assert {f"_substitutions/{name}" for name in rules} <= shipped
    assert {"py.typed", "_core.pyi", "__init__.py"} <= shipped
    assert (built_package.parent / "taso" / "__init__.py").is_file()
    modules = {path.relative_to(ROOT / "rlflow").as_posix() for path in (ROOT / "rlflow").rglob("*.py")}
    assert modules <= shipped, f"not in the wheel (is there an __init__.py beside them?): {sorted(modules - shipped)}"
    assert not [name for name in shipped if Path(name).suffix in SOURCES]


def test_importing_is_light() -> None:
    script = (
        "import sys\n"
        "before = set(sys.modules); import rlflow\n"
        f"print(*[name for name in {HEAVY!r} if name in sys.modules and name not in before])"
    )
    found = python("-c", script, cwd=ROOT).stdout.split()
    assert not found, f"`import rlflow` opens {found}"


def test_importing_opens_next_to_nothing() -> None:
    """Not even `typing` or `logging`: of what Python has not opened by itself, only what imports by name."""
    script = (
        "import sys; import __future__, importlib\n"
        "before = set(sys.modules); import rlflow; print(*sorted(set(sys.modules) - before))\n"
    )
    found = python("-c", script, cwd=ROOT).stdout.split()
    assert found == ["rlflow", "rlflow.plugins"]


def test_the_sources_are_python_3_10() -> None:
    """``x[a, *b]`` and ``except*`` came with 3.11; on 3.10 a module with one of them cannot be imported."""
    found = []
    for path in sorted((ROOT / "rlflow").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text, str(path), feature_version=(3, 10))
        for node in ast.walk(tree):
            bare = isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple)
            bare = bare and not (ast.get_source_segment(text, node.slice) or "").startswith("(")
            if bare and any(isinstance(part, ast.Starred) for part in node.slice.elts):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: an unpacked index; write x[(a, *b)]")
            elif type(node).__name__ == "TryStar":
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: except*")
    assert not found, "\n".join(found)


def test_no_rule_of_the_house_is_broken_in_text() -> None:
    """No file knows the machine that it was written on, and no rule library or source is left unfinished."""
    unfinished = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
    found = []
    for folder in ("rlflow", "cext", "substitutions", "tests", "reproduce", "docs"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".py", ".pyx", ".pxi", ".cc", ".h", ".md"}:
                lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
                found += [f"{path.relative_to(ROOT)}:{number}" for number, line in lines if unfinished.search(line)]
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_sdist_installs_and_runs(sdist: Path, tmp_path: Path) -> None:
    """``pip install sdist`` with build isolation in a new environment; needs the network or a wheel cache."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "env")], check=True)
    interpreter = tmp_path / "env" / "bin" / "python"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    install = [str(interpreter), "-m", "pip", "install", "-q", str(sdist)]
    subprocess.run(install, check=True, env=environment, cwd=tmp_path)
    rules = [str(interpreter.with_name("rlflow")), "rules", "list"]
    shown = subprocess.run(rules, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert "transpose" in shown.stdout.lower()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_whole_wheel(checkout: Path, tmp_path: Path) -> None:
    """The wheel itself, compiled: exactly one extension, no source of it."""
    python("-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), ".", cwd=checkout)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as archive:
        names = archive.namelist()
    assert len([name for name in names if re.match(r"rlflow/_core\..*\.(so|pyd)$", name)]) == 1
    assert {"rlflow/py.typed", "rlflow/_core.pyi", "rlflow/_kernels.so"} <= set(names)
    assert [name for name in names if name.startswith("rlflow/_substitutions/core/")]
    assert not [name for name in names if Path(name).suffix in SOURCES]
