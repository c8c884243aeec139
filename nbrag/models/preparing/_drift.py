"""How far a prepared model strays from the original."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nbrag.models.batching import batches_by_tokens
from nbrag.models.files import ModelFiles
from nbrag.models.preparing._calibration import QUESTIONS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["LEAST_AGREEMENT", "Drift", "Judge", "classifier_judge", "embedder_judge"]

#: What a prepared model must reach on average, and with its worst text or question. Measured on
#: SciFact with all-MiniLM-L6-v2: mean cosines of 0.998 cost 0.001 of nDCG@10, and 0.94 cost 0.016.
#: Logits of a cross-encoder may be off by a twentieth of the spread between passages.
LEAST_AGREEMENT = {"embedding": (0.996, 0.98), "reranking": (0.95, 0.90)}
#: A few texts of different length per call, so that padding is tried as well.
_BATCH_TOKENS = 1024
_FALLBACK_LIMIT = 128

#: Gives a graph's vectors or logits for the calibration texts.
Outputs = Callable[[Path], "NDArray[np.float64]"]


@dataclass(frozen=True, slots=True)
class Drift:
    """Agreement with the original: 1 is the same.

    Attributes
    ----------
    mean, least
        For embedders cosines of each text's vectors; for cross-encoders 1 less the difference of
        logits, in standard deviations of the original's.
    """

    mean: float
    least: float

    def reaches(self, wanted: tuple[float, float]) -> bool:
        """Return whether a model that strays as far may be used."""
        return self.mean >= wanted[0] and self.least >= wanted[1]


class Judge:
    """Compares graphs with the original one.

    Parameters
    ----------
    outputs
        Runs a graph on the calibration texts.
    original
        The original graph.
    compare
        Gives the agreement of (original outputs, other outputs), one number per text.
    """

    def __init__(
        self,
        outputs: Outputs,
        original: Path,
        compare: Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]],
    ) -> None:
        self._outputs = outputs
        self._compare = compare
        self._wanted = outputs(original)

    def drift(self, graph: Path) -> Drift:
        """Return how far a graph strays."""
        agreement = self._compare(self._wanted, self._outputs(graph))
        return Drift(float(agreement.mean()), float(agreement.min()))


def embedder_judge(files: ModelFiles, texts: Sequence[str]) -> Judge:
    """Return the judge for an embedder.

    Parameters
    ----------
    files
        The original's files.
    texts
        The calibration texts.
    """
    import numpy as np

    from nbrag.models.embedding._encoder import Encoder
    from nbrag.models.embedding._settings import read_settings
    from nbrag.models.sessions import DEFAULT_PROVIDERS
    from nbrag.models.tokenization import TextTokenizer

    settings = read_settings(files)
    limit = settings.max_tokens or _FALLBACK_LIMIT
    tokenizer = TextTokenizer(files.tokenizer, max_tokens=limit, lower_case=settings.lower_case)
    encoded = tokenizer.encode([settings.document_prefix + text for text in texts])
    batches = batches_by_tokens([len(ids) for ids in encoded], _BATCH_TOKENS)

    def outputs(graph: Path) -> NDArray[np.float64]:
        encoder = Encoder(
            replace(files, model=graph),
            # How vectors are pooled doesn't matter for how far they stray.
            pooling=settings.pooling or "mean",
            dimension=settings.dimension,
            pad_id=tokenizer.pad_id,
            pads_left=settings.pads_left,
            providers=DEFAULT_PROVIDERS,
        )
        vectors = np.zeros((len(encoded), encoder.dimension))
        for batch in batches:
            vectors[batch] = encoder.encode([encoded[place] for place in batch])
        return vectors

    return Judge(outputs, files.model, lambda wanted, found: (wanted * found).sum(axis=1))


def classifier_judge(files: ModelFiles, texts: Sequence[str]) -> Judge:
    """Return the judge for a cross-encoder: each text is scored for three questions.

    Parameters
    ----------
    files
        The original's files.
    texts
        The calibration texts.
    """
    import numpy as np

    from nbrag.models.reranking._classifier import Classifier
    from nbrag.models.reranking._pairs import PairTokenizer
    from nbrag.models.reranking._settings import read_classifier_settings
    from nbrag.models.sessions import DEFAULT_PROVIDERS

    settings = read_classifier_settings(files, max_tokens=None, relevant_label=None)
    tokenizer = PairTokenizer(files.tokenizer, settings)
    pairs = [pair for q in QUESTIONS for pair in tokenizer.encode(q, texts).pairs]
    batches = batches_by_tokens([len(pair.ids) for pair in pairs], _BATCH_TOKENS)

    def outputs(graph: Path) -> NDArray[np.float64]:
        classifier = Classifier(
            replace(files, model=graph),
            settings,
            pad_id=tokenizer.pad_id,
            probe=pairs[:2],
            outputs="auto",
            providers=DEFAULT_PROVIDERS,
        )
        logits = np.zeros(len(pairs))
        for batch in batches:
            logits[batch] = classifier.logits([pairs[place] for place in batch])
        return logits

    def compare(wanted: NDArray[np.float64], found: NDArray[np.float64]) -> NDArray[np.float64]:
        # Differences at the scale at which passages differ, averaged for each question.
        spread = max(float(wanted.std()), 1e-9)
        gaps: NDArray[np.float64] = np.abs(wanted - found).reshape(len(QUESTIONS), -1) / spread
        agreement: NDArray[np.float64] = 1 - gaps.mean(axis=1)
        return agreement

    return Judge(outputs, files.model, compare)
