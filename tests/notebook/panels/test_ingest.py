"""The ingest panel: looking ahead, running, stopping, going on, trying again what failed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nbrag
from nbrag.errors import DatabaseLocked
from nbrag.ingestion.preview import IngestPreview, PreviewCounts
from nbrag.models.chat import StagePreview
from nbrag.notebook.panels.ingest_state import counts_table
from nbrag.notebook.panels.ingest_view import IngestPanel
from nbrag.protocols import IngestionChunkProcessor
from nbrag.spec import StageDefinition, StageOptions, register_stage
from nbrag.spec.stages import unregister_stage
from nbrag.testing import HashEmbedder, control
from nbrag.workspace import Workspace


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with a few documents below ``pages``."""
    monkeypatch.chdir(tmp_path)
    pages = tmp_path / "pages"
    pages.mkdir()
    for name in ("apples", "bears", "cars", "dogs"):
        (pages / f"{name}.md").write_text(
            f"# About {name}\n\nThere is much to say of {name}.\n\n## More\n\nEven more {name}.\n"
        )
    return tmp_path


@pytest.fixture
def own() -> Iterator[Workspace]:
    """A workspace without any collection."""
    with Workspace(embedder=HashEmbedder()) as made:
        yield made


@pytest.fixture
def panel(own: Workspace, folder: Path) -> IngestPanel:
    return IngestPanel(own, "pages", collection="notes")


def press(panel: Any, words: str) -> None:
    control(panel, words).click()
    panel.wait()


def html_of(panel: IngestPanel) -> str:
    return panel.snapshot()["text/html"]


def test_sources_and_a_new_collection_are_run_and_reported(
    panel: IngestPanel, own: Workspace
) -> None:
    press(panel, "Run")
    assert panel.state.alert == ()
    assert own.collections() == ["notes"]
    assert panel.state.report.counts == {"added": 4}
    assert panel.state.status == panel.state.report.summary
    assert panel.state.collections == ("notes",)
    assert "pages/apples.md" in panel._report.value
    assert control(panel, "Run").disabled is False


def test_stages_are_counted_each(panel: IngestPanel) -> None:
    panel.state.load(nbrag.PipelineSpec.from_cell("%%rag_ingest notes\nchunk max_tokens=16"))
    press(panel, "Run")
    stages = panel.state.progress.stages
    chunks = panel.state.report.chunks
    assert chunks > 4
    assert stages == {"reading": 4, "cutting": chunks, "embedding": chunks, "writing": 4}
    assert "<td" in panel._stages.value
    assert "chunks cut" in panel._stages.value


def test_a_stage_of_the_pipeline_has_a_count_of_its_own(panel: IngestPanel) -> None:
    class Upper(IngestionChunkProcessor):
        name = "upper"

        async def process(self, chunks: Any) -> Any:
            async for chunk in chunks:
                yield replace(chunk, context=chunk.context.upper())

    register_stage(
        StageDefinition(
            "upper", "ingestion", "chunk", StageOptions, lambda *_: Upper(), "use_upper", "Upper."
        )
    )
    try:
        panel.state.add("upper")
        press(panel, "Run")
        assert panel.state.alert == ()
        stages = panel.state.progress.stages
        assert list(stages) == ["reading", "cutting", "upper", "embedding", "writing"]
        assert stages["upper"] == panel.state.report.chunks
    finally:
        unregister_stage("ingestion", "upper")


def test_files_are_chosen_from_the_list(panel: IngestPanel) -> None:
    panel.state.sources = ()
    files = control(panel, "Files")
    assert [label for label, _ in files.options] == ["../", "pages/"]
    files.value = "pages/"
    press(panel, "Open folder")
    assert control(panel, "Folder").value == "pages"
    files.value = "cars.md"
    press(panel, "Add to sources")
    assert control(panel, "Sources").value == "pages/cars.md"
    press(panel, "Add this folder")
    assert panel.state.sources == ("pages/cars.md", "pages/")
    files.value = "../"
    press(panel, "Open folder")
    assert "pages/" in [value for _, value in files.options]
    files.value = "../"
    press(panel, "Add to sources")
    assert panel.state.alert[0].startswith("SourceNotFound: no file is chosen.")


