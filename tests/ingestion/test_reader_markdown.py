"""Markdown and its front matter."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrag.errors import EmptyDocument
from nbrag.ingestion.readers import MarkdownReader
from nbrag.ingestion.readers.assembly import has_text
from nbrag.ingestion.readers.front_matter import split_front_matter


def read(text: str | bytes, name: str = "guide.md"):
    data = text.encode() if isinstance(text, str) else text
    return MarkdownReader().read(data, uri=f"docs/{name}", name=name)


def blocks(document):
    return [(b.kind, document.text[b.start : b.end]) for b in document.blocks]


def headings(document):
    return [(b.level, b.title) for b in document.blocks if b.kind == "heading"]


def test_byte_order_mark_does_not_hide_the_first_heading():
    document = read(b"\xef\xbb\xbf# Foo\n\ntext")
    assert headings(document) == [(1, "Foo")]
    assert document.text == "# Foo\n\ntext"


def test_heading_at_the_end_without_line_break_owns_its_line():
    document = read("text\n# End")
    assert blocks(document) == [("paragraph", "text"), ("heading", "# End")]


def test_only_line_feeds_end_lines():
    document = read("one\u2028# no\x0c# no\x85# no\n# Yes\n")
    assert headings(document) == [(1, "Yes")]
    assert blocks(document)[0][1] == "one\u2028# no\x0c# no\x85# no"


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_all_line_breaks_of_files_are_read(newline):
    document = read(newline.join(["# A", "", "one", "", "## B", "", "two"]))
    assert headings(document) == [(1, "A"), (2, "B")]
    assert "\r" not in document.text


@pytest.mark.parametrize(
    "fence", ["~~~py\n# no\n~~~", "```\n# no\n```", "````\n```\n# no\n```\n````", "```\n# no"]
)
def test_fences_hide_headings(fence):
    document = read(f"# Real\n\n{fence}\n")
    assert blocks(document) == [("heading", "# Real"), ("code", fence)]


def test_headings_lose_their_markup_and_anchors():
    document = read(
        "# *First* `steps` { #first-steps }\n\nSetext [link](x)\n===\n\n### Seven ###\n"
    )
    assert headings(document) == [(1, "First steps"), (1, "Setext link"), (3, "Seven")]
    assert document.title == "First steps"


def test_seven_signs_are_no_heading():
    assert headings(read("####### seven\n\n###### six")) == [(6, "six")]


def test_headings_within_quotes_and_lists_are_not_sections():
    document = read("> # quoted\n\n- # item\n")
    assert [kind for kind, _ in blocks(document)] == ["paragraph", "list"]


def test_kinds_of_blocks():
    text = "para\n\n- a\n- b\n\n1. c\n\n    code\n\n| h | i |\n|---|---|\n| 1 | 2 |\n"
    text += "\n***\n\n<b>x</b>\n"
    document = read(text)
    kinds = [kind for kind, _ in blocks(document)]
    assert kinds == ["paragraph", "list", "list", "table", "paragraph"]
    table = document.blocks[3]
    assert table.header == "| h | i |"
    assert document.text[table.start : table.end].endswith("| 1 | 2 |")


def test_definitions_and_footnotes_are_kept_and_pictures_are_not():
    document = read(
        "See [a].\n\n[a]: https://example.org/a\n\n[^1]: A note.\n\n"
        f"[image1]: <data:image/png;base64,{'QUJD' * 400}>\n"
    )
    text = " ".join(text for _, text in blocks(document))
    assert "https://example.org/a" in text
    assert "A note." in text
    assert "base64" not in text


def test_comments_and_scripts_are_no_text():
    document = read("a\n\n<!-- hidden -->\n\n<style>\np { }\n</style>\n\nb\n")
    assert [text for _, text in blocks(document)] == ["a", "b"]


def test_mdx_imports_are_left_out():
    text = "import Tabs from '@theme/Tabs';\nexport const x = 1\n\n# A\n\nimport duties are high\n"
    assert (
        blocks(read(text, "page.mdx"))
        == [
            ("heading", "# A"),
            ("paragraph", "import duties are high"),
        ]
        or next(kind for kind, _ in blocks(read(text, "page.mdx"))) == "heading"
    )
    assert blocks(read(text, "page.md"))[0][0] == "paragraph"


def test_front_matter_becomes_typed_fields_and_title():
    document = read(
        "---\ntitle: My Guide\ntags: [a, b]\nversion: 3\nratio: 0.5\ndraft: true\n"
        "date: 2024-05-01\nauthor:\n  name: Ann\n  team-id: 7\nempty:\nlang: de\n"
        "Odd Key!: x\n---\n# Heading\n\nbody\n"
    )
    assert document.title == "My Guide"
    assert document.metadata == {
        "tags": ["a", "b"],
        "version": 3,
        "ratio": 0.5,
        "draft": True,
        "date": "2024-05-01",
        "author_name": "Ann",
        "author_team_id": 7,
        "language": "de",
        "odd_key": "x",
    }
    assert blocks(document) == [("heading", "# Heading"), ("paragraph", "body")]


def test_front_matter_in_toml():
    document = read('+++\ntitle = "T"\nweight = 2\n+++\nbody\n')
    assert (document.title, document.metadata) == ("T", {"weight": 2})


def test_impossible_dates_become_text():
    assert read("---\ndate: 2024-13-45\n---\nx").metadata == {"date": "2024-13-45"}


def test_broken_front_matter_is_kept_as_text_with_a_note():
    document = read("---\ntitle: [unclosed\nother: x\n---\n\nbody\n")
    assert "front matter not read" in str(document.metadata["reading_warning"])
    assert "unclosed" in " ".join(text for _, text in blocks(document))


@pytest.mark.parametrize("text", ["---\nnot a mapping\n---\n\nbody", "---\n\nbody\n\n---\n\nmore"])
def test_rules_are_no_front_matter(text):
    document = read(text)
    assert "reading_warning" not in document.metadata
    assert "body" in " ".join(text for _, text in blocks(document))


def test_aliases_can_not_make_front_matter_explode():
    bomb = "a: &a [x, x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(20)
    )
    front = split_front_matter(f"---\n{bomb}---\nbody")
    assert not front.fields
    assert "aliases" in front.note


@pytest.mark.parametrize("deep", ["a: " + "[" * 5000, "a: " + "{" * 5000, "- " * 5000 + "a: b"])
def test_deep_front_matter_takes_no_time(deep):
    begun = time.perf_counter()
    front = split_front_matter(f"---\n{deep}\n---\nbody")
    assert not front.fields
    assert "too deeply" in front.note
    assert time.perf_counter() - begun < 5


@pytest.mark.parametrize("text", ["", "  \n\u200b\n", "---\ntitle: Nothing\n---\n", "\ufeff"])
def test_nothing_but_front_matter_is_empty(text):
    with pytest.raises(EmptyDocument, match=r"docs/guide\.md"):
        read(text)


def test_title_falls_back_to_the_file_name():
    assert read("just text", "release-notes.md").title == "release-notes"


LINES = st.sampled_from([
    "# a", "#", "## b {#c}", "text", "", "", "```", "~~~", "- x", "  - y", "1. z", "> q", "---",
    "===", "| a | b |", "|---|---|", "<div>", "</div>", "<!-- c", "-->", "    code", "[a]: b",
    "\u2028x", "x\x0cy", "\t", "***", "+++", "title: x", "<script>", "\\", "![i](u)", "👍🏽",
])  # fmt: skip


@given(st.lists(LINES, max_size=30).map("\n".join))
def test_blocks_are_ordered_and_hold_all_text(text):
    try:
        document = read(text)
    except EmptyDocument:
        return
    end = 0
    for block in document.blocks:
        assert end <= block.start < block.end <= len(document.text)
        assert has_text(document.text[block.start : block.end])
        gap = document.text[end : block.start]
        end = block.end
        # Between blocks stand only rules, front matter, comments, scripts and tags.
        assert not any(word in gap.split() for word in ("text", "code", "- x", "👍🏽")) or (
            "<" in gap or "---" in gap or "+++" in gap
        )
