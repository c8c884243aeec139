"""Hypothetical questions: rows of their own that lead a search to the chunks they were made from.

A question row is searched like any other, but a hit on it counts as a hit on its parent: a
chunk's score is the best of its own and its questions'. What a search returns are parents only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nbrag.stores.plans import LegAnswer

__all__ = ["Leads", "QuestionRows", "Scope", "led_answers"]

Rows = NDArray[np.int64]
Scores = NDArray[np.float32]
#: Stands for a parent that is not there.
_NOWHERE = -1
#: How much deeper a leg looks when several hits on the same chunks left too few chunks.
_DEEPER = 4


@dataclass(frozen=True, slots=True, eq=False)
class QuestionRows:
    """The question rows of a collection, and where their parents stand.

    Attributes
    ----------
    rows
        int64 of shape (n,), increasing.
    parent_ids
        object of shape (n,): the parents' chunk ids.
    parents
        int64 of shape (n,): the parents' rows, -1 for one that was not found.
    settled
        Whether parents that are not in the questions' own batch were looked for.
    """

    rows: Rows
    parent_ids: NDArray[np.object_]
    parents: Rows
    settled: bool = True

    @classmethod
    def none(cls) -> QuestionRows:
        """Return the questions of a collection that has none."""
        return cls(np.empty(0, np.int64), np.empty(0, object), np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self.rows)

    def joined(
        self,
        rows: Rows,
        ids: Sequence[str],
        parent_ids: Sequence[str | None] | None,
        questions: NDArray[np.bool_],
    ) -> QuestionRows:
        """Return them with those of incoming rows, which stand behind all others.

        Parameters
        ----------
        rows, ids, parent_ids
            All rows that come in, n of each; no ``parent_ids`` when none of them has one.
        questions
            Which of them are questions, of shape (n,).
        """
        places = np.flatnonzero(questions)
        if not len(places):
            missing = len(self) and bool((self.parents == _NOWHERE).any())
            return replace(self, settled=False) if missing and len(rows) else self
        known = dict(zip(ids, rows.tolist(), strict=True))
        wanted = np.empty(len(places), object)
        if parent_ids is not None:
            wanted[:] = [parent_ids[place] for place in places.tolist()]
        found = [known.get(parent, _NOWHERE) for parent in wanted]
        parents = np.concatenate([self.parents, np.array(found, np.int64)])
        return QuestionRows(
            np.concatenate([self.rows, rows[places]]),
            np.concatenate([self.parent_ids, wanted]),
            parents,
            settled=not (parents == _NOWHERE).any(),
        )

    def without(self, removed: Rows) -> QuestionRows:
        """Return those that are left when rows are gone."""
        if not len(self):
            return self
        kept = ~np.isin(self.rows, removed)
        parents = self.parents[kept]
        orphaned = np.isin(parents, removed)
        parents[orphaned] = _NOWHERE
        settled = self.settled and not orphaned.any()
        return QuestionRows(self.rows[kept], self.parent_ids[kept], parents, settled)

    def settle(self, rows: Rows, ids: NDArray[np.object_]) -> QuestionRows:
        """Return them with the parents that are among all the collection's rows."""
        if self.settled:
            return self
        missing = np.flatnonzero(self.parents == _NOWHERE)
        wanted = set(self.parent_ids[missing].tolist()) - {None}
        known = {
            chunk_id: row
            for chunk_id, row in zip(ids.tolist(), rows.tolist(), strict=True)
            if chunk_id in wanted
        }
        parents = self.parents.copy()
        parents[missing] = [known.get(parent, _NOWHERE) for parent in self.parent_ids[missing]]
        return replace(self, parents=parents, settled=True)

    def leads(self, allowed: Rows) -> tuple[Rows, Leads | None]:
        """Return the allowed rows without questions that lead to none of them, and the leads.

        Parameters
        ----------
        allowed
            int64 rows that may be found, increasing, questions among them.
        """
        asked = _within(self.rows, allowed)
        passages = allowed[~_within(allowed, self.rows[asked])]
        leading = asked & _within(self.parents, passages)
        if not leading.any():
            return passages, None
        questions = self.rows[leading]
        rows = np.concatenate([passages, questions])
        rows.sort()
        return rows, Leads.of(questions, self.parents[leading])


