"""The generator: finds identities by enumerating graphs, generalises them to rules, and has them proved.

The native core enumerates (:class:`rlflow._core.Enumerator`); :mod:`vocabulary` says over what, :mod:`statement` and
:mod:`generalise`
make rules of equations, :mod:`derive` tells which are implied by others, :mod:`pipeline` does all of it.
"""

from __future__ import annotations

from rlflow.synthesis.generate.deriver import Deriver
from rlflow.synthesis.generate.generator import (
    GENERATOR_VERSION,
    Effort,
    FoundRule,
    Generator,
    PhaseProgress,
    StepCounts,
)
from rlflow.synthesis.generate.recipe import Findings, Recipe, generate_file
from rlflow.synthesis.generate.vocabulary import Group, Vocabulary, load_vocabulary, read_vocabulary

__all__ = [
    "GENERATOR_VERSION",
    "Deriver",
    "Effort",
    "Findings",
    "FoundRule",
    "Generator",
    "Group",
    "PhaseProgress",
    "Recipe",
    "StepCounts",
    "Vocabulary",
    "generate_file",
    "load_vocabulary",
    "read_vocabulary",
]
