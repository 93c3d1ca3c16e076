"""Every `rlflow …` that a page shows is a verb of ours with options of its own; also where the command is not run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from rlflow.cli import main
from tests.test_docs import BLOCKS, PAGES, ROOT, STEPS

#: What the commands leave on a screen, with mistakes among them; and the verb that a page of steps adds.
_LEFT_OUT = {ROOT / "docs" / "sessions.md"}
_INLINE = re.compile(r"`rlflow ([^`]+)`")
_PROMPT = re.compile(r"^(?:[a-z0-9]+\$\s+)?rlflow (.*)$")
_FENCE = re.compile(r"^```.*?^```\s*$", re.MULTILINE | re.DOTALL)


def commands(page: Path) -> Iterator[str]:
    """What the page writes after `rlflow`: in its blocks, a line each, and within its sentences."""
    for block in BLOCKS:
        if block.page == page and block.language in ("bash", "text"):
            for line in block.text.replace("\\\n", " ").splitlines():
                if found := _PROMPT.match(line):
                    yield found[1]
    yield from _INLINE.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))


def words(text: str) -> list[str]:
    """The words of a command up to a comment, a pipe or a second command."""
    try:
        found = shlex.split(text, comments=True)
    except ValueError:  # an apostrophe of a sentence
        found = text.split()
    ends = [number for number, word in enumerate(found) if word in ("|", "&&", ">", ";")]
    return found[: ends[0]] if ends else found


def fault(text: str) -> str | None:
    """Why a user who types this is refused; ``None`` where the verb and its options exist."""
    command: click.Command = main
    rest = words(text)
    context = click.Context(main)
    while isinstance(command, click.Group) and rest and re.fullmatch(r"[a-z][a-z-]*", rest[0]):
        found = command.get_command(context, rest[0])
        if found is None:
            return f"there is no verb {rest[0]!r}"
        command, context, rest = found, click.Context(found, context), rest[1:]
    known = {flag for one in command.get_params(context) for flag in (*one.opts, *one.secondary_opts)}
    lost = [word for word in rest if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in known]
    return f"{command.name} has no option {' '.join(lost)}" if lost else None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("optimize m.onnx -o o.onnx --budget 60s --json - | jq .gain", None),
        ("rules prove --all   # --nothing", None),
        ("bench A --percentile 3", "bench has no option --percentile"),
        ("rules prove --quietly", "prove has no option --quietly"),
        ("optimise m.onnx", "there is no verb 'optimise'"),
        ("rules proof m.json", "there is no verb 'proof'"),
    ],
)
def test_what_is_refused_is_found(text: str, found: str | None) -> None:
    assert fault(text) == found


@pytest.mark.parametrize("page", sorted({*PAGES} - _LEFT_OUT), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_the_pages_exist(page: Path) -> None:
    wrong = {text: why for text in commands(page) if (why := fault(text)) is not None}
    if page in STEPS:
        wrong = {text: why for text, why in wrong.items() if "no verb" not in why}
    assert not wrong, f"{page.relative_to(ROOT)}: {wrong}"


def test_there_are_such_commands() -> None:
    assert sum(1 for page in PAGES for _ in commands(page)) > 100
