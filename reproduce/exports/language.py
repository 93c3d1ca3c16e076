"""Networks on text and sound, from transformers, from configurations alone: published widths, few layers.

A decoder is exported as people deploy it: one new token, keys and values of the earlier ones as inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from vision import Built, Fields

VOCABULARY = 4096  # of published tens of thousands: the last product is then a part of the whole as with all layers


def tokens(count: int) -> torch.Tensor:
    """A row of token numbers."""
    return torch.randint(0, VOCABULARY, (1, count))


def cache_of(pairs: Sequence[torch.Tensor]) -> Any:
    """Keys and values, layer by layer, as transformers' cache holds them."""
    from transformers.cache_utils import DynamicCache, DynamicLayer

    cache = DynamicCache()
    for keys, values in zip(pairs[::2], pairs[1::2], strict=True):
        layer = DynamicLayer()
        layer.lazy_initialization(keys, values)
        layer.keys, layer.values = keys, values
        cache.layers.append(layer)
    return cache


def pairs_of(cache: Any) -> list[torch.Tensor]:
    return [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]


class Step(nn.Module):
    """One step of a decoder-only model: (token, position, keys and values) to (logits, keys and values)."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, token: torch.Tensor, position: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = self.model(
            input_ids=token, position_ids=position, past_key_values=cache_of(past), use_cache=True, return_dict=True
        )
        return (found.logits, *pairs_of(found.past_key_values))


def step(model: str, cached: int, **options: Any) -> Callable[[], Built]:
    """A step of ``model`` ("Llama") behind ``cached`` tokens."""

    def build() -> Built:
        import transformers

        config = getattr(transformers, f"{model}Config")(vocab_size=VOCABULARY, **options)
        network = getattr(transformers, "GPT2LMHeadModel" if model == "GPT2" else f"{model}ForCausalLM")(config)
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        past = [torch.randn(1, heads, cached, size) for _ in range(2 * config.num_hidden_layers)]
        return Step(network), (tokens(1), torch.tensor([[cached]]), *past)

    return build


def encoder(model: str, fields: tuple[str, ...], count: int = 128, **options: Any) -> Callable[[], Built]:
    """``model`` ("BertModel") over ``count`` tokens."""

    def build() -> Built:
        import transformers

        network = getattr(transformers, model)
        config = network.config_class(vocab_size=VOCABULARY, **options)
        return Fields(network(config), fields, "input_ids"), (tokens(count),)

    return build


class CrossStep(nn.Module):
    """One step of a decoder with cross-attention, whose keys and values were computed before."""

    def __init__(self, decoder: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.decoder, self.head = decoder, head

    def forward(self, token: torch.Tensor, states: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
        from transformers.cache_utils import EncoderDecoderCache

        half = len(past) // 2
        cache = EncoderDecoderCache(cache_of(past[:half]), cache_of(past[half:]))
        found = self.decoder(
            input_ids=token, encoder_hidden_states=states, past_key_values=cache, use_cache=True, return_dict=True
        )
        own = found.past_key_values.self_attention_cache
        return (self.head(found.last_hidden_state), *pairs_of(own))


def _cross_step(decoder: nn.Module, head: nn.Module, shape: tuple[int, int, int], width: int, seen: int) -> Built:
    layers, heads, size = shape
    own = [torch.randn(1, heads, 32, size) for _ in range(2 * layers)]
    other = [torch.randn(1, heads, seen, size) for _ in range(2 * layers)]
    return CrossStep(decoder, head), (tokens(1), torch.randn(1, seen, width), *own, *other)


def t5_step() -> Built:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=VOCABULARY, num_layers=3, num_decoder_layers=3)
    model = T5ForConditionalGeneration(config)
    return _cross_step(model.decoder, model.lm_head, (3, config.num_heads, config.d_kv), config.d_model, 64)


def t5_encoder() -> Built:
    from transformers import T5Config, T5EncoderModel

    model = T5EncoderModel(T5Config(vocab_size=VOCABULARY, num_layers=3))
    return Fields(model, ("last_hidden_state",), "input_ids"), (tokens(128),)


def _whisper() -> Any:
    from transformers import WhisperConfig

    return WhisperConfig(
        vocab_size=VOCABULARY, d_model=512, encoder_layers=2, decoder_layers=2, encoder_attention_heads=8,
        decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, decoder_start_token_id=3, suppress_tokens=None, begin_suppress_tokens=None,
        max_source_positions=500,
    )  # fmt: skip


def whisper_encoder() -> Built:
    from transformers import WhisperModel

    return Fields(WhisperModel(_whisper()).encoder, ("last_hidden_state",), "input_features"), (
        torch.randn(1, 80, 1000),
    )


def whisper_step() -> Built:
    from transformers import WhisperForConditionalGeneration

    model = WhisperForConditionalGeneration(_whisper())
    return _cross_step(model.model.decoder, model.proj_out, (2, 8, 64), 512, 500)


def clip_text() -> Built:
    from transformers import CLIPTextConfig, CLIPTextModel

    config = CLIPTextConfig(vocab_size=VOCABULARY, num_hidden_layers=3, eos_token_id=2)
    return Fields(CLIPTextModel(config), ("last_hidden_state", "pooler_output"), "input_ids"), (tokens(77),)


def clip_vision() -> Built:
    from transformers import CLIPVisionConfig, CLIPVisionModel

    model = CLIPVisionModel(CLIPVisionConfig(num_hidden_layers=3))
    return Fields(model, ("pooler_output",)), (torch.randn(1, 3, 224, 224),)


def wav2vec2() -> Built:
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    model = Wav2Vec2Model(Wav2Vec2Config(num_hidden_layers=2, apply_spec_augment=False))
    return Fields(model, ("last_hidden_state",), "input_values"), (torch.randn(1, 16000),)


def mamba() -> Built:
    from transformers import MambaConfig, MambaModel

    config = MambaConfig(vocab_size=VOCABULARY, num_hidden_layers=2, use_cache=False)
    return Fields(MambaModel(config), ("last_hidden_state",), "input_ids"), (tokens(16),)


def vocoder() -> Built:
    """HiFi-GAN as SpeechT5 has it: transposed and dilated 1-D convolutions; a quarter of a second."""
    from transformers import SpeechT5HifiGan, SpeechT5HifiGanConfig

    return SpeechT5HifiGan(SpeechT5HifiGanConfig(upsample_initial_channel=256)), (torch.randn(16, 80),)


class Unrolled(nn.Module):
    """A recurrent cell, step by step, as exported where its length is fixed; the last state is classified."""

    def __init__(self, into: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.cell, self.head = nn.LSTMCell(into, hidden), nn.Linear(hidden, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = (x.new_zeros(x.shape[1], self.hidden), x.new_zeros(x.shape[1], self.hidden))
        for part in x.unbind(0):
            state = self.cell(part, state)
        return self.head(state[0])


def unrolled_lstm() -> Built:
    return Unrolled(128, 256, 40), (torch.randn(24, 1, 128),)
