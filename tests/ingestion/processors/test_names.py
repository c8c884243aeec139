"""Names: where they occur, and which spellings are one."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import nbrag
from nbrag.ingestion.processors._names import FoldedText, NameTable, name_key
from nbrag.stores.memory import MemoryCollection
from nbrag.testing import HashEmbedder
from nbrag.workspace import Workspace


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Azure", "AZURE"),
        ("Node.js", "NodeJS"),
        ("Entra ID", "Entra-ID"),
        ("Entra\u00a0ID", "entra  id"),
        ("GitHub", "Git Hub"),
        ("Lantern Quay's", "Lantern Quay"),
        ("Lantern Quay\u2019s", "lantern quay"),
        ("Systems'", "Systems"),
        ("“Azure”", "Azure"),
        ("Azure™", "azure"),
        ("Straße", "STRASSE"),
        ("Ａｚｕｒｅ", "Azure"),
        ("Cafe\u0301", "Café"),
        ("東京 タワー", "東京タワー"),
        ("4,2", "4.2"),
    ],
)
def test_spellings_of_one_name(one: str, other: str) -> None:
    assert name_key(one) == name_key(other) != ""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("C", "C++"),
        ("C", "C#"),
        ("1.2", "12"),
        ("Python 3.11", "Python 3.1.1"),
        ("4 2", "42"),
        ("Azure", "Azur"),
        ("Systems", "System"),
        ("東京", "京都"),
        ("4.2+", "4.2"),
    ],
)
def test_names_that_differ(one: str, other: str) -> None:
    assert name_key(one) != name_key(other)
    assert name_key(one, version=True) != name_key(other, version=True)


@pytest.mark.parametrize("spelling", ["v4.2", "V 4.2", "version 4.2", "Ver. 4.2", "4.2"])
def test_the_v_is_no_part_of_a_version(spelling: str) -> None:
    assert name_key(spelling, version=True) == "4.2"


def test_the_v_is_part_of_other_names() -> None:
    assert name_key("V8") == "v8"
    assert name_key("vSphere", version=True) == "vsphere"


@pytest.mark.parametrize("nothing", ["", "  ", "...", "'s", "™", "+", "“”", "—"])
def test_names_without_letters_have_no_key(nothing: str) -> None:
    assert name_key(nothing) == ""
    assert NameTable().spelling(nothing) == ""
    assert FoldedText("a ... 's ™ + “” — b").find(nothing) is None


@given(st.text(max_size=20))
def test_a_key_is_its_own_key_and_ignores_case_and_frames(name: str) -> None:
    key = name_key(name)
    assert name_key(name.casefold()) == key
    assert name_key(f" ({name}), ") in {key, name_key(name.strip("'\"`"))} or "'" in name
    assert not re.search(r"\s", key)


@given(st.text("aZé京1.- '+#v", max_size=12))
def test_a_key_is_stable(name: str) -> None:
    for version in (False, True):
        key = name_key(name, version=version)
        assume(not key.startswith(("v", "ver")))
        assert name_key(key, version=version) == key


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


def test_the_first_spelling_stays() -> None:
    table = NameTable()
    assert table.distinct(["NodeJS", "Node.js", "azure", "AZURE's", "Azure"]) == ["NodeJS", "azure"]
    assert NameTable(["Node.js"]).spelling("NODE JS") == "Node.js"
    assert NameTable().spelling("Azure's") == "Azure"
    versions = NameTable(version=True)
    assert versions.distinct(["v4.2", "4.2", "4.2.0"]) == ["v4.2", "4.2.0"]


def test_aliases_stand_for_their_name() -> None:
    table = NameTable(["kubernetes"], aliases={"K8s": "Kubernetes", "PG": "PostgreSQL"})
    assert table.distinct(["k8s", "Kubernetes", "pg", "postgresql"]) == ["kubernetes", "PostgreSQL"]


async def test_spellings_come_from_the_collection() -> None:
    embedder = HashEmbedder()
    memory = MemoryCollection("docs", embedder.identity)
    records = [{"id": "a", "text": "x", "entities_tools": ["POSTGRES", "Azure"]}]
    with Workspace(embedder=embedder) as workspace:
        await workspace.ingestion_pipeline().build().run(records, memory)
        await workspace.ingestion_pipeline().build().run(records, workspace.collection("docs"))
        for collection in (memory, workspace["docs"]):
            table = NameTable()
            await table.learn_field(collection, "entities_tools")
            await table.learn_field(collection, "entities_unknown")
            assert table.distinct(["azure", "Postgres"]) == ["Azure", "POSTGRES"]


def test_a_collection_without_the_field_teaches_nothing() -> None:
    table = NameTable()
    memory = MemoryCollection("docs", HashEmbedder().identity)
    nbrag.run(table.learn_field(memory, "entities_people"))
    assert table.spelling("ada") == "ada"
