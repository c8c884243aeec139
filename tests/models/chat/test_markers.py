"""Numbers in an answer's text, and its sentences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrag.models.chat.markers import (
    Statement,
    cited_numbers,
    known_markers,
    statements,
    without_markers,
)


@pytest.mark.parametrize(
    ("text", "clean", "unknown"),
    [
        ("It is so [1].", "It is so [1].", ()),
        ("It is so [1, 2; 9].", "It is so [1][2].", (9,)),
        ("It is so [passage 2 and 3].", "It is so [2][3].", ()),
        ("It is so【1†source】.", "It is so[1].", ()),
        ("It is so [8][9].", "It is so.", (8, 9)),
        ("Call `items[0]` here [2].", "Call `items[0]` here [2].", ()),
        ("```\na[7]\n``` and [7].", "```\na[7]\n``` and.", (7,)),
        ("A [link](x) and [note].", "A [link](x) and [note].", ()),
    ],
)
def test_markers_are_made_alike_and_unknown_ones_go(text, clean, unknown) -> None:
    assert known_markers(text, {1, 2, 3}) == (clean, unknown)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("One is here [1]. Two is there [2].", [("One is here.", (1,)), ("Two is there.", (2,))]),
        ("One is here. [1] Two is there. [2]", [("One is here.", (1,)), ("Two is there.", (2,))]),
        (
            "These are kept:\n- logs [1]\n- mails [2]",
            [("These are kept: - logs", (1,)), ("- mails", (2,))],
        ),
        ("Yes. It is kept [1].", [("Yes. It is kept.", (1,))]),
        ("It is 3.5 days, e.g. four [1].", [("It is 3.5 days, e.g. four.", (1,))]),
        ("這是真的[1]。那也是[2]。", [("這是真的。", (1,)), ("那也是。", (2,))]),
        ("Paris", [("Paris", ())]),
        ("It is kept.\n[1]\n[2]", [("It is kept.", (1, 2))]),
        ("[1]\nIt is kept.", [("It is kept.", (1,))]),
        ("", []),
    ],
)
def test_statements_have_their_numbers(text, parts) -> None:
    assert statements(text) == [Statement(*part) for part in parts]


@given(st.text(alphabet="ab [].,12\n【】`;", max_size=60))
def test_no_number_is_lost_or_invented(text: str) -> None:
    clean, unknown = known_markers(text, {1})
    assert cited_numbers(clean) in {(), (1,)}
    assert set(cited_numbers(text)) == set(unknown) | set(cited_numbers(clean))
    assert set(cited_numbers(without_markers(clean))) == set() or "[" in clean
