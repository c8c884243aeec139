"""An opened sequence classifier: token ids of pairs in, one logit per pair out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nbrag.errors import ModelInvalid
from nbrag.models.files import ModelFiles
from nbrag.models.reranking._graph_end import last_operator
from nbrag.models.reranking._outputs import OutputReading, Outputs, chosen_reading
from nbrag.models.reranking._pairs import Pair
from nbrag.models.reranking._settings import ClassifierSettings
from nbrag.models.sessions import open_session, run_session

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Classifier"]

_INPUTS = frozenset(("input_ids", "attention_mask", "token_type_ids"))
#: Kinds of numbers that a graph may take, by the runtime's names.
_TYPES = {
    "tensor(int64)": "int64",
    "tensor(int32)": "int32",
    "tensor(bool)": "bool",
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
}
_EMBEDDER = "embedders belong to %rag_config embedder=; take a model for sequence classification"


class Classifier:
    """A graph with one logit or two per pair; may be called from several threads at once.

    Parameters
    ----------
    files
        The model's files.
    settings
        Labels and limit.
    pad_id
        Token id that fills up shorter pairs.
    probe
        A few pairs of different length, on which the graph is tried.
    outputs
        Whether the graph's numbers are logits or probabilities; ``auto`` finds out.
    providers
        ONNX Runtime execution providers.

    Raises
    ------
    ModelInvalid
        When the graph can't be opened, wants other inputs than a classifier of text, or gives
        anything but one number or two per pair.
    """

    def __init__(
        self,
        files: ModelFiles,
        settings: ClassifierSettings,
        *,
        pad_id: int,
        probe: Sequence[Pair],
        outputs: Outputs,
        providers: Sequence[str],
    ) -> None:
        self._path = files.model
        self._session = open_session(files.model, providers=providers)
        self._pad_id = pad_id
        self._inputs = self._checked_inputs()
        self._output = self._chosen_output()
        numbers = self._numbers(probe)
        #: How the graph's numbers are read.
        self.reading: OutputReading = chosen_reading(
            outputs, last_operator(files.model, self._output), numbers, settings.relevant
        )
        self.reading.logits(numbers)

    def _checked_inputs(self) -> dict[str, str]:
        """Return the graph's inputs with their kind of numbers."""
        inputs = {entry.name: entry for entry in self._session.get_inputs()}
        unknown = sorted(set(inputs) - _INPUTS)
        if unknown or "input_ids" not in inputs:
            raise ModelInvalid(
                f"{self._path} is not a classifier of text: its inputs are "
                f"{', '.join(sorted(inputs)) or 'none'}.",
                hint=f"a classifier takes {', '.join(sorted(_INPUTS))}, or some of them",
            )
        for name, entry in inputs.items():
            if entry.type not in _TYPES:
                raise ModelInvalid(f"{self._path} wants {entry.type} as {name}, not whole numbers.")
            if any(isinstance(size, int) for size in entry.shape or ()):
                raise ModelInvalid(
                    f"{self._path} takes only inputs of the shape {list(entry.shape)}.",
                    hint="export the model again with dynamic axes for batch and sequence",
                )
        return {name: _TYPES[entry.type] for name, entry in inputs.items()}

    def _chosen_output(self) -> str:
        """Return the output that has one number or two per pair."""
        shapes: dict[str, list[Any]] = {
            entry.name: list(entry.shape or ()) for entry in self._session.get_outputs()
        }
        fitting = [name for name, shape in shapes.items() if _fits(shape)]
        if "logits" in shapes:
            fitting = [name for name in fitting if name == "logits"]
        if len(fitting) == 1:
            return fitting[0]
        described = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        if len(fitting) > 1:
            raise ModelInvalid(
                f"{self._path} leaves open which output has the scores: {described}.",
                hint="the output with the scores must be called logits",
            )
        widths = [shape[-1] for shape in shapes.values() if len(shape) == 2]
        if "logits" in shapes and len(shapes["logits"]) == 2:
            raise ModelInvalid(
                f"{self._path} gives {widths[0]} numbers per pair, and a reranker gives one, "
                "or two.",
                hint="take a model that was trained to tell relevant passages from others",
            )
        raise ModelInvalid(
            f"{self._path} is not a classifier: its outputs are {described}.",
            hint=_EMBEDDER,
        )

    def logits(self, pairs: Sequence[Pair]) -> NDArray[np.float64]:
        """Return one logit per pair, higher for more relevant passages.

        Raises
        ------
        ModelInvalid
            When the graph fails, or gives something that is no number.
        """
        return self.reading.logits(self._numbers(pairs))

    def _numbers(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        """Return the graph's own numbers, finite, of shape (pairs, 1) or (pairs, 2)."""
        import numpy as np

        lengths = np.array([len(pair.ids) for pair in pairs])
        mask = np.arange(int(lengths.max())) < lengths[:, None]
        values: dict[str, NDArray[Any]] = {"attention_mask": mask}
        for name, fill in (("input_ids", self._pad_id), ("token_type_ids", 0)):
            lists = (pair.ids if name == "input_ids" else pair.segments for pair in pairs)
            filled = np.full(mask.shape, fill, dtype=np.int64)
            filled[mask] = np.concatenate([np.asarray(row, dtype=np.int64) for row in lists])
            values[name] = filled
        feeds = {name: values[name].astype(kind) for name, kind in self._inputs.items()}
        output = np.asarray(run_session(self._session, self._output, feeds), dtype=np.float32)
        numbers = output[:, None] if output.ndim == 1 else output
        if numbers.ndim != 2 or len(numbers) != len(pairs) or numbers.shape[1] not in (1, 2):
            raise ModelInvalid(
                f"{self._path} is not a classifier of one label or two: it gave an output of "
                f"shape {output.shape} for {len(pairs)} pairs.",
                hint=_EMBEDDER,
            )
        if not np.isfinite(numbers).all():
            raise ModelInvalid(
                f"{self._path} gave a score that is not a number.",
                hint="take another graph of this model; half-precision ones may overflow",
            )
        return numbers


def _fits(shape: Sequence[int | str | None]) -> bool:
    """Return whether an output may have one number or two per pair; open sizes may."""
    if len(shape) == 1:
        return True
    return len(shape) == 2 and (not isinstance(shape[1], int) or shape[1] in (1, 2))
