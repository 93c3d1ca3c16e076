"""How much memory the values of a network need while it runs, and how much less when it runs in bands of rows.

Nothing here knows ONNX: :mod:`rlflow.frontends.flows` reads a model as a :class:`Flow`, and
:mod:`rlflow.frontends.banding` writes one back.
"""

from rlflow.footprint.bands import Stretch, in_bands
from rlflow.footprint.flow import Flow, FlowJob
from rlflow.footprint.lifetimes import Footprint, footprint
from rlflow.footprint.rowmaps import Along, Blending, Repeating, Share, Sliding, Spreading

__all__ = [
    "Along",
    "Blending",
    "Flow",
    "FlowJob",
    "Footprint",
    "Repeating",
    "Share",
    "Sliding",
    "Spreading",
    "Stretch",
    "footprint",
    "in_bands",
]
