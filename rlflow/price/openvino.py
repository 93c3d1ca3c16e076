"""Prices as OpenVINO pays them on this machine's processor, by the same method as :mod:`rlflow.price.onnxruntime`.

What OpenVINO fuses was not studied: regions are those of the "generic" fusion table (pointwise work behind a product or
behind other pointwise work is free), and changes of layout are not told apart from the regions that pay them. So these
prices rank; how well, ``rlflow cost calibrate --cost openvino`` says for a model at hand. The final comparison decides.
"""

from __future__ import annotations

from typing import ClassVar

from rlflow.price.onnxruntime import OnnxRuntimeCost


class OpenVinoCost(OnnxRuntimeCost):
    """As :class:`OnnxRuntimeCost`, in OpenVINO."""

    name = "openvino"
    runtime_name: ClassVar[str] = "openvino"
