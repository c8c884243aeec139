"""The BM25 index: right scores, fresh after each change, kept on disk without being trusted."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrag.stores.analysis import Analyzer
from nbrag.stores.keyword import KeywordIndex

WORDS = st.lists(st.sampled_from(["ant", "bee", "cat", "dog", "eel", "v3.0", "东京"]), max_size=12)
TEXTS = st.lists(WORDS.map(" ".join), min_size=1, max_size=30)


def built(texts: dict[int, str], derived: Collection[int] = ()) -> KeywordIndex:
    index = KeywordIndex(Analyzer())
    if texts:
        flags = np.array([row in derived for row in texts])
        index.add(np.array(list(texts), np.int64), list(texts.values()), flags)
    return index


def reference(
    texts: dict[int, str],
    query: str,
    allowed: set[int] | None = None,
    derived: Collection[int] = (),
) -> list[tuple[int, float]]:
    """BM25 as the formula says, document by document; derived ones are in no statistic."""
    analyzer = Analyzer()
    terms = {row: Counter(analyzer.tokens(text)) for row, text in texts.items()}
    counted = [counts for row, counts in terms.items() if row not in derived]
    total = len(counted)
    average = sum(c.total() for c in counted) / max(total, 1) or 1.0
    scores: dict[int, float] = {}
    for term, repeats in Counter(analyzer.query_tokens(query)).items():
        n = sum(term in counts for counts in counted)
        idf = math.log(1 + (total - n + 0.5) / (n + 0.5))
        for row, counts in terms.items():
            if term in counts:
                norm = 1.2 * (1 - 0.75 + 0.75 * counts.total() / average)
                part = repeats * idf * counts[term] * 2.2 / (counts[term] + norm)
                scores[row] = scores.get(row, 0) + part
    found = [(r, s) for r, s in scores.items() if allowed is None or r in allowed]
    return sorted(found, key=lambda pair: (-round(pair[1], 5), pair[0]))


def pairs(found: tuple[Any, Any]) -> list[tuple[int, float]]:
    return list(zip(found[0].tolist(), found[1].tolist(), strict=True))


@given(TEXTS, st.sampled_from([1, 3, 1000]), st.data())
def test_scores_follow_the_formula_through_adds_and_removes(
    texts: list[str], step: int, data: st.DataObject
) -> None:
    index = KeywordIndex(Analyzer())
    living: dict[int, str] = {}
    derived: set[int] = set()
    for row, text in enumerate(texts):
        if data.draw(st.integers(0, 3)) == 0:
            derived.add(row * step)
        index.add(np.array([row * step], np.int64), [text], np.array([row * step in derived]))
        living[row * step] = text
        if data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(sorted(living)))
            index.remove(np.array([gone, 100_001], np.int64))
            del living[gone]
    query = data.draw(WORDS.map(" ".join))
    allowed = data.draw(st.none() | st.sets(st.sampled_from(range(-step, 35 * step, step))))
    rows = None if allowed is None else np.array(list(allowed), np.int64)
    found = pairs(index.search(query, 100, rows))
    expected = reference(living, query, allowed, derived)
    assert len(index) == len(living)
    assert {row for row, _ in found} == {row for row, _ in expected}
    by_row = dict(expected)
    assert all(math.isclose(score, by_row[row], rel_tol=1e-4) for row, score in found)
    assert [score for _, score in found] == sorted((s for _, s in found), reverse=True)
    # A changed index and a fresh one agree to the last bit.
    assert pairs(built(living, derived).search(query, 100, rows)) == found
    with tempfile.TemporaryDirectory() as folder:
        index.save(Path(folder, "index"), 1)
        loaded = KeywordIndex.load(Path(folder, "index"), 1, Analyzer())
        assert loaded is not None
        assert pairs(loaded.search(query, 100, rows)) == found
    # A passage's score is the same as without the derived rows.
    passages = {row: text for row, text in living.items() if row not in derived}
    assert pairs(built(passages).search(query, 100, rows)) == [
        pair for pair in found if pair[0] not in derived
    ]


@given(TEXTS, WORDS.map(" ".join), st.integers(1, 8))
def test_k_cuts_the_same_list(texts: list[str], query: str, k: int) -> None:
    index = built(dict(enumerate(texts)))
    assert pairs(index.search(query, k)) == pairs(index.search(query, 1000))[:k]


def test_equal_texts_come_in_row_order() -> None:
    index = built({7: "same words", 3: "same words", 5: "same words"})
    assert index.search("words", 2)[0].tolist() == [3, 5]


def test_a_large_vocabulary_in_any_order_of_rows() -> None:
    rows = np.random.default_rng(3).permutation(1000)
    texts = {int(row): " ".join(f"w{row}x{i % 70}" for i in range(75)) for row in rows}
    index = built(texts)
    assert len(index._vocabulary.numbers) > 1 << 16
    for row in (0, 7, 999):
        question = f"w{row}x3 w{row}x69"
        [(found, score)] = pairs(index.search(question, 5))
        [(expected, exact)] = reference({row: texts[row], -1: texts[row ^ 1]}, question)
        assert found == expected
        assert score > exact


def test_no_common_term_no_row() -> None:
    index = built({0: "alpha", 1: "beta", 2: "gamma", 3: "delta", 4: "epsilon"})
    assert index.search("beta zeta", 5)[0].tolist() == [1]
    assert index.search("", 5)[0].tolist() == []
    assert index.search("beta", 0)[0].tolist() == []


def test_removal_changes_document_frequencies() -> None:
    index = built({0: "cat dog", 1: "cat", 2: "eel"})
    before = index.search("cat", 1)[1][0]
    index.remove(np.array([0], np.int64))
    assert index.search("dog", 5)[0].tolist() == []
    assert index.search("cat", 1)[1][0] != before


def test_many_small_adds_stay_few_segments() -> None:
    index = KeywordIndex(Analyzer())
    for row in range(300):
        index.add(np.array([row], np.int64), [f"word{row} common"])
    assert len(index._segments) <= 8
    assert index.search("word123", 5)[0].tolist() == [123]
    assert len(index.search("common", 1000)[0]) == 300


@given(TEXTS)
def test_saved_and_loaded_it_answers_the_same(texts: list[str]) -> None:
    import tempfile

    index = built(dict(enumerate(texts)))
    index.remove(np.array([0], np.int64))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "words"
        index.save(path, 5)
        loaded = KeywordIndex.load(path, 5, Analyzer())
        assert KeywordIndex.load(path, 6, Analyzer()) is None
        assert KeywordIndex.load(path, 5, Analyzer(language=None)) is None
        assert KeywordIndex.load(path, 5, Analyzer(), k1=0.9) is None
    assert loaded is not None
    for query in ("ant bee", "cat", "3.0", "东京"):
        for got, expected in zip(loaded.search(query, 50), index.search(query, 50), strict=True):
            assert got == pytest.approx(expected)
    loaded.add(np.array([99], np.int64), ["newcomer ant"])
    assert loaded.search("newcomer", 5)[0].tolist() == [99]


def test_damaged_files_are_not_believed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "words"
    built({0: "cat", 1: "dog"}).save(path, 1)
    data = path.read_bytes()
    assert KeywordIndex.load(tmp_path / "none", 1, Analyzer()) is None
    for cut in (0, 10, len(data) // 2, len(data) - 30):
        path.write_bytes(data[:cut])
        assert KeywordIndex.load(path, 1, Analyzer()) is None
    assert "rebuilt" in caplog.text


def test_a_flipped_bit_is_noticed_or_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "words"
    index = built({row: f"cat dog{row} eel" for row in range(20)})
    index.save(path, 1)
    data = path.read_bytes()
    refused = 0
    for place in range(0, len(data), 7):
        path.write_bytes(data[:place] + bytes([data[place] ^ 64]) + data[place + 1 :])
        loaded = KeywordIndex.load(path, 1, Analyzer())
        if loaded is None:
            refused += 1
        else:
            assert pairs(loaded.search("cat dog7", 30)) == pairs(index.search("cat dog7", 30))
    assert refused > 100


def test_a_save_that_fails_keeps_the_old_file_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "words"
    built({0: "cat"}).save(path, 1)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space"):
        built({0: "dog"}).save(path, 2)
    assert [file.name for file in tmp_path.iterdir()] == ["words"]
    loaded = KeywordIndex.load(path, 1, Analyzer())
    assert loaded is not None
    assert loaded.search("cat", 5)[0].tolist() == [0]


def test_what_was_removed_is_not_saved(tmp_path: Path) -> None:
    path = tmp_path / "words"
    index = built({0: "secretword", 1: "cat"})
    index.remove(np.array([0], np.int64))
    index.save(path, 1)
    assert b"secretword" not in path.read_bytes()


def test_memory_of_removed_rows_is_given_back() -> None:
    index = built({row: f"cat word{row}" for row in range(1000)})
    before = index.nbytes
    index.remove(np.arange(900))
    assert len(index) == 100
    assert index.nbytes < before / 5
    index.remove(np.arange(900, 1000))
    assert index.nbytes == 0
    assert index.search("cat", 5)[0].tolist() == []


def test_a_search_meanwhile_sees_whole_inserts() -> None:
    index = KeywordIndex(Analyzer())
    sizes: list[int] = []

    def add() -> None:
        for start in range(0, 2000, 20):
            texts = [f"common word{row}" for row in range(start, start + 20)]
            index.add(np.arange(start, start + 20), texts)

    with ThreadPoolExecutor(1) as pool:
        adding = pool.submit(add)
        while not adding.done():
            rows, scores = index.search("common", 5000)
            assert len(set(scores.tolist())) <= 1
            sizes.append(len(rows))
        adding.result()
    assert all(size % 20 == 0 for size in sizes)
    assert sizes == sorted(sizes)
    assert len(index.search("common", 5000)[0]) == 2000


def test_scores_do_not_depend_on_the_shape_of_the_vocabulary() -> None:
    first, second = KeywordIndex(Analyzer()), KeywordIndex(Analyzer())
    texts = [f"{'ant ' * (row % 3)}{'bee ' * (row % 5)}cat dog eel" for row in range(40)]
    first.add(np.arange(40), texts)
    second.add(np.array([99]), ["eel dog cat bee ant"])
    second.remove(np.array([99]))
    second.add(np.arange(40), texts)
    assert pairs(first.search("dog ant bee eel cat", 40)) == pairs(
        second.search("dog ant bee eel cat", 40)
    )


@pytest.mark.parametrize("text", ["NB-4031", "v3.0", "C#", "главный", "东京塔", "--dry-run", "🎉"])
def test_a_term_is_findable_right_after_its_insert(text: str) -> None:
    index = built(dict.fromkeys(range(50), "filler words"))
    index.add(np.array([77]), [f"about {text} here"])
    assert index.search(text, 5)[0].tolist() == [77]
