"""The search panel: a filter that is built, two pipelines, passages, and marks."""

from __future__ import annotations

import time
from typing import Any

import pytest

import nbrag
from nbrag.notebook.panels.search_actions import PAGE
from nbrag.notebook.panels.search_view import SearchPanel
from nbrag.testing import HashEmbedder, control
from nbrag.workspace import Workspace

QUESTION = "How long are backups kept?"


@pytest.fixture
def ready(workspace: Workspace) -> Workspace:
    built = workspace.retrieval_pipeline("words").use_search(mode="keyword").build()
    workspace.save_pipeline(built.spec)
    return workspace


@pytest.fixture
def panel(ready: Workspace) -> SearchPanel:
    made = SearchPanel(ready, "default", "words", collection="docs", question=QUESTION)
    assert made.state.alert == ()
    return made


def press(panel: SearchPanel, *buttons: str) -> None:
    for words in buttons:
        control(panel, words).click()
    panel.wait()


def put(panel: SearchPanel, label: str, value: Any) -> None:
    control(panel, label).value = value
    panel.wait()


def lines(panel: SearchPanel, side: str) -> list[str]:
    return [text for text, _ in control(panel, f"Results {side}").options]


def choose(panel: SearchPanel, side: str, rank: int) -> None:
    _, chunk_id = control(panel, f"Results {side}").options[rank - 1]
    put(panel, f"Results {side}", chunk_id)


def test_two_pipelines_are_asked_and_compared(panel: SearchPanel, ready: Workspace) -> None:
    for side, name in (("A", "default"), ("B", "words")):
        alone = ready.search(QUESTION, collection="docs", pipeline=name)
        found = panel.state.results(side)
        assert [c.id for c in found] == [c.id for c in alone]
        assert [c.score for c in found] == [c.score for c in alone]
    assert lines(panel, "A")[0].startswith("1.  1.000  (B: 1)  backups.md")
    assert any("(not in B)" in line for line in lines(panel, "A"))
    assert panel._results[0]._flow.value.startswith("<svg role=")
    put(panel, "Pipeline B", "")
    assert panel.state.results("B") is None
    assert lines(panel, "A")[0].startswith("1.  1.000  backups.md")
    assert panel._results[1].view.layout.display == "none"


def test_a_filter_is_built_from_real_fields_and_values(panel: SearchPanel) -> None:
    fields = [text for text, _ in control(panel, "Field").options]
    assert fields[:3] == ["level (whole number)", "team (text)", "heading_path (list)"]
    put(panel, "Field", "team")
    assert control(panel, "Value").options == ("operations", "sales", "security")
    put(panel, "Comparison", "is not")
    put(panel, "Value", "secur")
    assert control(panel, "Value").options == ("security",)
    put(panel, "Value", "security")
    press(panel, "Add condition")
    put(panel, "Field", "level")
    assert control(panel, "Comparison").options[2] == "is less than"
    put(panel, "Comparison", "is at most")
    put(panel, "Value", "2")
    press(panel, "Add condition")
    assert control(panel, "Filter").value == 'team != "security" and level <= 2'
    press(panel, "Search")
    assert {c.record["team"] for c in panel.state.results("A")} == {"sales"}
    put(panel, "Filter", 'team == "security"')
    press(panel, "Search")
    assert {c.record["team"] for c in panel.state.results("A")} == {"security"}
    press(panel, "Clear filter", "Search")
    assert len({c.record["team"] for c in panel.state.results("A")}) == 3


def test_bad_filters_are_told_in_the_magic_s_words(panel: SearchPanel, ready: Workspace) -> None:
    put(panel, "Field", "level")
    put(panel, "Value", "many")
    press(panel, "Add condition")
    assert panel.state.alert[0] == "FilterError: 'many' is not a whole number."
    assert panel.state.where == ""
    put(panel, "Filter", "level >")
    assert panel.state.alert[0].startswith("FilterError: ")
    before = panel.state.found
    press(panel, "Search")
    assert panel.state.alert[0].startswith("FilterError: ")
    put(panel, "Filter", "levle > 1")
    press(panel, "Search")
    with pytest.raises(nbrag.FilterError) as told:
        ready.search(QUESTION, collection="docs", where="levle > 1")
    assert panel.state.alert == tuple(told.value._render_traceback_())
    assert before
    assert control(panel, "Filter").value == "levle > 1"


