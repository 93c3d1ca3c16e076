"""Networks on images, from torchvision and timm, and small ones written out where neither has what people export."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Built = tuple[nn.Module, tuple[torch.Tensor, ...]]
Builder = Callable[[], Built]


def image(size: int) -> tuple[torch.Tensor]:
    """One picture of ``size`` by ``size`` pixels."""
    return (torch.randn(1, 3, size, size),)


def from_torchvision(name: str, size: int = 224, **options: Any) -> Builder:
    """A model of torchvision, without weights."""

    def build() -> Built:
        import torchvision

        if name in ("googlenet", "inception_v3"):
            options.update(aux_logits=False, init_weights=False)
        return torchvision.models.get_model(name, weights=None, **options), image(size)

    return build


def from_timm(name: str, size: int = 224, **options: Any) -> Builder:
    """A model of timm, without weights."""

    def build() -> Built:
        import timm

        return timm.create_model(name, pretrained=False, **options), image(size)

    return build


def sam_encoder() -> Built:
    """The image encoder of SAM-B, three blocks of twelve. Torch's exporter refuses the fused attention of windows."""
    import timm
    from timm.layers import set_fused_attn

    set_fused_attn(False)
    options = {"pretrained": False, "img_size": 512, "depth": 3, "global_attn_indexes": (2,)}
    return timm.create_model("samvit_base_patch16", **options), image(512)


class Only(nn.Module):
    """A model whose outputs are a dictionary, as a tuple."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(self.model(x).values())


def lraspp() -> Built:
    import torchvision

    options = {"weights": None, "weights_backbone": None}
    return Only(torchvision.models.segmentation.lraspp_mobilenet_v3_large(**options)), image(224)


def pyramid() -> Built:
    """Torchvision's feature pyramid on ResNet-18, the body of its detectors; five levels."""
    from torchvision.models.detection.backbone_utils import resnet_fpn_backbone

    model = resnet_fpn_backbone(backbone_name="resnet18", weights=None, trainable_layers=5, norm_layer=nn.BatchNorm2d)
    return Only(model), image(224)