def test_a_folder_that_is_not_there_is_told(panel: IngestPanel) -> None:
    control(panel, "Folder").value = "nowhere"
    assert panel.state.alert[0].startswith("SourceNotFound: nowhere can't be listed: no such file")


def test_paths_below_the_current_folder_and_home_are_shortened(
    panel: IngestPanel, folder: Path
) -> None:
    control(panel, "Sources").value = f"{folder}/pages/\n{Path.home()}/x/*.md\n\nhttps://e.org/a\n"
    assert panel.state.sources == ("pages/", "~/x/*.md", "https://e.org/a")
    assert str(folder) not in str(panel._sources.value) + html_of(panel)
    control(panel, "Sources").value = f"{folder}\n{folder}/\n{Path.home()}"
    assert panel.state.sources == (".", "./", "~")


def test_the_preview_shows_three_documents_with_borders_and_tokens(panel: IngestPanel) -> None:
    press(panel, "Preview chunks")
    made = panel.state.cut
    assert [document.uri for document in made.documents] == [
        "pages/apples.md",
        "pages/bears.md",
        "pages/cars.md",
    ]
    shown = panel._cut.value
    assert "chunk 1: " in shown
    assert "tokens" in shown
    assert shown.count("<li") == sum(len(d.chunks) for d in made.documents)
    assert panel.state.collections == ()  # nothing was written


def test_counting_writes_nothing_and_says_what_is_known(panel: IngestPanel) -> None:
    press(panel, "Count")
    counts = panel.state.counts
    assert counts.counts.documents == 4
    assert counts.calls == 0
    text = panel.snapshot()["text/plain"]
    assert "documents to ingest       4" in text
    assert "nothing: no stage asks a chat model" in text
    assert "documents to ingest" in panel._counts.value
    assert panel.workspace.collections() == []
    press(panel, "Run")
    press(panel, "Count")
    assert panel.state.counts.counts.outcomes == {"unchanged": 4}


@pytest.mark.parametrize(("cost", "told"), [(0.25, "$0.2500 for reading"), (None, "unknown")])
def test_calls_and_cost_of_a_chat_model_are_told(cost: float | None, told: str) -> None:
    stage = StagePreview("context", calls=3, kept=1, input_tokens=900, cost=cost)
    text = counts_table(IngestPreview("docs", PreviewCounts(2, 3, 70), (stage,)))["text/plain"]
    lines = {line[:24].strip(): line[24:].strip() for line in text.splitlines()}
    assert lines["calls of the chat model"] == "3"
    assert lines["tokens it reads"] == "900"
    assert lines["cost of the chat model"] == told
    assert "context" in text