def test_values_are_read_page_by_page(ready: Workspace) -> None:
    ready.ingest(
        "many", [{"id": f"{n}", "text": f"page {n}", "tag": f"t{n:03}"} for n in range(60)]
    )
    panel = SearchPanel(ready, collection="many")
    panel.wait()
    put(panel, "Field", "tag")
    value, more = control(panel, "Value"), control(panel, "More values")
    assert len(value.options) == PAGE
    assert not more.disabled
    press(panel, "More values")
    press(panel, "More values")
    assert len(value.options) == 60 == len(set(value.options))
    assert more.disabled
    put(panel, "Value", "t05")
    assert value.options == tuple(f"t05{n}" for n in range(10))


def test_a_result_is_opened_in_its_document(panel: SearchPanel) -> None:
    choose(panel, "A", 1)
    assert "35 days" in panel._passage.value.partition("<mark")[2]
    assert panel.state.side == "A"
    choose(panel, "B", 1)
    assert control(panel, "Results A").value is None
    assert panel.state.passage.chunk.id == panel.state.results("B")[0].id


def test_more_of_a_long_document(ready: Workspace) -> None:
    text = "\n\n".join(f"## Part {n}\n\n" + f"Sentence {n}. " * 40 for n in range(30))
    ready.ingest("long", [{"id": "long.md", "text": text}])
    panel = SearchPanel(ready, collection="long", question="Sentence 15")
    choose(panel, "A", 1)
    shown = [len(panel.state.passage.before)]
    while not control(panel, "More of the document").disabled:
        press(panel, "More of the document")
        shown.append(len(panel.state.passage.before))
        assert len(shown) < 12
    assert shown == sorted(shown)
    passage = panel.state.passage
    assert passage.before + passage.text + passage.after == text


def test_marks_are_kept_shown_and_measured(panel: SearchPanel, ready: Workspace) -> None:
    assert control(panel, "Relevant").disabled
    choose(panel, "A", 1)
    press(panel, "Relevant")
    assert "[relevant]" in lines(panel, "A")[0]
    assert "--cases marked" in panel.state.status
    choose(panel, "A", 2)
    press(panel, "Not relevant")
    first, second = panel.state.results("A")[:2]
    assert ready.judgements.load().qrels == {"1": {first.id: 1, second.id: 0}}
    assert ready.evaluate(["default", "words"], "marked", metrics=["MRR"]) is not None
    again = SearchPanel(ready, collection="docs", question=QUESTION)
    assert "[not relevant]" in lines(again, "A")[1]
    choose(again, "A", 2)
    press(again, "No mark")
    assert ready.judgements.load().qrels == {"1": {first.id: 1}}
    put(again, "Judgements", "mine")
    assert again.state.marks == {}
    choose(again, "A", 1)
    press(again, "Relevant")
    assert ready.judgements.names() == ["marked", "mine"]


def test_reading_only_says_so_instead_of_marking() -> None:
    with Workspace("file.duckdb", embedder=HashEmbedder()) as made:
        made.ingest("docs", [{"id": "a", "text": "Backups are kept."}])
    with Workspace("file.duckdb", embedder=HashEmbedder(), read_only=True) as reading:
        panel = SearchPanel(reading, question=QUESTION)
        choose(panel, "A", 1)
        assert "open for reading only: marks can&#x27;t be kept" in panel._marking.value
        assert all(button.disabled for button in panel._marks.values())
        panel.act(lambda: panel._mark(1))
        assert panel.state.alert[0].startswith("DatabaseReadOnly: file.duckdb is open")
        panel.close()


