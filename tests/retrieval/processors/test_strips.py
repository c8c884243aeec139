"""Strips: exact stretches of the text, of bounded length, and nothing lost between them."""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from nbrag.models.chat.passages import word_spans
from nbrag.retrieval.processors._strips import recomposed, split_strips
from nbrag.types import RetrievalChunk, Span

TEXTS = st.text(st.sampled_from("ab Z.!? \n。文\t'\"é"), max_size=400) | st.lists(
    st.sampled_from(
        [
            "One two three.",
            "# Head",
            "Dr. No said so!",
            "\n\n",
            "word " * 60,
            "- item here",
            "文字。",
        ]
    ),
    max_size=8,
).map(" ".join)


@given(TEXTS)
def test_strips_are_disjoint_stretches_in_order_without_blanks_around(text: str) -> None:
    strips = split_strips(text)
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(strips))
    for start, end in strips:
        strip = text[start:end]
        assert strip
        assert strip == strip.strip()
        assert len(word_spans(strip)) <= 50


@given(TEXTS)
def test_every_word_is_in_a_strip_unless_strips_are_dropped(text: str) -> None:
    strips = split_strips(text, fewest=1)
    for start, end in word_spans(text):
        assert any(first <= start and end <= last for first, last in strips)
    assert (strips == []) == (text.strip() == "")


@given(TEXTS)
def test_strips_of_less_than_four_words_are_left_out_unless_there_are_no_others(text: str) -> None:
    lengths = [len(word_spans(text[start:end])) for start, end in split_strips(text)]
    assert all(n >= 4 for n in lengths) or all(n < 4 for n in lengths)
    assert bool(lengths) == bool(text.strip())


def test_three_sentences_make_a_strip_and_a_blank_line_ends_it() -> None:
    text = (
        "Setup\n\nStop the server first. Copy the file, e.g. by hand. Wait for Dr. A. Smith. "
        "Start it again then.\n\nAfter that look at the log."
    )
    assert [text[a:b] for a, b in split_strips(text)] == [
        "Stop the server first. Copy the file, e.g. by hand. Wait for Dr. A. Smith.",
        "Start it again then.",
        "After that look at the log.",
    ]


@given(TEXTS, st.data())
def test_what_is_put_together_stands_in_the_text_in_its_order(
    text: str, data: st.DataObject
) -> None:
    strips = split_strips(text)
    if not strips:
        return
    kept = data.draw(st.lists(st.sampled_from(strips), unique=True, min_size=1))
    chunk = RetrievalChunk("1", "d", text, 1.0, {"a": 1}, None, Span(100, 100 + len(text), 3))
    whole = recomposed(chunk, kept)
    assert whole.content.split(" [...] ") == [
        part for part in whole.content.split(" [...] ") if part in text
    ]
    assert whole.span is not None
    assert whole.record["strip_spans"] == [(100 + a, 100 + b) for a, b in sorted(kept)]
    assert whole.span == Span(100 + min(kept)[0], 100 + max(kept)[1], 3)
    if " [...] " not in whole.content:
        assert whole.content == text[whole.span.start - 100 : whole.span.end - 100]


def test_a_text_that_is_not_the_documents_gets_no_spans() -> None:
    chunk = RetrievalChunk("1", "d", "One two three four. Five.", 1.0, {}, None, Span(0, 5))
    whole = recomposed(chunk, [(0, 19)])
    assert (whole.content, whole.span, whole.record) == ("One two three four.", Span(0, 5), {})
    assert recomposed(RetrievalChunk("1", "d", "One two.", 1.0), [(0, 8)]).span is None


def test_what_was_put_together_before_keeps_its_places() -> None:
    text = "One two three four. Gap Five six seven eight."
    chunk = RetrievalChunk("1", "d", text, 1.0, {}, None, Span(0, len(text)))
    once = recomposed(chunk, [(0, 19), (24, 45)])
    # The mark is as long as what it stands for, so that lengths say nothing.
    again = recomposed(replace(once, span=Span(0, len(once.content))), [(26, 47)])
    assert again.content in text
    assert again.record == once.record
