"""The notebooks of the techniques: each runs offline and gives the figures that it shows."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest

import nbrag
from nbrag.errors import NbragError
from nbrag.ingestion.trees.dividing import VectorDivider
from nbrag.spec import PipelineSpec
from nbrag.testing import read_records, run_notebook
from nbrag.types import TreeLink

TECHNIQUES = ["crag", "expand", "hyde", "rerank-llm", "route"]
#: Those that ask when documents are ingested.
OF_INGESTION = ["context", "entities", "questions", "topics"]
#: Those that put summaries above the whole handbook.
TREES = ["tree"]
#: Those that answer.
OF_ANSWERS = ["ask", "self-rag", "speculative-rag"]
#: Those that ask no chat model.
WITHOUT_CHAT = ["rerank-cross-encoder"]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file for all of them: the handbook is embedded once."""
    return tmp_path_factory.mktemp("techniques") / "work.duckdb"


@pytest.mark.kernel
@pytest.mark.model
@pytest.mark.parametrize("name", [*TECHNIQUES, *OF_INGESTION, *OF_ANSWERS, *TREES, *WITHOUT_CHAT])
def test_a_notebook_gives_the_figures_that_it_shows(
    notebooks: Path, database: Path, name: str
) -> None:
    path = notebooks / f"{name}.ipynb"
    executed = run_notebook(path, cwd=notebooks, database=str(database))
    committed = read_records(nbformat.read(path, as_version=4))
    found = read_records(executed)
    assert list(found) == list(committed)
    assert len(found) >= 9
    for record, value in committed.items():
        assert found[record] == pytest.approx(value, abs=0.005), record


@pytest.mark.kernel
@pytest.mark.model
def test_a_request_that_is_not_in_the_file_is_an_error_that_shows_it(
    notebooks: Path, database: Path
) -> None:
    with pytest.raises((AssertionError, NbragError), match="ReplayMissing"):
        run_notebook(notebooks / "rerank-llm.ipynb", cwd=notebooks, database=str(database), step=3)


@pytest.mark.kernel
@pytest.mark.model
def test_an_ingestion_of_other_documents_asks_for_what_is_not_in_the_file(
    notebooks: Path, tmp_path: Path
) -> None:
    database = str(tmp_path / "other.duckdb")
    with pytest.raises((AssertionError, NbragError), match="ReplayMissing"):
        run_notebook(notebooks / "entities.ipynb", cwd=notebooks, database=database, every=2)


@pytest.mark.kernel
@pytest.mark.model
def test_an_answer_to_other_questions_asks_for_what_is_not_in_the_file(
    notebooks: Path, database: Path
) -> None:
    with pytest.raises((AssertionError, NbragError), match="ReplayMissing"):
        run_notebook(notebooks / "ask.ipynb", cwd=notebooks, database=str(database), step=7)


def test_ways_to_answer_are_compared_with_the_same_single_pass_and_keep_their_calls(
    notebooks: Path,
) -> None:
    rounds, drafts = (
        read_records(nbformat.read(notebooks / f"{name}.ipynb", as_version=4))
        for name in ("self-rag", "speculative-rag")
    )
    single = {name: value for name, value in rounds.items() if name.startswith("single ")}
    assert single["single calls"] == 30
    assert len(single) == 8
    assert single == {name: drafts[name] for name in single}
    # Two rounds are two drafts, two checks and a query; four drafts are weighed in one call.
    assert rounds["rounds calls"] <= 30 * 5
    assert drafts["drafts calls"] <= 30 * 5


@pytest.mark.kernel
@pytest.mark.model
def test_trees_of_other_documents_ask_for_what_is_not_in_the_file(notebooks: Path) -> None:
    with pytest.raises((AssertionError, NbragError), match="ReplayMissing"):
        run_notebook(notebooks / "tree.ipynb", cwd=notebooks, corpus="corpus/handbook/security")


