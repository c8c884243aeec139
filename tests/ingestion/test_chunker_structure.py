"""The default chunker: what holds for every text, and how it treats structure."""

from __future__ import annotations

import itertools
import time

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from nbrag.errors import ConfigurationError
from nbrag.ingestion.chunkers import FixedChunker, StructureChunker
from nbrag.ingestion.readers import MarkdownReader
from nbrag.ingestion.readers.assembly import has_text
from nbrag.types import Block, Document

#: Letters that break cutters: clusters, joiners, marks, controls, wide and right-to-left ones.
NASTY = st.sampled_from([
    *"ab .,!?\n\n#|-*`~>\t", "\r\n", "  ", "\n\n", "# ", "## H\n\n", "- ", "```\n", "| a | b |\n",
    "e\u0301", "\u0301", "\u200d", "\u200b", "\ufeff", "\u2028", "\x0c", "\x85", "\xa0",
    "👩\u200d👩\u200d👧\u200d👦", "🇫🇷", "🇩", "👍🏽", "한", "\u1112\u1161\u11ab", "文", "。", "क्षि",
    "ש\u05c1",
    "\u202e", "𝒳", "ﷺ", "word", "Sentence one. ", "longerword" * 5, "\ufffd", "\u0600", "مرحبا ",
])  # fmt: skip
TEXTS = st.lists(NASTY, max_size=120).map("".join)


def markdown(text: str) -> Document:
    return MarkdownReader().read(text.encode(), uri="notes/a.md", name="a.md")


def clusters(text: str) -> set[int]:
    return {0, *(match.end() for match in regex.finditer(r"\X", text))}


def check(document, chunks, counter, max_tokens, *, headings_may_be_context):
    """Assert what must hold for the chunks of any document."""
    text = document.text
    borders = clusters(text)
    covered = bytearray(len(text))
    exact = counter.count_tokens([chunk.embedding_text for chunk in chunks])
    for ordinal, chunk in enumerate(chunks):
        start, end = chunk.span.start, chunk.span.end
        assert chunk.content == text[start:end]
        assert has_text(chunk.content)
        assert chunk.ordinal == ordinal
        assert chunk.document_id == document.id
        assert chunk.token_count == exact[ordinal] <= max_tokens
        for place in (start, end):
            # White space at an end is left out even behind a sign that would cling to it.
            if place in borders or (place == end and text[end].isspace()):
                continue
            # Only a cluster that is over the limit by itself may be cut.
            first, last = max(b for b in borders if b < place), min(b for b in borders if b > place)
            embedded = f"{chunk.context}\n{text[first:last]}" if chunk.context else text[first:last]
            assert counter.count_tokens([embedded])[0] > max_tokens
        covered[start:end] = b"\x01" * (end - start)
    assert len({chunk.id for chunk in chunks}) == len(chunks)
    spans = [(chunk.span.start, chunk.span.end) for chunk in chunks]
    assert spans == sorted(spans)
    for block in document.blocks:
        if (
            block.kind == "heading"
            and headings_may_be_context
            and any(
                block.title in (*c.heading_path, c.content) or block.title in c.context
                for c in chunks
            )
        ):
            continue
        lost = [
            letter
            for offset, letter in enumerate(text[block.start : block.end], block.start)
            if not covered[offset] and has_text(letter)
        ]
        assert not lost


@pytest.mark.parametrize("max_tokens", [16, 40, 200])
@pytest.mark.parametrize("overlap", [0, 7])
@settings(max_examples=300)
@given(text=TEXTS)
def test_invariants_of_markdown(counter, max_tokens, overlap, text):
    blocks = (Block("paragraph", 0, len(text)),) if text.strip() else ()
    try:
        document = markdown(text)
    except Exception:  # noqa: BLE001 - nothing in it: take it as one block
        document = Document("notes/a.md", text, blocks=blocks)
    chunker = StructureChunker(counter, max_tokens, overlap)
    chunks = chunker.chunk(document)
    check(document, chunks, counter, max_tokens, headings_may_be_context=True)
    assert chunks == chunker.chunk(document)


@settings(max_examples=300)
@given(text=TEXTS, title=TEXTS, context=st.booleans())
def test_invariants_of_plain_documents(counter, text, title, context):
    document = Document("a", text, title=title)
    chunks = StructureChunker(counter, 24, 6, include_context=context).chunk(document)
    check(document, chunks, counter, 24, headings_may_be_context=context)
    assert bool(chunks) == has_text(text)


