"""Writes the pages of the site: the documents of this repository, and a reference made from the code.

    python docs/site/build.py [--into build/site-pages]      (make site, which then runs mkdocs)

A link that leads out of docs/ is made to lead to the page's place in the site; one to a file that is no page becomes
its text.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import os
import posixpath
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
#: Pages that are not in docs/, and where they are in the site.
OTHERS = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changes.md",
    "substitutions/README.md": "project/substitutions.md",
    "reproduce/README.md": "project/reproduce.md",
    "reproduce/exports/README.md": "project/reproduce-exports.md",
    "reproduce/models/README.md": "project/reproduce-models.md",
    "reproduce/taso/README.md": "project/reproduce-taso.md",
}
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_FENCE = re.compile(r"(^```.*?^```\s*$)", re.MULTILINE | re.DOTALL)
_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):`~?([^`]+)`")


def pages() -> dict[str, str]:
    """The site's pages by their place, from the repository: their text with the links set right."""
    places = {path.relative_to(ROOT).as_posix(): path.relative_to(ROOT / "docs").as_posix() for path in _documents()}
    places |= {name: place for name, place in OTHERS.items() if (ROOT / name).exists()}
    return {place: relinked((ROOT / name).read_text("utf-8"), name, places) for name, place in places.items()}


def _documents() -> Iterator[Path]:
    yield from sorted((ROOT / "docs").rglob("*.md"))


def relinked(text: str, name: str, places: dict[str, str]) -> str:
    """``text``, the page ``name`` of the repository, with its links as they are in the site; code stays as it is."""

    def moved(match: re.Match[str]) -> str:
        words, target, anchor = match.groups()
        if re.match(r"[a-z]+:", target):
            return match[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
        if file in places:
            here = posixpath.dirname(places[name])
            return f"[{words}]({posixpath.relpath(places[file], here or '.')}{anchor or ''})"
        return words

    parts = _FENCE.split(text)
    return "".join(part if part.startswith("```") else _LINK.sub(moved, part) for part in parts)


# --- the reference ----------------------------------------------------------------------------------------------------


def command_reference() -> str:
    """Every verb of the command line with its options."""
    import click

    from rlflow.cli import main

    lines = ["# Command line", "", "Made from the code. `rlflow VERB --help` shows the same."]
    for path, command in _commands(main, ["rlflow"]):
        context = click.Context(command, info_name=" ".join(path))
        usage = " ".join([*path, *command.collect_usage_pieces(context)])
        lines += ["", f"## {' '.join(path)}", "", f"`{usage}`", "", inspect.cleandoc(command.help or "").strip()]
        for title, rows in _options(command, context):
            lines += ["", f"| {title} | |", "|---|---|"]
            lines += [f"| `{_cell(option)}` | {_cell(about)} |" for option, about in rows]
    return "\n".join(lines) + "\n"


def _options(command: Any, context: Any) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The options of a command with what they do, by heading where its help has some; without ``--help``."""
    from rlflow.cli.sections import SectionedCommand

    if isinstance(command, SectionedCommand):
        found = list(command.parts(context))
    else:
        params = command.get_params(context)
        found = [("Option", [record for one in params if (record := one.get_help_record(context))])]
    for title, records in found:
        rows = [row for row in records if row[0] != "--help"]
        if rows:
            yield title, rows


def _commands(command: Any, path: list[str]) -> Iterator[tuple[list[str], Any]]:
    """All commands that do something, by their words."""
    import click

    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        if inner is not None and not inner.hidden:
            yield from _commands(inner, [*path, name])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def python_reference() -> str:
    """What ``rlflow`` offers to Python, with its docstrings."""
    import rlflow

    lines = ["# Python", "", "Made from the docstrings. `import rlflow` opens a name when it is first used."]
    for name in [one for one in rlflow.__all__ if not one.startswith("_")]:
        lines += ["", f"## rlflow.{name}", "", *_described(getattr(rlflow, name))]
    import rlflow.torch

    lines += ["", "## rlflow.torch.optimize", "", *_described(rlflow.torch.optimize)]
    return "\n".join(lines) + "\n"


def _described(thing: Any) -> Iterator[str]:
    """Signature and docstring of a function or a class, and those of its public methods."""
    with contextlib.suppress(ValueError):  # the core's classes have none that Python can read
        yield f"```text\n{thing.__name__}{_signature(thing)}\n```\n"
    yield prose(thing)
    if inspect.isclass(thing):
        for name, member in sorted(vars(thing).items()):
            about = inspect.getdoc(member)
            if not name.startswith("_") and about and (callable(member) or isinstance(member, property)):
                yield f"\n**`{name}`**: {prose(member)}"


def _signature(thing: Any) -> str:
    """One parameter a line, without annotations that repeat the text."""
    shown = [
        str(one.replace(annotation=inspect.Parameter.empty)) for one in inspect.signature(thing).parameters.values()
    ]
    line = f"({', '.join(shown)})"
    return line if len(line) < 100 else "(\n    " + ",\n    ".join(shown) + ",\n)"


def prose(thing: Any) -> str:
    """A docstring as Markdown."""
    text = inspect.getdoc(thing) or ""
    return _ROLE.sub(r"`\1`", text).replace("``", "`")


# --- writing ----------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "site-pages")
    into = parser.parse_args().into
    os.environ["COLUMNS"] = "100"
    shutil.rmtree(into, ignore_errors=True)
    made = {"reference/command-line.md": command_reference(), "reference/python.md": python_reference()}
    for place, text in {**pages(), **made}.items():
        target = into / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
