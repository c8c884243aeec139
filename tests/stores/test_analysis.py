"""What the keyword leg takes for a term."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrag.stores.analysis import Analyzer


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("Release v3.0 is out", "v3.0"),
        ("Release v3.0 is out", "3.0"),
        ("Release 4.2.1.", "4.2.1"),
        ("see NB-4031 in the log", "nb-4031"),
        ("see NB-4031 in the log", "4031"),
        ("written in C#", "c#"),
        ("written in C++, mostly", "C++"),
        ("runs on .NET 8", ".net"),
        ("pass --dry-run first", "--dry-run"),
        ("pass --dry-run first", "dry run"),
        ("set tug.window_hours", "tug.window_hours"),
        ("set tug.window_hours", "window_hours"),
        ("set tug.window_hours", "hours"),
        ("part 40321", "40321"),
        ("the retention policies", "retention policy"),
        ("don't panic", "don't"),
        ("don\u2019t panic", "don't"),
        ("Москва слезам не верит", "москва"),
        ("हिन्दी में लिखा", "हिन्दी"),
        ("ذهب الولد إلى المدرسة", "المدرسة"),
        ("北京是中国的首都", "首都"),
        ("東京タワー", "タワー"),
        ("서울특별시는 수도이다", "서울"),
        ("Ｆｕｌｌｗｉｄｔｈ", "fullwidth"),
        ("straße", "STRASSE"),
        ("cafe\u0301", "café"),
        ("all good 🎉", "🎉"),
        ("with love ❤\ufe0f", "❤"),
        ("written in F#.", "f#"),
        ("see NB\u20114031", "nb-4031"),
        ("الْكِتَاب", "الكتاب"),
        ("صفحة ٢٣", "23"),
        ("می\u200cخواهم", "خواهم"),
        ("data\u00adbase", "database"),
        ("x86_64 only", "x86_64"),
        ("ＮＢ－４０３１", "nb-4031"),
        ("x", "X"),
    ],
)
def test_findable(text: str, question: str) -> None:
    analyzer = Analyzer()
    assert set(analyzer.query_tokens(question)) & set(analyzer.tokens(text))


def test_a_number_does_not_find_another() -> None:
    analyzer = Analyzer()
    assert not set(analyzer.tokens("4031")) & set(analyzer.tokens("NB-4032"))


def test_one_emoji_does_not_find_another() -> None:
    analyzer = Analyzer()
    assert not set(analyzer.tokens("❤\ufe0f")) & set(analyzer.tokens("☀\ufe0f"))


def test_a_vowel_sign_stays_with_its_letter() -> None:
    assert Analyzer().tokens("हिन्दी में") == ["हिन्दी", "में"]


def test_common_words_are_left_out_only_beside_others() -> None:
    analyzer = Analyzer()
    assert analyzer.query_tokens("what is the tide") == analyzer.tokens("tide")
    assert analyzer.query_tokens("what is it") == ["what", "is", "it"]


def test_no_language_no_stems() -> None:
    assert Analyzer(language=None).tokens("policies") == ["policies"]
    with pytest.raises(ValueError, match="klingon"):
        Analyzer(language="klingon")


SNIPPETS = st.lists(
    st.text(max_size=4)
    | st.sampled_from(
        ["(NB-4031),", "C++", "v3.0.", ".net", "don’t", "東京タワー", "\u0301", "[It's]"]
    ),
    max_size=8,
)


@given(SNIPPETS, st.sampled_from(["", " ", "\n", "\u3000", ", "]))
def test_no_term_reaches_over_a_blank(snippets: list[str], joint: str) -> None:
    analyzer = Analyzer()
    text = joint.join(snippets)
    pieces = [term for piece in text.split() for term in analyzer.tokens(piece)]
    assert analyzer.tokens(text) == pieces


def test_threads_that_start_together_find_the_same_terms() -> None:
    text, texts = "東京タワー 日本 running", 8
    for _ in range(20):
        analyzer = Analyzer()
        with ThreadPoolExecutor(texts) as pool:
            found = list(pool.map(analyzer.tokens, [text] * texts))
        assert found == [Analyzer().tokens(text)] * texts


@given(st.text())
def test_terms_hold_no_blanks_and_do_not_depend_on_what_came_before(text: str) -> None:
    used = Analyzer()
    used.tokens("some other text, 東京 first")
    terms = used.tokens(text)
    assert terms == Analyzer().tokens(text)
    assert all(term and not any(char.isspace() for char in term) for term in terms)


@given(st.text())
def test_a_text_finds_itself(text: str) -> None:
    analyzer = Analyzer()
    terms = set(analyzer.tokens(text))
    assert set(analyzer.query_tokens(text)) <= terms
    assert bool(analyzer.query_tokens(text)) == bool(terms)
