"""All stages of ingestion that ask a model, with a real one over real HTTP: small, no script."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import nbrag
from nbrag.models.chat import LocalChatClient
from nbrag.testing import HashEmbedder
from nbrag.types import ChunkKind
from nbrag.workspace import Workspace

pytestmark = [
    pytest.mark.model,
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
]

RECORDS = [
    {"id": "backup", "text": "Ada of Lantern Quay keeps backups on Azure for 35 days."},
    {"id": "tide", "text": "The tide starts at half past one at night."},
]
STAGES: dict[str, dict[str, Any]] = {
    "use_entities": {"kinds": ("people", "technologies")},
    "use_topics": {"taxonomy": ("storage", "sea")},
    "use_questions": {"per_chunk": 1},
    "use_contextual_header": {},
    "use_tree_index": {"summary_tokens": 32},
}


@pytest.fixture(scope="module")
def chat() -> Iterator[LocalChatClient]:
    with LocalChatClient(max_tokens=48) as client:
        yield client


def test_an_ingestion_with_all_stages_ends_with_an_honest_report(chat: LocalChatClient) -> None:
    with Workspace(embedder=HashEmbedder(), chat=chat) as workspace:
        builder = workspace.ingestion_pipeline()
        for method, options in STAGES.items():
            builder = getattr(builder, method)(**options)
        collection = workspace.collection("docs")
        report = nbrag.run(builder.build().run(RECORDS, collection))
        assert report.counts == {"added": 2}
        asked = {entry.stage for entry in workspace.ledger()}
        assert asked == {"entities", "topics", "questions", "context", "tree"}
        # Whatever the model said, the passages are there, and only what was checked beside them.
        ids = nbrag.run(collection.original_ids())
        chunks = nbrag.run(collection.chunks(ids))
        assert {chunk.content for chunk in chunks.values()} == {one["text"] for one in RECORDS}
        for chunk in chunks.values():
            for kind in ("entities_people", "entities_technologies"):
                names = chunk.record.get(kind) or []
                assert all(name.casefold() in chunk.content.casefold() for name in names)
            assert chunk.record.get("topic_primary") in {None, "storage", "sea", "other"}
        made = {
            "entities": sum("entities_people" in chunk.record for chunk in chunks.values()),
            "topics": sum("topic_primary" in chunk.record for chunk in chunks.values()),
        }
        told = "\n".join(report.warnings)
        for stage, count in made.items():
            # What is missing is told, and what is told is missing.
            assert (f"stage '{stage}'" in told) == (count < 2), told
        kinds = nbrag.run(collection.field_values("kind"))
        assert set(kinds) <= {str(kind) for kind in ChunkKind}
