"""What an optimisation did, for people and for machines."""

from __future__ import annotations

from rlflow.report.model import OutputFigures, Report, RuntimeInfo, TimeInterval, Verified, group_trace, schema
from rlflow.report.tables import render, write_json

__all__ = [
    "OutputFigures",
    "Report",
    "RuntimeInfo",
    "TimeInterval",
    "Verified",
    "group_trace",
    "render",
    "schema",
    "write_json",
]
