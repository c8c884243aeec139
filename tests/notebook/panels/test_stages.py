"""Editing a list of stages, and the control that each option gets."""

from __future__ import annotations

from typing import Any, Literal

import ipywidgets
import pytest
from pydantic import Field

from nbrag.errors import SpecificationError
from nbrag.notebook.panels.option_controls import NOT_GIVEN, bounds_text, option_control
from nbrag.notebook.panels.stages_actions import look_at_models
from nbrag.notebook.panels.stages_state import StageListState
from nbrag.spec import PipelineSpec, StageOptions, stage_definitions
from nbrag.testing import ScriptedChatClient


class Options(StageOptions):
    """One option of each kind."""

    whole: int = Field(default=5, ge=1, le=10_000, description="a whole number")
    real: float = Field(default=0.5, ge=0, le=1)
    open_end: int = Field(default=3, ge=0)
    plain: float = 1.5
    maybe: int | None = Field(default=None, ge=1)
    word: str | None = None
    limit: int | None = 10
    model: Literal["llm"] | str = "llm"  # noqa: PYI051 - stages declare known names so
    needed: str = Field(description="needed")
    truth: bool = True
    maybe_true: bool | None = None
    pick: Literal["a", "b"] = "a"
    pick_or_none: Literal["a", "b"] | None = None
    items: tuple[str, ...] = ("x", "y")
    some: tuple[Literal["a", "b", "c"], ...] = ("a",)


FIELDS = Options.model_fields


@pytest.mark.parametrize(
    ("name", "kind", "shown", "typed", "read"),
    [
        ("whole", ipywidgets.BoundedIntText, 5, 7, 7),
        ("real", ipywidgets.BoundedFloatText, 0.5, 0.25, 0.25),
        ("open_end", ipywidgets.BoundedIntText, 3, 5_000_000, 5_000_000),
        ("plain", ipywidgets.FloatText, 1.5, -2.5, -2.5),
        ("maybe", ipywidgets.Text, "", " 12 ", 12),
        ("maybe", ipywidgets.Text, "", "twelve", "twelve"),
        ("maybe", ipywidgets.Text, "", "  ", None),
        ("limit", ipywidgets.Text, "10", "", None),
        ("needed", ipywidgets.Text, "", " ", NOT_GIVEN),
        ("model", ipywidgets.Combobox, "llm", "owner/name", "owner/name"),
        ("word", ipywidgets.Text, "", "German", "German"),
        ("needed", ipywidgets.Text, "", "page > 1", "page > 1"),
        ("truth", ipywidgets.Checkbox, True, False, False),
        ("maybe_true", ipywidgets.Dropdown, None, False, False),
        ("pick", ipywidgets.Dropdown, "a", "b", "b"),
        ("pick_or_none", ipywidgets.Dropdown, None, "b", "b"),
        ("items", ipywidgets.Textarea, "x\ny", "one, two\n\n three ", ("one, two", "three")),
        ("some", ipywidgets.SelectMultiple, ("a",), ("a", "c"), ("a", "c")),
    ],
)
def test_each_option_has_a_fitting_control(
    name: str, kind: Any, shown: Any, typed: Any, read: Any
) -> None:
    info = FIELDS[name]
    made = option_control(name, info, None if info.is_required() else info.default)
    assert type(made.control) is kind
    assert made.control.description == name
    assert made.control.value == shown
    made.control.value = typed
    assert made.read(made.control.value) == read
    if isinstance(typed, str) and typed != read:
        typed = {"items": "one, two\nthree"}.get(name, typed.strip())
    assert made.write(read) == typed


def test_bounds_are_in_the_control_and_in_words() -> None:
    made = option_control("whole", FIELDS["whole"], 5)
    assert (made.control.min, made.control.max) == (1, 10_000)
    assert bounds_text(FIELDS["whole"]) == "1 to 10,000"
    assert bounds_text(FIELDS["open_end"]) == "0 or more"
    assert bounds_text(FIELDS["word"]) == ""


