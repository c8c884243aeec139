"""Plain functions as processors, so that a notebook needs no class for a small step."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

from nbrag.errors import SpecificationError
from nbrag.protocols import IngestionChunkProcessor, IngestionDocumentProcessor
from nbrag.types import Chunk, Document

__all__ = ["FunctionChunkProcessor", "FunctionDocumentProcessor", "as_processor"]

_log = logging.getLogger("nbrag.ingestion")


class FunctionDocumentProcessor(IngestionDocumentProcessor):
    """Runs a function ``(Document) -> Document`` on each document.

    Parameters
    ----------
    function
        Plain or async.
    """

    def __init__(self, function: Callable[[Document], Any]) -> None:
        self.name = getattr(function, "__name__", "function")
        self._function = function

    async def process(self, document: Document) -> Document:
        """Return what the function returns."""
        result = self._function(document)
        if inspect.isawaitable(result):
            result = await result
        if not isinstance(result, Document):
            raise TypeError(f"{self.name} returned {type(result).__name__}, not a Document")
        return result


class FunctionChunkProcessor(IngestionChunkProcessor):
    """Runs a function ``(Chunk) -> Chunk`` on each chunk; one that fails is kept as it was.

    Parameters
    ----------
    function
        Plain or async.

    Attributes
    ----------
    failures
        How many chunks the function failed on.
    """

    def __init__(self, function: Callable[[Chunk], Any]) -> None:
        self.name = getattr(function, "__name__", "function")
        self._function = function
        self.failures = 0

    async def process(self, chunks: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
        """Yield what the function returns for each chunk."""
        async for chunk in chunks:
            try:
                result = self._function(chunk)
                if inspect.isawaitable(result):
                    result = await result
                if not isinstance(result, Chunk):
                    raise TypeError(f"returned {type(result).__name__}, not a Chunk")  # noqa: TRY301
            except Exception as error:  # noqa: BLE001 - one chunk must not sink the run
                self.failures += 1
                _log.warning("%s failed on chunk %s: %s", self.name, chunk.id, error)
                result = chunk
            yield result


def as_processor(candidate: Any) -> IngestionDocumentProcessor | IngestionChunkProcessor:
    """Return a processor for an object or an annotated function.

    A function says by the annotation of its first parameter, ``Document`` or ``Chunk``, what it
    works on.

    Raises
    ------
    SpecificationError
        When it is neither.
    """
    if isinstance(candidate, IngestionDocumentProcessor | IngestionChunkProcessor):
        return candidate
    if callable(candidate):
        parameters = list(inspect.signature(candidate).parameters.values())
        annotation = parameters[0].annotation if parameters else None
        name = getattr(annotation, "__name__", str(annotation)).rpartition(".")[2]
        if name == "Document":
            return FunctionDocumentProcessor(candidate)
        if name == "Chunk":
            return FunctionChunkProcessor(candidate)
    raise SpecificationError(
        f"{candidate!r} is not an ingestion processor.",
        hint="derive from IngestionDocumentProcessor or IngestionChunkProcessor, or annotate the "
        "function's first parameter as Document or Chunk",
    )
