"""README and docs are executed: a block that no longer works fails here, with the file and the line it starts on.

* ``python`` blocks run, all those of a page in one namespace and one empty working folder.
* ``bash`` blocks run when the line above the fence is ``<!-- run -->``; the others would install or test the package.
* ``<!-- write: PATH -->`` and ``<!-- edit: PATH -->`` make a page one of steps, which is followed in a copy of the
  package: the block is the file, or a diff without line numbers whose parts are separated by ``@@``; then the page's
  ``bash`` blocks under ``<!-- run in a copy -->`` run there.
* ``json`` blocks must parse. ``<!-- not run: reason -->`` above a block leaves it out, for the reason it gives.
* Links between pages must lead somewhere.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.learnt import learnt

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(page for folder in ("docs", "reproduce", "substitutions") for page in (ROOT / folder).rglob("*.md")),
    ]
)
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s#]+)(#[^)\s]*)?\)")


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    text: str
    note: str  # the HTML comment above the fence, or ""

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def skipped(self) -> bool:
        return self.note.startswith(("not run:", "write:", "edit:"))


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    blocks = []
    for match in _FENCE.finditer(text):
        before = text[: match.start()]
        last = before.rstrip("\n").rsplit("\n", 1)[-1].strip()
        note = last.removeprefix("<!--").removesuffix("-->").strip() if last.startswith("<!--") else ""
        blocks.append(Block(page, before.count("\n") + 1, match.group(1), match.group(2), note))
    return blocks


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
PYTHON_PAGES = sorted({block.page for block in BLOCKS if block.language == "python" and not block.skipped})
BASH = [block for block in BLOCKS if block.language == "bash" and block.note == "run"]
DATA = [block for block in BLOCKS if block.language == "json" and not block.skipped]


STEPS = sorted({block.page for block in BLOCKS if block.note.startswith(("write:", "edit:"))})


def environment(folder: Path, root: Path = ROOT) -> dict[str, str]:
    """An environment in which ``rlflow`` is the command of the checkout at ``root``, whether or not it is installed."""
    launcher = folder / "bin" / "rlflow"
    launcher.parent.mkdir(exist_ok=True)
    start = "from rlflow.cli import main; main()"
    launcher.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{start}' \"$@\"\n", encoding="utf-8")
    launcher.chmod(0o755)
    path = os.pathsep.join([str(launcher.parent), str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    python_path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    cache = learnt(folder / "cache" / "prices.sqlite").parent
    return {**os.environ, "PATH": path, "PYTHONPATH": python_path, "RLFLOW_CACHE": str(cache)}


def run(command: list[str], folder: Path, where: str, root: Path = ROOT) -> None:
    given = environment(folder, root)
    result = subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, timeout=280)
    assert result.returncode == 0, f"{where} ended with status {result.returncode}\n{result.stdout}\n{result.stderr}"


def test_no_block_is_left_out_without_a_reason() -> None:
    bare = [block.where for block in BLOCKS if block.language in ("bash", "sh", "") and not block.note]
    named = [block.where for block in BLOCKS if block.language == "sh"]
    hidden = re.compile(r"(rlflow|make|pip|python|import|from) ")
    text = [block.where for block in BLOCKS if block.language == "text" and hidden.match(block.text)]
    assert not bare + named + text, "run these blocks, or say above why not (<!-- not run: … -->), and call shell bash"


def test_there_are_pages_and_blocks() -> None:
    assert ROOT / "README.md" in PAGES
    assert any(block.language == "python" for block in BLOCKS)
    assert BASH


@pytest.mark.parametrize("page", PYTHON_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_run(page: Path, tmp_path: Path) -> None:
    blocks = [block for block in blocks_of(page) if block.language == "python" and not block.skipped]
    # Padding with empty lines makes a traceback name the page's own line.
    parts = [f"exec(compile({chr(10) * block.line + block.text!r}, {str(page.name)!r}, 'exec'))" for block in blocks]
    script = tmp_path / "blocks.py"
    script.write_text("\n".join(parts), encoding="utf-8")
    run([sys.executable, str(script)], tmp_path, blocks[0].where)


@pytest.mark.parametrize("block", BASH, ids=lambda block: block.where)
def test_bash_blocks_run(block: Block, tmp_path: Path) -> None:
    run(["bash", "-euo", "pipefail", "-c", block.text], tmp_path, block.where)


@pytest.mark.parametrize("page", STEPS, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_of_steps_can_be_followed(page: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    ignored = shutil.ignore_patterns("__pycache__", "results")
    for name in ("rlflow", "taso", "tests", "substitutions", "docs"):
        shutil.copytree(ROOT / name, copy / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", copy)
    for block in blocks_of(page):
        verb, _, place = block.note.partition(": ")
        if verb == "write":
            assert not (copy / place).exists(), f"{block.where} writes {place}, which is there already"
            (copy / place).write_text(block.text, encoding="utf-8")
        elif verb == "edit":
            edit(copy / place, block)
        elif block.note == "run in a copy":
            run(["bash", "-euo", "pipefail", "-c", block.text], copy, block.where, copy)


def edit(path: Path, block: Block) -> None:
    """Apply a diff without line numbers: what it expects must be there once."""
    text = path.read_text(encoding="utf-8")
    for part in re.split(r"^@@.*\n", block.text, flags=re.MULTILINE):
        lines = part.splitlines()
        old, new = ("\n".join(line[1:] for line in lines if line[:1] in signs) for signs in (" -", " +"))
        assert text.count(old) == 1, (
            f"{block.where} expects this once in {path.name}, not {text.count(old)} times:\n{old}"
        )
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("block", DATA, ids=lambda block: block.where)
def test_json_blocks_parse(block: Block) -> None:
    try:
        json.loads(block.text)
    except ValueError as error:
        pytest.fail(f"{block.where}: {error}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    targets = [match.group(1) for match in _LINK.finditer(text) if not re.match(r"[a-z]+:", match.group(1))]
    lost = [target for target in targets if not (page.parent / target).exists()]
    assert not lost, f"{page.relative_to(ROOT)} links to what is not there: {', '.join(lost)}"


def test_make_targets_that_the_pages_name_exist() -> None:
    declared = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for page in PAGES:
        named = set(re.findall(r"(?:`|^)make ([a-z][a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE))
        assert named <= declared, f"{page.relative_to(ROOT)} names no make target of ours: {sorted(named - declared)}"
