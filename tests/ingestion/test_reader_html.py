"""Web pages."""

from __future__ import annotations

import pytest

from nbrag.errors import EmptyDocument, UnsupportedFormat
from nbrag.ingestion.readers import HtmlReader


def read(page: str | bytes):
    data = page.encode() if isinstance(page, str) else page
    return HtmlReader().read(data, uri="site/page.html", name="page.html")


def blocks(document):
    return [(b.kind, document.text[b.start : b.end]) for b in document.blocks]


PAGE = """<!doctype html><html lang="de"><head><title>Site | Page</title>
<meta name="description" content="About backups"><meta name="keywords" content="a, b">
<meta property="article:published_time" content="2024-05-01">
<style>p {color: red}</style><script>var text = "<p>script</p>";</script></head><body>
<header><a href="/">Home</a><a href="/x">Products</a></header><nav><ul><li>Nav</li></ul></nav>
<main><h1>Backups</h1><p>Kept <b>35</b> days<br>in the&nbsp;EU.</p><h2>Rates</h2>
<table><tr><th>Region</th><th>Price</th></tr><tr><td>EU</td><td>5</td></tr></table>
<ul><li>one</li><li>two<ol><li>nested</li></ol></li></ul><pre>  keep
    indent</pre><aside><a href="#">Table of contents</a></aside>
<div hidden>hidden</div><p style="display: none">invisible</p><button>Click</button></main>
<footer>Imprint</footer></body></html>"""


def test_main_text_as_blocks():
    document = read(PAGE)
    assert blocks(document) == [
        ("heading", "Backups"),
        ("paragraph", "Kept 35 days\nin the EU."),
        ("heading", "Rates"),
        ("table", "Region | Price\nEU | 5"),
        ("list", "- one\n- two\n  1. nested"),
        ("code", "  keep\n    indent"),
    ]
    assert [b.level for b in document.blocks if b.kind == "heading"] == [1, 2]
    assert document.blocks[3].header == "Region | Price"


def test_title_and_fields():
    document = read(PAGE)
    assert document.title == "Backups"
    assert document.metadata == {
        "description": "About backups",
        "keywords": ["a", "b"],
        "date": "2024-05-01",
        "language": "de",
    }


def test_page_title_where_there_is_no_single_first_heading():
    assert read("<title>Site</title><h1>A</h1><h1>B</h1>").title == "Site"
    assert read("<p>text").title == "page"


def test_broken_markup_and_entities():
    document = read(
        "<p>5 &lt; 6 &amp;&amp; 7 &gt; 3 &mdash; caf&eacute; &#x1F600;<p>unclosed "
        "<b>bold <i>both</p><!-- c --><template>tpl</template>"
        "<table><tr><td>a<td>b<tr><td>c<td>d</table>"
    )
    assert blocks(document) == [
        ("paragraph", "5 < 6 && 7 > 3 \u2014 café 😀"),
        ("paragraph", "unclosed bold both"),
        ("table", "a | b\nc | d"),
    ]


def test_layout_tables_are_not_tables():
    document = read("<table><tr><td><h2>A</h2><p>one</p><table><tr><td>x<td>y</table></table>")
    assert [kind for kind, _ in blocks(document)] == ["heading", "paragraph", "table"]


def test_header_with_the_headline_stays():
    document = read("<article><header><h1>News</h1><a href=x>share</a></header><p>text</article>")
    assert blocks(document)[0] == ("heading", "News")


def test_long_lists_of_bare_links_are_navigation():
    links = "".join(f"<li><a href='/{n}'>Language {n}</a></li>" for n in range(30))
    assert blocks(read(f"<body><ul>{links}</ul><p>text</p></body>")) == [("paragraph", "text")]


def test_small_main_does_not_hide_the_text():
    document = read(f"<body><main>tiny</main><div><p>{'real text ' * 50}</p></div></body>")
    assert "real text" in document.text


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("<meta charset=windows-1251><p>Привет, мир</p>".encode("cp1251"), "Привет, мир"),
        ('<?xml version="1.0" encoding="iso-8859-1"?><p>\xe9t\xe9</p>'.encode("latin-1"), "été"),
        ("<meta charset=latin1><p>déjà 文</p>".encode(), "déjà 文"),
        ("<p>Grüße</p>".encode("utf-16"), "Grüße"),
    ],
)
def test_encodings(data, expected):
    assert read(data).text == expected


@pytest.mark.parametrize(
    "page", ["", "<html></html>", "<body><script>x()</script></body>", "<!-- -->"]
)
def test_pages_without_text_are_empty(page):
    with pytest.raises(EmptyDocument):
        read(page)


def test_binary_data_are_refused():
    with pytest.raises(UnsupportedFormat):
        read(bytes(range(256)) * 8)


def test_hostile_depth_does_not_crash():
    with pytest.raises(EmptyDocument):
        read("<div>" * 50_000)
    document = read("<ul><li>" * 200 + "deep" + "</ul>" * 200)
    assert "deep" in document.text


@pytest.mark.data
def test_real_pages(data_folder):
    folder = data_folder / "docs" / "html"
    page = HtmlReader().read(
        (folder / "what-is-haystack.html").read_bytes(), uri="h", name="h.html"
    )
    assert page.title == "What is Haystack?"
    assert page.text.startswith("What is Haystack?\n\nHaystack is the open source")
    assert "cookie" not in page.text.lower()
    wiki = HtmlReader().read(
        (folder / "wikipedia-microsoft.html").read_bytes(), uri="m", name="m.html"
    )
    assert wiki.title == "Microsoft"
    assert "Founders | Bill Gates Paul Allen" in wiki.text
    assert "Jump to content" not in wiki.text
    assert "[edit]" not in wiki.text
    template = (folder / "flask-template.html").read_bytes()
    assert len(HtmlReader().read(template, uri="f", name="f.html").text) < 400
