"""Ingest, evaluation and map in the real JupyterLab, by names and keys alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest

from .lab import LabPage, browser_path

pytestmark = [
    pytest.mark.browser,
    pytest.mark.kernel,
    pytest.mark.skipif(
        browser_path() is None,
        reason="there is no Chromium on this machine (Debian: apt-get install chromium)",
    ),
]

SETUP = """
%load_ext nbrag
import nbrag
from nbrag.testing import HashEmbedder
workspace = nbrag.Workspace("{name}.duckdb", embedder=HashEmbedder())
nbrag.use_workspace(workspace)
workspace.save_pipeline(
    nbrag.PipelineSpec("retrieval", "keyword").with_stage("search", mode="keyword"))
"""
INGESTED = '_ = workspace.ingest("docs", "pages")'
PAGES = {
    "backups.md": "# Backups\n\nBackups are kept for 35 days.\n\n## Restoring\n\nIt takes hours.\n",
    "prices.md": "# Prices\n\nThe small plan costs 5 dollars.\n",
    "login.md": "# Login\n\nPeople sign in with a passkey.\n",
}
CASES = (
    {"query": "How long are backups kept?", "relevant": ["backups.md"]},
    {"query": "What does the small plan cost?", "relevant": ["prices.md"]},
)


@pytest.fixture
def pages(lab_folder: Path) -> Path:
    """Documents and judgements beside the notebooks."""
    folder = lab_folder / "pages"
    folder.mkdir(exist_ok=True)
    for name, text in PAGES.items():
        (folder / name).write_text(text, "utf-8")
    lines = "".join(json.dumps(case) + "\n" for case in CASES)
    (lab_folder / "cases.jsonl").write_text(lines, "utf-8")
    return folder


def opened(lab: LabPage, name: str, *cells: str) -> None:
    lab.open(name, SETUP.replace("{name}", name), *cells)


def test_documents_are_chosen_cut_and_ingested_by_keyboard(lab: LabPage, pages: Path) -> None:
    opened(lab, "ingesting", "%rag_panel ingest -c notes", "print(workspace.collections())")
    page = lab.page
    lab.button("Run").wait_for()
    lab.by_label("Files").focus()
    page.keyboard.type("pages")
    lab.tab_to("Add to sources")
    page.keyboard.press("Enter")
    page.wait_for_function(
        "() => [...document.querySelectorAll('textarea')].some(a => a.value === 'pages/')"
    )
    lab.by_label("max_tokens").focus()
    page.keyboard.type("24")
    lab.tab_to("Preview chunks")
    page.keyboard.press("Enter")
    page.get_by_text("chunk 1: ").first.wait_for()
    lab.tab_to("Count")
    page.keyboard.press("Enter")
    page.get_by_role("cell", name="nothing: no stage asks a chat model").wait_for()
    lab.tab_to("Run")
    page.keyboard.press("Enter")
    page.get_by_text("notes: 3 added").first.wait_for()
    page.get_by_role("cell", name="pages/backups.md").wait_for()
    lab.run_cell(2)
    page.get_by_text("['notes']").wait_for()
    lab.button("Show as cell").click()
    page.wait_for_function(
        """() => [...document.querySelectorAll('textarea')].some(
            a => a.value.startsWith('%%rag_ingest notes --from pages/\\nchunk  max_tokens=24'))"""
    )


def test_what_failed_is_an_alert_and_is_tried_again(lab: LabPage, pages: Path) -> None:
    broken = pages / "broken.pdf"
    broken.write_bytes(b"no pdf")
    try:
        opened(lab, "failing-reader", "%rag_panel ingest pages -c notes")
        lab.button("Run").click()
        lab.page.get_by_role("alert").filter(has_text="1 document could not be ingested").wait_for()
    finally:
        broken.unlink()
    broken.mkdir()
    try:
        lab.button("Retry what failed").focus()
        lab.page.keyboard.press("Enter")
        lab.page.get_by_text("notes: 3 added").first.wait_for()
        lab.page.get_by_role("alert").filter(has_text="could not").wait_for(state="detached")
    finally:
        broken.rmdir()


def test_pipelines_are_measured_and_a_question_shows_both(lab: LabPage, pages: Path) -> None:
    panel = "%rag_panel eval default keyword -c docs --cases cases.jsonl"
    opened(lab, "measuring", INGESTED, panel)
    page = lab.page
    lab.button("Measure").wait_for()
    lab.by_label("Judgements").focus()
    lab.tab_to("Measure")
    page.keyboard.press("Enter")
    page.get_by_text("cases.jsonl on docs: means with 95 % intervals").wait_for()
    lab.by_label("Questions").focus()
    page.keyboard.press("ArrowDown")
    page.get_by_text("default (nDCG@10").wait_for()
    page.get_by_text("keyword (nDCG@10").wait_for()
    assert page.get_by_text("relevant", exact=True).count() >= 2


def test_a_map_is_drawn_and_a_question_marked(lab: LabPage, pages: Path) -> None:
    opened(lab, "mapping", INGESTED, "%rag_panel map -c docs")
    page = lab.page
    page.get_by_role("img", name="docs: all").wait_for()
    lab.by_label("Marks tell").focus()
    page.keyboard.type("document")
    page.get_by_role("img", name="marks by document").wait_for()
    lab.by_label("Question").focus()
    page.keyboard.type("How long are backups kept?")
    page.keyboard.press("Enter")
    page.get_by_role("cell", name="pages/backups.md").first.wait_for()
    told = page.get_by_role("img", name="marks by document").text_content() or ""
    assert "The question is marked Q, its " in told


def test_the_notebook_of_panels_reads_without_kernel_and_network(
    browser: Any, repository: Path, tmp_path: Path
) -> None:
    from nbconvert import HTMLExporter

    notebook = nbformat.read(repository / "notebooks" / "panels.ipynb", as_version=4)
    body, _ = HTMLExporter().from_notebook_node(notebook)
    (tmp_path / "panels.html").write_text(body, "utf-8")
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto((tmp_path / "panels.html").as_uri(), wait_until="commit")
    for heading in ("Ingest", "Pipeline", "Search", "Evaluation", "Map of a collection"):
        page.get_by_role("region", name=heading, exact=True).first.wait_for(timeout=30_000)
    page.get_by_role("img", name="handbook: all").wait_for(timeout=30_000)
    page.get_by_text("nDCG@10 of keyword minus default, the worst first").wait_for()
    context.close()
