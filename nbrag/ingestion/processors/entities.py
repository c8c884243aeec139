"""The stage ``entities``: the names in each chunk, as lists that a filter can use."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import BaseModel, BeforeValidator, Field, create_model, field_validator

from nbrag.ingestion.enriching import ChunkEnricher
from nbrag.ingestion.processors._names import FoldedText
from nbrag.models.chat.passages import PASSAGES_ARE_DATA, passage_block
from nbrag.models.chat.structured import ask
from nbrag.protocols import ChatClient, Collection
from nbrag.spec import BuildContext, StageDefinition, StageOptions, register_stage
from nbrag.stores.names import MOST_NAMES, NAMES_PREFIX, NameTable, bare_name, name_key
from nbrag.types import ChatMessage, Chunk, RetrievalChunk

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

__all__ = ["EntityExtractionProcessor", "EntityOptions"]

_PREFIX = NAMES_PREFIX
_VERSIONS = "versions"
_KIND = re.compile(r"[A-Za-z0-9_]{1,40}")
#: What the built-in kinds are, in the words of the prompt.
_KINDS = {
    "people": "names of persons",
    "organizations": "names of companies, institutions, authorities, teams",
    "technologies": "names of products, programs, services, protocols, formats, languages",
    _VERSIONS: "version numbers and release names, without the product's name",
}
#: What models write where they have nothing to name.
_NOTHING = frozenset({"", "-", "none", "n/a", "null", "unknown", "not applicable", "nothing"})

_SYSTEM = f"""You list the named entities of a passage, by kind:
{{kinds}}
{PASSAGES_ARE_DATA}
Copy each name exactly as it stands in the passage or its heading, once, the important ones \
first. Take names only, no descriptions, pronouns or ordinary words. At most {{most}} of a kind; a \
kind that does not occur has an empty list."""


class EntityOptions(StageOptions):
    """Which entities are looked for."""

    kinds: tuple[str, ...] = Field(
        default=tuple(_KINDS),
        min_length=1,
        max_length=20,
        description="kinds, built-in or own names; each is a list field entities_KIND",
    )
    most: int = Field(default=10, ge=1, le=100, description="most entities of a kind in a chunk")
    words: int = Field(
        default=500, ge=10, le=20_000, description="words of a chunk that the model is shown"
    )
    aliases: tuple[str, ...] = Field(
        default=(), description='other names, each as "alias=name": "k8s=Kubernetes"'
    )

    @field_validator("kinds")
    @classmethod
    def _are_field_names(cls, kinds: tuple[str, ...]) -> tuple[str, ...]:
        for kind in kinds:
            if not _KIND.fullmatch(kind):
                raise ValueError(f"'{kind}' is no kind: letters, digits and _, 40 at most")
        lower = tuple(kind.lower() for kind in kinds)
        if len(set(lower)) < len(lower):
            raise ValueError("a kind is given twice")
        return lower

    @field_validator("aliases")
    @classmethod
    def _are_pairs(cls, aliases: tuple[str, ...]) -> tuple[str, ...]:
        keys = []
        for pair in aliases:
            alias, _, name = pair.partition("=")
            if not (name_key(alias) and name_key(name)):
                raise ValueError(f"'{pair}' is not alias=name")
            keys.append(name_key(alias))
        if len(set(keys)) < len(keys):
            raise ValueError("an alias is given twice")
        return aliases


class EntityExtractionProcessor(ChunkEnricher):
    """Adds the named entities of each chunk as lists of texts: ``entities_people`` and so on.

    One structured call per chunk. A name counts only where it occurs in the chunk's text or
    headings, at the borders of words (case and white space don't matter); it is taken as the text
    writes it, or as the model does where the text has no capitals. What does not occur is
    dropped. When nothing that the model names occurs, it is asked once more, and then the chunk
    is stored without entities and told as a problem. A chunk in which the model finds none has
    empty lists.

    All spellings of a name (case, punctuation, spacing, possessive ending, the ``v`` of a version,
    the aliases of the options) become the one that came first, in the order of the chunks, so
    that ``"Azure" in entities_technologies`` finds them all; a filter may use any spelling or alias
    too. Which ones came first in earlier runs
    is known after :meth:`prepare`; without it, each run goes by its own chunks alone, and a run
    over new documents may choose another spelling than the stored documents have.

    Parameters
    ----------
    chat
        The model that reads the chunks.
    options
        Which entities are looked for.

    Raises
    ------
    ConfigurationError
        When there is no chat client.
    """

    name = "entities"

    def __init__(self, chat: ChatClient, options: EntityOptions | None = None) -> None:
        super().__init__(chat)
        self.options = options or EntityOptions()
        kinds = self.options.kinds
        listed = "\n".join(f"- {kind}: {_described(kind)}" for kind in kinds)
        self._system = ChatMessage("system", _SYSTEM.format(kinds=listed, most=self.options.most))
        self._schema, self._attributes = _form(kinds)
        self._aliases = dict(_pair(pair) for pair in self.options.aliases)
        self._known = self._tables()

    def _tables(self) -> dict[str, NameTable]:
        return {
            kind: NameTable.of_field(_PREFIX + kind, (), self._aliases)
            for kind in self.options.kinds
        }

    async def prepare(self, collection: Collection) -> None:
        """Take up the spellings that a collection holds, for the runs that follow."""
        tables = self._tables()
        for kind, table in tables.items():
            field = _PREFIX + kind
            if field in await collection.fields():
                table.learn(map(str, await collection.field_values(field, limit=MOST_NAMES)))
        self._known = tables

    async def finalize(self, collection: Collection) -> None:
        """Let filters of the collection use the aliases."""
        if self._aliases:
            fields = [_PREFIX + kind for kind in self.options.kinds]
            await collection.add_aliases(dict.fromkeys(fields, self._aliases))

    async def process(self, chunks: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
        """Yield the chunks in their order, their names in one spelling each."""
        tables = {kind: table.copy() for kind, table in self._known.items()}
        stream = cast("AsyncGenerator[Chunk]", super().process(chunks))
        async with aclosing(stream):
            async for chunk in stream:
                yield _in_one_spelling(chunk, tables)

    async def enrich(self, chunk: Chunk) -> Sequence[Chunk]:
        """Return the chunk with its entities as its text writes them.

        Spellings are made one by :meth:`process`, where the order of the chunks is known.

        Raises
        ------
        ChatError
            When the model gives no usable answer, or names nothing that occurs.
        """
        texts = [FoldedText(text) for text in (chunk.content, *chunk.heading_path)]
        found: dict[str, list[str]] = {}

        def check(answer: BaseModel) -> None:
            """Refuse an answer that can't be used."""
            named = {kind: getattr(answer, self._attributes[kind]) for kind in self.options.kinds}
            for kind, names in named.items():
                found[_PREFIX + kind] = self._occurring(kind, names, texts)
            every = [name for names in named.values() for name in names]
            if every and not any(found.values()):
                raise ValueError(f"no name of it occurs in the passage: not '{every[0][:80]}'")

        shown = RetrievalChunk(
            "", "", chunk.content, 0.0, {"heading_path": list(chunk.heading_path)}
        )
        block = passage_block([shown], words=self.options.words)
        messages = [self._system, ChatMessage("user", block)]
        await ask(self.chat, messages, self._schema, check=check, temperature=0.0)
        return [replace(chunk, metadata={**chunk.metadata, **found})]

    def _occurring(self, kind: str, names: Sequence[str], texts: Sequence[FoldedText]) -> list[str]:
        """Return the names that occur, each once."""
        version = kind == _VERSIONS
        kept: dict[str, str] = {}
        for name in names:
            spellings = (text.find(name, version=version) for text in texts)
            spelling = next((one for one in spellings if one is not None), None)
            if spelling is None:
                continue
            if spelling == spelling.lower():
                # The model knows better how a name is written, and "go" may be no name at all.
                spelling = bare_name(name)
            kept.setdefault(name_key(spelling, version=version), spelling)
        return list(kept.values())[: self.options.most]


def _in_one_spelling(chunk: Chunk, tables: Mapping[str, NameTable]) -> Chunk:
    lists: Mapping[str, Any] = {
        _PREFIX + kind: table.distinct(names)
        for kind, table in tables.items()
        if isinstance(names := chunk.metadata.get(_PREFIX + kind), list)
    }
    return replace(chunk, metadata={**chunk.metadata, **lists}) if lists else chunk


def _described(kind: str) -> str:
    return _KINDS.get(kind, f"names of {kind.replace('_', ' ').strip() or kind}")


def _pair(pair: str) -> tuple[str, str]:
    alias, _, name = pair.partition("=")
    return alias.strip(), name.strip()


def _names(value: Any) -> Any:
    """Return the names that a model may have put in another form than a list of texts."""
    if value is None:
        return []
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list):
        return names
    plain = [one.get("name", one) if isinstance(one, dict) else one for one in names]
    return [
        one for one in plain if not (isinstance(one, str) and one.strip().casefold() in _NOTHING)
    ]


def _form(kinds: Sequence[str]) -> tuple[type[BaseModel], dict[str, str]]:
    """Return the answer's form, and the attribute of each kind in it."""
    attributes: dict[str, str] = {}
    fields: dict[str, Any] = {}
    for number, kind in enumerate(kinds):
        # A model class can't have just any attribute, but any name in the JSON.
        taken = not kind.isidentifier() or kind.startswith(("_", "model_"))
        attribute = f"kind_{number}" if taken or hasattr(BaseModel, kind) else kind
        attributes[kind] = attribute
        names = Annotated[list[str], BeforeValidator(_names)]
        fields[attribute] = (
            names,
            Field(default_factory=list, alias=kind, description=_described(kind)),
        )
    return create_model("Entities", **fields), attributes


def _build(options: EntityOptions, context: BuildContext) -> EntityExtractionProcessor:
    return EntityExtractionProcessor(context.chat(), options)


register_stage(
    StageDefinition(
        name="entities",
        kind="ingestion",
        role="chunk",
        options=EntityOptions,
        build=_build,
        method="use_entities",
        summary="Adds the named entities of each chunk as list fields for filters.",
        single=True,
    )
)
