"""Spellings of names: which are one, and filters that may use any of them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nbrag.ingestion.processors._names import FoldedText
from nbrag.protocols import Collection
from nbrag.stores.filters import Contains, parse_filter
from nbrag.stores.names import NameTable, in_stored_spelling, name_key
from nbrag.types import MetadataKeys

from .store_samples import STORES, ids, opened, plan, random_vectors, sample

TOOLS = MetadataKeys.ENTITIES_TECHNOLOGIES
VERSIONS = MetadataKeys.ENTITIES_VERSIONS


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


def test_asking_for_a_spelling_teaches_nothing() -> None:
    table = NameTable(["Kubernetes"], aliases={"k8s": "kubernetes", "pg": "PostgreSQL"})
    assert table.known("KUBERNETES") == table.known("K8s") == "Kubernetes"
    assert [table.known(name) for name in ("pg", "AZURE", "...")] == ["PostgreSQL", "AZURE", "..."]
    assert table.spelling("Azure") == "Azure"


def test_only_names_in_filters_are_changed() -> None:
    asked: list[str] = []

    def table_of(field: str) -> NameTable:
        asked.append(field)
        return NameTable.of_field(field, ["Azure", "4.2"])

    text = (
        'not ("AZURE" in entities_technologies and page >= 3) or "v4.2" in entities_versions'
        ' or "AZURE" in tags or entities_x == "AZURE"'
    )
    changed = in_stored_spelling(parse_filter(text), table_of)
    assert str(changed) == (
        'not ("Azure" in entities_technologies and page >= 3) or "4.2" in entities_versions'
        ' or "AZURE" in tags or entities_x == "AZURE"'
    )
    assert asked == [TOOLS, VERSIONS]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def filled(collection: Collection) -> list[str]:
    """Write three chunks with names; return their ids."""
    document, chunks, vectors = sample("a.md", ["tide one", "tide two", "tide three"])
    names = [["Azure", "Kubernetes"], ["PostgreSQL"], []]
    versions = [["4.2"], ["v4.3"], []]
    chunks = [
        replace(chunk, metadata={TOOLS: tools, VERSIONS: found})
        for chunk, tools, found in zip(chunks, names, versions, strict=True)
    ]
    await collection.writer().write_document(document, chunks, vectors, settings_hash="s")
    return [chunk.id for chunk in chunks]


async def hits(collection: Collection, where: str) -> list[str]:
    asked = plan("tide", random_vectors(1, 7)[0], where=parse_filter(where))
    return sorted(ids(await collection.search(asked), "keyword"))


async def test_a_filter_finds_all_spellings(store: str, tmp_path: Path) -> None:
    with opened(store, tmp_path) as collection:
        first, second, third = await filled(collection)
        for spelling in ("Azure", "AZURE", "azure's", "kubernetes"):
            assert await hits(collection, f'"{spelling}" in {TOOLS}') == [first]
        assert await hits(collection, f'"V4.2" in {VERSIONS}') == [first]
        assert await hits(collection, f'"4.3" in {VERSIONS}') == [second]
        assert await hits(collection, f'"Azur" in {TOOLS}') == []
        assert await hits(collection, f'not ("AZURE" in {TOOLS})') == sorted([second, third])
        assert await collection.original_ids(where=f'"postgresql" in {TOOLS}') == [second]


async def test_aliases_are_kept_and_read_by_filters(store: str, tmp_path: Path) -> None:
    with opened(store, tmp_path) as collection:
        first, second, _ = await filled(collection)
        assert await collection.aliases() == {}
        # A filter that was asked before must not be remembered with its old meaning.
        assert await hits(collection, f'"PG" in {TOOLS}') == []
        await collection.add_aliases({TOOLS: {"k8s": "Kubernetes", "pg": "kubernetes"}})
        await collection.add_aliases({TOOLS: {"pg": "PostgreSQL"}, VERSIONS: {"autumn": "4.3"}})
        assert await hits(collection, f'"K8S" in {TOOLS}') == [first]
        assert await hits(collection, f'"PG" in {TOOLS}') == [second]
        assert await hits(collection, f'"autumn" in {VERSIONS}') == [second]
    if store not in ("memory", "duckdb"):
        with opened(store, tmp_path) as collection:
            assert await collection.aliases() == {
                TOOLS: {"k8s": "Kubernetes", "pg": "PostgreSQL"},
                VERSIONS: {"autumn": "4.3"},
            }
            assert await hits(collection, f'"pg" in {TOOLS}') == [second]


@given(st.text(max_size=10), st.text(max_size=10))
def test_a_name_never_becomes_another_without_an_alias(stored: str, asked: str) -> None:
    table = NameTable([stored])
    assert name_key(table.known(asked)) == name_key(asked)
    assert isinstance(Contains(TOOLS, asked).value, str)
