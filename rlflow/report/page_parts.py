"""What the pages share: the document around them, and tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

__all__ = ["document", "table"]


def document(title: str, verdict: str, good: bool, body: str) -> str:
    """A whole page with its styles and its script in it. ``body`` is HTML, the rest is text."""
    here = Path(__file__).parent
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>rlflow: {escape(title)}</title><style>{(here / 'page.css').read_text('utf-8')}</style></head>"
        f'<body><main><h1>{escape(title)}</h1><p class="verdict{" good" if good else ""}">{escape(verdict)}</p>'
        f"{body}</main><script>{(here / 'page.js').read_text('utf-8')}</script></body></html>\n"
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1, kind: str = "") -> str:
    """Cells are HTML; columns after the first ``left`` are figures. ``kind``: a class of the style sheet."""
    sides = ["" if column < left else ' class="r"' for column in range(len(head))]
    top = "".join(f"<th{side}>{cell}</th>" for side, cell in zip(sides, head, strict=True))
    lines = ("".join(f"<td{side}>{cell}</td>" for side, cell in zip(sides, row, strict=True)) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    style = f' class="{kind}"' if kind else ""
    return f'<div class="scroll"><table{style}><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
