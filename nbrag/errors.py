"""Every error that nbrag raises.

The tree::

    NbragError
    ├── ConfigurationError              a setting that can't be used
    ├── MagicUsageError                 a magic's line or cell that can't be read
    ├── SpecificationError              a pipeline's text, dict or options that can't be read
    ├── FilterError                     a filter that doesn't parse or names an unknown field
    ├── QueryError                      a question that can't be searched (empty, say)
    ├── CollectionNotFound              also a LookupError
    ├── PipelineNotFound                also a LookupError
    ├── DocumentNotFound                also a LookupError
    ├── MissingDependency               an extra that isn't installed; also an ImportError
    ├── ReaderError                     one document that can't be read
    │   ├── SourceNotFound              no such file, folder, glob or URL
    │   ├── UnsupportedFormat           no reader for it, or binary data
    │   ├── CorruptDocument             damaged, truncated, not what its name says
    │   ├── EmptyDocument               nothing in it that could be indexed
    │   ├── PasswordRequired            encrypted
    │   └── NoTextLayer                 a scan: pictures of text
    ├── StageError                      a stage of a pipeline failed while it ran
    ├── StoreError                      a database that can't be used
    │   ├── DatabaseLocked              another process holds the file
    │   ├── DatabaseReadOnly            a write to a read-only workspace
    │   ├── DatabaseFull                no space left on the disk
    │   ├── NewerFormat                 the file was made by a newer nbrag
    │   └── EmbedderMismatch            another embedder than the collection's
    ├── ModelError                      a model that can't be used
    │   ├── ModelNotFound               no such file, folder or package
    │   ├── ModelInvalid                a file that isn't the model it should be
    │   ├── ReplayMissing               a request that the recorded replies don't hold
    │   └── ChatError                   a chat model gave no answer that can be used
    │       ├── ChatUnavailable         no connection, a server's failure, no answer in time
    │       ├── RateLimited             too many requests, after all tries
    │       ├── ReplyInvalid            an answer, but not what was asked for
    │       └── BudgetExceeded          the calls, tokens or money allowed are used up
    └── JudgementsError                 judgements that can't be read

Each message says what happened; ``hint`` says what to do about it. In a notebook an error is
one line and its hint, without a traceback (``%rag_config verbose_errors=true`` brings it back).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar

__all__ = [
    "BudgetExceeded",
    "ChatError",
    "ChatUnavailable",
    "CollectionNotFound",
    "ConfigurationError",
    "CorruptDocument",
    "DatabaseFull",
    "DatabaseLocked",
    "DatabaseReadOnly",
    "DocumentNotFound",
    "EmbedderMismatch",
    "EmptyDocument",
    "FilterError",
    "JudgementsError",
    "MagicUsageError",
    "MissingDependency",
    "ModelError",
    "ModelInvalid",
    "ModelNotFound",
    "NbragError",
    "NewerFormat",
    "NoTextLayer",
    "PasswordRequired",
    "PipelineNotFound",
    "QueryError",
    "RateLimited",
    "ReaderError",
    "ReplayMissing",
    "ReplyInvalid",
    "SourceNotFound",
    "SpecificationError",
    "StageError",
    "StoreError",
    "UnsupportedFormat",
    "closest",
    "did_you_mean",
]


class NbragError(Exception):
    """The base of all errors of nbrag.

    Parameters
    ----------
    message
        What happened, in one sentence, with the place (stage, line, file).
    hint
        What to do about it; empty when the message says it all.
    """

    #: Set by ``%rag_config verbose_errors=true``: tracebacks are shown again.
    verbose: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        """Return the message, and the hint on the same line."""
        return f"{self.message} Hint: {self.hint}" if self.hint else self.message

    def _render_traceback_(self) -> list[str]:
        """Return what IPython prints in place of a traceback."""
        if NbragError.verbose:
            import traceback

            return traceback.format_exception(type(self), self, self.__traceback__)
        lines = [f"{type(self).__name__}: {self.message}"]
        if self.hint:
            lines.append(f"Hint: {self.hint}")
        return lines


class ConfigurationError(NbragError):
    """A setting has a name or a value that can't be used."""


class MagicUsageError(NbragError):
    """A magic was called with a line or a cell that can't be read."""


class SpecificationError(NbragError):
    """A pipeline's text, dict or option can't be read.

    Parameters
    ----------
    message, hint
        As in :class:`NbragError`.
    line
        Line of the cell or file, from 1, where it is known.
    stage
        Name of the stage, where it is known.
    key
        Name of the option, where it is known.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        line: int | None = None,
        stage: str | None = None,
        key: str | None = None,
    ) -> None:
        place = "" if line is None else f"line {line}: "
        super().__init__(f"{place}{message}", hint=hint)
        self.line = line
        self.stage = stage
        self.key = key


class FilterError(NbragError):
    """A filter doesn't parse, or names a field that the collection does not have."""


