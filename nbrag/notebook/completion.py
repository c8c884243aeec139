"""Completion in the magics' lines and cells: options, names, stages, keys, values."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from IPython.core.completer import (
    CompletionContext,
    SimpleCompletion,
    SimpleMatcherResult,
    context_matcher,
)

from nbrag.errors import MagicUsageError, NbragError
from nbrag.notebook.arguments import MagicParser, split_line
from nbrag.notebook.configuration import SETTINGS
from nbrag.notebook.magics import RagMagics
from nbrag.notebook.panels.registry import panel_definitions

if TYPE_CHECKING:
    from nbrag.notebook.session import NotebookSession
    from nbrag.spec import StageDefinition

__all__ = ["CompletionMatcher", "suggestions"]

_log = logging.getLogger("nbrag.notebook")
_LINE = re.compile(r"^\s*(?:[\w.,\[\] ]+=\s*)?%{1,2}(rag_\w+)\s(.*)$")
_CELL = re.compile(r"^\s*%%(rag_\w+)\b")
_STAGES = {"rag_pipeline": "retrieval", "rag_ingest": "ingestion"}
_FREE_TEXT = {"rag_ask", "rag_search"}
_METRICS = ("MAP", "MRR", "P@5", "nDCG@10", "recall@10", "recall@5")
#: What an option's value or a position names.
_NAMES = {
    "collection": "collections",
    "pipeline": "pipelines",
    "pipelines": "pipelines",
    "metrics": "metrics",
    "panel": "panels",
    "stage": "stages",
}


class CompletionMatcher:
    """Completes the magics of one shell.

    Parameters
    ----------
    session
        Knows the collections and pipelines; a workspace that is not open stays so.
    """

    def __init__(self, session: NotebookSession) -> None:
        self._session = session

    @context_matcher(identifier="nbrag")  # type: ignore[untyped-decorator, unused-ignore]
    def matcher(self, context: CompletionContext) -> SimpleMatcherResult:
        """Return what fits at the cursor; nothing outside of nbrag's magics."""
        fragment, found = suggestions(
            context.full_text, context.cursor_line, context.cursor_position, self._session
        )
        return {
            "completions": [SimpleCompletion(text, type=kind) for text, kind in found],
            "matched_fragment": fragment,
            "suppress": bool(found),
            "ordered": True,
        }


def suggestions(
    text: str, line: int, column: int, session: NotebookSession
) -> tuple[str, list[tuple[str, str]]]:
    """Return the piece of text before the cursor to be replaced, and what may stand there.

    Parameters
    ----------
    text
        The whole cell.
    line, column
        The cursor, both from 0.
    session
        Knows the collections and pipelines.

    Returns
    -------
    fragment, found
        Each suggestion is a text and its type for the front end.
    """
    lines = text.split("\n")
    before = lines[line][:column]
    first = next((i for i, content in enumerate(lines) if content.strip()), 0)
    cell = _CELL.match(lines[first])
    if cell is not None and line > first:
        source: Iterable[tuple[str, str]] = _body(cell.group(1), before)
    else:
        match = _LINE.match(before)
        if match is None:
            return "", []
        source = _line(match.group(1), match.group(2), session)
    fragment = re.split(r"[\s,=]", before)[-1]
    wanted = fragment.casefold()
    return fragment, [entry for entry in source if entry[0].casefold().startswith(wanted)]


def _body(magic: str, before: str) -> Iterator[tuple[str, str]]:
    """Yield stages, keys and values for a line of a cell's body."""
    if magic == "rag_config":
        yield from _settings(before.rpartition(" ")[2])
        return
    if magic not in _STAGES or "#" in before:
        return
    from nbrag.spec import stage_definitions

    definitions = stage_definitions(_STAGES[magic])  # type: ignore[arg-type]
    words = before.split()
    if not words or (len(words) == 1 and not before[-1].isspace()):
        yield from ((name, "class") for name in definitions)
    elif words[0] in definitions:
        yield from _stage_words(definitions[words[0]], words[1:], before)


