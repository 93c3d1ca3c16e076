"""``rlflow rules``: what may be rewritten, and why it may. One file a verb."""

from __future__ import annotations

import click

from rlflow.cli.common import VerbGroup
from rlflow.cli.rules.explain import explain
from rlflow.cli.rules.generate import generate
from rlflow.cli.rules.import_ import import_rules
from rlflow.cli.rules.list import list_rules
from rlflow.cli.rules.prove import prove
from rlflow.cli.rules.redundancy import redundancy
from rlflow.cli.rules.repair import repair
from rlflow.cli.rules.show import show
from rlflow.cli.rules.stats import stats


@click.group(cls=VerbGroup)
def rules() -> None:
    """The substitutions: list, show, prove, repair, find and import them, see stats, ask why one does not fire."""


for verb in (list_rules, show, prove, repair, generate, import_rules, redundancy, stats, explain):
    rules.add_command(verb)
