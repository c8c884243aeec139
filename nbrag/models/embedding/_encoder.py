"""An opened encoder graph: token ids in, unit vectors out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nbrag.errors import ConfigurationError, ModelInvalid
from nbrag.models.embedding._pooling import pool
from nbrag.models.files import ModelFiles
from nbrag.models.sessions import open_session, run_session

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Encoder"]

_INPUTS = frozenset(("input_ids", "attention_mask", "token_type_ids", "position_ids"))
_TOKEN_OUTPUTS = ("last_hidden_state", "token_embeddings")
#: Outputs that are scores of labels or words, never vectors of a text.
_SCORES = frozenset(("logits", "scores", "probabilities"))
_TEXT_OUTPUTS = ("sentence_embedding", "text_embeds", "pooler_output")


class Encoder:
    """An encoder graph with its pooling; may be called from several threads at once.

    Parameters
    ----------
    files
        The model's files.
    pooling
        How token vectors become one; None when the model's files don't say.
    dimension
        Length that vectors must have; None takes the graph's.
    kept
        How many of a vector's numbers are kept, from its beginning; None keeps all.
    pad_id
        Token id that fills up shorter texts.
    pads_left
        Whether they are filled up at their beginning.
    providers
        ONNX Runtime execution providers.

    Raises
    ------
    ModelInvalid
        When the graph can't be opened, wants other inputs than an encoder's, or gives nothing
        that could be a vector.
    ConfigurationError
        When more numbers are to be kept than a vector has.
    """

    def __init__(
        self,
        files: ModelFiles,
        *,
        pooling: str | None,
        dimension: int | None,
        pad_id: int,
        providers: Sequence[str],
        kept: int | None = None,
        pads_left: bool = False,
    ) -> None:
        self._path = files.model
        self._pads_left = pads_left
        self._kept: int | None = None
        self._session = open_session(files.model, providers=providers)
        self._pad_id = pad_id
        self._inputs = self._checked_inputs()
        self._output, per_token, width = self._chosen_output(pooling)
        if per_token and pooling is None:
            raise ModelInvalid(
                f"the files of the model {files.name} don't say how token vectors are pooled "
                "(1_Pooling/config.json is missing).",
                hint="give pooling=, e.g. pooling='mean' or pooling='cls'",
            )
        #: How token vectors become one; ``none`` when the graph does it.
        self.pooling = pooling or "none"
        self._per_token = per_token
        self._expected = dimension or width
        whole: int = self._expected or self.encode([[pad_id]]).shape[1]
        if kept is not None and kept > whole:
            raise ConfigurationError(
                f"dimension={kept} is more than the {whole} that vectors of {files.name} have."
            )
        self._kept = kept
        #: Length of a vector.
        self.dimension: int = kept or whole
        if dimension and width and dimension != width:
            raise ModelInvalid(
                f"{self._path} gives vectors of length {width}, but the model's config.json says "
                f"{dimension}.",
                hint="the graph and config.json belong to different models",
            )

    def _checked_inputs(self) -> dict[str, str]:
        """Return the graph's inputs with their number type."""
        inputs = {entry.name: entry.type for entry in self._session.get_inputs()}
        unknown = sorted(set(inputs) - _INPUTS)
        if unknown or "input_ids" not in inputs:
            hint = f"an encoder takes {', '.join(sorted(_INPUTS))}, or some of them"
            if any(name.startswith("past_key") for name in unknown):
                hint = "it was exported for writing text; export it for feature-extraction"
            shown = [*sorted(inputs)[:8], *(["..."] if len(inputs) > 8 else [])]
            raise ModelInvalid(
                f"{self._path} is not a text encoder: its inputs are {', '.join(shown)}.", hint=hint
            )
        return {
            name: "int32" if kind == "tensor(int32)" else "int64" for name, kind in inputs.items()
        }

    def _chosen_output(self, pooling: str | None) -> tuple[str, bool, int | None]:
        """Return the output to take: (name, whether it has a vector per token, length)."""
        shapes = {entry.name: list(entry.shape or ()) for entry in self._session.get_outputs()}
        per_token = [n for n, shape in shapes.items() if len(shape) == 3 and n not in _SCORES]
        per_text = [n for n, shape in shapes.items() if len(shape) == 2 and n not in _SCORES]
        tokens_first = pooling not in (None, "none")
        named = [name for name in _TEXT_OUTPUTS if name in per_text]
        # A text-level output is the model's own only under its exporter's name: other graphs
        # have a classifier's output or an untrained pooler there.
        if tokens_first and per_token:
            name = next((name for name in _TOKEN_OUTPUTS if name in per_token), per_token[0])
        elif "sentence_embedding" in named or (named and not per_token) or pooling == "none":
            name = (named or per_text or [""])[0]
        elif per_token:
            name = next((name for name in _TOKEN_OUTPUTS if name in per_token), per_token[0])
        else:
            name = ""
        if not name:
            described = ", ".join(f"{key} {shape}" for key, shape in shapes.items())
            hint = "take a graph with the output last_hidden_state or sentence_embedding"
            if _SCORES & set(shapes):
                hint = "a graph with scores is for reranking or another task; " + hint
            raise ModelInvalid(
                f"{self._path} gives no vectors for texts: its outputs are {described}.", hint=hint
            )
        width = shapes[name][-1]
        return name, name in per_token, width if isinstance(width, int) else None

    def encode(self, texts: Sequence[Sequence[int]], *, prefixes: int = 0) -> NDArray[np.float32]:
        """Return float32 vectors of length 1, shape (len(texts), dimension), for token ids.

        Parameters
        ----------
        texts
            Token ids of each text.
        prefixes
            Tokens at the beginning of each text that the pooling leaves out.
        """
        import numpy as np

        output, mask = self._run(texts)
        if not self._per_token:
            return self.scaled(output)
        if prefixes:
            # A text of nothing but its prefix keeps its last token.
            places = np.cumsum(mask, axis=1)
            mask &= places > np.minimum(prefixes, mask.sum(axis=1, keepdims=True) - 1)
        return self.scaled(pool(self.pooling, output, mask))

    def token_states(self, text: Sequence[int]) -> NDArray[np.float32]:
        """Return float32 vectors of shape (len(text), length of a state), as the graph gives them.

        Raises
        ------
        ModelInvalid
            When the graph gives vectors for whole texts only.
        """
        if not self._per_token:
            raise ModelInvalid(
                f"{self._path} gives one vector for each text, and none for its tokens.",
                hint="take a graph of this model with the output last_hidden_state",
            )
        states: NDArray[np.float32] = self._run([text])[0][0]
        return states

    def _run(self, texts: Sequence[Sequence[int]]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return the graph's output for a batch, and which of its places hold a text's tokens."""
        import numpy as np

        lengths = np.array([len(ids) for ids in texts])
        width = int(lengths.max())
        mask = np.arange(width) < lengths[:, None]
        if self._pads_left:
            mask = mask[:, ::-1].copy()
        ids = np.full(mask.shape, self._pad_id, dtype=np.int64)
        ids[mask] = np.concatenate([np.asarray(text, dtype=np.int64) for text in texts])
        values = {
            "input_ids": ids,
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(ids),
            "position_ids": np.maximum(np.cumsum(mask, axis=1) - 1, 0),
        }
        feeds = {name: values[name].astype(kind) for name, kind in self._inputs.items()}
        output = np.asarray(run_session(self._session, self._output, feeds), dtype=np.float32)
        self._check_shape(output, mask.shape)
        return output, mask

    def scaled(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return vectors cut to what is kept of them, and scaled to length 1."""
        import numpy as np

        kept = vectors[:, : self._kept]
        norms = np.linalg.norm(kept, axis=1, keepdims=True)
        if not (np.isfinite(norms).all() and norms.all()):
            raise ModelInvalid(
                f"{self._path} gave a vector that is zero or not a number.",
                hint="take another graph of this model; half-precision ones may overflow",
            )
        scaled: NDArray[np.float32] = (kept / norms).astype(np.float32)
        return scaled

    def _check_shape(self, output: NDArray[Any], inputs: tuple[int, ...]) -> None:
        wanted = inputs if self._per_token else inputs[:1]
        dimension = self._expected
        if output.shape[:-1] != wanted or (dimension and output.shape[-1] != dimension):
            raise ModelInvalid(
                f"{self._path} gave an output of shape {output.shape} for inputs of shape "
                f"{inputs}" + (f", not vectors of length {dimension}." if dimension else ".")
            )
