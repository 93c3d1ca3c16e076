"""ONNX form(opset) <-> canonical form, for every operator: the table of adaptors, complete once this module is
imported.
"""

from __future__ import annotations

from rlflow.frontends import forms_compute, forms_movement
from rlflow.frontends.forms import (
    Canonical,
    Declined,
    Form,
    Source,
    Target,
    adapted,
    flags,
    forms_of,
    python_value,
    read,
    row,
    same_value,
    schema,
    write,
)

__all__ = [
    "Canonical",
    "Declined",
    "Form",
    "Source",
    "Target",
    "adapted",
    "flags",
    "forms_compute",
    "forms_movement",
    "forms_of",
    "python_value",
    "read",
    "row",
    "same_value",
    "schema",
    "write",
]
