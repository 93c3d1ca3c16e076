"""The help of verbs with many options: under headings, so that one finds what one looks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

#: Columns that names of options take at most; the text of a longer one begins in the next line.
_NAMES = 30


class SectionedCommand(click.Command):
    """A command whose help shows its options under headings.

    ``sections``: the options of each heading by the names of their parameters, in the order in which they are shown.
    What is in none of them, as ``--help`` is, comes last.
    """

    def __init__(self, *args: Any, sections: Mapping[str, Sequence[str]], **more: Any) -> None:
        super().__init__(*args, **more)
        self.sections = sections

    def parts(self, context: click.Context) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        """Each heading with its options and what they do."""
        rows = {
            one.name: row
            for one in self.get_params(context)
            if isinstance(one, click.Option) and (row := one.get_help_record(context)) is not None
        }
        for title, names in self.sections.items():
            yield title, [rows.pop(name) for name in names]
        if rows:
            yield "Other options", list(rows.values())

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click's, under headings; the texts of all of them begin in one column."""
        found = list(self.parts(ctx))
        column = min(_NAMES, max((len(name) for _, rows in found for name, _ in rows), default=0))
        for title, rows in found:
            with formatter.section(title):
                formatter.write_dl([(name.ljust(column), text) for name, text in rows], col_max=_NAMES)
