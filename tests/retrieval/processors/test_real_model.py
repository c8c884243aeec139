"""All stages that ask a model, with a real one over real HTTP: small, but no script."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

import nbrag
from nbrag.models.chat import LocalChatClient
from nbrag.testing import HashEmbedder
from nbrag.workspace import Workspace

pytestmark = [
    pytest.mark.model,
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
]

#: Seconds that a stage may take, and what a search may take besides.
LIMIT, REST = 20, 10
TEXTS = [
    "Backups are kept for 35 days in the EU region.",
    "Backups are kept for 14 days in the US region.",
    "The tide starts at half past one at night.",
    "Passwords have at least twelve characters.",
]
STAGES: list[tuple[str, dict[str, Any]]] = [
    ("use_query_expansion", {"variants": 2}),
    ("use_hyde", {"documents": 1}),
    ("use_adaptive_routing", {}),
    ("use_llm_reranking", {"max_results": 3}),
    ("use_crag", {}),
]


@pytest.fixture(scope="module")
def workspace() -> Iterator[Workspace]:
    with (
        LocalChatClient(max_tokens=120) as chat,
        Workspace(embedder=HashEmbedder(), chat=chat) as opened,
    ):
        opened.ingest("docs", [{"id": str(n), "text": text} for n, text in enumerate(TEXTS)])
        yield opened


@pytest.mark.parametrize(("method", "options"), STAGES)
def test_a_search_ends_in_time_with_valid_results(
    workspace: Workspace, method: str, options: dict[str, Any]
) -> None:
    builder = getattr(workspace.retrieval_pipeline(), method)(time_limit=LIMIT, **options)
    started = time.monotonic()
    results = nbrag.run(
        builder.build().process(workspace["docs"], "How long are backups kept in the EU?", top_k=3)
    )
    assert time.monotonic() - started < LIMIT + REST
    # Strips may cut a text, and a grade may drop one; nothing else can come out.
    for chunk in results:
        assert any(piece in text for text in TEXTS for piece in chunk.content.split(" [...] "))
    stage = results.trace.stages[-2 if method in {"use_llm_reranking", "use_crag"} else 0].stage
    assert len(results) == 3 or stage == "crag"
    assert all(f"stage '{stage}'" in warning for warning in results.warnings)
    assert any(entry.stage == stage for entry in workspace.ledger())
