"""A pipeline as a list of stage specifications, and the views of it.

The text of a cell, a dict or JSON file, the fluent builder and the generated Python are views of
one :class:`PipelineSpec`; each converts to the others without loss.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from pydantic import ValidationError

from nbrag.errors import NbragError, SpecificationError, did_you_mean
from nbrag.spec.grammar import RawStage, format_stages, parse_stages
from nbrag.spec.stages import (
    PipelineKind,
    StageDefinition,
    StageOptions,
    allows_none,
    is_list_option,
    option_choices,
    stage_definition,
)

__all__ = ["PipelineSpec", "StageSpec", "make_stage"]

_MAGICS: dict[str, PipelineKind] = {"rag_pipeline": "retrieval", "rag_ingest": "ingestion"}
_FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class StageSpec:
    """One stage of a pipeline.

    Attributes
    ----------
    name
        The stage's name; for an own processor object, its class name.
    options
        Its checked options; None for an own processor object.
    processor
        An own processor object, which no text view can express.
    role
        The role of an own processor object; empty for a registered stage.
    """

    name: str
    options: StageOptions | None = None
    processor: Any = None
    role: str = ""

    def changed_options(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, in declaration order."""
        if self.options is None:
            return {}
        fields = type(self.options).model_fields
        return {
            name: getattr(self.options, name)
            for name, info in fields.items()
            if info.is_required()
            or getattr(self.options, name)
            != info.get_default(call_default_factory=True, validated_data={})
        }


def make_stage(
    kind: PipelineKind, name: str, options: Mapping[str, Any], *, line: int | None = None
) -> StageSpec:
    """Return a checked stage; errors name the line, the stage and the key.

    Raises
    ------
    SpecificationError
        For an unknown stage or option, or a value that the option does not take.
    """
    definition = stage_definition(kind, name, line=line)
    fields = definition.options.model_fields
    for key in options:
        if key not in fields:
            raise SpecificationError(
                f"stage '{name}' has no option '{key}'.",
                hint=did_you_mean(key, fields, what="options"),
                line=line,
                stage=name,
                key=key,
            )
    try:
        return StageSpec(name, definition.options(**options))
    except ValidationError as error:
        raise _explain(error, definition, line) from None
    except NbragError as error:
        # An option with a language of its own, such as a filter.
        raise SpecificationError(
            f"stage '{name}': {error.message}", hint=error.hint, line=line, stage=name
        ) from None


def _explain(
    error: ValidationError, definition: StageDefinition, line: int | None
) -> SpecificationError:
    """Turn pydantic's first complaint into one line."""
    first = error.errors(include_url=False)[0]
    said = first["msg"].removeprefix("Value error, ")
    key = str(first["loc"][0]) if first["loc"] else None
    if key is None:
        return SpecificationError(
            f"stage '{definition.name}': {said}.", line=line, stage=definition.name
        )
    info = definition.options.model_fields[key]
    choices = option_choices(info)
    given = first.get("input")
    if first["type"] == "missing":
        text, hint = f"option '{key}' is required", info.description or ""
    else:
        text = f"option '{key}': {given!r} is not accepted ({said[:1].lower()}{said[1:]})"
        hint = (
            did_you_mean(str(given), choices, what="values")
            if choices
            else (info.description or "")
        )
    return SpecificationError(
        f"stage '{definition.name}': {text}.",
        hint=hint,
        line=line,
        stage=definition.name,
        key=key,
    )


def _from_raw(kind: PipelineKind, raw: RawStage) -> StageSpec:
    """Give a written stage's values the shape that its options have."""
    fields = stage_definition(kind, raw.name, line=raw.line).options.model_fields
    options: dict[str, Any] = {}
    for key, values in raw.options.items():
        info = fields.get(key)
        bare = key not in raw.quoted
        if info is not None and bare and values == ("none",) and "none" not in _literals(info):
            options[key] = None if allows_none(info) else (() if is_list_option(info) else "none")
        elif info is not None and is_list_option(info):
            options[key] = values
        elif len(values) > 1:
            raise SpecificationError(
                f"stage '{raw.name}': option '{key}' takes one value, {len(values)} were given.",
                hint="put a value that holds commas in double quotes",
                line=raw.line,
                stage=raw.name,
                key=key,
            )
        else:
            options[key] = values[0]
    return make_stage(kind, raw.name, options, line=raw.line)


