"""Settings: precedence, checks, and no key in any output."""

from __future__ import annotations

from pathlib import Path

import pytest

from nbrag.errors import ConfigurationError
from nbrag.notebook.configuration import SETTINGS, Configuration, masked


def test_precedence(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    configuration = Configuration(environment)
    seen = [(configuration["top_k"], configuration.view().source("top_k"))]
    (tmp_path / "pyproject.toml").write_text("[tool.nbrag]\ntop_k = 6\n", "utf-8")
    seen.append((configuration["top_k"], configuration.view().source("top_k")))
    environment["NBRAG_TOP_K"] = "7"
    seen.append((configuration["top_k"], configuration.view().source("top_k")))
    configuration.set({"top_k": "8"})
    seen.append((configuration["top_k"], configuration.view().source("top_k")))
    configuration.reset(["top_k"])
    seen.append((configuration["top_k"], configuration.view().source("top_k")))
    assert seen == [
        (5, "default"),
        (6, "pyproject.toml"),
        (7, "NBRAG_TOP_K"),
        (8, "%rag_config"),
        (7, "NBRAG_TOP_K"),
    ]


def test_only_the_nearest_project_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.nbrag]\ntop_k = 6\n", "utf-8")
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    configuration = Configuration({})
    assert configuration["top_k"] == 6
    assert configuration.resolve()["top_k"].folder == tmp_path
    (tmp_path / "a" / "pyproject.toml").write_text("[project]\n", "utf-8")
    assert configuration["top_k"] == 5


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"topk": "3"}, "no setting 'topk'. Hint: did you mean 'top_k'"),
        ({"top_k": "0"}, "'0' is not a whole number of 1 or more"),
        ({"read_only": "perhaps"}, "is not true or false"),
        ({"index": "exakt"}, "is not auto, exact or hnsw. Hint: did you mean 'exact'"),
        ({"database": " "}, "is not a text"),
        ({"openai_api_key": "sk-abcdefghijkl"}, "read from the environment only"),
        ({"index": "sk-abcdefghijkl"}, "'***'"),
    ],
)
def test_errors(values: dict[str, str], words: str) -> None:
    configuration = Configuration({})
    with pytest.raises(ConfigurationError) as caught:
        configuration.set({"pipeline": "other", **values})
    assert words in str(caught.value)
    assert "abcdefghijkl" not in str(caught.value)
    assert configuration["pipeline"] == "default"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[tool.nbrag]\ntopk = 3\n", "'topk' (pyproject.toml)"),
        ("[tool.nbrag]\ntop_k = true\n", "'top_k' (pyproject.toml)"),
        ("[tool.nbrag\n", "pyproject.toml can't be read"),
    ],
)
def test_errors_of_a_project_name_the_file(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text, "utf-8")
    with pytest.raises(ConfigurationError) as caught:
        Configuration({}).resolve()
    assert words in str(caught.value)


def test_errors_of_the_environment_name_the_variable() -> None:
    with pytest.raises(ConfigurationError, match="NBRAG_TOP_K"):
        Configuration({"NBRAG_TOP_K": "many"}).resolve()


def test_the_view_shows_every_setting_and_no_path_or_key(tmp_path: Path) -> None:
    configuration = Configuration({})
    configuration.set(
        {"database": str(tmp_path / "x.duckdb"), "embedder": "https://me:hidden@host/sk-1234567890"}
    )
    view = configuration.view()
    assert list(view) == list(SETTINGS)
    for text in (*view._repr_mimebundle_().values(), repr(view)):
        assert "x.duckdb" in text
        assert str(tmp_path) not in text
        assert "hidden" not in text
        assert "1234567890" not in text
    assert view["database"] == str(tmp_path / "x.duckdb")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgres://me:pw@host/db", "postgres://***@host/db"),
        ("sk-proj-abcdefghij", "***"),
        ("minilm", "minilm"),
        ("task-forces", "task-forces"),
    ],
)
def test_masking(text: str, shown: str) -> None:
    assert masked(text) == shown
