"""Quotes are found however they are set, and only where they stand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrag.models.chat.quoting import QuotableText


@pytest.mark.parametrize(
    ("text", "quote", "found"),
    [
        ("Kept for 35 days.", "kept FOR 35 days", "Kept for 35 days"),
        ("Kept for\n  35\u00a0days.", "kept for 35 days.", "Kept for\n  35\u00a0days"),
        ("It’s “fine” — really", 'it\'s "fine" - really', "It’s “fine” — really"),
        ("an **important** `flag_name`", "important flag_name", "important** `flag_name"),
        ("the year .", "the year.", "the year"),
        ("ﬁve ﬂags at １００％", "five flags at 100%", "ﬁve ﬂags at １００％"),
        ("cafe\u0301 au lait", "café au lait", "cafe\u0301 au lait"),
        ("soft\u00adhyphen here", "softhyphen here", "soft\u00adhyphen here"),
        ("備份保留三十五天。", "保留三十五天", "保留三十五天"),
        ("the party was an art", "an art", "an art"),
    ],
)
def test_typography_makes_no_difference(text: str, quote: str, found: str) -> None:
    place = QuotableText(text).find(quote)
    assert place is not None
    assert text[slice(*place)] == found


@pytest.mark.parametrize(
    ("text", "quote"),
    [
        ("Kept for 35 days.", "kept for 36 days"),
        ("the party", "arty"),
        ("it is 350 days", "35"),
        ("anything", ""),
        ("a b c", "a b"),
        ("cafe au lait", "café au lait"),
    ],
)
def test_other_words_are_not_found(text: str, quote: str) -> None:
    assert QuotableText(text).find(quote) is None


def test_a_gap_divides_a_quote_into_parts_that_must_all_be_there() -> None:
    text = QuotableText("Backups are kept, in most regions, for 35 days.")
    parts = text.find_all("Backups are kept ... for 35 days")
    assert [text.text[start:end] for start, end in parts] == ["Backups are kept", "for 35 days"]
    assert text.find_all("Backups are kept [...] for 36 days") == []


@given(
    st.text(max_size=60), st.text(alphabet="abc ", min_size=8, max_size=30), st.text(max_size=60)
)
def test_what_stands_there_is_found_where_it_stands(before: str, words: str, after: str) -> None:
    text = f"{before} {words} {after}"
    place = QuotableText(text).find(words)
    if sum(sign.isalnum() for sign in words) >= 4:
        assert place is not None
        start, end = place
        assert 0 <= start < end <= len(text)
        assert "".join(text[start:end].split()) == "".join(words.split())


@given(st.text(max_size=80), st.text(max_size=40))
def test_offsets_are_always_inside_the_text(text: str, quote: str) -> None:
    for start, end in QuotableText(text).find_all(quote):
        assert 0 <= start < end <= len(text)
