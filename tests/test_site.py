"""The site: every page is in its contents, links lead to pages, and the reference knows every verb and name."""

from __future__ import annotations

import posixpath
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rlflow

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs" / "site"))

import build  # noqa: E402 - from docs/site

PAGES = build.pages()
MADE = {"reference/command-line.md", "reference/python.md"}


def test_every_page_is_in_the_contents_or_linked_from_there() -> None:
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r": (\S+\.md)$", config.split("\nnav:\n")[1], re.MULTILINE)
    assert len(set(listed)) == len(listed) and set(listed) <= {*PAGES, *MADE}
    linked = {target for place in listed if place in PAGES for target in targets(place)}
    assert {*PAGES, *MADE} <= {*listed, *linked}


def targets(place: str) -> set[str]:
    """Where the links of a page lead in the site."""
    text = re.sub(r"^```.*?^```", "", PAGES[place], flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"\]\(([^)\s#]+)", text)
    here = posixpath.dirname(place)
    return {posixpath.normpath(posixpath.join(here, one)) for one in found if not re.match(r"[a-z]+:", one)}


@pytest.mark.parametrize("place", PAGES)
def test_links_lead_to_pages(place: str) -> None:
    assert targets(place) <= set(PAGES)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("README.md", "[Rules](docs/rules.md#terms) and [law](LICENSE)", "[Rules](rules.md#terms) and law"),
        ("docs/tour.md", "[top](../README.md)", "[top](index.md)"),
        ("docs/notes/a.md", "[top](../../README.md)", "[top](../index.md)"),
        ("README.md", "[x](https://a.b/c)", "[x](https://a.b/c)"),
        ("README.md", "```text\n[a](docs/rules.md)\n```\n", "```text\n[a](docs/rules.md)\n```\n"),
    ],
)
def test_links_are_set_right(name: str, text: str, expected: str) -> None:
    places = {"README.md": "index.md", "docs/rules.md": "rules.md", "docs/tour.md": "tour.md",
              "docs/notes/a.md": "notes/a.md"}  # fmt: skip
    assert build.relinked(text, name, places) == expected


def test_the_reference_has_every_verb_with_its_options() -> None:
    shown = build.command_reference()
    help_of = [sys.executable, "-c", "from rlflow.cli import main; main()", "--help"]
    listed = subprocess.run(help_of, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    verbs = re.findall(r"^  ([a-z]+)  ", listed.split("Commands:")[1], re.MULTILINE)
    assert len(verbs) > 10
    for verb in verbs:
        assert f"\n## rlflow {verb}" in shown
    assert "| `--budget TEXT` |" in shown and "\n## rlflow rules prove\n" in shown


def test_the_reference_has_every_name_of_the_package() -> None:
    shown = build.python_reference()
    for name in rlflow.__all__:
        assert name.startswith("_") or f"\n## rlflow.{name}\n" in shown
    assert ":class:`" not in shown and "rlflow.torch.optimize" in shown


def test_every_environment_variable_of_ours_is_in_the_page_of_settings() -> None:
    sources = [*(ROOT / "rlflow").rglob("*.py"), *(ROOT / "cext").rglob("*.cc"), *(ROOT / "cext").rglob("*.h")]
    read = re.compile(r"""(?:environ(?:\.get)?[\[(]|getenv\()\s*["'](RLFLOW_\w+)""")
    found = {name for path in sources for name in read.findall(path.read_text(encoding="utf-8"))}
    assert len(found) > 4
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert {name for name in found if f"`{name}`" not in page} == set()