def test_one_side_that_fails_leaves_the_other_on_show(panel: SearchPanel, ready: Workspace) -> None:
    spec = ready.retrieval_pipeline("made up").use_hyde().spec
    ready.save_pipeline(spec)
    press(panel, "Search")
    put(panel, "Pipeline B", "made up")
    assert "none is configured" in panel.state.alert[0]
    assert panel.state.alert[1].startswith("Hint: %rag_config model=")
    assert len(panel.state.results("A")) > 0
    assert panel.state.results("B") is None
    put(panel, "Pipeline B", "words")
    assert panel.state.alert == ()
    assert len(panel.state.results("B")) > 0


def test_bad_input_is_a_line_and_the_panel_stays_usable(
    panel: SearchPanel, ready: Workspace
) -> None:
    put(panel, "Question", " ")
    press(panel, "Search")
    assert panel.state.alert[0] == "QueryError: the question is empty."
    put(panel, "Question", QUESTION)
    choose(panel, "A", 1)
    ready.drop_collection("docs")
    choose(panel, "A", 2)
    assert panel.state.alert[0].startswith("CollectionNotFound: there is no collection 'docs'")
    press(panel, "Search")
    assert panel.state.alert[0].startswith("CollectionNotFound")
    ready.collection("docs")
    press(panel, "Search")
    assert panel.state.alert[0] == "CollectionNotFound: collection 'docs' is empty."
    ready.ingest("docs", [{"id": "a", "text": "Backups are kept."}])
    press(panel, "Search")
    assert panel.state.alert == ()
    assert len(panel.state.results("A")) == 1


def test_names_that_are_not_there(ready: Workspace) -> None:
    panel = SearchPanel(ready, "default", "wrods")
    assert panel.state.alert[0] == "PipelineNotFound: there is no pipeline 'wrods'."
    panel = SearchPanel(ready, collection="dosc")
    assert panel.state.alert[1] == "Hint: did you mean 'docs'?"
    panel = SearchPanel(ready, "a", "b", "c")
    assert panel.state.alert[0].startswith("QueryError: 3 pipelines")
    with Workspace(embedder=HashEmbedder()) as empty:
        panel = SearchPanel(empty)
        assert panel.state.alert[0].startswith("CollectionNotFound: there is no collection yet")
        press(panel, "Search")
        assert panel.state.alert[0].startswith(("CollectionNotFound", "QueryError"))
        panel.close()


def test_the_snapshot_has_both_results_and_their_way(panel: SearchPanel) -> None:
    bundle = panel.snapshot()
    for words in ("Results A, default", "Results B, words", "35 days", "Rank after each stage"):
        assert words in bundle["text/plain"]
    assert bundle["text/html"].count("<svg") == 2
    assert "http" not in bundle["text/html"]


def test_a_large_collection_opens_at_once(ready: Workspace) -> None:
    ready.database.execute(
        "INSERT INTO docs.chunks BY NAME SELECT c.* REPLACE (c.row + 1000 + r.n * 100 AS row,"
        " c.id || '-' || r.n AS id, c.team || r.n AS team)"
        " FROM docs.chunks c CROSS JOIN (SELECT unnest(range(25000)) AS n) r"
    )
    begin = time.perf_counter()
    panel = SearchPanel(ready, collection="docs")
    shown = time.perf_counter() - begin
    panel.wait()
    put(panel, "Field", "team")
    assert len(control(panel, "Value").options) == PAGE
    assert shown < 2


def test_the_magic_passes_names_collection_and_question(filled: Any) -> None:
    filled.run("%%rag_pipeline words -c docs\nsearch mode=keyword")
    made = filled.run(f'%rag_panel search default words -c docs --question "{QUESTION}"')
    assert (made.state.first, made.state.second, made.state.collection) == (
        "default",
        "words",
        "docs",
    )
    assert len(made.state.results("B")) > 0
    filled.run("%rag_config collection=docs")
    assert filled.run("%rag_panel search").state.collection == "docs"
