"""Whatever is shown is escaped, encodable, of bearable size, and stands on its line."""

from __future__ import annotations

import html
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nbrag.rendering import clip, clip_start, format_number, plain, render_table

HOSTILE = [
    "<script>alert(1)</script>",
    "</td></tr></table><img src=x onerror=alert(1)>",
    '"><b onclick="x">',
    "</summary></details><style>*{display:none}</style>",
    "| a | b |\n|---|---|",
    "![x](javascript:alert(1)) [y](javascript:alert(2)) `code` $x$",
    "&lt;script&gt;",
    "👩\u200d👩\u200d👧 e\u0301 漢字",
    "שלום \u202eevil\u2066",
    "\ud800 half \udfff",
    "\x00\x1b[31mred\x1b[0m\r\n\u2028\u2029\ufeff",
    " " * 5000 + "late",
    "x" * 1_000_000,
]
TEXTS = st.one_of(
    st.text(st.characters(codec=None, exclude_categories=()), max_size=200),
    st.sampled_from(HOSTILE),
)
#: What a table may be made of; anything else came out of a cell.
OWN_TAGS = {
    "table", "caption", "thead", "tbody", "tr", "th", "td", "details", "summary", "div",
}  # fmt: skip
OWN_ATTRIBUTES = {"style", "scope", "role", "dir"}


class Tags(HTMLParser):
    """Collects what a browser would see as markup, and whether it is balanced."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.styles: set[str | None] = set()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.open.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def parsed(source: str) -> Tags:
    tags = Tags()
    tags.feed(source)
    tags.close()
    assert tags.open == []
    return tags


def assert_harmless(rendering: dict[str, str]) -> None:
    """Check all three forms of a rendering of hostile text."""
    for form in rendering.values():
        form.encode("utf-8")
        assert not set(form) & {"\x00", "\x1b", "\r", "\u202e", "\u2066", "\ufeff"}
    tags = parsed(rendering["text/html"])
    assert tags.tags <= OWN_TAGS
    assert tags.attributes <= OWN_ATTRIBUTES


@given(caption=TEXTS, cell=TEXTS, detail=TEXTS, note=TEXTS)
@example(*HOSTILE[:4])
@example(*HOSTILE[9:13])
def test_hostile_text_stays_text(caption, cell, detail, note):
    rendering = render_table(
        caption, ["a", "b"], [[1, cell], [None, "x"]], details=[detail, ""], notes=[note]
    )
    assert_harmless(rendering)
    lines = rendering["text/plain"].split("\n")
    assert len(lines) == 1 + 2 + 2 + 1
    assert lines[-1].startswith("!")
    table = [line for line in rendering["text/markdown"].split("\n") if line.startswith("|")]
    assert len(table) == 2 + 2
    assert {line.replace("\\|", "").count("|") for line in table} == {3}


@pytest.mark.parametrize("text", HOSTILE[:6])
def test_markdown_escapes_what_would_be_markup(text):
    cell = render_table("c", ["a"], [[text]], width=500)["text/markdown"].split("\n")[-1]
    bare = cell.strip("| ").replace("\\\\", "")
    for character in "<>[]`$*_|":
        assert bare.count(character) == bare.count("\\" + character)


def test_the_text_itself_can_be_read_back_from_html():
    text = "a < b & 'c' \"d\"\n\n<i>e</i>"
    rendering = render_table("c", ["text"], [[text]], details=[text])
    assert text in "".join(parsed(rendering["text/html"]).text)
    assert html.escape(text) in rendering["text/html"]


def test_a_huge_text_does_not_make_a_huge_notebook():
    huge = "word " * 200_000
    rendering = render_table(huge, ["a", "b"], [[huge, huge]], details=[huge], notes=[huge])
    assert sum(map(len, rendering.values())) < 60_000
    assert "980,000 more characters" in rendering["text/html"]


def test_clip_says_that_something_is_missing():
    assert clip("one  two\nthree", 20) == "one two three"
    assert clip("one two three", 8) == "one two…"
    assert clip("a" + " " * 100 + "b", 10) == "a…"
    assert clip(" " * 500 + "late", 10) == "late"
    assert clip("abc   ", 3) == "abc"


def test_paths_keep_their_end():
    assert clip_start("handbook/operations/backup.md", 12) == "…s/backup.md"
    assert clip_start("backup.md", 12) == "backup.md"
    table = render_table("c", ["a", "b"], [["x/" * 20 + "end.md"] * 2], width=10, paths=["a"])
    assert table["text/plain"].split("\n")[-1] == "…/x/end.md  x/x/x/x/x…"


@given(text=TEXTS, width=st.integers(1, 80), cut=st.sampled_from([clip, clip_start]))
def test_clip_keeps_one_line_within_the_width(text, width, cut):
    clipped = cut(text, width)
    assert len(clipped) <= width
    assert clipped.splitlines() in ([], [clipped])


def test_numbers_have_four_places_and_stand_to_the_right():
    assert format_number(0.5) == "0.5000"
    assert format_number(None) == ""
    assert format_number(True) == "yes"
    assert format_number(12) == "12"
    text = render_table("c", ["score", "name"], [[0.5, "a"], [12.25, "b"]])["text/plain"]
    assert text == "c\n  score  name\n-------  ----\n 0.5000  a\n12.2500  b"


def test_wide_characters_are_counted_as_terminals_do():
    lines = render_table("c", ["a", "b"], [["漢字", 1], ["e\u0301f", 2]])["text/plain"].split("\n")
    assert lines[3:] == ["漢字  1", "e\u0301f    2"]


def test_a_table_without_rows_is_its_caption_and_notes():
    rendering = render_table("nothing", ["a"], [], notes=["why"])
    assert rendering["text/plain"] == "nothing\n! why"
    assert "<thead>" not in rendering["text/html"]


def test_plain_replaces_what_cannot_be_encoded():
    assert plain("a\ud800b\x07c\u202ed") == "a\ufffdbcd"
