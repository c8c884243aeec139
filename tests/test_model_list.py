from __future__ import annotations

import pytest

from nbrag import Workspace
from nbrag.errors import ModelNotFound
from nbrag.model_list import models_in_use, workspace_models
from nbrag.models.embedding import OnnxEmbedder
from nbrag.spec import PipelineSpec


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))


def test_what_a_workspace_uses():
    with Workspace() as workspace:
        workspace.collection("docs")
        spec = PipelineSpec.from_body("retrieval", "rerank model=owner/judge", name="careful")
        workspace.save_pipeline(spec)
        used = models_in_use(workspace)
        assert used == {
            "minilm": ["embedder"],
            "all-MiniLM-L6-v2-int8": ["collection docs"],
            "owner/judge": ["pipeline careful"],
        }
        view = workspace_models(workspace)
        (built_in,) = [entry for entry in view if entry.name == "minilm"]
        assert built_in.used_by == ("embedder", "collection docs")
        (judge,) = [entry for entry in view if entry.name == "owner/judge"]
        assert judge.place == "not here"


@pytest.mark.parametrize(
    ("embedder", "used"),
    [
        ("owner/name dimension=4", {"owner/name": ["embedder"]}),
        ("default", {"minilm": ["embedder"]}),
        ("litellm:openai/x", {}),
        (OnnxEmbedder(dimension=8), {"minilm": ["embedder"]}),
    ],
)
def test_the_embedder_is_not_looked_for(embedder, used):
    with Workspace(embedder=embedder) as workspace:
        assert models_in_use(workspace) == used


def test_a_named_model_that_is_not_here_does_not_stop_the_list():
    with Workspace(embedder="nowhere") as workspace:
        with pytest.raises(ModelNotFound):
            _ = workspace.embedder
        (entry,) = [entry for entry in workspace_models(workspace) if entry.name == "nowhere"]
        assert entry.used_by == ("embedder",)
