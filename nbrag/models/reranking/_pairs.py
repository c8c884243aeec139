"""Pairs of a question and a passage as token ids, as the model's own tokenizer joins them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbrag.errors import ModelInvalid
from nbrag.models.reranking._settings import ClassifierSettings

__all__ = ["EncodedPairs", "Pair", "PairTokenizer"]

#: Texts of which every tokenizer knows one.
_PROBES = ("a", "1", "one", "\u4e00")
#: Special tokens of the two large families, where nothing names them.
_USUAL = (("[CLS]", "[SEP]", False), ("<s>", "</s>", True))
#: Share of a pair that is kept for the passage, however long the question is.
_PASSAGE_SHARE = 4
#: Share of a passage's room that its headings may take when it doesn't fit.
_HEADING_SHARE = 4
#: Share of a window that the next one sees again.
_OVERLAP_SHARE = 4


@dataclass(frozen=True, slots=True)
class Pair:
    """A question with one passage, or with one window of it.

    Attributes
    ----------
    passage
        Place of the passage.
    ids, segments
        Token ids, and the number of the segment of each.
    """

    passage: int
    ids: list[int]
    segments: list[int]


@dataclass(frozen=True, slots=True)
class EncodedPairs:
    """One question with its passages.

    Attributes
    ----------
    pairs
        In the order of the passages; more than one for a passage in windows.
    question_tokens, question_read
        How many tokens the question has, and how many of them are read.
    passages_cut
        How many passages are not read to their end.
    """

    pairs: list[Pair]
    question_tokens: int
    question_read: int
    passages_cut: int


@dataclass(frozen=True, slots=True)
class _Layout:
    """What stands around the two texts: (ids, segments) each, and the texts' own segments."""

    before: tuple[list[int], list[int]]
    between: tuple[list[int], list[int]]
    after: tuple[list[int], list[int]]
    question_segment: int
    passage_segment: int

    @property
    def size(self) -> int:
        """Special tokens of a pair."""
        return len(self.before[0]) + len(self.between[0]) + len(self.after[0])


