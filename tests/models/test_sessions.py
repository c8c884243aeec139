from __future__ import annotations

import os

import numpy as np
import pytest

from nbrag.errors import ConfigurationError, ModelInvalid, ModelNotFound
from nbrag.models import sessions
from nbrag.models.sessions import open_session, run_session, usable_cpus


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("max 100000", 6), ("200000 100000", 2), ("50000 100000", 1), ("nonsense", 6), (None, 6)],
)
def test_a_containers_share_counts(monkeypatch, tmp_path, limit, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    path = tmp_path / "cpu.max"
    if limit is not None:
        path.write_text(limit, "ascii")
    monkeypatch.setattr(sessions, "_CGROUP_LIMIT", path)
    assert usable_cpus() == expected


def test_a_large_machine_is_not_taken_whole(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(96)), raising=False)
    monkeypatch.setattr(sessions, "_CGROUP_LIMIT", tmp_path / "none")
    assert usable_cpus() == 8


def test_a_graph_is_opened_and_run(folder, tiny):
    session = open_session(folder / "onnx" / "model.onnx")
    ids = np.array([[4, 5]])
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    states = run_session(session, "last_hidden_state", feeds)
    np.testing.assert_array_equal(states[0], tiny.table[[4, 5]])


def test_a_failing_run_names_its_shapes(folder):
    session = open_session(folder / "onnx" / "model.onnx")
    with pytest.raises(ModelInvalid, match=r"input_ids \(1, 1\)"):
        run_session(session, "last_hidden_state", {"input_ids": np.array([[999]])})


def test_what_can_not_be_opened(folder, tmp_path):
    with pytest.raises(ModelNotFound, match="is missing"):
        open_session(tmp_path / "none.onnx")
    with pytest.raises(ConfigurationError, match="NoSuch") as caught:
        open_session(folder / "onnx" / "model.onnx", providers=["NoSuchProvider"])
    assert "CPUExecutionProvider" in caught.value.hint
