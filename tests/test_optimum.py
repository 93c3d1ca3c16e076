"""The recipe of docs/integrations.md with the real Optimum, in an environment that has it: make test-peers."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import rlflow


def installed() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("optimum", "optimum.onnxruntime"))


pytestmark = [
    pytest.mark.peers,
    pytest.mark.skipif(not installed(), reason="Optimum is not installed: pip install optimum-onnx"),
]


def test_an_optimised_file_is_loaded_by_its_name_and_its_axes_stay_dynamic(tmp_path: Path) -> None:
    import torch
    from optimum.exporters.onnx import onnx_export_from_model
    from optimum.onnxruntime import ORTModelForSequenceClassification
    from transformers import BertConfig, BertForSequenceClassification

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    module = BertForSequenceClassification(BertConfig(vocab_size=99, max_position_embeddings=64, **sizes)).eval()
    onnx_export_from_model(module, output=tmp_path, task="text-classification", do_validation=False)
    result = rlflow.optimize(
        str(tmp_path / "model.onnx"), output=str(tmp_path / "model.rlflow.onnx"), cost="analytic", budget="300c",
        dims={"batch_size": 1, "sequence_length": 16},
    )  # fmt: skip
    assert result.report.improved and result.report.trace
    plain, faster = (
        ORTModelForSequenceClassification.from_pretrained(tmp_path, file_name=name)
        for name in ("model.onnx", "model.rlflow.onnx")
    )
    ids = torch.randint(0, 99, (3, 21), generator=torch.Generator().manual_seed(0))
    feeds = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
    torch.testing.assert_close(faster(**feeds).logits, plain(**feeds).logits, rtol=1e-4, atol=1e-5)
