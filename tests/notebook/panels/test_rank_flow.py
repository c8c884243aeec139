"""The picture of how candidates moved, and the same in words."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from nbrag.notebook.panels.rank_flow import rank_flow
from nbrag.tracing import Trace
from nbrag.types import RankedItem, RankedList, RetrievalChunk


def chunk(name: str, score: float = 1.0) -> RetrievalChunk:
    return RetrievalChunk(name, f"d{name}", "text", score, {"source": f"docs/{name}.md"})


def trace(*stages: tuple[str, str], legs: str = "") -> Trace:
    made = Trace("what?", "docs")
    if legs:
        items = tuple(RankedItem(name, 1.0) for name in legs)
        made.note_lists([RankedList("vector", 0, 1.0, items)])
    for name, chunks in stages:
        made.note_chunks(name, [chunk(c) for c in chunks])
    return made


def drawn(made: Trace) -> ET.Element:
    flow = rank_flow(made, "A, plain")
    assert flow is not None
    svg = re.match(r"<svg.*?</svg>", flow["text/html"], re.DOTALL)
    assert svg is not None
    return ET.fromstring(svg.group())


def test_lifted_lower_added_and_dropped_are_signs_and_words() -> None:
    flow = rank_flow(trace(("search", "abc"), ("rerank", "cae")), "A, plain")
    assert flow is not None
    svg = drawn(trace(("search", "abc"), ("rerank", "cae")))
    texts = [element.text for element in svg.iter("text")]
    assert texts.count("▲") == texts.count("▼") == texts.count("+") == texts.count("\u00d7") == 1
    assert svg.get("role") == "img"
    assert svg.get("aria-label") == svg.findtext("title") == "Rank flow of A, plain"
    told = svg.findtext("desc") or ""
    assert told == ("Stages: search then rerank. rerank: 1 lifted, 1 added, 1 dropped.")
    assert len(list(svg.iter("path"))) == 2
    assert "<summary>Ranks of A, plain as a table</summary><table" in flow["text/html"]
    assert "docs/c.md" in flow["text/plain"]


def test_legs_show_only_what_the_search_took_over() -> None:
    svg = drawn(trace(("search", "b"), ("result", "b"), legs="abc"))
    titles = [element.text for element in svg.iter("title")]
    assert titles.count("2: docs/b.md") == 1
    assert not any("a.md" in (title or "") for title in titles)


def test_long_rankings_are_cut_and_hostile_names_escaped() -> None:
    made = Trace("what?", "docs")
    many = [chunk(f"{number}</svg><script>") for number in range(40)]
    made.note_chunks("search", many)
    made.note_chunks("<b>", many[::-1])
    flow = rank_flow(made, "</svg>")
    assert flow is not None
    assert "<script" not in flow["text/html"]
    svg = drawn(made)
    boxes = list(svg.iter("rect"))
    assert len(boxes) == 20
    assert "http" not in flow["text/html"]


def test_a_run_that_ranked_nothing_has_no_picture() -> None:
    assert rank_flow(None, "A") is None
    assert rank_flow(Trace("what?", "docs"), "A") is None
    assert rank_flow(trace(("search", "")), "A") is None