@settings(max_examples=300)
@given(text=TEXTS)
def test_invariants_of_fixed_windows(counter, text):
    document = Document("a", text)
    chunks = FixedChunker(counter, 24, 6).chunk(document)
    check(document, chunks, counter, 24, headings_may_be_context=False)
    assert bool(chunks) == has_text(text)


def test_heading_path_is_context_and_not_content(model_counter):
    document = markdown("# Guide\n\n## Backups {#b}\n\n### EU *region*\n\nKept 35 days.\n")
    (chunk,) = StructureChunker(model_counter).chunk(document)
    assert chunk.content == "Kept 35 days."
    assert chunk.heading_path == ("Guide", "Backups", "EU region")
    assert chunk.context == "Guide > Backups > EU region"
    assert chunk.embedding_text == "Guide > Backups > EU region\nKept 35 days."


def test_document_title_comes_before_the_headings(model_counter):
    document = markdown("---\ntitle: Handbook\n---\n# Backups\n\nKept.\n")
    (chunk,) = StructureChunker(model_counter).chunk(document)
    assert chunk.context == "Handbook > Backups"


def test_heading_at_the_end_of_the_file_is_content(model_counter):
    chunks = StructureChunker(model_counter).chunk(markdown("text\n# End"))
    assert [chunk.content for chunk in chunks] == ["text", "# End"]
    assert chunks[1].heading_path == ("End",)


def test_without_context_headings_are_content(model_counter):
    chunker = StructureChunker(model_counter, include_context=False)
    chunks = chunker.chunk(markdown("# A\n\nbody\n\n## B\n\nmore\n"))
    assert [chunk.embedding_text for chunk in chunks] == ["# A\n\nbody", "## B\n\nmore"]


def test_sections_are_not_mixed_and_blocks_of_one_are(model_counter):
    chunks = StructureChunker(model_counter).chunk(markdown("# A\n\none\n\ntwo\n\n# B\n\nthree\n"))
    assert [chunk.content for chunk in chunks] == ["one\n\ntwo", "three"]


@pytest.mark.parametrize(
    "fence", ["~~~py\n# not a heading\nx = 1\n~~~", "```\n# no\n", "````\n```\n# no\n````"]
)
def test_fences_hide_headings(model_counter, fence):
    chunks = StructureChunker(model_counter).chunk(markdown(f"# Real\n\n{fence}"))
    assert [chunk.heading_path for chunk in chunks] == [("Real",)]
    assert chunks[0].content == fence.rstrip()


def test_long_prose_is_cut_at_sentences(model_counter):
    text = " ".join(f"This is sentence number {n} of a long paragraph." for n in range(60))
    chunks = StructureChunker(model_counter, 64).chunk(Document("a", text))
    assert len(chunks) > 5
    assert all(chunk.content.endswith("paragraph.") for chunk in chunks)
    assert all(chunk.content.startswith("This is") for chunk in chunks)


def test_abbreviations_and_numbers_do_not_end_sentences(model_counter):
    text = "We met Dr. Smith, e.g. on No. 5 Elm St. Then version 3.11 came out. " * 20
    for chunk in StructureChunker(model_counter, 48).chunk(Document("a", text)):
        assert not chunk.content.endswith(("Dr.", "e.g.", "No.", "3."))


def test_chinese_is_cut_at_its_own_full_stops(model_counter):
    chunks = StructureChunker(model_counter, 64).chunk(Document("a", "备份保存三十五天。" * 60))
    assert len(chunks) > 3
    assert all(chunk.content.endswith("。") for chunk in chunks)


def test_code_is_cut_between_lines(model_counter):
    code = "\n".join(f"    value_{n} = compute(value_{n - 1}, {n})" for n in range(80))
    chunks = StructureChunker(model_counter, 100).chunk(
        markdown(f"# C\n\n```python\n{code}\n```\n")
    )
    assert len(chunks) > 3
    for chunk in chunks[1:]:
        assert chunk.content.startswith(("    value_", "```"))


