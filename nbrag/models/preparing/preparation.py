"""Preparing a model: fold, fuse, quantise what can be without loss, measure, keep with a record."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from nbrag.errors import ConfigurationError, ModelInvalid
from nbrag.models.files import ModelFiles, find_files
from nbrag.models.known import BUILT_IN
from nbrag.models.prepared_files import (
    RECIPE,
    keep_prepared,
    prepared_graph,
    prepared_record,
    scratch_folder,
)
from nbrag.models.preparing import _steps
from nbrag.models.preparing._calibration import CALIBRATION
from nbrag.models.preparing._drift import (
    LEAST_AGREEMENT,
    Drift,
    Judge,
    classifier_judge,
    embedder_judge,
)
from nbrag.models.preparing._fusing import Fusions, fuse
from nbrag.models.preparing._quantising import products, quantise
from nbrag.models.purpose import purpose_of

__all__ = ["PreparedModel", "prepare_model"]

#: What fusing may change: it is the same arithmetic in another order.
_SAME = 1 - 1e-4
#: Shares of the products that are left out, the most sensitive first, until the rest passes.
_SHARES_LEFT_OUT = (0.0, 0.125, 0.25, 0.5)
#: Fewer texts than all for finding out which products are sensitive: one run for each product.
_SAMPLE = 12
_FEWEST_TEXTS = 8


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """What came of preparing a model.

    Attributes
    ----------
    name
        The model's name.
    path
        The prepared graph.
    quantised, products
        How many of its matrix products are in 8 bits, and how many there are.
    agreement, least_agreement
        How near it is to the original, on average and with the worst text: cosines of an
        embedder's vectors, or 1 less the difference of a cross-encoder's logits in standard
        deviations.
    notes
        What could not be done, one line each.
    made
        Whether it was made now, and not found as it was.
    """

    name: str
    path: Path
    quantised: int
    products: int
    agreement: float
    least_agreement: float
    notes: tuple[str, ...]
    made: bool

    def __str__(self) -> str:
        """Return two or more lines for people."""
        done = "prepared" if self.made else "was prepared already"
        first = (
            f"{self.name} {done}: {self.quantised} of {self.products} products in 8 bits, "
            f"agreement with the original {self.agreement:.4f} (worst text "
            f"{self.least_agreement:.4f})"
        )
        lines = [
            first,
            *(f"note: {note}" for note in self.notes),
            f"kept as {self.path}",
        ]
        return "\n".join(lines)


def prepare_model(
    model: str | Path,
    *,
    file: str | None = None,
    texts: Sequence[str] | None = None,
    purpose: Literal["embedding", "reranking"] | None = None,
    again: bool = False,
) -> PreparedModel:
    """Make a faster variant of a model for this machine, and keep it in nbrag's cache.

    Weights that are widened in the graph are folded to float32; attention and GELU become single
    operators; matrix products are computed in 8 bits, with a scale for each token and each column
    of the weights, as far as the outputs stay near the original's on some texts. The products that
    change them most are left in float32 where that is needed. Whatever uses the model by its name
    takes the prepared graph from then on, unless it is told ``prepared=false``.

    Vectors of a prepared model have an identity of their own: a collection that was made without
    is not searched with it.

    Parameters
    ----------
    model
        ``minilm`` for the one that is installed, a folder, an ``.onnx`` file or a hub name.
    file
        The graph to take where a model has several.
    texts
        Texts to compare on, at least 8, e.g. some of your own documents; None takes nbrag's own:
        prose, code, tables and short questions in several languages.
    purpose
        What the model is for, where its files don't tell.
    again
        Whether to prepare it anew when that was done already.

    Raises
    ------
    MissingDependency
        When the package onnx is not installed (``pip install 'nbrag[prepare]'``).
    ModelNotFound, ModelInvalid
        When the model is not there, can't be used, or nothing could be made of it that is both
        faster and near enough: cosines of at least 0.996 on average and 0.98 with the worst text,
        or logits within 0.05 standard deviations on average and 0.1 for the worst question.
    ModelError
        When the cache can't be written.
    """
    _steps.require_onnx()
    if texts is not None and len([text for text in texts if text.strip()]) < _FEWEST_TEXTS:
        raise ConfigurationError(f"comparing needs at least {_FEWEST_TEXTS} texts.")
    files = _files(model, file)
    chosen = purpose or ("embedding" if model == BUILT_IN else purpose_of(files))
    if chosen == "unknown":
        chosen = _steps.purpose_by_outputs(files)
    if chosen == "unknown":
        raise ConfigurationError(
            f"the files of {files.name} don't tell what it is for.",
            hint="say purpose='embedding' or purpose='reranking'",
        )
    kept = None if again else prepared_record(files)
    if kept is not None:
        return _described(files, kept, made=False)
    calibration = list(CALIBRATION if texts is None else texts)
    with scratch_folder() as scratch:
        judges = embedder_judge if chosen == "embedding" else classifier_judge
        candidate = _Candidate(files, scratch, judges(files, calibration), LEAST_AGREEMENT[chosen])
        candidate.prepare(judges(files, calibration[:: max(1, len(calibration) // _SAMPLE)]))
        record = {
            **candidate.record(),
            "purpose": chosen,
            "calibration": {
                "texts": len(calibration),
                "own": texts is None,
                "hash": hashlib.blake2b("\0".join(calibration).encode()).hexdigest()[:24],
            },
        }
        keep_prepared(files, candidate.path, record)
    _forget_loaded()
    return _described(files, record, made=True)


def _files(model: str | Path, file: str | None) -> ModelFiles:
    from nbrag.models.embedding.onnx import default_files

    return default_files() if model == BUILT_IN else find_files(model, file=file)


def _described(files: ModelFiles, record: Any, *, made: bool) -> PreparedModel:
    return PreparedModel(
        files.name,
        prepared_graph(files),
        record["quantised"],
        record["products"],
        record["agreement"]["mean"],
        record["agreement"]["least"],
        tuple(record["notes"]),
        made,
    )


def _forget_loaded() -> None:
    """Let the process's shared embedder be made anew, with the prepared graph."""
    from nbrag.models.embedding import forget_default

    forget_default()