class SlowEmbedder(HashEmbedder):
    """Waits before its second batch until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.batches = 0
        self.waits = threading.Event()

    async def embed_documents(self, texts: Any) -> np.ndarray[Any, Any]:
        self.batches += 1
        if self.batches == 2:
            self.waits.set()
            await asyncio.sleep(60)
        return await super().embed_documents(texts)


def test_a_stopped_run_goes_on_where_it_was(folder: Path) -> None:
    for number in range(30):
        text = " ".join(f"word{number}x{i}" for i in range(900))
        (folder / "pages" / f"long{number:02}.txt").write_text(text)
    embedder = SlowEmbedder()
    with Workspace(embedder=embedder) as own:
        panel = IngestPanel(own, "pages", collection="notes")
        control(panel, "Run").click()
        assert embedder.waits.wait(20)
        assert control(panel, "Run").disabled
        control(panel, "Stop").click()
        panel.wait()
        assert panel.state.status == "Ingestion: stopped"
        assert panel.state.report is None
        stored = len(nbrag.run(own["notes"].documents()))
        assert 0 < stored < 34
        assert "Resume goes on" in panel._stages.value
        press(panel, "Resume")
        assert panel.state.report.counts == {"added": 34 - stored, "unchanged": stored}
        assert control(panel, "Run").description == "Run"
        panel.close()


def test_a_collection_that_is_deleted_during_a_run_is_told(folder: Path) -> None:
    for number in range(30):
        text = " ".join(f"word{number}x{i}" for i in range(900))
        (folder / "pages" / f"long{number:02}.txt").write_text(text)

    class Dropping(SlowEmbedder):
        async def embed_documents(self, texts: Any) -> np.ndarray[Any, Any]:
            self.batches += 1
            if self.batches == 2:
                await asyncio.to_thread(own.drop_collection, "notes")
            return await HashEmbedder.embed_documents(self, texts)

    with Workspace(embedder=Dropping()) as own:
        panel = IngestPanel(own, "pages", collection="notes")
        press(panel, "Run")
        assert panel.state.alert[0].startswith("CollectionNotFound: ")
        assert panel.state.sources == ("pages",)
        press(panel, "Resume")
        assert panel.state.alert == ()
        assert panel.state.report.counts == {"added": 34}
        panel.close()


def test_another_ingestion_is_no_resuming(panel: IngestPanel) -> None:
    panel.state.unfinished = panel.state.fingerprint()
    assert control(panel, "Resume")
    panel.state.sources = ("pages/cars.md",)
    assert control(panel, "Run")
    panel.state.sources = ("pages",)
    assert control(panel, "Resume")
    panel.state.set_option("max_tokens", "many")
    assert control(panel, "Run")
    assert panel.state.alert == ()


def test_what_failed_is_a_line_and_is_tried_again_alone(
    panel: IngestPanel, folder: Path, own: Workspace
) -> None:
    (folder / "pages" / "broken.pdf").write_bytes(b"no pdf at all")
    panel.state.sources = ("pages", "later/")
    assert control(panel, "Retry what failed").disabled
    press(panel, "Run")
    assert panel.state.report.counts == {"added": 4, "failed": 2}
    assert panel.state.alert[0].startswith("ReaderError: 2 documents could not be ingested, e.g. ")
    assert 'role="alert"' in panel._alert.value
    (folder / "pages" / "broken.pdf").unlink()
    (folder / "pages" / "broken.pdf").write_text("Still none, but later there are pages.")
    (folder / "later").mkdir()
    (folder / "later" / "new.md").write_text("# New\n\nJust written.")
    embedder: Any = own.embedder
    embedder.embedded.clear()
    press(panel, "Retry what failed")
    rows = {row.uri: row.outcome for row in panel.state.report}
    assert rows["later/new.md"] == "added"
    assert rows["pages/broken.pdf"] == "failed"
    assert rows["pages/apples.md"] == "added"
    assert len(rows) == 6
    assert [text for text in embedder.embedded if "apples" in text] == []
    assert panel.state.failed == 1


def test_nothing_to_read_and_a_bad_name_are_told(panel: IngestPanel) -> None:
    panel.state.sources = ()
    press(panel, "Run")
    assert panel.state.alert[0] == "ConfigurationError: no sources are given."
    panel.state.sources = ("pages",)
    control(panel, "Collection").value = "no name!"
    press(panel, "Run")
    assert "can't be a collection's name" in panel.state.alert[0]
    control(panel, "Collection").value = "fine"
    press(panel, "Run")
    assert panel.state.alert == ()


def test_a_missing_model_is_the_magics_line_and_nothing_is_lost(
    panel: IngestPanel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NBRAG_MODEL", raising=False)
    panel.state.add("context")
    press(panel, "Run")
    with pytest.raises(nbrag.ConfigurationError) as told:
        panel.workspace.ingest("notes", "pages", spec=panel.state.pipeline())
    assert list(panel.state.alert) == told.value._render_traceback_()
    assert [entry.name for entry in panel.state.stages] == ["chunk", "context"]
    panel.state.remove()
    press(panel, "Run")
    assert panel.state.report.counts == {"added": 4}


def test_a_locked_file_is_told_and_the_panel_lives_on(own: Workspace, folder: Path) -> None:
    locked = True

    def provider() -> Workspace:
        if locked:
            raise DatabaseLocked("x.duckdb", 42)
        return own

    panel = IngestPanel(provider, "pages", collection="notes")
    assert panel.state.alert[0].startswith("DatabaseLocked: ")
    press(panel, "Run")
    assert panel.state.alert[0].startswith("DatabaseLocked: ")
    locked = False
    if not panel.state.stages:
        panel.state.add("chunk")
    press(panel, "Run")
    assert panel.state.report.counts == {"added": 4}


def test_a_collection_that_was_deleted_is_made_anew(panel: IngestPanel, own: Workspace) -> None:
    press(panel, "Run")
    own.drop_collection("notes")
    press(panel, "Count")
    assert panel.state.counts.counts.documents == 4
    press(panel, "Run")
    assert panel.state.alert == ()
    assert panel.state.report.counts == {"added": 4}


def stored(workspace: Workspace) -> list[Any]:
    return workspace.database.execute(
        "SELECT id, content, token_count, embedding FROM notes.chunks ORDER BY id"
    )


@pytest.mark.parametrize("removing", [False, True])
def test_panel_cell_and_python_ingest_the_same(
    panel: IngestPanel, own: Workspace, folder: Path, removing: bool
) -> None:
    own.ingest("notes", [{"id": "gone.md", "text": "A page that will be gone."}])
    panel.state.set_option("max_tokens", 24)
    control(panel, "Gone documents").value = removing
    press(panel, "Run")
    expected = stored(own)
    assert len(expected) > 4
    assert [row for row in expected if "will be gone" in row[1]] == [] or not removing

    press(panel, "Show as cell")
    cell = control(panel, "Text").value
    assert cell.startswith("%%rag_ingest notes --from pages")
    assert ("--replace" in cell) is removing
    spec = nbrag.PipelineSpec.from_cell(cell)
    with Workspace(embedder=HashEmbedder()) as other:
        other.ingest("notes", [{"id": "gone.md", "text": "A page that will be gone."}])
        other.ingest("notes", None, spec=spec, remove_missing=removing)
        assert stored(other) == expected

    press(panel, "Show as Python")
    script = control(panel, "Text").value
    assert str(folder) not in script
    with Workspace(embedder=HashEmbedder()) as third:
        third.ingest("notes", [{"id": "gone.md", "text": "A page that will be gone."}])
        script = script.replace("nbrag.Workspace(':memory:')", "third")
        exec(script, {"third": third, "nbrag": nbrag})
        assert stored(third) == expected


def test_the_text_follows_and_can_be_edited(panel: IngestPanel) -> None:
    press(panel, "Show as cell")
    panel.state.set_option("max_tokens", 40)
    text = control(panel, "Text")
    assert "max_tokens=40" in text.value
    text.value = "%%rag_ingest other --from pages/cars.md\nchunk strategy=fixed"
    press(panel, "Load text")
    assert panel.state.name == "other"
    assert panel.state.sources == ("pages/cars.md",)
    assert panel.state.pipeline().stages[0].changed_options() == {"strategy": "fixed"}


def test_the_embedder_is_named_in_the_script(folder: Path) -> None:
    with Workspace(embedder="minilm") as own:
        panel = IngestPanel(own, "pages", collection="notes")
        press(panel, "Show as Python")
        assert "nbrag.Workspace(':memory:', embedder='minilm')" in panel.state.code
        panel.close()


def test_the_still_picture_has_cell_and_report(panel: IngestPanel) -> None:
    press(panel, "Run")
    text = panel.snapshot()["text/plain"]
    assert "%%rag_ingest notes --from pages" in text
    assert "notes: 4 added" in text
    assert "pages/apples.md" in html_of(panel)


def test_it_opens_by_name(own: Workspace, folder: Path) -> None:
    made = nbrag.panel("ingest", own, "pages", "*.txt", collection="notes")
    assert made.state.sources == ("pages", "*.txt")
    began = time.perf_counter()
    made.close()
    assert time.perf_counter() - began < 5


def test_the_magic_passes_what_is_read(filled: Any) -> None:
    made = filled.run("%rag_panel ingest pages notes/*.md -c docs")
    assert made.state.sources == ("pages", "notes/*.md")
    assert made.state.name == "docs"