def test_table_pieces_carry_the_header(model_counter):
    rows = "\n".join(f"| item {n} | {n * 7} | shelf {n % 5} |" for n in range(60))
    table = f"| name | price | place |\n|---|---|---|\n{rows}\n"
    chunks = StructureChunker(model_counter, 128).chunk(markdown(f"# Stock\n\n{table}"))
    assert len(chunks) > 3
    assert chunks[0].context == "Stock"
    assert all(c.context == "Stock\n| name | price | place |" for c in chunks[1:])
    assert all(chunk.content.startswith("| item") for chunk in chunks[1:])


def test_huge_header_leaves_half_of_the_room(model_counter):
    header = "| " + " | ".join(f"column{n}" for n in range(300)) + " |"
    rows = "\n".join("| " + " | ".join(str(n) for _ in range(300)) + " |" for n in range(3))
    document = markdown(f"# T\n\n{header}\n|{'---|' * 300}\n{rows}\n")
    chunks = StructureChunker(model_counter, 128).chunk(document)
    contexts = model_counter.count_tokens([chunk.context for chunk in chunks])
    assert max(contexts) <= 128 // 2 + 2
    assert max(chunk.token_count for chunk in chunks) <= 128


def test_long_headings_lose_their_outer_parts_first(model_counter):
    outer = "outer " * 200
    document = markdown(f"# {outer}\n\n## Inner\n\nbody text here\n")
    chunks = StructureChunker(model_counter, 64).chunk(document)
    assert chunks[-1].content == "body text here"
    assert chunks[-1].context.endswith("Inner")
    assert "outer outer" in "".join(chunk.content for chunk in chunks[:-1])


def test_a_sentence_that_just_fits_is_a_chunk_of_its_own(counter):
    sentence = "Aaaa bbbb cccc dddd eeee ffff gggg."
    exact = max(16, counter.count_tokens([sentence])[0])
    document = Document("a", f"{sentence} Hhhh iiii jjjj kkkk llll mmmm nnnn.")
    first = StructureChunker(counter, exact, min_tokens=0).chunk(document)[0]
    assert first.token_count <= exact
    if exact > 16 and counter.count_tokens([document.text])[0] - 2 > exact:
        assert first.content in (sentence, sentence[: len(first.content)])


def test_overlap_repeats_whole_words_within_a_section_only(model_counter):
    words = " ".join(f"word{n}" for n in range(300))
    document = markdown(f"# A\n\n{words}\n\n# B\n\n{words}\n")
    chunks = StructureChunker(model_counter, 64, 16).chunk(document)
    sections = [[c for c in chunks if c.heading_path == (name,)] for name in "AB"]
    for section in sections:
        assert len(section) > 5
        assert section[0].content.startswith("word0 ")
        for before, after in itertools.pairwise(section):
            assert before.span.start < after.span.start < before.span.end < after.span.end
            assert document.text[after.span.start - 1].isspace()
    assert sections[1][0].span.start > sections[0][-1].span.end


def test_offsets_are_never_negative_with_overlap(counter):
    text = "one two three four five six seven eight nine ten " * 8
    for chunk in StructureChunker(counter, 20, 5).chunk(Document("a", text)):
        assert chunk.span.start >= 0
        assert chunk.content == text[chunk.span.start : chunk.span.end]


def test_tiny_end_is_joined_where_it_fits(model_counter):
    text = "\n".join(f"| row {n} | {n} |" for n in range(21))
    chunks = StructureChunker(model_counter, 64, min_tokens=16).chunk(
        markdown(f"| a | b |\n|---|---|\n{text}\n")
    )
    counts = [model_counter.count_tokens([chunk.content])[0] - 2 for chunk in chunks]
    assert min(counts) >= 16


def test_ids_stay_when_an_earlier_part_changes(model_counter):
    tail = "\n\n## B\n\nThe second part stays.\n\n## C\n\nThe third one too.\n"
    before = StructureChunker(model_counter).chunk(markdown("# A\n\nFirst." + tail))
    after = StructureChunker(model_counter).chunk(markdown("# A\n\nFirst, much longer now." + tail))
    assert [c.id for c in before[1:]] == [c.id for c in after[1:]]
    assert before[0].id != after[0].id


def test_equal_pieces_have_different_ids(model_counter):
    chunks = StructureChunker(model_counter).chunk(
        markdown("# A\n\n## B\n\nsame\n\n## B\n\nsame\n")
    )
    assert chunks[0].embedding_text == chunks[1].embedding_text
    assert chunks[0].id != chunks[1].id


