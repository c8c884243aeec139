"""Pipelines from text and from files, for magics and panels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from nbrag.errors import SpecificationError, did_you_mean
from nbrag.spec import PipelineSpec
from nbrag.spec.stages import PipelineKind

__all__ = ["read_pipeline_file", "read_pipeline_text"]


def read_pipeline_text(kind: PipelineKind, text: str, *, name: str) -> PipelineSpec:
    """Return the pipeline that a cell's text, its stages alone, or JSON says.

    Raises
    ------
    SpecificationError
        With the line, when it can't be read.
    """
    if text.lstrip().startswith("{"):
        return PipelineSpec.from_json(text)
    if text.lstrip().startswith("%%"):
        return PipelineSpec.from_cell(text)
    return PipelineSpec.from_body(kind, text, name=name)


def read_pipeline_file(
    file: str, *, name: str | None = None, collection: str | None = None
) -> PipelineSpec:
    """Return the retrieval pipeline in a file: JSON, a cell's text, or stages alone.

    Parameters
    ----------
    file
        Its path.
    name, collection
        What it is to be called and to search; None leaves what the file says.

    Raises
    ------
    SpecificationError
        When the file can't be read, or holds an ingestion.
    """
    path = Path(file).expanduser()
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        folder = path.parent
        known = [p.name for p in folder.iterdir() if p.is_file()] if folder.is_dir() else []
        reason = getattr(error, "strerror", None) or "it is not text"
        raise SpecificationError(
            f"pipeline file '{file}' can't be read: {reason.lower()}.",
            hint=did_you_mean(path.name, known, what="files"),
        ) from None
    if path.suffix.lower() == ".json":
        spec = PipelineSpec.from_json(text)
    elif text.lstrip().startswith("%%"):
        spec = PipelineSpec.from_cell(text)
    else:
        spec = PipelineSpec.from_body("retrieval", text, name=name or path.stem)
    if spec.kind != "retrieval":
        raise SpecificationError(
            f"'{file}' holds an ingestion, not a retrieval pipeline.", hint="see %%rag_ingest"
        )
    return replace(spec, name=name or spec.name, collection=collection or spec.collection)
