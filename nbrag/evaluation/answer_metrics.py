"""What one answer is worth, as far as that can be told without a model or with one as a judge.

A value is None where a metric has nothing to say of a question: the mean is over the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nbrag.errors import ConfigurationError, did_you_mean
from nbrag.evaluation.answer_cases import AnswerCase
from nbrag.evaluation.short_answers import exact_match, token_f1
from nbrag.models.chat.claims import check_claims, is_supported
from nbrag.models.chat.markers import Statement, statements
from nbrag.protocols import ChatClient
from nbrag.types import Answer, Claim, Passage, RetrievalChunk, support_of

__all__ = [
    "JUDGED_METRICS",
    "PLAIN_METRICS",
    "alce_citations",
    "answer_metrics",
    "cited_relevance",
    "claim_support",
    "plain_values",
]

#: Metrics that need no model.
PLAIN_METRICS = (
    "refusal precision",
    "refusal recall",
    "cited precision",
    "cited recall",
    "exact match",
    "token F1",
)
#: Metrics that ask a model.
JUDGED_METRICS = ("claim support", "citation precision", "citation recall")
#: Fields in which records keep their identity; stores put an underscore behind "id".
_FIELDS = ("_id", "id_", "id")


def answer_metrics(names: Iterable[str] | None, *, judge: bool) -> tuple[str, ...]:
    """Return the metrics of these names; None for all that can be had.

    - ``refusal precision``: of the refused questions, the share that the collection does not
      answer. ``refusal recall``: of the questions that it does not answer, the share refused.
    - ``cited precision``: of the passages that an answer cites, the share judged relevant.
      ``cited recall``: of the judged documents or chunks, the share cited; 0 for a refusal.
    - ``exact match`` and ``token F1`` with the accepted answers; 0 for a refusal.
    - ``claim support``: mean verdict of the answer's claims (supported 1, partly 0.5).
    - ``citation recall`` and ``citation precision`` of Gao et al., "ALCE" (arXiv:2305.14627), with
      a chat model in the place of the NLI model: see :func:`alce_citations`.

    Raises
    ------
    ConfigurationError
        For an unknown name, or one that needs a judge where there is none.
    """
    known = (*PLAIN_METRICS, *JUDGED_METRICS)
    if names is None:
        return known if judge else PLAIN_METRICS
    chosen = tuple(dict.fromkeys(names))
    if not chosen:
        raise ConfigurationError("no metric is given.", hint=f"metrics: {', '.join(known)}")
    for name in chosen:
        if name not in known:
            raise ConfigurationError(
                f"there is no metric '{name}' of answers.",
                hint=did_you_mean(name, known, what="metrics"),
            )
        if name in JUDGED_METRICS and not judge:
            raise ConfigurationError(
                f"the metric '{name}' needs a model that judges.", hint="give judge="
            )
    return chosen


def plain_values(answer: Answer, case: AnswerCase) -> dict[str, float | None]:
    """Return the values of all metrics that need no model, for an answer that did not fail."""
    refused = not answer.answered
    precision, recall = cited_relevance(answer, case)
    short = case.answerable and bool(case.answers)
    return {
        "refusal precision": float(not case.answerable) if refused else None,
        "refusal recall": None if case.answerable else float(refused),
        "cited precision": precision,
        "cited recall": recall,
        "exact match": exact_match(answer.text, case.answers) if short else None,
        "token F1": token_f1(answer.text, case.answers) if short else None,
    }


def cited_relevance(answer: Answer, case: AnswerCase) -> tuple[float | None, float | None]:
    """Return precision and recall of the cited passages against those judged relevant.

    A judged name is a chunk's id, a document's URI or the end of one, or what the record's field
    ``_id`` or ``id`` holds. Each cited passage counts once, however often it is cited.
    """
    wanted = case.wanted
    if not case.answerable or not wanted:
        return None, None
    chunks = {passage.number: passage.chunk for passage in answer.passages}
    cited = [chunks[number] for number in sorted({one.number for one in answer.citations})]
    names = [_names(chunk, wanted) for chunk in cited]
    precision = sum(map(bool, names)) / len(names) if names else None
    return precision, len(set().union(*names)) / len(wanted)


def _names(chunk: RetrievalChunk, wanted: Sequence[str]) -> set[str]:
    """Return which of the wanted names mean this chunk."""
    places = [chunk.source, *map(str, chunk.record.get("also_in") or ())]
    fields = {str(chunk.record[name]) for name in _FIELDS if chunk.record.get(name) is not None}
    identities = {chunk.id, chunk.document_id, *fields, *places}
    return {
        name
        for name in wanted
        if name in identities or any(place.endswith(f"/{name}") for place in places)
    }


async def claim_support(
    judge: ChatClient, answer: Answer, *, only_cited: bool = True
) -> tuple[float | None, tuple[Claim, ...]]:
    """Return the mean support of an answer's claims, and the claims; one call of the judge.

    Parameters
    ----------
    judge
        The model.
    answer
        The answer; one that refuses has no claims.
    only_cited
        Whether claims are held against the cited passages alone, or against all that were sent.
        Without a citation nothing supports them, and the judge only counts them.

    Raises
    ------
    ChatError, ModelError
        As the judge raises them.
    """
    if not answer.answered:
        return None, ()
    cited = {citation.number for citation in answer.citations}
    held = [one for one in answer.passages if not only_cited or one.number in cited]
    if not held:
        return 0.0, ()
    claims = await check_claims(judge, _asked(answer), answer.text, held)
    return support_of(claims), claims


async def alce_citations(judge: ChatClient, answer: Answer) -> tuple[float | None, float | None]:
    """Return citation precision and recall of an answer.

    Gao et al., "Enabling Large Language Models to Generate Text with Citations"
    (arXiv:2305.14627), section 4.3. Recall: share of the sentences that their cited passages,
    together, bear out; a sentence without a citation is not. Precision: share of the citations
    that are not in vain: of a sentence that is borne out, each citation whose passage does it
    alone, or without which the others don't. The judge is asked once per sentence, and for a
    sentence with several citations up to twice more for each.

    Returns
    -------
    precision, recall
        None and None for an answer that refuses; precision is None without a citation.

    Raises
    ------
    ChatError, ModelError
        As the judge raises them.
    """
    if not answer.answered:
        return None, None
    passages = {passage.number: passage for passage in answer.passages}

    async def borne(statement: Statement, numbers: Sequence[int]) -> bool:
        """Return whether the passages with these numbers bear a statement out."""
        held: list[Passage] = [passages[number] for number in numbers if number in passages]
        return await is_supported(judge, _asked(answer), statement.text, held)

    recalled = citations = precise = 0
    parts = statements(answer.text)
    for part in parts:
        citations += len(part.numbers)
        if not part.numbers or not await borne(part, part.numbers):
            continue
        recalled += 1
        if len(part.numbers) == 1:
            precise += 1
            continue
        for number in part.numbers:
            others = [other for other in part.numbers if other != number]
            if await borne(part, [number]) or not await borne(part, others):
                precise += 1
    return (
        precise / citations if citations else None,
        recalled / len(parts) if parts else None,
    )


def _asked(answer: Answer) -> str:
    return answer.standalone_question or answer.question
