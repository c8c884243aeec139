from __future__ import annotations

from pathlib import Path

import pytest

from nbrag.models.files import ModelFiles
from nbrag.models.purpose import purpose_of

CLASSIFIER = ["BertForSequenceClassification"]


@pytest.mark.parametrize(
    ("name", "descriptions", "purpose"),
    [
        ("x", {"1_Pooling/config.json": {"pooling_mode_cls_token": True}}, "embedding"),
        ("x", {"modules.json": [{"type": "Transformer"}]}, "embedding"),
        ("x", {"config_sentence_transformers.json": {"model_type": "CrossEncoder"}}, "reranking"),
        ("x", {"config.json": {"architectures": CLASSIFIER}}, "reranking"),
        (
            "x",
            {"config.json": {"architectures": CLASSIFIER, "id2label": {"0": "LABEL_0"}}},
            "reranking",
        ),
        (
            "x",
            {
                "config.json": {
                    "architectures": CLASSIFIER,
                    "id2label": {"0": "NEGATIVE", "1": "POSITIVE"},
                }
            },
            "unknown",
        ),
        ("x", {"config.json": {"architectures": CLASSIFIER, "num_labels": 3}}, "unknown"),
        ("x", {"config.json": {"architectures": ["BertModel"]}}, "embedding"),
        ("x", {"config.json": {"architectures": ["GPT2LMHeadModel"]}}, "unknown"),
        ("owner/my-reranker", {"config.json": {"architectures": ["BertModel"]}}, "reranking"),
        ("intfloat/e5-small-v2", {}, "embedding"),
        ("BAAI/bge-reranker-base", {}, "reranking"),
        ("x", {}, "unknown"),
    ],
)
def test_what_a_model_is_for(name, descriptions, purpose):
    files = ModelFiles(name, Path("model.onnx"), Path("tokenizer.json"), descriptions)
    assert purpose_of(files) == purpose
