"""The agents' files: no circle, and neither agent knows the other. PPO is read in one file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
AGENTS = sorted((ROOT / "rlflow" / "agents").rglob("*.py"))


def module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def imported(path: Path) -> Iterator[str]:
    """The agents' modules that a file imports, lazily too; not those that are for types alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    guards = [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    guarded = {id(inner) for guard in guards for inner in ast.walk(guard)}
    known = {module(one) for one in AGENTS}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and id(node) not in guarded:
            yield from known & {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}


def circle(files: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(files).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_file_imports_itself_by_way_of_others() -> None:
    assert circle({module(path): set(imported(path)) for path in AGENTS}) == []
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})  # the finder finds


def test_neither_agent_knows_the_other() -> None:
    for path in AGENTS:
        other = {"xrlflow": "rlflow.agents.rlflow.", "rlflow": "rlflow.agents.xrlflow."}.get(path.parent.name)
        if other is None and path.parent.name == "agents":  # what both share knows neither
            assert not [name for name in imported(path) if name.count(".") > 2]
        assert other is None or not [name for name in imported(path) if name.startswith(other)]


def test_ppo_is_one_file_of_at_most_four_hundred_lines() -> None:
    text = (ROOT / "rlflow" / "agents" / "xrlflow" / "ppo.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    parts = ["class Player", "def prepare", "def improve", "class Trainer"]
    assert parts == sorted(parts, key=text.index)  # played, judged, learnt, again


@pytest.mark.parametrize("name", ["go", "xrlflow", "rlflow-latent", "rlflow-graph"])
def test_the_shipped_checkpoints_are_where_they_are_looked_for(name: str) -> None:
    pytest.importorskip("torch", reason="torch is not installed; pip install 'rlflow[rl]'")
    from rlflow.nn.checkpoint import shipped

    assert shipped(name).is_file()