def test_page_is_that_of_the_first_character(model_counter):
    text = "One on page one.\n\nTwo on page two.\n\n" + "Three on page three. " * 40
    starts = [0, text.index("Two"), text.index("Three")]
    ends = [16, text.index("Two") + 16, len(text.rstrip())]
    blocks = tuple(
        Block("paragraph", start, end, page=page)
        for page, (start, end) in enumerate(zip(starts, ends, strict=True), 1)
    )
    chunks = StructureChunker(model_counter, 32).chunk(Document("a", text, blocks=blocks))
    for chunk in chunks:
        page = 1 + sum(chunk.span.start >= start for start in starts[1:])
        assert chunk.span.page == page
    assert {chunk.span.page for chunk in chunks} >= {1, 3}


def test_rows_stand_alone_unless_they_are_tiny(model_counter):
    long = "question: How long are backups kept in the region? answer: They are kept 35 days."
    text = f"a: 1\n\na: 2\n\n{long}\n\n{long}"
    blocks, offset = [], 0
    for part in text.split("\n\n"):
        blocks.append(Block("row", offset, offset + len(part)))
        offset += len(part) + 2
    chunks = StructureChunker(model_counter, min_tokens=8).chunk(
        Document("a", text, blocks=tuple(blocks))
    )
    assert [c.content for c in chunks] == ["a: 1\n\na: 2", long, long]


def test_text_between_blocks_is_not_pulled_in(model_counter):
    document = markdown("before\n\n<!-- secret comment -->\n\nafter\n")
    chunks = StructureChunker(model_counter).chunk(document)
    assert [chunk.content for chunk in chunks] == ["before", "after"]


def test_metadata_does_not_count(model_counter):
    document = Document("a", "short text", metadata={"note": "long " * 2000})
    (chunk,) = StructureChunker(model_counter, 32).chunk(document)
    assert chunk.embedding_text == "short text"


@pytest.mark.parametrize(
    "text", ["x" * 200_000, "a b" * 350_000, "文" * 200_000, " " * 300_000 + "x"]
)
def test_long_lines_are_cut_in_linear_time(model_counter, text):
    begun = time.perf_counter()
    chunks = StructureChunker(model_counter).chunk(Document("a", text))
    assert time.perf_counter() - begun < 20
    assert max(chunk.token_count for chunk in chunks) <= 256
    assert max(len(chunk.content) for chunk in chunks) <= 256 * 12
    assert sum(len("".join(c.content.split())) for c in chunks) == len("".join(text.split()))


def test_emoji_families_are_not_torn(model_counter):
    family = "👩\u200d👩\u200d👧\u200d👦"
    for chunk in StructureChunker(model_counter, 16, 4).chunk(Document("a", family * 400)):
        assert set(regex.findall(r"\X", chunk.content)) == {family}


@pytest.mark.parametrize(
    "settings",
    [
        {"max_tokens": 15},
        {"overlap_tokens": -1},
        {"max_tokens": 64, "overlap_tokens": 33},
        {"max_tokens": 64, "min_tokens": 17},
    ],
)
def test_limits_that_leave_no_room_are_refused(model_counter, settings):
    with pytest.raises(ConfigurationError):
        StructureChunker(model_counter, **settings)


def test_settings_tell_chunkers_apart(model_counter):
    assert StructureChunker(model_counter, 64).settings != StructureChunker(model_counter).settings
    assert FixedChunker(model_counter, 64).settings == {"max_tokens": 64, "overlap_tokens": 0}


@pytest.mark.parametrize(
    "piece", [".", "!", ". ", "e\u0301", "🇫", "👩\u200d", "\u0600", "```", "# "]
)
def test_monotonous_text_takes_linear_time(model_counter, piece):
    text = "x" + piece * (60_000 // len(piece))
    begun = time.perf_counter()
    StructureChunker(model_counter, 256, 20).chunk(Document("a", text))
    assert time.perf_counter() - begun < 20


def test_a_cluster_of_any_length_is_within_the_limits(model_counter):
    text = "e" + "\u0301" * 50_000
    chunks = StructureChunker(model_counter).chunk(Document("a", text))
    assert max(len(chunk.content) for chunk in chunks) <= 256 * 12
    assert sum(len(chunk.content) for chunk in chunks) == len(text)
