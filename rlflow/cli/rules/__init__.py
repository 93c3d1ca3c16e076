"""``rlflow rules``: what may be rewritten, and why it may. One file a verb."""

from __future__ import annotations

import click

from rlflow.cli.rules.explain import explain
from rlflow.cli.rules.generate import generate
from rlflow.cli.rules.import_ import import_rules
from rlflow.cli.rules.list import list_rules
from rlflow.cli.rules.prove import prove
from rlflow.cli.rules.redundancy import redundancy
from rlflow.cli.rules.show import show


@click.group()
def rules() -> None:
    """The substitutions: list them, show one, prove them, import others', ask why one does not fire."""


for verb in (list_rules, show, prove, explain, generate, import_rules, redundancy):
    rules.add_command(verb)