@pytest.mark.parametrize("kind", ["retrieval", "ingestion"])
def test_every_stage_there_is_has_controls_that_show_its_defaults(kind: Any) -> None:
    for definition in stage_definitions(kind).values():
        for name, info in definition.options.model_fields.items():
            default = None if info.is_required() else info.default
            made = option_control(name, info, default)
            if not info.is_required():
                given = made.read(made.control.value)
                assert (default if given is NOT_GIVEN else given) == default, (
                    definition.name,
                    name,
                )


def test_stages_are_added_in_their_place_moved_switched_and_removed() -> None:
    state = StageListState("retrieval")
    for name in ("mmr", "search", "filter", "neighbours"):
        state.add(name)
    assert [e.name for e in state.stages] == ["filter", "search", "mmr", "neighbours"]
    assert state.entry().name == "neighbours"  # type: ignore[union-attr]
    state.move(-1)
    assert [e.name for e in state.stages][2:] == ["neighbours", "mmr"]
    state.move(-9)
    state.move(1)
    assert [e.name for e in state.stages][:2] == ["filter", "neighbours"]
    state.switch()
    assert state.label(state.entry()) == "2. neighbours (off)"  # type: ignore[arg-type]
    state.remove()
    assert [e.name for e in state.stages] == ["filter", "search", "mmr"]
    assert state.entry().name == "search"  # type: ignore[union-attr]
    with pytest.raises(SpecificationError, match="'search' stands there already"):
        state.add("search")


def test_what_does_not_fit_is_kept_and_told_in_the_stage_s_own_words() -> None:
    state = StageListState("retrieval")
    state.add("filter")
    problem = state.entry().problem("retrieval")  # type: ignore[union-attr]
    assert problem is not None
    assert problem.key == "where"
    assert state.label(state.stages[0]) == "1. filter (check its options)"
    state.set_option("where", "page >")
    with pytest.raises(SpecificationError) as told:
        state.spec()
    with pytest.raises(SpecificationError) as written:
        PipelineSpec.from_body("retrieval", 'filter where="page >"')
    assert str(written.value) == f"line 1: {told.value}"
    state.switch()
    assert state.spec().stages == ()
    state.switch()
    state.set_option("where", "page > 1")
    assert state.spec().to_body() == 'filter  where="page > 1"\n'


def test_a_pipeline_is_taken_over_whole() -> None:
    text = "filter  where=\"team == 'x'\"\nsearch  mode=keyword  candidates=7\nmmr\n"
    spec = PipelineSpec.from_body("retrieval", text, name="mine")
    state = StageListState("retrieval")
    state.load(spec)
    assert state.spec() == spec
    with pytest.raises(SpecificationError, match="not for retrieval"):
        state.load(PipelineSpec("ingestion", "docs"))
    with pytest.raises(SpecificationError, match="an object"):
        state.load(spec.with_processor(object(), "result"))
    assert state.spec() == spec
    with pytest.raises(SpecificationError, match="no stage is chosen"):
        StageListState("retrieval").move(1)


async def test_missing_models_are_found_without_asking_anything(workspace: Any) -> None:
    state = StageListState("retrieval")
    state.add("hyde")
    state.add("search")
    hyde, search = state.stages
    found = await look_at_models("retrieval", state.stages, workspace.context)
    assert "none is configured" in found.missing[hyde.number][0]
    assert found.missing[hyde.number][1].startswith("Hint: %rag_config model=")
    assert found.missing["expand"] == found.missing[hyde.number]
    assert {search.number, "search", "mmr"}.isdisjoint(found.missing)
    client = ScriptedChatClient([])
    workspace.use_chat(client)
    found = await look_at_models("retrieval", state.stages, workspace.context)
    assert {hyde.number, "expand", "hyde", "crag"}.isdisjoint(found.missing)
    assert found.asking == {hyde.number}
    assert client.calls == []