@pytest.mark.model
def test_clusters_that_are_put_in_place_are_summarised_without_forming_any(
    notebooks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: Any) -> Any:
        raise AssertionError("clusters are formed")

    monkeypatch.setattr(VectorDivider, "formed", never)
    monkeypatch.setattr(VectorDivider, "nearest", never)
    # The ids of passages come from where the notebook finds its documents.
    monkeypatch.chdir(notebooks)
    with Path("replies/handbook-raptor.csv").open(encoding="utf-8", newline="") as file:
        links = [TreeLink(r["parent"], r["child"], int(r["level"])) for r in csv.DictReader(file)]
    plain = PipelineSpec("ingestion", "raptor")
    with nbrag.Workspace(chat="replay:replies/handbook-tree.jsonl") as workspace:
        workspace.ingest("raptor", "corpus/handbook", spec=plain)
        collection = workspace["raptor"]
        nothing = np.empty((0, collection.identity.dimension), np.float32)
        nbrag.run(collection.writer().write_tree([], nothing, links))
        report = workspace.ingest(
            "raptor", "corpus/handbook", spec=plain.with_stage("tree", form="raptor")
        )
        assert not report.warnings
        assert report.notes == ("tree: 46 summaries made, 0 kept, 3 levels",)
        assert set(nbrag.run(collection.tree())) == set(links)
        assert len(nbrag.run(collection.summary_ids())) == len({link.parent for link in links})


def test_a_tree_gains_by_counting_whatever_stands_beneath(notebooks: Path) -> None:
    records = read_records(nbformat.read(notebooks / "tree.ipynb", as_version=4))
    for way in ("collapsed", "down"):
        own = records[f"own, raptor, {way} - flat recall@100"][0]
        beneath = records[f"beneath, raptor, {way} - flat recall@100"][0]
        elsewhere = records[f"elsewhere, raptor, {way} - flat recall@100"]
        assert own < 0 < min(elsewhere)
        assert min(elsewhere) < beneath < max(elsewhere)


def test_question_rows_that_are_switched_off_change_no_figure(notebooks: Path) -> None:
    records = read_records(nbformat.read(notebooks / "questions.ipynb", as_version=4))
    for metric in ("recall@5", "MRR", "nDCG@10"):
        assert records[f"hybrid, questions=false {metric}"] == records[f"hybrid, plain {metric}"]


@pytest.mark.parametrize(
    ("file", "beginning", "names"),
    [
        ("handbook.jsonl", "Authored replies: written by hand", TECHNIQUES),
        ("handbook-ingestion.jsonl", "Authored replies: written in the place of", OF_INGESTION),
        ("handbook-answers.jsonl", "Authored replies: written in the place of", OF_ANSWERS),
        ("handbook-tree.jsonl", "Authored replies: written in the place of", TREES),
    ],
)
def test_replies_and_notebooks_say_that_they_are_authored(
    notebooks: Path, file: str, beginning: str, names: list[str]
) -> None:
    first = (notebooks / "replies" / file).read_text("utf-8").partition("\n")[0]
    about = json.loads(first)["about"]
    assert about.startswith(beginning)
    assert "not isolated from each other" in about
    for name in names:
        cells: list[Any] = nbformat.read(notebooks / f"{name}.ipynb", as_version=4).cells
        told = [cell.source for cell in cells if cell.cell_type == "markdown"]
        assert any(
            "**authored**" in text and "not isolated from each other" in text for text in told
        ), name
        assert "when not to use it" in told[-1]


def test_the_cross_encoder_s_figures_are_said_to_be_of_random_weights(notebooks: Path) -> None:
    notebook = nbformat.read(notebooks / "rerank-cross-encoder.ipynb", as_version=4)
    told = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    assert any("**tiny classifier with random weights**" in text for text in told)
    assert "when not to use it" in told[-1]
    records = read_records(notebook)
    assert records["reranked nDCG@10"] < records["hybrid nDCG@10"] - 0.1
    low, high = records["mixed - hybrid nDCG@10"][1:]
    assert low < 0 < high