class QueryError(NbragError):
    """A question can't be searched, for instance because it is empty."""


class CollectionNotFound(NbragError, LookupError):
    """The workspace has no collection of that name."""


class PipelineNotFound(NbragError, LookupError):
    """The workspace has no pipeline of that name."""


class DocumentNotFound(NbragError, LookupError):
    """The collection has no document of that identity."""


class MissingDependency(NbragError, ImportError):
    """A package is needed that is not installed.

    Parameters
    ----------
    purpose
        What it is needed for, e.g. ``"reading .xlsx files"``.
    package
        Name of the package on the package index.
    extra
        The extra of nbrag that brings it; None when it is installed by its own name.
    """

    def __init__(self, purpose: str, package: str, extra: str | None = None) -> None:
        target = f"'nbrag[{extra}]'" if extra else package
        super().__init__(
            f"{purpose} needs the package {package}, which is not installed.",
            hint=f"pip install {target}",
        )
        self.package = package
        self.extra = extra


class ReaderError(NbragError):
    """One document can't be read; the rest of the run goes on."""


class SourceNotFound(ReaderError):
    """There is no such file, folder, glob match or URL."""


class UnsupportedFormat(ReaderError):
    """No reader takes this kind of file, or it is binary data."""


class CorruptDocument(ReaderError):
    """The file is damaged, truncated, or not what its name says."""


class EmptyDocument(ReaderError):
    """The document holds nothing that could be indexed."""


class PasswordRequired(ReaderError):
    """The document is encrypted and needs a password."""


class NoTextLayer(ReaderError):
    """The document is a scan: pictures of text, without a text layer."""


class StageError(NbragError):
    """A stage of a pipeline failed while it ran.

    Parameters
    ----------
    stage
        Name of the stage.
    message, hint
        As in :class:`NbragError`.
    """

    def __init__(self, stage: str, message: str, *, hint: str = "") -> None:
        super().__init__(f"stage '{stage}': {message}", hint=hint)
        self.stage = stage


class StoreError(NbragError):
    """A database can't be used."""


class DatabaseLocked(StoreError):
    """Another process holds the database file.

    Parameters
    ----------
    path
        The file.
    process
        The other process's id, None when the system does not tell it.
    """

    def __init__(self, path: str, process: int | None) -> None:
        who = "another process" if process is None else f"process {process}"
        super().__init__(
            f"{path} is held by {who}.",
            hint="shut down that kernel or program, open the workspace with read_only=true in "
            "both, or use another file",
        )
        self.path = path
        self.process = process


class DatabaseReadOnly(StoreError):
    """A write was asked of a workspace that is open for reading only."""


class DatabaseFull(StoreError):
    """There is no space left on the disk."""


class NewerFormat(StoreError):
    """The file was written by a newer nbrag than this one."""


class EmbedderMismatch(StoreError):
    """The collection was made with another embedder than the one in use."""


class ModelError(NbragError):
    """A model can't be used."""


class ModelNotFound(ModelError):
    """There is no such model file, folder or package."""


class ModelInvalid(ModelError):
    """A file is not the model that it should be."""


class ReplayMissing(ModelError):
    """Recorded replies are replayed, and this request is not among them."""


class ChatError(ModelError):
    """A chat model gave no answer that can be used; a stage then passes its input on."""


class ChatUnavailable(ChatError):
    """The model could not be reached, failed, or did not answer in time."""


class RateLimited(ChatError):
    """The provider takes no more requests for now, after all tries.

    Parameters
    ----------
    message, hint
        As in :class:`NbragError`.
    retry_after
        Seconds that the provider asked to wait, None when it did not say.
    """

    def __init__(self, message: str, *, hint: str = "", retry_after: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class ReplyInvalid(ChatError):
    """The model answered something else than what was asked for.

    Parameters
    ----------
    message, hint
        As in :class:`NbragError`.
    reply
        The model's words.
    """

    def __init__(self, message: str, *, hint: str = "", reply: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reply = reply


class BudgetExceeded(ChatError):
    """The calls, tokens or money that were allowed are used up."""


class JudgementsError(NbragError):
    """Judgements (queries and graded relevance) can't be read."""


def closest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate most like ``name``, or None when none is near."""
    known = sorted(candidates)
    by_folded = {candidate.casefold(): candidate for candidate in reversed(known)}
    found = difflib.get_close_matches(name.casefold(), list(by_folded), n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None


def did_you_mean(name: str, candidates: Iterable[str], *, what: str = "names") -> str:
    """Return a hint for an unknown ``name``: the nearest candidate, else all of them."""
    known = sorted(candidates)
    near = closest(name, known)
    if near is not None:
        return f"did you mean '{near}'?"
    if not known:
        return f"there are no {what} yet"
    return f"known {what}: {', '.join(known)}"
