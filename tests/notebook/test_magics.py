"""Each magic does what its method of the workspace does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nbrag.errors import (
    CollectionNotFound,
    ConfigurationError,
    FilterError,
    MagicUsageError,
    PipelineNotFound,
    QueryError,
    SpecificationError,
)
from nbrag.evaluation import Judgements
from nbrag.notebook.session import current_workspace

MAGICS = ("rag_config", "rag_eval", "rag_ingest", "rag_pipeline", "rag_search", "rag_trace")


def test_search_returns_binds_and_keeps_quiet(filled: Any) -> None:
    results = filled.run("%rag_search -c docs -k 2 -o found How long are backups kept?")
    assert results[0].source.endswith("backups.md")
    assert len(results) == 2
    assert filled.user_ns["found"] is results
    assert filled.run("r = %rag_search backups\nlen(r)") == 3
    assert filled.run("%rag_search -q -o other backups") is None
    assert len(filled.user_ns["other"]) == 3


@pytest.mark.parametrize(
    "question", ['what\'s $5 -k "x"', "a # b ; c", "{not} a {'field'}", "1 + {1}; $HOME"]
)
def test_the_question_is_verbatim(filled: Any, question: str) -> None:
    filled.user_ns["x"] = "wrong"
    assert filled.run(f"%rag_search -k 1 {question}").query.text == question
    assert filled.run(f"%%rag_search -k 1\n{question}\nand more\n").query.text == (
        f"{question}\nand more"
    )


def test_names_are_expanded_in_options_and_question(filled: Any) -> None:
    filled.user_ns.update(k=1, topic="backups -k", where='source.endswith("login.md")')
    results = filled.run("%rag_search -k {{ k }} --where {{ where }} On {{ topic }}")
    assert results.query.text == "On backups -k"
    assert [chunk.source.rpartition("/")[2] for chunk in results] == ["login.md"]
    assert filled.run("%rag_search --raw On {{ topic }}").query.text == "On {{ topic }}"


def test_names_of_a_function_are_seen(filled: Any) -> None:
    filled.run(
        "def ask(words):\n    return get_ipython().run_line_magic('rag_search', '{{ words }}')"
    )
    assert filled.run("ask('inner words')").query.text == "inner words"


def test_the_pipeline_s_collection_goes_before_the_setting(filled: Any) -> None:
    filled.run("%rag_ingest other --from handbook/login.md -q")
    filled.run("%%rag_pipeline mine -c docs\n\n")
    filled.run("%rag_config collection=other top_k=2")
    count = "len(get_ipython().run_line_magic('rag_search', '{} login'))"
    assert filled.run(count.format("")) == 1
    assert filled.run(count.format("-p mine")) == 2
    assert filled.run(count.format("-p mine -c other")) == 1


def test_ingest_reads_files_and_variables(shell: Any, folder: Path) -> None:
    report = shell.run("%rag_ingest docs --from handbook/*.md -o report")
    assert report.counts == {"added": 3}
    assert shell.user_ns["report"] is report
    assert shell.run("%%rag_ingest docs --from handbook\nchunk max_tokens=64").counts == {
        "changed": 3
    }
    shell.user_ns["rows"] = [{"id": "a", "body": "First text."}, {"id": "b", "body": "Second."}]
    report = shell.run("%rag_ingest records --from-var rows --text-column body")
    assert report.counts == {"added": 2}


def test_replace_removes_what_the_sources_lack(filled: Any, folder: Path) -> None:
    (folder / "prices.md").unlink()
    assert filled.run("%rag_ingest docs --from handbook --append").counts == {"unchanged": 2}
    counts = filled.run("%rag_ingest docs --from handbook --replace").counts
    assert counts == {"unchanged": 2, "removed": 1}


def test_ingest_expands_its_stages(shell: Any, folder: Path) -> None:
    shell.user_ns["size"] = "many"
    with pytest.raises(SpecificationError, match="line 3: stage 'chunk': option 'max_tokens'"):
        shell.run("%%rag_ingest docs --from handbook\n\nchunk max_tokens={{ size }}")


def test_pipelines_are_defined_shown_and_read_from_files(shell: Any, tmp_path: Path) -> None:
    made = shell.run(
        "%%rag_pipeline mine -c docs -o kept\n# hybrid is the default\nsearch mode=keyword\n"
    )
    assert shell.user_ns["kept"] is made
    assert made.to_cell() == "%%rag_pipeline mine -c docs\nsearch  mode=keyword\n"
    assert shell.run("%rag_pipeline mine").to_cell() == made.to_cell()
    (tmp_path / "saved.json").write_text(made.spec.to_json(), "utf-8")
    (tmp_path / "saved.txt").write_text(made.to_cell(), "utf-8")
    (tmp_path / "body.txt").write_text("search mode=keyword\n", "utf-8")
    for name in ("saved.json", "saved.txt", "body.txt"):
        again = shell.run(f"%rag_pipeline again --file {name} -c other")
        assert again.to_cell() == "%%rag_pipeline again -c other\nsearch  mode=keyword\n"
    assert current_workspace().pipelines() == ["again", "default", "mine"]


def test_trace_shows_the_last_search_or_a_named_one(filled: Any) -> None:
    with pytest.raises(MagicUsageError, match="no search yet"):
        filled.run("%rag_trace")
    first = filled.run("%rag_search -o first backups")
    last = filled.run("%rag_search login")
    assert filled.run("%rag_trace") is last.trace
    assert filled.run("%rag_trace first") is first.trace
    filled.user_ns["number"] = 3
    with pytest.raises(MagicUsageError, match="a int without a trace"):
        filled.run("%rag_trace number")


def test_trace_of_one_stage(filled: Any) -> None:
    whole = filled.run("%rag_search -o found backups").trace
    part = filled.run("%rag_trace found --stage keyword")
    assert [record.stage for record in part.stages] == ["keyword"]
    assert part.stages == [record for record in whole.stages if record.stage == "keyword"]
    assert len(whole.stages) > 1
    with pytest.raises(MagicUsageError, match=r"no stage 'keywrod'\. Hint: did you mean 'keyword'"):
        filled.run("%rag_trace --stage keywrod")


def test_eval_measures_from_a_file_or_a_variable(filled: Any, tmp_path: Path) -> None:
    cases = [
        {"id": "1", "query": "How long are backups kept?", "relevant": ["backups.md"]},
        {"id": "2", "query": "What does the plan cost?", "relevant": {"prices.md": 2}},
    ]
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    (tmp_path / "cases.jsonl").write_text(lines, "utf-8")
    filled.run("%%rag_pipeline words -c docs\nsearch mode=keyword")
    report = filled.run("%rag_eval default words --cases cases.jsonl -o kept")
    assert filled.user_ns["kept"] is report
    assert report.pipelines == ("default", "words")
    assert report.metrics == ("recall@5", "MRR", "nDCG@10")
    means = {(row["pipeline"], row["metric"]): row["mean"] for row in report.summary_rows()}
    assert means["default", "nDCG@10"] == means["words", "nDCG@10"] == 1.0
    filled.user_ns["judged"] = Judgements.load(tmp_path / "cases.jsonl")
    again = filled.run("%rag_eval words --cases judged --metrics recall@1,MRR nDCG@3 -c docs")
    assert again.metrics == ("recall@1", "MRR", "nDCG@3")
    assert filled.run("%rag_eval words --cases judged -q") is None
    with pytest.raises(ConfigurationError, match="recal@5"):
        filled.run("%rag_eval words --cases judged --metrics recal@5")


def test_config_sets_shows_and_resets(shell: Any) -> None:
    assert shell.run("%rag_config top_k=3 verbose_errors=false") is None
    assert shell.run("%%rag_config\n# comment\ncollection='my docs'\n\npipeline=default") is None
    view = shell.run("%rag_config -o settings")
    assert (view["top_k"], view["collection"]) == (3, "my docs")
    assert shell.user_ns["settings"] is view
    shell.run("%rag_config --reset top_k")
    view = shell.run("%rag_config")
    assert (view["top_k"], view["collection"]) == (5, "my docs")


def test_verbose_errors_brings_the_traceback_back(filled: Any, capsys: Any) -> None:
    filled.run_cell("%rag_search -p nowhere x")
    short = capsys.readouterr().out
    filled.run("%rag_config verbose_errors=true")
    filled.run_cell("%rag_search -p nowhere x")
    long = capsys.readouterr().out
    assert short == (
        "PipelineNotFound: there is no pipeline 'nowhere'.\nHint: known pipelines: default\n"
    )
    assert "Traceback" in long
    assert "pipeline_spec" in long


@pytest.mark.parametrize("magic", MAGICS)
def test_help_is_there_in_both_ways(shell: Any, magic: str, capsys: pytest.CaptureFixture) -> None:
    assert shell.run(f"%{magic} --help") is None
    printed = capsys.readouterr().out
    assert f"%{magic}" in printed
    assert "--output NAME" in printed
    assert shell.object_inspect(f"%{magic}")["docstring"].strip() == printed.strip()


@pytest.mark.parametrize(
    ("cell", "error", "words"),
    [
        ("%rag_search -c docs", QueryError, "the question is empty"),
        ("%%rag_search -c docs\n\n", QueryError, "the question is empty"),
        ("%%rag_search one\ntwo", MagicUsageError, "on the line and another in the cell"),
        ("%rag_search -c dcos x", CollectionNotFound, "did you mean 'docs'"),
        ("%rag_search -p defualt x", PipelineNotFound, "did you mean 'default'"),
        ("%rag_search -k 0 x", MagicUsageError, "whole number of 1 or more"),
        ("%rag_search -o 1a x", MagicUsageError, "can't be the name of a variable"),
        ("%rag_search --where 'paeg > 3' x", FilterError, "page"),
        ("%rag_search --where 'page >' x", FilterError, ""),
        ("%rag_search {{ nothing_here }}", MagicUsageError, "no variable 'nothing_here'"),
        ("%rag_search --limit 3 x", MagicUsageError, "no option --limit"),
        ("%rag_ingest --from handbook", MagicUsageError, "no collection is named"),
        ("%rag_ingest docs", MagicUsageError, "either --from PATH or --from-var NAME"),
        ("%rag_ingest docs --from a --from-var b", MagicUsageError, "either --from"),
        ("%rag_ingest docs --from a --append --replace", MagicUsageError, "exclude each other"),
        ("%rag_ingest docs --from-var nothing", MagicUsageError, "no variable 'nothing'"),
        ("%rag_ingest docs x --from a", MagicUsageError, "unrecognized arguments: x"),
        ("%%rag_ingest docs --from handbook\nchnk", SpecificationError, "did you mean 'chunk'"),
        ("%%rag_pipeline p\nserch", SpecificationError, "line 2: unknown stage 'serch'"),
        ("%%rag_pipeline p\nsearch mod=x", SpecificationError, "did you mean 'mode'"),
        ("%%rag_pipeline p --file f\nsearch", MagicUsageError, "in the cell and by --file"),
        ("%rag_pipeline p --file gone.json", SpecificationError, "no such file"),
        ("%rag_pipeline nowhere", PipelineNotFound, "'nowhere'"),
        ("%rag_pipeline default -c docs", MagicUsageError, "belongs to a definition"),
        ("%rag_pipeline", MagicUsageError, "required: NAME"),
        ("%rag_trace nothing", MagicUsageError, "no variable 'nothing'"),
        ("%rag_eval default", MagicUsageError, "required: --cases"),
        ("%rag_eval nowhere --cases x", PipelineNotFound, "'nowhere'"),
        ("%rag_config top_k", ConfigurationError, "'top_k' is not KEY=VALUE"),
        ("%rag_config top_k=1 top_k=2", ConfigurationError, "given twice"),
        ("%rag_config --reset topk", ConfigurationError, "did you mean 'top_k'"),
        ("%rag_config index=hnsw", ConfigurationError, "opened in Python"),
    ],
)
def test_bad_input_is_an_error_of_nbrag(
    filled: Any, capsys: pytest.CaptureFixture, cell: str, error: type, words: str
) -> None:
    with pytest.raises(error) as caught:
        filled.run(cell)
    assert words in str(caught.value)
    shown = capsys.readouterr().out.rstrip("\n").split("\n")
    assert shown[0].startswith(f"{error.__name__}: ")
    assert [line[:5] for line in shown[1:]] in ([], ["Hint:"])
    assert len(filled.run("%rag_search backups")) == 3


def test_results_are_stable_text(filled: Any, tmp_path: Path) -> None:
    """No times, paths or addresses: two runs show the same."""
    shown = []
    for _ in range(2):
        for cell in ("%rag_search -o r backups", "%rag_config", "%rag_pipeline default"):
            bundle = filled.run(cell)._repr_mimebundle_()
            shown.append(bundle["text/plain"])
            assert str(tmp_path) not in "".join(bundle.values())
            assert " at 0x" not in bundle["text/plain"]
    assert shown[:3] == shown[3:]
