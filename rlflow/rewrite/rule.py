"""One substitution: its statement, what is said about it, and its proof."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

from rlflow import _core
from rlflow.errors import RuleError
from rlflow.rewrite.record import ProofRecord

#: Classes of rounding, the strictest first; see :class:`Rule`.
NUMERICS = ("exact", "reassociates", "unstable")


@dataclass(frozen=True)
class Rule:
    """A substitution as written in a rule file.

    ``source``, ``target``: terms, one a root; ``where``: conditions, all of which must certainly hold; ``let``: names
    for expressions (and, with a ``?``, for target terms). ``numerics`` is "exact" where every float operation is the
    same on the same operands; "reassociates" where sums and products round otherwise, within the error that the source
    has too; "unstable" where the error in float32 grows a thousandfold and more. ``derived``: where the rule follows
    from others, their names in the order applied (tagged by the report on redundancy). ``fires`` and ``silent`` are
    graphs in text form in which the rule fires, and does not. ``file`` and ``line`` say where it was written.
    """

    name: str
    family: str
    source: tuple[str, ...]
    target: tuple[str, ...]
    where: tuple[str, ...] = ()
    let: tuple[tuple[str, str], ...] = ()
    doc: str = ""
    origin: str = ""
    numerics: str = "reassociates"
    samples: tuple[dict[str, Any], ...] = field(default=(), hash=False)
    fires: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    proof: ProofRecord | None = None
    derived: tuple[str, ...] = ()
    file: str | None = None
    line: int | None = None

    @functools.cached_property
    def core(self) -> _core.Rule:
        """The compiled rule. Raises RuleError with file, line and reason where the statement makes no sense."""
        try:
            return _core.Rule(self.name, list(self.source), list(self.target), list(self.where), dict(self.let))
        except RuleError as error:
            raise RuleError(f"the rule '{self.name}' is refused: {error.reason}", self.file, self.line) from error

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the compiled rule, which stays in its process."""
        return {name: value for name, value in self.__dict__.items() if name != "core"}

    @property
    def digest(self) -> str:
        """Digest of the statement."""
        return str(self.core.digest)

    @property
    def title(self) -> str:
        """The statement on one line: source => target where ... let ..."""
        return str(self.core.text())

    def refuse(self, reason: str) -> RuleError:
        """The error that says why this rule is not used."""
        return RuleError(f"the rule '{self.name}' is refused: {reason}", self.file, self.line)