@dataclass(frozen=True, slots=True, eq=False)
class Leads:
    """From question rows to the rows of the chunks that they lead to, and back.

    Attributes
    ----------
    questions, parents
        int64 of shape (n,): rows, the questions' increasing.
    by_parent
        Places in these, in the order of the parents.
    most
        The most questions that one parent has.
    usual
        How many questions a parent that has some has on average, rounded up.
    """

    questions: Rows
    parents: Rows
    by_parent: NDArray[np.intp]
    most: int
    usual: int

    @classmethod
    def of(cls, questions: Rows, parents: Rows) -> Leads:
        """Return the leads of at least one question."""
        counts = np.unique(parents, return_counts=True)[1]
        order = np.argsort(parents, kind="stable")
        usual = -(-len(questions) // len(counts))
        return cls(questions, parents, order, int(counts.max()), usual)

    def __len__(self) -> int:
        return len(self.questions)

    def parents_of(self, rows: Rows) -> Rows:
        """Return the chunk that each row leads to: a question to its parent, others to themselves.

        Parameters
        ----------
        rows
            int64 of shape (n,), in any order.
        """
        places = np.minimum(np.searchsorted(self.questions, rows), len(self) - 1)
        return np.where(self.questions[places] == rows, self.parents[places], rows)

    def collapsed(self, answer: LegAnswer, k: int) -> LegAnswer:
        """Return an answer's best ``k`` chunks, each with the best of its rows' scores."""
        parents = self.parents_of(answer.rows)
        first = np.sort(np.unique(parents, return_index=True)[1])[:k]
        count = len(self)
        noun = "question" if count == 1 else "questions"
        return LegAnswer(
            answer.request,
            answer.number,
            parents[first],
            answer.scores[first],
            lambda wanted: self.best_scores(answer.score_of, wanted),
            f"{answer.explanation}, {count:,} {noun} among them",
            answer.rows[first],
        )

    def best_scores(self, score_of: Callable[[Rows], Scores], wanted: Rows) -> Scores:
        """Return the best of each chunk's own score and its questions', float32 of shape (n,).

        Parameters
        ----------
        score_of
            Returns the scores of rows by themselves.
        wanted
            int64 rows of chunks, each once.
        """
        in_order = self.parents[self.by_parent]
        start = np.searchsorted(in_order, wanted, "left")
        counts = np.searchsorted(in_order, wanted, "right") - start
        owner = np.repeat(np.arange(len(wanted)), counts)
        step = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        questions = self.questions[self.by_parent[start[owner] + step]]
        scores = score_of(np.concatenate([wanted, questions]))
        best = scores[: len(wanted)].copy()
        np.maximum.at(best, owner, scores[len(wanted) :])
        return best


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """What a search may find.

    Attributes
    ----------
    rows
        int64 rows, increasing; None for all.
    leads
        Where the questions among them lead; None when there are none.
    """

    rows: Rows | None
    leads: Leads | None = None


def led_answers(
    search: Callable[[int], list[LegAnswer]], k: int, leads: Leads | None
) -> list[LegAnswer]:
    """Return a leg's answers with chunks in the place of their questions.

    Several hits may lead to one chunk, so the leg looks deeper until each answer has ``k``
    chunks, or all that there are.

    Parameters
    ----------
    search
        Returns the leg's answers of at most so many rows each.
    k
        How many chunks an answer may have.
    leads
        Where the questions lead; None when there are none.
    """
    if leads is None or k < 1:
        return search(k)
    enough, depth = k * (1 + leads.most), k * (1 + leads.usual)
    while True:
        depth = min(depth, enough)
        answers = search(depth)
        collapsed = [leads.collapsed(answer, k) for answer in answers]
        if depth == enough or all(
            len(short.rows) == k or len(answer.rows) < depth
            for short, answer in zip(collapsed, answers, strict=True)
        ):
            return collapsed
        depth *= _DEEPER


def _within(rows: Rows, increasing: Rows) -> NDArray[np.bool_]:
    """Return which of the rows are among increasing ones."""
    if not len(increasing):
        return np.zeros(len(rows), np.bool_)
    places = np.minimum(np.searchsorted(increasing, rows), len(increasing) - 1)
    found: NDArray[np.bool_] = increasing[places] == rows
    return found