class _Candidate:
    """A model on its way."""

    def __init__(
        self, files: ModelFiles, scratch: Path, judge: Judge, wanted: tuple[float, float]
    ) -> None:
        self._wanted = wanted
        self._files = files
        self._scratch = scratch
        self._judge = judge
        self.path = scratch / "chosen.onnx"
        self._notes: list[str] = []
        self._fusions = Fusions(0, 0, 0)
        self._products: list[str] = []
        self._left_out: list[str] = []
        self._quantised = 0
        self._drift = Drift(1.0, 1.0)

    def prepare(self, sample: Judge) -> None:
        """Fuse, quantise and choose; afterwards the graph lies at ``path``."""
        model = self._fused()
        modern = _steps.modern(model)
        if modern is None:
            self._notes.append("its operators are too old to be quantised; only fused")
        else:
            model = modern
            self._products = products(model)
            if not self._products:
                self._notes.append("it has no products in float32 that could be quantised")
        if modern is None or not self._products or not self._quantise(model, sample):
            self._take_fused(model)

    def _fused(self) -> Any:
        """Return the folded model, fused as far as the outputs stay the same."""
        source = _steps.folded(self._files.model, self._scratch / "folded.onnx")
        heads = _steps.attention_heads(self._files)
        if heads is None:
            self._notes.append("config.json doesn't name the attention heads; attention not fused")
        for tried in dict.fromkeys((heads, None)):
            model = type(source)()
            model.CopyFrom(source)
            fusions = fuse(model, tried)
            if tried is not None and fusions.unfused_attention:
                self._notes.append(
                    f"attention written in a way that is not recognised: "
                    f"{fusions.unfused_attention} of "
                    f"{fusions.unfused_attention + fusions.attention} not fused"
                )
            if not (fusions.attention or fusions.gelu):
                break
            drift = self._tried(model, "fused")
            if drift is not None and drift.least >= _SAME:
                self._fusions, self._drift = fusions, drift
                return model
            self._notes.append(
                f"fusing {'attention' if tried else 'GELU'} changed the outputs; left as it was"
            )
        return source

    def _tried(self, model: Any, name: str) -> Drift | None:
        """Return how far a model strays; None when it can't be run."""
        try:
            return self._judge.drift(_steps.saved(model, self._scratch / f"{name}.onnx"))
        except ModelInvalid:
            return None

    def _quantise(self, model: Any, sample: Judge) -> bool:
        """Quantise as many products as may be; return whether any could."""
        ranked: list[str] = []
        drift: Drift | None = None
        for share in _SHARES_LEFT_OUT:
            if share and not ranked:
                ranked = self._by_sensitivity(model, sample)
            left_out = ranked[: round(share * len(self._products))]
            if share and not left_out:
                continue
            trial = type(model)()
            trial.CopyFrom(model)
            count = quantise(trial, left_out)
            drift = self._tried(trial, "trial")
            if drift is None:
                self._notes.append("the quantised graph can't be run here; only fused")
                return False
            if drift.reaches(self._wanted):
                (self._scratch / "trial.onnx").replace(self.path)
                self._drift, self._quantised, self._left_out = drift, count, left_out
                return True
        if drift is not None:
            self._notes.append(
                f"with half of its products in 8 bits the outputs stray to {drift.mean:.4f} "
                f"(worst text {drift.least:.4f}), below {self._wanted[0]} "
                f"({self._wanted[1]}): refused; only fused"
            )
        return False

    def _by_sensitivity(self, model: Any, sample: Judge) -> list[str]:
        """Return the products, those first that alone change the outputs most."""
        found = {}
        for name in self._products:
            trial = type(model)()
            trial.CopyFrom(model)
            quantise(trial, set(self._products) - {name})
            found[name] = sample.drift(_steps.saved(trial, self._scratch / "single.onnx")).mean
        return sorted(found, key=lambda name: found[name])

    def _take_fused(self, model: Any) -> None:
        """Keep the fused model, and refuse when there is nothing about it that pays."""
        if not (self._fusions.attention or self._fusions.gelu):
            raise ModelInvalid(
                f"nothing could be made faster in {self._files.name}: {'; '.join(self._notes)}.",
                hint="use it as it is",
            )
        _steps.saved(model, self.path)

    def record(self) -> dict[str, Any]:
        """Return what was done, for people and for later runs."""
        names = ("nbrag", "onnx", "onnxruntime")
        return {
            "recipe": RECIPE,
            "model": self._files.name,
            "source": {"file": self._files.model.name, "hash": self._files.fingerprint()},
            "versions": {name: _version(name) for name in names},
            "fused": asdict(self._fusions),
            "quantisation": "8 bits, a scale for each row and each column, symmetric",
            "products": len(self._products),
            "quantised": self._quantised,
            "left out": self._left_out,
            "agreement": {**asdict(self._drift), "wanted": list(self._wanted)},
            "notes": self._notes,
        }


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"