def _stage_words(
    definition: StageDefinition, words: list[str], before: str
) -> Iterator[tuple[str, str]]:
    from nbrag.spec.stages import option_choices

    fields = definition.options.model_fields
    current = "" if before[-1].isspace() else before.rsplit(maxsplit=1)[-1]
    key, equals, _ = current.partition("=")
    if equals:
        if key in fields:
            yield from ((choice, "value") for choice in option_choices(fields[key]))
        return
    used = {word.partition("=")[0] for word in words if "=" in word}
    yield from ((f"{name}=", "param") for name in fields if name not in used)


def _settings(word: str) -> Iterator[tuple[str, str]]:
    name, equals, _ = word.partition("=")
    if not equals:
        yield from ((f"{known}=", "param") for known in SETTINGS)
    elif name in SETTINGS:
        yield from ((choice, "value") for choice in SETTINGS[name].choices)


def _line(magic: str, rest: str, session: NotebookSession) -> Iterable[tuple[str, str]]:
    """Return options, names and values for the magic's own line."""
    parser: MagicParser | None = getattr(getattr(RagMagics, magic, None), "parser", None)
    if parser is None:
        return []
    word = "" if not rest or rest[-1].isspace() else rest.rsplit(maxsplit=1)[-1]
    earlier = rest[: len(rest) - len(word)]
    try:
        words, question = split_line(parser, earlier, free_text=magic in _FREE_TEXT)
    except MagicUsageError:
        # The last option before the cursor still waits for its value, or a quote is open.
        option = earlier.split()[-1] if earlier.split() else ""
        return _values(parser, option, session)
    if question or earlier.rstrip().endswith(" --"):
        return []
    option, equals, _ = word.partition("=")
    if equals and option in parser.actions():
        return _values(parser, option, session)
    if word.startswith("-"):
        used = {name for name, _ in words}
        return [(name, "option") for name in sorted(parser.actions()) if name not in used]
    if magic == "rag_config":
        return _settings(word)
    for name, value in reversed(words):
        # Values that follow an option as words of their own: --metrics MRR nDCG@10
        if name:
            action = parser.actions()[name]
            if value is None and action.nargs == "+":
                return _values(parser, name, session)
            break
    if magic in _FREE_TEXT:
        return []
    positions = [action for action in parser.actions_of_position() if action.dest in _NAMES]
    if magic == "rag_panel" and (given := [value for name, value in words if not name]):
        definition = panel_definitions().get(str(given[0]))
        # What follows other panels, files say, is completed by IPython itself.
        takes = definition is not None and "pipeline" in definition.names
        return _named("pipelines", session) if takes else []
    if magic == "rag_pipeline":
        return _named("pipelines", session)
    return _named(_NAMES[positions[0].dest], session) if positions else []


def _values(parser: MagicParser, option: str, session: NotebookSession) -> list[tuple[str, str]]:
    action = parser.actions().get(option)
    if action is None or action.dest not in _NAMES:
        return []
    return _named(_NAMES[action.dest], session)


def _named(what: str, session: NotebookSession) -> list[tuple[str, str]]:
    """Return names of collections, pipelines, metrics, or stages of the last search."""
    if what == "metrics":
        return [(name, "value") for name in _METRICS]
    if what == "panels":
        return [(name, "value") for name in panel_definitions()]
    if what == "stages":
        trace = getattr(session.last_results, "trace", None)
        names = [] if trace is None else [record.stage for record in trace.stages]
        return [(name, "value") for name in dict.fromkeys(names)]
    workspace = session.opened
    if workspace is None:
        return []
    try:
        names = workspace.collections() if what == "collections" else workspace.pipelines()
    except NbragError as error:
        _log.debug("no completion of %s: %s", what, error)
        return []
    return [(name, "value") for name in names]