def _literals(info: Any) -> tuple[str, ...]:
    """Return the literal choices, without the "none" that stands for no value."""
    return () if allows_none(info) else option_choices(info)


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """A retrieval or ingestion pipeline, independent of any model or database.

    Attributes
    ----------
    kind
        ``retrieval`` or ``ingestion``.
    name
        The pipeline's name; for an ingestion, the collection that it fills.
    stages
        The stages in the order in which they are written.
    collection
        The collection that a retrieval pipeline searches when none is named.
    sources
        What an ingestion reads when nothing else is given: files, folders, globs, URLs.
    """

    kind: PipelineKind
    name: str = "pipeline"
    stages: tuple[StageSpec, ...] = ()
    collection: str | None = None
    sources: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        """Refuse a second stage of a kind that may stand only once."""
        seen: set[str] = set()
        answering = ""
        for stage in self.stages:
            if stage.options is None:
                continue
            definition = stage_definition(self.kind, stage.name)
            if definition.role == "answer" and answering not in ("", stage.name):
                raise SpecificationError(
                    f"stages '{answering}' and '{stage.name}' both answer.",
                    hint="keep one of them",
                    stage=stage.name,
                )
            answering = stage.name if definition.role == "answer" else answering
            if stage.name in seen and definition.single:
                raise SpecificationError(
                    f"stage '{stage.name}' stands twice.", hint="keep one of them", stage=stage.name
                )
            seen.add(stage.name)

    def with_stage(self, name: str, **options: Any) -> Self:
        """Return a copy with one more stage at the end."""
        return replace(self, stages=(*self.stages, make_stage(self.kind, name, options)))

    def with_processor(self, processor: Any, role: str) -> Self:
        """Return a copy with an own processor object as its last stage."""
        name = str(getattr(processor, "name", type(processor).__name__))
        stage = StageSpec(name, None, processor, role)
        return replace(self, stages=(*self.stages, stage))

    # The text of a cell ------------------------------------------------------------------

    @classmethod
    def from_body(
        cls,
        kind: PipelineKind,
        text: str,
        *,
        name: str = "pipeline",
        collection: str | None = None,
        sources: Sequence[str] = (),
        first_line: int = 1,
    ) -> Self:
        """Read a cell's body: one stage per line."""
        stages = []
        seen: dict[str, int] = {}
        for raw in parse_stages(text, first_line=first_line):
            if raw.name in seen and stage_definition(kind, raw.name, line=raw.line).single:
                raise SpecificationError(
                    f"stage '{raw.name}' stands twice, first in line {seen[raw.name]}.",
                    hint="keep one of them",
                    line=raw.line,
                    stage=raw.name,
                )
            seen.setdefault(raw.name, raw.line)
            stages.append(_from_raw(kind, raw))
        return cls(kind, name, tuple(stages), collection, tuple(sources))

    @classmethod
    def from_cell(cls, text: str) -> Self:
        """Read a whole cell, its magic line included.

        Options of the magic line that belong to one run and not to the pipeline (``-o NAME``,
        ``--replace`` and the like) are passed over.
        """
        text = text.lstrip("\n")
        header, _, body = text.partition("\n")
        words = shlex.split(header, posix=True) if header.startswith("%%") else []
        magic = words[0][2:] if words else ""
        if magic not in _MAGICS:
            raise SpecificationError(
                "the cell does not start with %%rag_pipeline or %%rag_ingest.",
                hint="for the stages alone use PipelineSpec.from_body",
                line=1,
            )
        name, collection, sources = _read_header(words[1:])
        return cls.from_body(
            _MAGICS[magic],
            body,
            name=name or "pipeline",
            collection=collection,
            sources=sources,
            first_line=2,
        )

    def to_body(self) -> str:
        """Return the stages as text, one per line."""
        self._require_registered()
        return format_stages([(stage.name, stage.changed_options()) for stage in self.stages])

    def to_cell(self, *, remove_missing: bool = False) -> str:
        """Return the whole cell, its magic line included.

        Parameters
        ----------
        remove_missing
            Whether an ingestion deletes documents that its sources no longer give.
        """
        if self.kind == "retrieval":
            header = f"%%rag_pipeline {shlex.quote(self.name)}"
            if self.collection:
                header += f" -c {shlex.quote(self.collection)}"
        else:
            header = f"%%rag_ingest {shlex.quote(self.name)}"
            if self.sources:
                header += " --from " + " ".join(shlex.quote(source) for source in self.sources)
            header += " --replace" if remove_missing else ""
        return f"{header}\n{self.to_body()}"

    # A dict, a file ----------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the pipeline as plain values for JSON."""
        self._require_registered()
        result: dict[str, Any] = {
            "nbrag": _FORMAT_VERSION,
            "kind": self.kind,
            "name": self.name,
            "stages": [
                {
                    "stage": stage.name,
                    **stage.options.model_dump(mode="json", exclude_defaults=True),
                }
                for stage in self.stages
                if stage.options is not None
            ],
        }
        if self.collection is not None:
            result["collection"] = self.collection
        if self.sources:
            result["sources"] = list(self.sources)
        return result

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_dict` gives."""
        known = {"nbrag", "kind", "name", "stages", "collection", "sources"}
        for key in data:
            if key not in known:
                raise SpecificationError(
                    f"a pipeline has no field '{key}'.", hint=did_you_mean(key, known)
                )
        if data.get("nbrag", _FORMAT_VERSION) > _FORMAT_VERSION:
            raise SpecificationError(
                "the pipeline was written by a newer nbrag.", hint="pip install --upgrade nbrag"
            )
        kind = next((k for k in _MAGICS.values() if k == data.get("kind")), None)
        if kind is None:
            raise SpecificationError(
                f"kind {data.get('kind')!r} is neither 'retrieval' nor 'ingestion'.", key="kind"
            )
        stages = []
        for entry in data.get("stages", ()):
            options = dict(entry)
            name = options.pop("stage", None)
            if not isinstance(name, str):
                raise SpecificationError(f"{entry!r} names no stage.", key="stage")
            stages.append(make_stage(kind, name, options))
        return cls(
            kind,
            str(data.get("name", "pipeline")),
            tuple(stages),
            data.get("collection"),
            tuple(data.get("sources", ())),
        )

    def to_json(self) -> str:
        """Return the pipeline as JSON text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what :meth:`to_json` gives."""
        try:
            data = json.loads(text)
        except ValueError as error:
            raise SpecificationError(f"not JSON: {error}.") from None
        if not isinstance(data, dict):
            raise SpecificationError("not a pipeline: the JSON text is not an object.")
        return cls.from_dict(data)

    # Python ------------------------------------------------------------------------------

    def to_python(
        self,
        *,
        database: str = ":memory:",
        embedder: str | None = None,
        remove_missing: bool = False,
    ) -> str:
        """Return a plain Python script that builds the same pipeline.

        Parameters
        ----------
        database
            Path of the workspace's file.
        embedder
            Name of the workspace's embedder; None for the built-in one.
        remove_missing
            Whether an ingestion deletes documents that its sources no longer give.
        """
        self._require_registered()
        chain = [f"    workspace.{self.kind}_pipeline({self.name!r})"]
        for stage in self.stages:
            method = stage_definition(self.kind, stage.name).method
            arguments = ", ".join(f"{k}={v!r}" for k, v in stage.changed_options().items())
            chain.append(f"    .{method}({arguments})")
        chain.append("    .build()")
        own = "" if embedder is None else f", embedder={embedder!r}"
        lines = [
            "import nbrag",
            "",
            f"workspace = nbrag.Workspace({database!r}{own})",
            "pipeline = (",
            *chain,
            ")",
        ]
        if self.kind == "ingestion" and self.sources:
            sources = ", ".join(repr(source) for source in self.sources)
            removing = ", remove_missing=True" if remove_missing else ""
            lines += [
                f"collection = workspace.collection({self.name!r}, embedder=pipeline.embedder)",
                f"report = nbrag.run(pipeline.run([{sources}], collection{removing}))",
            ]
        elif self.kind == "retrieval" and self.collection:
            lines.append(f"retriever = pipeline.as_retriever(workspace[{self.collection!r}])")
            if self.answer_stage() is not None:
                lines.append(f"answerer = pipeline.as_answerer(workspace[{self.collection!r}])")
        return "\n".join(lines) + "\n"

    def answer_stage(self) -> StageSpec | None:
        """Return the stage that answers, None when the pipeline only retrieves."""
        for stage in self.stages:
            if stage.options is not None:
                definition = stage_definition(self.kind, stage.name)
                if definition.role == "answer":
                    return stage
        return None

    def _require_registered(self) -> None:
        for stage in self.stages:
            if stage.options is None:
                raise SpecificationError(
                    f"stage '{stage.name}' is an object and can't be written down.",
                    hint="register it as a stage with nbrag.spec.register_stage",
                    stage=stage.name,
                )


def _read_header(words: Sequence[str]) -> tuple[str, str | None, tuple[str, ...]]:
    """Return name, collection and sources of a magic line; run options are passed over."""
    name, collection, sources = "", None, []
    takes_value = {"-o", "--output", "--file", "--from-var"}
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        option, equals, attached = word.partition("=")
        if option in ("-c", "--collection"):
            collection = attached if equals else (words[index] if index < len(words) else None)
            index += 0 if equals else 1
        elif option == "--from":
            if equals:
                sources.append(attached)
            while index < len(words) and not words[index].startswith("-"):
                sources.append(words[index])
                index += 1
        elif option in takes_value:
            index += 0 if equals else 1
        elif not word.startswith("-") and not name:
            name = word
    return name, collection, tuple(sources)
