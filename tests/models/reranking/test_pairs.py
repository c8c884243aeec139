"""Pairs: joined as the tokenizer says, only passages cut, windows over what is too long."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from nbrag.errors import ModelInvalid
from nbrag.models.files import find_files
from nbrag.models.reranking._pairs import PairTokenizer, _spans
from nbrag.models.reranking._settings import read_classifier_settings

KINDS = ("bert", "xlm-roberta", "modernbert")


@pytest.fixture
def tokenizer(folders):
    def make(kind: str, **changes) -> PairTokenizer:
        files = find_files(folders[kind])
        return PairTokenizer(files.tokenizer, replace(read_classifier_settings(files), **changes))

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_short_pairs_are_the_library_s_own(folders, tokenizer, golden, kind):
    own = Tokenizer.from_file(str(folders[kind] / "tokenizer.json"))
    for question in golden["questions"][:8]:
        encoded = tokenizer(kind).encode(question, golden["passages"][:12])
        for pair, passage in zip(encoded.pairs, golden["passages"], strict=False):
            whole = own.encode(question, passage)
            assert len(whole.ids) <= 128
            assert pair.ids == whole.ids
            assert pair.segments == whole.type_ids


def test_segments_of_each_family(tokenizer):
    for kind, wanted in {"bert": {0, 1}, "xlm-roberta": {0}, "modernbert": {0}}.items():
        (pair,) = tokenizer(kind).encode("a", ["b"]).pairs
        assert set(pair.segments) == wanted


def test_no_segment_that_the_model_does_not_know(tokenizer):
    (pair,) = tokenizer("bert", segments=1).encode("a", ["b"]).pairs
    assert set(pair.segments) == {0}


def test_a_passage_is_cut_at_its_end_and_the_question_is_not(folders, tokenizer):
    own = Tokenizer.from_file(str(folders["bert"] / "tokenizer.json"))
    own.enable_truncation(64, strategy="only_second")
    long = "one two three four five six seven " * 20
    encoded = tokenizer("bert", max_tokens=64).encode("which of them is it?", ["short", long])
    assert [pair.ids for pair in encoded.pairs] == [
        own.encode("which of them is it?", text).ids for text in ("short", long)
    ]
    assert (encoded.question_read, encoded.passages_cut) == (encoded.question_tokens, 1)


def test_a_question_that_leaves_too_little_room_is_cut_to_three_quarters(tokenizer):
    bert = tokenizer("bert", max_tokens=35)  # 32 beside the special tokens
    question = "a " * 24
    assert bert.encode(question, ["b " * 9]).question_read == 24
    for passage, read in (("", 0), ("b " * 5, 5), ("b " * 50, 8)):
        encoded = bert.encode("a " * 60, [passage])
        assert (encoded.question_tokens, encoded.question_read) == (60, 24)
        assert len(encoded.pairs[0].ids) == 3 + 24 + read


def test_names_of_special_tokens_in_a_text_are_text(tokenizer):
    bert = tokenizer("bert")
    (pair,) = bert.encode("key [SEP] [PAD]", ["no [SEP] such [CLS] luck [MASK]"]).pairs
    assert pair.ids.count(3) == 2
    assert pair.ids.count(2) == 1
    assert not {0, 4} & set(pair.ids)


def test_headings_stand_before_each_window_and_take_a_quarter_at_most(tokenizer):
    bert = tokenizer("bert", max_tokens=35)
    (top,) = bert._ids(["title of it"])
    encoded = bert.encode("a", ["b " * 100, "b"], headings=["title of it", "t " * 20], windows=3)
    *windows, short = encoded.pairs
    assert [pair.passage for pair in windows] == [0, 0, 0]
    asked = 1 + 1 + 1
    for pair in windows:
        assert pair.ids[asked : asked + min(len(top), 7)] == top[:7]
        assert len(pair.ids) == 35
    # What fits keeps its whole heading.
    assert len(short.ids) == 3 + 1 + 20 + 1


@given(st.integers(0, 300), st.integers(1, 60), st.integers(1, 30))
def test_windows_cover_a_passage_with_overlap(count, width, windows):
    spans = list(_spans(count, width, windows))
    assert 1 <= len(spans) <= windows
    assert spans[0][0] == 0
    assert all(0 <= start <= end <= count and end - start <= width for start, end in spans)
    for (_, end), (start, _) in itertools.pairwise(spans):
        assert end - start >= width // 4
    if len(spans) < windows:
        assert spans[-1][1] == count
    if count > width:
        assert all(end - start == width for start, end in spans)


def without_pairs(folder, *, names: dict | None = None) -> PairTokenizer:
    """Take the word on pairs out of a tokenizer's file."""
    path = folder / "tokenizer.json"
    described = json.loads(path.read_text("utf-8"))
    described["post_processor"] = None
    path.write_text(json.dumps(described), "utf-8")
    if names is not None:
        (folder / "tokenizer_config.json").write_text(
            json.dumps({"model_max_length": 128, **names}), "utf-8"
        )
    files = find_files(folder)
    return PairTokenizer(files.tokenizer, read_classifier_settings(files))


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("kind", ["bert", "xlm-roberta"])
def test_a_tokenizer_without_a_word_on_pairs_joins_as_its_family(variant, folders, kind, named):
    own = Tokenizer.from_file(str(folders[kind] / "tokenizer.json")).encode("key", "door")
    tokenizer = without_pairs(variant(kind), names=None if named else {})
    (pair,) = tokenizer.encode("key", ["door"]).pairs
    assert (pair.ids, pair.segments) == (own.ids, own.type_ids)


def test_a_tokenizer_that_ends_texts_only_keeps_its_own_way(variant):
    folder = variant("bert")
    path = folder / "tokenizer.json"
    described = json.loads(path.read_text("utf-8"))
    end = {"SpecialToken": {"id": "[SEP]", "type_id": 0}}
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    described["post_processor"]["pair"] = [first, end, second, end]
    path.write_text(json.dumps(described), "utf-8")
    files = find_files(folder)
    tokenizer = PairTokenizer(files.tokenizer, read_classifier_settings(files))
    (pair,) = tokenizer.encode("key", ["door"]).pairs
    assert pair.ids[0] != 2
    assert pair.ids.count(3) == 2
    assert set(pair.segments) == {0}


def test_a_tokenizer_without_any_special_token_is_refused(variant):
    folder = variant("bert")
    path = folder / "tokenizer.json"
    text = path.read_text("utf-8").replace("[CLS]", "[one]").replace("[SEP]", "[two]")
    path.write_text(text, "utf-8")
    with pytest.raises(ModelInvalid, match="doesn't say how two texts are joined"):
        without_pairs(folder, names={})


def test_the_padding_id_is_the_model_s(tokenizer):
    assert tokenizer("bert").pad_id == 0
    assert tokenizer("xlm-roberta").pad_id == 1
