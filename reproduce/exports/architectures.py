"""The models by name, in the order of the table. ``config.json`` says which are held out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import language
import vision
from torch import nn

CONFIG: dict[str, Any] = json.loads(Path(__file__).with_name("config.json").read_text(encoding="utf-8"))
_SMALL = {"hidden_size": 960, "num_attention_heads": 15, "num_key_value_heads": 5, "intermediate_size": 2560}

BUILDERS: dict[str, Callable[[], vision.Built]] = {
    "resnet18": vision.from_torchvision("resnet18"),
    "resnet50": vision.from_torchvision("resnet50"),
    "mobilenet_v3_large": vision.from_torchvision("mobilenet_v3_large"),
    "shufflenet_v2": vision.from_torchvision("shufflenet_v2_x1_0"),
    "convnext_tiny": vision.from_torchvision("convnext_tiny"),
    "googlenet": vision.from_torchvision("googlenet"),
    "regnet_y_400mf": vision.from_torchvision("regnet_y_400mf"),
    "squeezenet": vision.from_torchvision("squeezenet1_1"),
    "densenet121": vision.from_torchvision("densenet121"),
    "swin_t": vision.from_torchvision("swin_t"),
    "vit_b_16": vision.from_torchvision("vit_b_16"),
    "mnasnet": vision.from_torchvision("mnasnet1_0"),
    "lraspp": vision.lraspp,
    "fpn_resnet18": vision.pyramid,
    "efficientnet_b0": vision.from_timm("efficientnet_b0"),
    "repvgg_a0": vision.from_timm("repvgg_a0"),
    "mobileone_s1": vision.from_timm("mobileone_s1"),
    "fastvit_t8": vision.from_timm("fastvit_t8", 256),
    "edgenext_xs": vision.from_timm("edgenext_x_small", 256),
    "ghostnet": vision.from_timm("ghostnet_100"),
    "levit_128s": vision.from_timm("levit_128s"),
    "mixer_s16": vision.from_timm("mixer_s16_224"),
    "nasnet_a": vision.from_timm("nasnetalarge", 224),
    "mobilevit_s": vision.from_timm("mobilevit_s", 256),
    "efficientformer_l1": vision.from_timm("efficientformer_l1"),
    "convnextv2_atto": vision.from_timm("convnextv2_atto"),
    "sam_encoder": vision.sam_encoder,
    "poolformer_s12": vision.from_timm("poolformer_s12"),
    "pvt_v2_b0": vision.from_timm("pvt_v2_b0"),
    "mobilenetv4_small": vision.from_timm("mobilenetv4_conv_small"),
    "hgnetv2_b0": vision.from_timm("hgnetv2_b0"),
    "rexnet_100": vision.from_timm("rexnet_100"),
    "res2net50": vision.from_timm("res2net50_26w_4s"),
    "resnext50": vision.from_timm("resnext50_32x4d"),
    "inception_next_atto": vision.from_timm("inception_next_atto"),
    "efficientvit_b0": vision.from_timm("efficientvit_b0"),
    "yolo_silu": vision.detector(nn.SiLU),
    "yolo_mish": vision.detector(nn.Mish),
    "diffusion_unet": vision.diffusion_unet,
    "detr": vision.detr,
    "bert4_pooled": language.encoder("BertModel", ("pooler_output",), num_hidden_layers=4),
    "distilbert_classifier": language.encoder("DistilBertForSequenceClassification", ("logits",), n_layers=4),
    "albert": language.encoder("AlbertModel", ("last_hidden_state",), num_hidden_layers=3, hidden_size=768,
                        num_attention_heads=12, intermediate_size=3072),
    "gpt2_step": language.step("GPT2", 128, n_layer=3),
    "llama_step_16": language.step("Llama", 16, num_hidden_layers=3, **_SMALL),
    "llama_step_1024": language.step("Llama", 1024, num_hidden_layers=3, **_SMALL),
    "qwen2_step": language.step("Qwen2", 256, num_hidden_layers=2, hidden_size=896, num_attention_heads=14,
                         num_key_value_heads=2, intermediate_size=4864),
    "gemma_step": language.step("Gemma", 256, num_hidden_layers=3, hidden_size=640, num_attention_heads=4,
                         num_key_value_heads=1, head_dim=256, intermediate_size=2048),
    "phi_step": language.step("Phi", 256, num_hidden_layers=2, hidden_size=1024, num_attention_heads=16,
                       intermediate_size=4096),
    "mamba": language.mamba,
    "t5_encoder": language.t5_encoder,
    "t5_step": language.t5_step,
    "whisper_encoder": language.whisper_encoder,
    "whisper_step": language.whisper_step,
    "clip_text": language.clip_text,
    "clip_vision": language.clip_vision,
    "wav2vec2": language.wav2vec2,
    "vocoder": language.vocoder,
    "lstm_unrolled": language.unrolled_lstm,
}  # fmt: skip