class PairTokenizer:
    """A ``tokenizer.json`` that makes pairs; safe to use from several threads.

    Where the special tokens stand, and which segment is whose, is what the tokenizer's own
    post-processor does with a pair. Where it has none for pairs, they are put as the model's
    family does: ``[CLS] question [SEP] passage [SEP]`` with segments 0 and 1, or
    ``<s> question </s></s> passage </s>`` in one segment.

    Names of special tokens within texts, such as ``[SEP]`` in a passage, are text: no passage can
    end its own part of the pair.

    Parameters
    ----------
    path
        The ``tokenizer.json``.
    settings
        Limit and special tokens.

    Raises
    ------
    ModelInvalid
        When the file is not a tokenizer, or it can't be told how pairs are made.
    """

    def __init__(self, path: Path, settings: ClassifierSettings) -> None:
        from tokenizers import Tokenizer

        try:
            tokenizer: Any = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise ModelInvalid(
                f"{path} can't be read as a tokenizer: {error}", hint="get the file again"
            ) from error
        padding = tokenizer.padding
        # A stored tokenizer may pad and cut by itself, even at another length than the model's.
        tokenizer.no_padding()
        tokenizer.no_truncation()
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        self._path = path
        self._layout = self._found_layout() or self._usual_layout(settings)
        self._limit = settings.max_tokens
        self._segments = settings.segments
        stored = int(padding["pad_id"]) if padding else 0
        #: Id that fills up shorter pairs of a batch; the attention mask hides it.
        self.pad_id = stored if settings.pad_id is None else settings.pad_id

    def _found_layout(self) -> _Layout | None:
        """Return how the tokenizer itself joins two texts; None when it has no word for pairs."""
        for probe in _PROBES:
            found = self._tokenizer.encode(probe, probe)
            owners = found.sequence_ids
            if 0 in owners and 1 in owners:
                break
        else:
            raise ModelInvalid(f"{self._path} makes no tokens of plain words.")
        first, last = owners.index(0), len(owners) - owners[::-1].index(0)
        begin, end = owners.index(1), len(owners) - owners[::-1].index(1)
        if not first < last < begin < end:
            return None
        ids, segments = found.ids, found.type_ids
        return _Layout(
            (ids[:first], segments[:first]),
            (ids[last:begin], segments[last:begin]),
            (ids[end:], segments[end:]),
            segments[first],
            segments[begin],
        )

    def _usual_layout(self, settings: ClassifierSettings) -> _Layout:
        """Return how the model's family joins two texts."""
        special = settings.special
        named = (special.get("cls", ""), special.get("sep", ""), settings.double_separators)
        for start, separator, doubled in (named, *_USUAL):
            cls = self._tokenizer.token_to_id(start)
            sep = self._tokenizer.token_to_id(separator)
            if cls is not None and sep is not None:
                return _usual(cls, sep, doubled=doubled)
        raise ModelInvalid(
            f"{self._path} doesn't say how two texts are joined, and has none of the usual "
            "special tokens.",
            hint="take the tokenizer.json that belongs to the model; one of a reranker has a "
            "post_processor for pairs",
        )

    def encode(
        self,
        question: str,
        passages: Sequence[str],
        *,
        headings: Sequence[str] = (),
        windows: int = 1,
    ) -> EncodedPairs:
        """Join a question with each passage.

        Only passages are cut, at their end, so that a pair keeps to the limit. A question that
        leaves less than a quarter of the room to passages is cut to three quarters, the same for
        all of them.

        Parameters
        ----------
        question
            The question.
        passages
            The passages; they may be empty.
        headings
            What stands before each passage and each of its windows, at most a quarter of the room
            where the passage doesn't fit; none when empty.
        windows
            Most windows of a passage that doesn't fit, each overlapping the one before by a
            quarter; 1 reads its beginning only.
        """
        room = self._limit - self._layout.size
        (asked,) = self._ids([question])
        read = asked[: room - room // _PASSAGE_SHARE]
        bodies = self._ids(passages)
        tops = self._ids(headings) if headings else [[]] * len(bodies)
        room -= len(read)
        pairs: list[Pair] = []
        cut = 0
        for place, (heading, body) in enumerate(zip(tops, bodies, strict=True)):
            fits = len(heading) + len(body) <= room
            top = heading if fits else heading[: room // _HEADING_SHARE]
            width = room - len(top)
            spans = list(_spans(len(body), width, windows))
            cut += spans[-1][1] < len(body)
            pairs += (self._pair(place, read, [*top, *body[a:b]]) for a, b in spans)
        return EncodedPairs(pairs, len(asked), len(read), cut)

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        # Halves of surrogate pairs can't be written as UTF-8.
        cleaned = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        found = self._tokenizer.encode_batch_fast(cleaned, add_special_tokens=False)
        return [encoding.ids for encoding in found]

    def _pair(self, place: int, question: list[int], passage: list[int]) -> Pair:
        layout = self._layout
        ids = [*layout.before[0], *question, *layout.between[0], *passage, *layout.after[0]]
        segments = [
            *layout.before[1],
            *[layout.question_segment] * len(question),
            *layout.between[1],
            *[layout.passage_segment] * len(passage),
            *layout.after[1],
        ]
        if self._segments is not None:
            last = max(self._segments - 1, 0)
            segments = [min(segment, last) for segment in segments]
        return Pair(place, ids, segments)


def _usual(cls: int, sep: int, *, doubled: bool) -> _Layout:
    """Return how the two large families join texts."""
    if doubled:
        return _Layout(([cls], [0]), ([sep, sep], [0, 0]), ([sep], [0]), 0, 0)
    return _Layout(([cls], [0]), ([sep], [0]), ([sep], [1]), 0, 1)


def _spans(count: int, width: int, windows: int) -> Iterator[tuple[int, int]]:
    """Yield the windows over a passage's tokens; the last one that there may be ends with it.

    Where more windows are needed than allowed, the end of the passage is left out.
    """
    step = max(width - width // _OVERLAP_SHARE, 1)
    needed = 1 if count <= width else 1 + -(-(count - width) // step)
    for number in range(min(needed, windows)):
        start = max(count - width, 0) if number == needed - 1 else number * step
        yield start, min(start + width, count)
