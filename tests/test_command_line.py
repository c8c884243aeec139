from __future__ import annotations

import shutil

import pytest

from nbrag.command_line import main


@pytest.fixture
def folder(repository, tmp_path, monkeypatch):
    monkeypatch.setenv("NBRAG_CACHE", str(tmp_path / "cache"))
    source = repository / "notebooks" / "models" / "tiny-random-bert"
    return shutil.copytree(source, tmp_path / "tiny-bert")


def test_a_model_is_prepared(folder, capsys):
    assert main(["models", "prepare", str(folder)]) == 0
    first, *_, path, note = capsys.readouterr().out.splitlines()
    assert first.startswith("tiny-bert prepared: ")
    assert path.startswith("kept as ")
    assert "prepared=false" in note
    assert main(["models", "prepare", str(folder)]) == 0
    assert "was prepared already" in capsys.readouterr().out


def test_models_are_listed(capsys):
    assert main(["models", "list"]) == 0
    assert "minilm" in capsys.readouterr().out


def test_an_error_is_one_line_with_its_hint(tmp_path, capsys):
    assert main(["models", "prepare", str(tmp_path / "none")]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: there is no model at")
    assert main(["models", "prepare", "minilm", "--texts", str(tmp_path / "none.txt")]) == 1
    assert "can't be read" in capsys.readouterr().err


def test_a_stop_is_told(folder, capsys, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("nbrag.models.preparing.prepare_model", stop)
    assert main(["models", "prepare", str(folder)]) == 130
    assert "nothing was changed" in capsys.readouterr().err


def test_words_that_can_not_be_read(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["models", "praise"])
    assert caught.value.code == 2
    assert "invalid choice" in capsys.readouterr().err
