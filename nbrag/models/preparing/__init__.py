"""Prepared models: the same model, fused and partly in 8 bits, made once on this machine."""

from __future__ import annotations

from nbrag.models.preparing.preparation import PreparedModel, prepare_model

__all__ = ["PreparedModel", "prepare_model"]
