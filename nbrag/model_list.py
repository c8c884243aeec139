"""The models of this machine with what uses them in a workspace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nbrag.errors import NbragError

if TYPE_CHECKING:
    from nbrag.models.listing import ModelsView
    from nbrag.workspace import Workspace

__all__ = ["models_in_use", "workspace_models"]


def models_in_use(workspace: Workspace) -> dict[str, list[str]]:
    """Return which models a workspace names, with what names each.

    Looked at are the workspace's embedder, the collections' embedders and the rerankers of kept
    pipelines. Models at a provider are left out: they are on no machine of the user's.

    Parameters
    ----------
    workspace
        The workspace; none of its models is opened.
    """
    from nbrag.models.embedding import OnnxEmbedder
    from nbrag.models.embedding._reference import split_reference
    from nbrag.models.known import BUILT_IN

    used: dict[str, list[str]] = {}

    def note(name: str | Path, by: str) -> None:
        used.setdefault(str(name), []).append(by)

    choice = workspace.embedder_choice
    if isinstance(choice, OnnxEmbedder):
        note(choice.reference, "embedder")
    elif choice is None or isinstance(choice, str | Path):
        name = BUILT_IN if choice is None else split_reference(str(choice))[0]
        if not name.startswith("litellm:"):
            note(BUILT_IN if name == "default" else name, "embedder")
    for collection in workspace.collections():
        identity = workspace[collection].identity
        # Vectors of a provider have no revision, those of files have the files' hash.
        if identity.revision:
            note(identity.name, f"collection {collection}")
    for pipeline in workspace.pipelines():
        try:
            stages = workspace.pipeline_spec(pipeline).stages
        except NbragError:
            continue  # told where it is used; here only its model would be missing
        for stage in stages:
            model = getattr(stage.options, "model", None)
            if stage.name == "rerank" and isinstance(model, str) and model != "llm":
                note(model, f"pipeline {pipeline}")
    return used


def workspace_models(workspace: Workspace) -> ModelsView:
    """Return the models of this machine and the usual ones, with what uses them here.

    Parameters
    ----------
    workspace
        The workspace; none of its models is opened or downloaded.
    """
    from nbrag.models.listing import list_models

    return list_models(models_in_use(workspace))
