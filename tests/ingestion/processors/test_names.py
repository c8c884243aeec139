"""Names: where they occur, and which spellings are one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrag.ingestion.processors._names import FoldedText
from nbrag.stores.names import name_key


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("Go", "Google it.", None),
        ("Go", "Let us go to Go.", "go"),
        ("Go", "cargo", None),
        ("go", "Written in Go, of course", "Go"),
        ("Azure", "on (Azure)", "Azure"),
        ("Azure", "Azure's prices", "Azure"),
        ("Azure", "azure_region", None),
        ("Azure", "pre-Azure-based", "Azure"),
        ("entra id", "Sign in with Entra\n  ID now", "Entra ID"),
        ("Entra  ID", "Entra\u00a0ID", "Entra ID"),
        ("C", "C++ and C#", None),
        ("C", "C++, C# and C", "C"),
        ("C++", "C++, C#", "C++"),
        ("Azure", "Azure+Google", "Azure"),
        ("4.2", "version 4.2.1", None),
        ("2.1", "version 4.2.1", None),
        ("4.2", "since 4.2. Then", "4.2"),
        ("4.2", "14.2 and 4.20", None),
        (".NET", "the .NET runtime", ".NET"),
        ("4.2", "since v4.2", None),
        ("v4.2", "since V4.2", "V4.2"),
        ("“Azure”", "the Azure cloud", "Azure"),
        ("STRASSE", "die Straße dort", "Straße"),
        ("Straße", "DIE STRASSE DORT", "STRASSE"),
        ("Café", "the Cafe\u0301 here", "Café"),
        ("Caf", "the Cafe\u0301 and caf\u0301", None),
        ("東京", "私は東京都に住む", "東京"),
        ("Google", "Googleは会社です", "Google"),
        ("삼성", "삼성은 회사", "삼성"),
        ("Москва", "МОСКВА, Россия", "МОСКВА"),
        ("Москв", "Москва", None),
        ("Azure", "Azure²", "Azure"),
        ("Müller", "Herr Mueller", None),
        ("a" * 500, "a", None),
    ],
)
def test_where_a_name_occurs(name: str, text: str, found: str | None) -> None:
    assert FoldedText(text).find(name) == found


def test_a_version_may_stand_behind_its_v() -> None:
    assert FoldedText("since v4.2").find("4.2", version=True) == "4.2"
    assert FoldedText("dev4.2").find("4.2", version=True) is None
    assert FoldedText("v4.2.1").find("4.2", version=True) is None


@given(st.text(max_size=30), st.text(max_size=8))
def test_what_is_found_stands_in_the_text_and_is_the_name(text: str, name: str) -> None:
    found = FoldedText(text).find(name)
    if found is not None:
        assert FoldedText(text).find(found) == found
        assert name_key(found) == name_key(name) or "'" in name or "\u2019" in name


@given(
    st.text(st.characters(categories=["Lu", "Ll", "Nd"]), min_size=1, max_size=10),
    st.text(max_size=20),
    st.text(max_size=20),
)
def test_a_word_between_blanks_is_found(word: str, before: str, after: str) -> None:
    text = f"{before} {word} {after}"
    for spelling in (word, word.upper(), word.casefold()):
        if spelling.casefold() == word.casefold():
            assert FoldedText(text).find(spelling) is not None


@given(st.text("abcdefg", min_size=1, max_size=6), st.text("abcdefg", min_size=1, max_size=6))
def test_a_part_of_a_word_is_not_found(part: str, rest: str) -> None:
    text = FoldedText(f"x {part}{rest} {rest}{part} {rest}{part}{rest} y")
    if part not in {part + rest, rest + part, rest + part + rest}:
        assert text.find(part) is None
