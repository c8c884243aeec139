"""The one specification and its views."""

from __future__ import annotations

import string
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

import nbrag.spec
from nbrag.errors import SpecificationError
from nbrag.spec import (
    PipelineSpec,
    SpecBuilder,
    StageDefinition,
    StageOptions,
    register_stage,
    unregister_stage,
)
from nbrag.spec.grammar import format_stage, parse_stages


class ToyOptions(StageOptions):
    count: int = Field(3, ge=1, le=10, description="how many, 1 to 10")
    share: float = 0.5
    text: str = ""
    limit: int | None = None
    loud: bool = False
    mode: Literal["fast", "exact"] = "fast"
    words: tuple[str, ...] = ()


class NeedyOptions(StageOptions):
    path: str = Field(description="a file")


@pytest.fixture(scope="module", autouse=True)
def _toy_stages() -> Iterator[None]:
    nbrag.spec.register_stage(
        StageDefinition(
            "toy", "retrieval", "query", ToyOptions, lambda o, _c: o, "use_toy", "A toy."
        )
    )
    nbrag.spec.register_stage(
        StageDefinition(
            "needy",
            "retrieval",
            "search",
            NeedyOptions,
            lambda o, _c: o,
            "use_needy",
            "Needy.",
            True,
        )
    )
    yield
    nbrag.spec.unregister_stage("retrieval", "toy")
    nbrag.spec.unregister_stage("retrieval", "needy")


NASTY = string.ascii_letters + string.digits + " \t\n\"'\\#,=${}é文\u2028-"
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "count": st.integers(1, 10),
        "share": st.floats(allow_nan=False, allow_infinity=False),
        "text": st.text(NASTY),
        "limit": st.none() | st.integers(),
        "loud": st.booleans(),
        "mode": st.sampled_from(["fast", "exact"]),
        "words": st.lists(st.text(NASTY), min_size=1).map(tuple),
    },
)
NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,8}", fullmatch=True)


@given(st.lists(OPTIONS, max_size=4), NAMES, st.none() | NAMES)
def test_cell_dict_json_and_builder_are_one(
    stages: list[dict[str, Any]], name: str, collection: str | None
) -> None:
    builder = SpecBuilder(PipelineSpec("retrieval", name, collection=collection))
    for options in stages:
        builder = builder.use_toy(**options)
    spec = builder.spec
    assert PipelineSpec.from_cell(spec.to_cell()) == spec
    assert PipelineSpec.from_dict(spec.to_dict()) == spec
    assert PipelineSpec.from_json(spec.to_json()) == spec


@given(st.lists(OPTIONS, max_size=3))
def test_generated_python_builds_the_same(stages: list[dict[str, Any]]) -> None:
    spec = PipelineSpec("retrieval", "p")
    for options in stages:
        spec = spec.with_stage("toy", **options)
    source = spec.to_python(database="x.duckdb")
    compile(source, "<generated>", "exec")
    chain = source.split("pipeline = (\n")[1].split(")\n", maxsplit=source.count(")\n"))
    built: list[PipelineSpec] = []

    class FakeBuilder(SpecBuilder):
        def build(self) -> None:
            built.append(self.spec)

    class FakeWorkspace:
        def __init__(self, path: str) -> None:
            assert path == "x.duckdb"

        def retrieval_pipeline(self, name: str) -> FakeBuilder:
            return FakeBuilder(PipelineSpec("retrieval", name))

    assert chain
    body = source.replace("import nbrag\n", "").replace("nbrag.Workspace", "FakeWorkspace")
    exec(body, {"FakeWorkspace": FakeWorkspace})
    assert built == [spec]


@given(st.text(string.printable + "é文"))
def test_any_text_parses_or_says_where(text: str) -> None:
    line: int | None = 1
    try:
        parse_stages(text)
    except SpecificationError as error:
        line = error.line
    assert line is not None


@pytest.mark.parametrize(
    ("body", "line", "stage", "key", "words"),
    [
        ("\n# c\ntoi count=2", 3, "toi", None, "did you mean 'toy'"),
        ("toy coutn=2", 1, "toy", "coutn", "did you mean 'count'"),
        ("toy count=99", 1, "toy", "count", "1 to 10"),
        ("toy count=", 1, "toy", "count", "no value"),
        ("toy count=a,b", 1, "toy", "count", "takes one value"),
        ('toy text="open', 1, "toy", "text", "closing quote"),
        ("toy mode=fats", 1, "toy", "mode", "did you mean 'fast'"),
        ("toy count=1 count=2", 1, "toy", "count", "twice"),
        ("toy count", 1, "toy", None, "key=value"),
        ("needy", 1, "needy", "path", "required"),
        ("needy path=a\nneedy path=b", 2, "needy", None, "twice"),
        ("count=3", 1, None, None, "stage name"),
    ],
)
def test_errors_name_line_stage_and_key(
    body: str, line: int, stage: str | None, key: str | None, words: str
) -> None:
    with pytest.raises(SpecificationError) as caught:
        PipelineSpec.from_body("retrieval", body)
    assert (caught.value.line, caught.value.stage, caught.value.key) == (line, stage, key)
    assert words in str(caught.value)


def test_comments_blank_lines_and_continuations() -> None:
    spec = PipelineSpec.from_body(
        "retrieval", '# first\n\n  toy  count=4 \\\n   text="a # b"  # why\n'
    )
    assert spec.stages[0].changed_options() == {"count": 4, "text": "a # b"}


def test_cell_columns_and_magic_line() -> None:
    spec = PipelineSpec("retrieval", "support", collection="docs").with_stage("toy", count=4)
    spec = spec.with_stage("needy", path="a b")
    assert spec.to_cell() == '%%rag_pipeline support -c docs\ntoy    count=4\nneedy  path="a b"\n'


def test_header_passes_over_run_options() -> None:
    spec = PipelineSpec.from_cell("%%rag_ingest docs --from 'a b/' c.md --replace -o report\n")
    assert (spec.name, spec.sources) == ("docs", ("a b/", "c.md"))


def test_builder_method_has_help_and_a_near_name() -> None:
    builder = SpecBuilder(PipelineSpec("retrieval"))
    assert "count=whole number (default 3) how many" in (builder.use_toy.__doc__ or "")
    assert "use_toy" in dir(builder)
    with pytest.raises(AttributeError, match="did you mean 'use_toy'"):
        _ = builder.use_toi


def test_own_object_has_no_text_form() -> None:
    class Mine:
        name = "mine"

    spec = PipelineSpec("retrieval").with_processor(Mine(), "query")
    with pytest.raises(SpecificationError, match="'mine' is an object"):
        spec.to_cell()


def test_quotes_only_where_needed() -> None:
    assert format_stage("toy", {"a": "x", "b": "none", "c": None}) == 'toy  a=x  b="none"  c=none'


def test_no_value_is_written_and_read_also_where_the_default_is_one() -> None:
    class Bounded(StageOptions):
        window: int | None = Field(default=2, ge=1)

    register_stage(
        StageDefinition(
            name="bounded",
            kind="retrieval",
            role="result",
            options=Bounded,
            build=lambda _options, _context: None,
            method="use_bounded",
            summary="For this test.",
        )
    )
    try:
        spec = PipelineSpec("retrieval", "p").with_stage("bounded", window=None)
        assert "window=none" in spec.to_cell()
        assert PipelineSpec.from_cell(spec.to_cell()) == spec
    finally:
        unregister_stage("retrieval", "bounded")
