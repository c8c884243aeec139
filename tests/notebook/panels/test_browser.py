"""Panels in the real JupyterLab: found by name alone, driven by keys, no complaint anywhere."""

from __future__ import annotations

import time
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
import asyncio, nbrag
from nbrag.testing import HashEmbedder

class SlowEmbedder(HashEmbedder):
    seconds = 0.0
    async def embed_queries(self, texts):
        await asyncio.sleep(self.seconds)
        return await super().embed_queries(texts)

embedder = SlowEmbedder()
workspace = nbrag.Workspace("{name}.duckdb", embedder=embedder)
nbrag.use_workspace(workspace)
_ = workspace.ingest("docs", [
    dict(id="ops/backups.md", team="operations", text="# Backups\\n\\nBackups are kept "
         "for 35 days in the EU region.\\n\\n## Restoring\\n\\nIt takes four hours."),
    dict(id="prices.md", team="sales", text="# Prices\\n\\nThe small plan costs 5 dollars."),
    dict(id="login.md", team="security", text="# Login\\n\\nPeople use a passkey."),
])
"""
QUESTION = "How long are backups kept?"


def opened(lab: LabPage, name: str, *cells: str) -> None:
    """Open a notebook over a workspace of its own."""
    lab.open(name, SETUP.replace("{name}", name), *cells)


def test_a_pipeline_is_built_by_keyboard_and_saved_for_magics(lab: LabPage) -> None:
    opened(
        lab,
        "building",
        f'%rag_panel pipeline -c docs --question "{QUESTION}"',
        f"%rag_search -p support {QUESTION}",
    )
    page = lab.page
    lab.button("Save").wait_for()
    page.get_by_text("there is no pipeline 'support'").wait_for()
    lab.by_label("Name").focus()
    page.keyboard.press("Control+a")
    page.keyboard.type("support")
    lab.tab_to("New stage")
    page.keyboard.type("filter")
    lab.tab_to("Add stage")
    page.keyboard.press("Enter")
    line = page.get_by_role("alert").filter(has_text="option 'where' is required")
    line.wait_for()
    lab.tab_to("where")
    page.keyboard.type('team != "sales"')
    page.keyboard.press("Tab")
    line.wait_for(state="detached")
    # The question is asked again by itself: one result less.
    page.get_by_text("of the run before is no longer found").wait_for()
    lab.tab_to("Search")
    lab.button("Save").focus()
    page.keyboard.press("Enter")
    page.get_by_text("Saved: %rag_search -p support uses it.").wait_for()
    lab.button("Show as cell").focus()
    page.keyboard.press("Enter")
    page.wait_for_function(
        """() => [...document.querySelectorAll('textarea')]
            .some(area => area.value.startsWith('%%rag_pipeline support -c docs\\nfilter'))"""
    )
    lab.run_cell(2)
    page.get_by_role("cell", name="ops/backups.md").first.wait_for()
    assert page.get_by_role("cell", name="prices.md").count() == 0


def test_every_control_is_reached_by_the_tab_key_in_visual_order(lab: LabPage) -> None:
    opened(lab, "tabbing", f'%rag_panel search default -c docs --question "{QUESTION}"')
    page = lab.page
    lab.by_label("Results A").wait_for()
    wanted = ["Question", "Search", "Collection", "Pipeline A", "Pipeline B", "Results", "Field"]
    wanted += ["Comparison", "Value", "Join with", "Add condition", "Filter", "Clear filter"]
    wanted += ["Results A", "Ranks of A, default as a table", "Judgements"]
    lab.by_label("Question").focus()
    seen = [lab.focused()]
    for _ in range(30):
        page.keyboard.press("Tab")
        seen.append(lab.focused())
        if seen[-1] == wanted[-1]:
            break
    assert [name for name in seen if name in wanted] == wanted
    assert set(seen) <= set(wanted), seen


def test_results_are_read_and_marked_by_keyboard(lab: LabPage) -> None:
    words = "%%rag_pipeline words -c docs\nsearch mode=keyword"
    opened(
        lab,
        "reading",
        words,
        "%rag_panel search default words -c docs",
        "print(workspace.judgements.load().qrels)",
    )
    page = lab.page
    lab.by_label("Question").wait_for()
    lab.by_label("Question").focus()
    page.keyboard.type(QUESTION)
    page.keyboard.press("Enter")
    page.get_by_role("img", name="Rank flow of A, default").wait_for()
    page.get_by_role("img", name="Rank flow of B, words").wait_for()
    lab.by_label("Results A").focus()
    page.keyboard.press("ArrowDown")
    passage = page.get_by_role("region", name="Passage in its document")
    passage.locator("mark").wait_for()
    assert "35 days" in passage.inner_text()
    lab.button("Relevant").focus()
    page.keyboard.press("Enter")
    page.get_by_text("Marked relevant").wait_for()
    assert "[relevant]" in lab.by_label("Results A").inner_text()
    lab.run_cell(3)
    page.get_by_text("{'1': {'").wait_for()
    # A filter that does not parse is a line, and what was found stays.
    lab.fill("Filter", "level >")
    alert = page.get_by_role("alert").filter(has_text="FilterError")
    alert.wait_for()
    assert "[relevant]" in lab.by_label("Results A").inner_text()
    lab.button("Clear filter").click()
    alert.wait_for(state="detached")


def test_a_filter_is_built_from_the_collection_s_values(lab: LabPage) -> None:
    opened(lab, "filtering", f'%rag_panel search -c docs --question "{QUESTION}"')
    page = lab.page
    lab.by_label("Field").wait_for()
    lab.by_label("Field").select_option(label="team (text)")
    page.locator('datalist option[value="security"]').wait_for(state="attached")
    lab.fill("Value", "security")
    lab.button("Add condition").click()
    page.wait_for_function(
        """() => [...document.querySelectorAll('input')]
            .some(field => field.value === 'team == "security"')"""
    )
    lab.button("Search").click()
    page.wait_for_function(
        """() => [...document.querySelectorAll('select option')]
            .some(option => option.textContent.includes('login.md'))"""
    )


def test_a_running_search_freezes_no_other_cell_and_can_be_stopped(lab: LabPage) -> None:
    opened(
        lab,
        "waiting",
        "embedder.seconds = 3600",
        "%rag_panel search -c docs",
        "print('other cells', 6 * 7)",
    )
    page = lab.page
    lab.by_label("Question").wait_for()
    page.get_by_text("other cells 42").wait_for()
    lab.by_label("Question").fill(QUESTION)
    lab.button("Search").click()
    page.get_by_role("progressbar", name="Searching").wait_for()
    begin = time.monotonic()
    page.locator(".jp-CodeCell .cm-content").nth(3).click()
    page.keyboard.press("Control+a")
    page.keyboard.type("print('still', 2 ** 10)")
    page.keyboard.press("Control+Enter")
    page.get_by_text("still 1024").wait_for()
    assert time.monotonic() - begin < 60
    page.get_by_role("progressbar", name="Searching").wait_for()
    lab.button("Stop").focus()
    page.keyboard.press("Enter")
    page.get_by_text("Searching: stopped").wait_for()


def test_ten_reruns_leave_one_panel(lab: LabPage) -> None:
    count = (
        "from nbrag.notebook.panels import open_panels\n"
        "from ipywidgets.widgets.widget import _instances\n"
        "print('panels', len(open_panels()), 'controls', len(_instances), 'run', len(In) - 1)"
    )
    opened(lab, "again", "%rag_panel pipeline -c docs", count)
    page = lab.page
    output = page.locator(".jp-CodeCell").nth(2).locator(".jp-OutputArea-output")
    output.get_by_text("panels 1 controls").wait_for()
    before = output.inner_text().split()
    for _ in range(10):
        lab.run_cell(1)
    lab.run_cell(2)
    output.get_by_text("run 14").wait_for()
    assert output.inner_text().split()[:4] == before[:4]
    assert lab.button("Add stage").count() == 1


def test_a_callback_that_fails_is_a_visible_line(lab: LabPage) -> None:
    opened(
        lab,
        "failing",
        "panel = nbrag.panel('pipeline', workspace, collection='docs')\n"
        "panel.search = lambda: 1 / 0\n"
        "panel.on_click(panel._save, lambda: 1 / 0)\n"
        "panel",
    )
    lab.button("Save").click()
    lab.page.get_by_role("alert").filter(has_text="ZeroDivisionError: division by zero").wait_for()
    lab.button("Show as cell").click()
    lab.page.get_by_role("alert").filter(has_text="ZeroDivisionError").wait_for(state="detached")


def test_a_saved_notebook_reads_without_kernel_and_network(
    lab: LabPage, browser: Any, lab_folder: Path
) -> None:
    opened(lab, "saved", f'%rag_panel search -c docs --question "{QUESTION}"')
    lab.by_label("Results A").wait_for()
    saved = lab.save()
    text = nbformat.writes(saved)
    assert str(lab_folder) not in text
    assert str(Path.home()) not in text
    assert "widgets" not in saved["metadata"]
    from nbconvert import HTMLExporter

    body, _ = HTMLExporter().from_notebook_node(saved)
    (lab_folder / "saved.html").write_text(body, "utf-8")
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto((lab_folder / "saved.html").as_uri(), wait_until="commit")
    page.get_by_role("region", name="Search").wait_for(timeout=30_000)
    assert "Backups are kept for 35 days" in page.inner_text("body")
    page.get_by_role("img", name="Rank flow of A, default").wait_for(timeout=30_000)
    page.screenshot(path=lab_folder / "saved.png", full_page=True)
    context.close()
