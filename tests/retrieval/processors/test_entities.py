"""Which entities a question names, and the filter for them."""

from __future__ import annotations

import pytest

from nbrag.retrieval.processors._entities import Entity, EntityIndex, entity_filter, names_in
from nbrag.stores.filters import parse_filter


def test_the_filter_of_several_entities_parses_back() -> None:
    entities = [Entity("a", 'say "x"', True), Entity("b", "y", False), Entity("a", "z", True)]
    made = entity_filter(entities)
    assert parse_filter(str(made)) == made
    assert made.evaluate({"a": ["z"]})
    assert made.evaluate({"b": "y"})
    assert not made.evaluate({"a": ["y"], "b": "yy"})


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("azure functions in Go?", ["Azure Functions", "Go"]),
        ("where do I go for azure help, is it IT", ["Azure", "IT"]),
        ("postgre sql tuning", ["PostgreSQL"]),
        ("AzureFunctions", ["Azure Functions"]),
        ("東京タワーの高さは", ["東京タワー"]),
        ("keep 3 backups of version 12", []),
        ("what changed in 1.2?", ["1.2"]),
        ("C++ or C#", ["C#"]),
        ("concerning azures", []),
        ("", []),
    ],
)
def test_known_names_are_found_in_questions(question: str, found: list[str]) -> None:
    names = ["Azure", "Azure Functions", "Go", "IT", "PostgreSQL", "東京", "東京タワー", "3", "1.2"]
    index = EntityIndex([Entity("f", name, True) for name in [*names, "C#", "—"]])
    assert index.occurring(question) == found


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("Who is Ada Lovelace?", ["Ada Lovelace"]),
        ("Wie lange werden Backups in der Region aufbewahrt?", []),
        ("How Long is it?", []),
        ('what does "the big one" cost', ["the big one"]),
        ("was heißt „Große Lösung“ hier", ["Große Lösung"]),
        ("「東京」とは", ["東京"]),
        ("is NB-4031 fixed on GitHub", ["NB-4031", "GitHub"]),
        ("in 2019 and 2020", []),
    ],
)
def test_what_looks_like_a_name(question: str, found: list[str]) -> None:
    assert names_in(question) == found


@pytest.mark.parametrize(
    ("name", "question", "linked"),
    [
        ("Ostara", "die Verfügbarkeit Ostaras", True),
        ("Lumen-Cloud", "what is LumenCloud", True),
        ("the Lumen Cloud", "what is Lumen Cloud's price", True),
        ("Go", "how do I google it", False),
        ("Go", "is it written in go?", True),
        ("東京", "東京タワーの高さは", True),
        ("Ostara", "which products are there", False),
        ("Zephyr", "what is Zephyr", False),
    ],
)
def test_names_are_linked_where_the_question_holds_them(
    name: str, question: str, linked: bool
) -> None:
    known = ["Ostara", "Lumen Cloud", "Go", "東京"]
    index = EntityIndex([Entity("f", value, True) for value in known])
    found, unknown = index.link([name, "", "?!"], question)
    assert bool(found) is linked
    assert unknown == ([] if linked else [name])