class ConvUnit(nn.Sequential):
    """Convolution, BatchNormalization, activation."""

    def __init__(self, into: int, out: int, kernel: int, activation: type[nn.Module], stride: int = 1) -> None:
        convolution = nn.Conv2d(into, out, kernel, stride, kernel // 2, bias=False)
        super().__init__(convolution, nn.BatchNorm2d(out), activation())


class CrossStage(nn.Module):
    """A cross-stage partial block: half of the channels go through residual units, half pass by."""

    def __init__(self, channels: int, units: int, activation: type[nn.Module]) -> None:
        super().__init__()
        half = channels // 2
        self.first, self.second = (ConvUnit(channels, half, 1, activation) for _ in range(2))
        pairs = ((ConvUnit(half, half, 1, activation), ConvUnit(half, half, 3, activation)) for _ in range(units))
        self.units = nn.ModuleList(nn.Sequential(*pair) for pair in pairs)
        self.join = ConvUnit(channels, channels, 1, activation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        for unit in self.units:
            y = y + unit(y)
        return self.join(torch.cat([y, self.second(x)], 1))


class Detector(nn.Module):
    """A one-stage detector: cross-stage body, three levels joined from the top down, a head with boxes decoded."""

    def __init__(self, activation: type[nn.Module], width: int = 32, classes: int = 20) -> None:
        super().__init__()
        sizes = [width << level for level in range(5)]
        self.stem = ConvUnit(3, sizes[0], 3, activation, stride=2)
        self.stages = nn.ModuleList(
            nn.Sequential(ConvUnit(into, out, 3, activation, stride=2), CrossStage(out, 1, activation))
            for into, out in itertools.pairwise(sizes)
        )
        self.lateral = nn.ModuleList(ConvUnit(size, sizes[2], 1, activation) for size in sizes[2:])
        self.heads = nn.ModuleList(
            nn.Sequential(ConvUnit(sizes[2], sizes[2], 3, activation), nn.Conv2d(sizes[2], 4 + classes, 1))
            for _ in sizes[2:]
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, levels = self.stem(x), []
        for stage in self.stages:
            x = stage(x)
            levels.append(x)
        top, found = None, []
        for lateral, head, level in reversed(list(zip(self.lateral, self.heads, levels[1:], strict=True))):
            part = lateral(level)
            top = part if top is None else part + nn.functional.interpolate(top, scale_factor=2.0, mode="nearest")
            boxes, scores = head(top).flatten(2).split([4, head[1].out_channels - 4], 1)
            found.append(torch.cat([torch.exp(boxes.clamp(max=4.0)), scores.sigmoid()], 1))
        return torch.cat(found, 2)


def detector(activation: type[nn.Module]) -> Builder:
    return lambda: (Detector(activation), image(256))


class ResidualUnit(nn.Module):
    """The residual unit of diffusion networks: GroupNorm, SiLU and 3x3 twice, with an embedding of time added."""

    def __init__(self, into: int, out: int, time: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(32, into), nn.Conv2d(into, out, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(32, out), nn.Conv2d(out, out, 3, padding=1)
        self.time = nn.Linear(time, out)
        self.skip = nn.Identity() if into == out else nn.Conv2d(into, out, 1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        y = self.conv1(nn.functional.silu(self.norm1(x)))
        y = y + self.time(nn.functional.silu(time))[:, :, None, None]
        return self.skip(x) + self.conv2(nn.functional.silu(self.norm2(y)))


class SpatialAttention(nn.Module):
    """Self-attention over the places of a map, and a gated feed-forward, as in a latent diffusion network."""

    def __init__(self, channels: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.norm1, self.norm2 = nn.GroupNorm(32, channels), nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.q, self.k, self.v, self.out = (nn.Linear(channels, channels, bias=False) for _ in range(4))
        self.gate, self.down = nn.Linear(channels, 8 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, c, h, w = x.shape
        y = self.norm(x).permute(0, 2, 3, 1).reshape(n, h * w, c)
        a = self.norm1(y)
        q, k, v = (f(a).view(n, h * w, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        a = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, h * w, c)
        y = y + self.out(a)
        value, gate = self.gate(self.norm2(y)).chunk(2, -1)
        y = y + self.down(value * nn.functional.gelu(gate))
        return x + y.reshape(n, h, w, c).permute(0, 3, 1, 2)


class DiffusionUNet(nn.Module):
    """A small denoiser of latent pictures: two levels down, a middle with attention, two levels up."""

    def __init__(self, channels: int = 128, time: int = 512) -> None:
        super().__init__()
        wide = 2 * channels
        self.time = nn.Sequential(nn.Linear(channels, time), nn.SiLU(), nn.Linear(time, time))
        self.frequencies = channels // 2
        self.stem = nn.Conv2d(4, channels, 3, padding=1)
        self.down1 = ResidualUnit(channels, channels, time)
        self.shrink = nn.Conv2d(channels, channels, 3, 2, 1)
        self.down2, self.attention = ResidualUnit(channels, wide, time), SpatialAttention(wide)
        self.middle = ResidualUnit(wide, wide, time)
        self.up2, self.grow = ResidualUnit(2 * wide, wide, time), nn.Conv2d(wide, wide, 3, padding=1)
        self.up1 = ResidualUnit(wide + channels, channels, time)
        self.norm, self.head = nn.GroupNorm(32, channels), nn.Conv2d(channels, 4, 3, padding=1)

    def forward(self, x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        rates = torch.exp(-9.21 * torch.arange(self.frequencies) / self.frequencies)
        angles = step[:, None] * rates[None]
        time = self.time(torch.cat([angles.cos(), angles.sin()], 1))
        fine = self.down1(self.stem(x), time)
        coarse = self.attention(self.down2(self.shrink(fine), time))
        x = self.up2(torch.cat([self.middle(coarse, time), coarse], 1), time)
        x = self.grow(nn.functional.interpolate(x, scale_factor=2.0, mode="nearest"))
        x = self.up1(torch.cat([x, fine], 1), time)
        return self.head(nn.functional.silu(self.norm(x)))


def diffusion_unet() -> Built:
    return DiffusionUNet(), (torch.randn(1, 4, 32, 32), torch.tensor([37.0]))


def detr() -> Built:
    """DETR on a small ResNet-50, two layers of encoder and decoder."""
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

    body = ResNetConfig(out_features=["stage4"], depths=[1, 1, 1, 1])
    config = DetrConfig(
        use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, backbone_config=body,
        encoder_layers=2, decoder_layers=2, num_queries=50,
    )  # fmt: skip
    return Fields(DetrForObjectDetection(config), ("logits", "pred_boxes")), image(320)


class Fields(nn.Module):
    """A model of transformers with one tensor in; the named fields of its answer out."""

    def __init__(self, model: nn.Module, fields: tuple[str, ...], argument: str = "pixel_values") -> None:
        super().__init__()
        self.model, self.fields, self.argument = model, fields, argument

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = self.model(**{self.argument: x})
        return tuple(getattr(found, field) for field in self.fields)
