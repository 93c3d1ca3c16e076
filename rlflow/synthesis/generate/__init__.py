"""The generator: finds identities by enumerating graphs, generalises them to rules, and has them proved.

The native core enumerates (:class:`rlflow._core.Enumerator`); :mod:`vocabulary` says over what, :mod:`statement` and
:mod:`generalise`
make rules of equations, :mod:`derive` tells which are implied by others, :mod:`pipeline` does all of it.
"""

from __future__ import annotations

from rlflow.synthesis.generate.derive import Deriver
from rlflow.synthesis.generate.pipeline import GENERATOR_VERSION, Budget, Found, Generator, Progress, Statistics
from rlflow.synthesis.generate.vocabulary import Group, Vocabulary, load_vocabulary, read_vocabulary
from rlflow.synthesis.generate.writing import Result, Settings, generate_file

__all__ = [
    "GENERATOR_VERSION",
    "Budget",
    "Deriver",
    "Found",
    "Generator",
    "Group",
    "Progress",
    "Result",
    "Settings",
    "Statistics",
    "Vocabulary",
    "generate_file",
    "load_vocabulary",
    "read_vocabulary",
]
