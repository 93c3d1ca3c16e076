"""TASO's example graphs NasRNN and Inception-v3, which differ from the zoo's own ones in options and layers only."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from rlflow.zoo import inception, layers, nasrnn
from rlflow.zoo.entry import ZooEntry

if TYPE_CHECKING:
    from rlflow.frontends.builder import ModelBuilder

_SOURCE = "TASO (Jia et al. 2019, doi 10.1145/3341301.3359630), examples/"


class _Plain(inception.InceptionNet):
    """Inception-v3 of bare convolutions with ReLU; the mean leaves the padding out, and no concatenation is nested."""

    nested = False
    count_pad = False

    def layer(self, x: str, channels: tuple[int, int], kernel: layers.Pair, stride: int, pad: layers.Pair) -> str:
        return self.b.node("Relu", layers.conv(self.b, x, "conv", channels, kernel, stride=stride, pad=pad))


def write_inception(b: ModelBuilder, *, batch: int, image: int, width: int) -> None:
    """``image``: height and width in pixels, 75 at least; ``width``: percent of the original's channels."""
    inception.check_image("taso/inceptionv3", image)
    x, _ = inception.features(_Plain(b, width), b.input("data", np.float32, (batch, 3, image, image)))
    b.output(layers.pool(b, x, "Average", 1, stride=1), "features")  # a 1x1 pooling, which does nothing, as there


ENTRIES = (
    ZooEntry(
        name="taso/nasrnn",
        title="TASO's NasRNN: weights of their own for every step, no biases",
        source=_SOURCE + "nasrnn.py",
        shapes="x0 … x{steps-1} [batch, hidden] float32 -> state [batch, hidden]",
        write=partial(nasrnn.write, biases=False, shared=False, inputs="steps"),
        seq=5,
        seq_option="steps",
        options={"hidden": 512},
    ),
    ZooEntry(
        name="taso/inceptionv3",
        title="TASO's Inception-v3: no BN, bias or classifier",
        source=_SOURCE + "inceptionv3.py (batch 32)",
        shapes="data [batch, 3, image, image] float32 -> features [batch, channels, height, width]; image >= 75",
        write=write_inception,
        batch=32,
        options={"image": 299, "width": 100},
    ),
)
