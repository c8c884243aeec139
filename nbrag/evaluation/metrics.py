"""Ranking metrics, computed by ir-measures (which follows trec_eval).

A document is relevant from grade 1 on. nDCG takes the grade itself as gain and discounts by the
logarithm to base 2 of rank + 1 (Järvelin and Kekäläinen 2002, as in trec_eval).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from nbrag.errors import ConfigurationError, did_you_mean

__all__ = ["DEFAULT_METRICS", "Metric", "metric_values", "parse_metric", "parse_metrics"]

Family = Literal["nDCG", "recall", "MRR", "P", "MAP"]

DEFAULT_METRICS = ("recall@5", "MRR", "nDCG@10")
#: Spellings, in lower case, of each family.
_SPELLINGS: dict[str, Family] = {
    "ndcg": "nDCG",
    "recall": "recall",
    "r": "recall",
    "mrr": "MRR",
    "rr": "MRR",
    "p": "P",
    "precision": "P",
    "map": "MAP",
    "ap": "MAP",
}
#: How many documents a metric without cut-off looks at: none finds more than that in practice,
#: and a deeper list would make pipelines do what they never do for a person.
_UNCUT_DEPTHS: dict[Family, int] = {"MRR": 10, "nDCG": 100, "MAP": 100}
_LARGEST_CUTOFF = 1000
_FORM = re.compile(r"\s*([^@\s]+?)\s*(?:@\s*(\S+))?\s*")


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes
    ----------
    family
        nDCG, recall, MRR (mean reciprocal rank), P (precision) or MAP (mean average precision).
    cutoff
        How many documents count, from the first; None where the name gives none.
    """

    family: Family
    cutoff: int | None

    @property
    def name(self) -> str:
        """The metric as it is written: ``nDCG@10``, ``MRR``."""
        return self.family if self.cutoff is None else f"{self.family}@{self.cutoff}"

    @property
    def depth(self) -> int:
        """How many ranked documents it looks at; without cut-off 10 for MRR, else 100."""
        return self.cutoff or _UNCUT_DEPTHS[self.family]

    @property
    def measure(self) -> Any:
        """The measure of ir-measures."""
        import ir_measures

        families = {"nDCG": "nDCG", "recall": "R", "MRR": "RR", "P": "P", "MAP": "AP"}
        return getattr(ir_measures, families[self.family]) @ self.depth


def parse_metric(name: str) -> Metric:
    """Return the metric of a name such as ``nDCG@10``; upper and lower case are alike.

    Raises
    ------
    ConfigurationError
        When there is no such metric, or its cut-off is missing or no whole number from 1 to 1000.
    """
    match = _FORM.fullmatch(name)
    word, cutoff = match.groups() if match else (name, None)
    family = _SPELLINGS.get(word.lower())
    if family is None:
        known = ["nDCG@10", "recall@5", "MRR", "P@5", "MAP"]
        near = did_you_mean(word, set(_SPELLINGS.values()), what="metrics")
        if not near.startswith("did you mean"):
            near = f"known metrics: {', '.join(known)}"
        raise ConfigurationError(f"there is no metric '{name}'.", hint=near)
    if cutoff is None:
        if family not in _UNCUT_DEPTHS:
            raise ConfigurationError(
                f"the metric '{name}' needs a cut-off.", hint=f"write {family}@5, for instance"
            )
        return Metric(family, None)
    if not re.fullmatch("[0-9]{1,4}", cutoff) or not 1 <= int(cutoff) <= _LARGEST_CUTOFF:
        raise ConfigurationError(
            f"the cut-off of the metric '{name}' is not from 1 to {_LARGEST_CUTOFF}.",
            hint=f"write {family}@10, for instance",
        )
    return Metric(family, int(cutoff))


def parse_metrics(names: Iterable[str]) -> tuple[Metric, ...]:
    """Return the metrics of several names, each once.

    Raises
    ------
    ConfigurationError
        When a name can't be read, or there is none.
    """
    given = [names] if isinstance(names, str) else list(names)
    metrics = tuple(dict.fromkeys(parse_metric(name) for name in given))
    if not metrics:
        raise ConfigurationError("no metric is given.", hint="nDCG@10, for instance")
    return metrics


def metric_values(
    metrics: Sequence[Metric],
    qrels: Mapping[str, Mapping[str, int]],
    rankings: Mapping[str, Sequence[str]],
) -> dict[str, dict[str, float]]:
    """Return every metric of every ranked query.

    Parameters
    ----------
    metrics
        What to compute.
    qrels
        Grades by query id and document; each ranked query has some.
    rankings
        Documents by query id, best first, none twice. An empty ranking scores 0.

    Returns
    -------
    dict
        Values from 0 to 1 by query id and metric name.
    """
    import ir_measures

    values = {query: {metric.name: 0.0 for metric in metrics} for query in rankings}
    filled = {query: ranking for query, ranking in rankings.items() if ranking}
    if not filled:
        return values
    # trec_eval orders by score: distinct ones keep the pipeline's own order.
    run = {
        query: {document: float(-rank) for rank, document in enumerate(ranking)}
        for query, ranking in filled.items()
    }
    # Negative grades (spam) mean not relevant, and trec_eval can't read them.
    judged = {query: {d: max(g, 0) for d, g in qrels[query].items()} for query in filled}
    same: dict[Any, list[str]] = {}
    for metric in metrics:
        same.setdefault(metric.measure, []).append(metric.name)
    for found in ir_measures.iter_calc(list(same), judged, run):
        for name in same[found.measure]:
            values[found.query_id][name] = float(found.value)
    return values
