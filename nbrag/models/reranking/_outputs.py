"""From what a graph gives to logits: one column or two, raw or squashed already."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from nbrag.errors import ModelInvalid

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["OutputKind", "OutputReading", "Outputs", "chosen_reading", "sigmoid"]

Outputs = Literal["auto", "logit", "probability"]
OutputKind = Literal["logit", "probability"]
_SQUASHING = frozenset(("Sigmoid", "Softmax", "HardSigmoid", "QLinearSigmoid", "QLinearSoftmax"))
#: How far rounding may take a probability out of 0..1, or two of them from a sum of 1.
_SLACK = 1e-2


@dataclass(frozen=True, slots=True)
class OutputReading:
    """How a graph's numbers are read.

    Attributes
    ----------
    kind
        ``logit`` or ``probability``.
    reason
        How that is known.
    relevant
        Of two columns, the one that means relevant.
    """

    kind: OutputKind
    reason: str
    relevant: int

    def logits(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return one logit per row.

        Of two columns of logits: their difference, which is the logit of their softmax. Of a
        probability p: log(p / (1 - p)); of two: the logarithm of their ratio. Probabilities that
        are rounded to 0 or 1 are taken for the float32 next to it.

        Parameters
        ----------
        values
            Finite, of shape (rows, 1) or (rows, 2).

        Raises
        ------
        ModelInvalid
            When a probability is not between 0 and 1.
        """
        import numpy as np

        numbers = np.asarray(values, dtype=np.float64)
        if self.kind == "probability":
            if numbers.min() < -_SLACK or numbers.max() > 1 + _SLACK:
                raise ModelInvalid(
                    f"the model gave {_farthest(numbers):.4g}, which is no probability.",
                    hint="say outputs=logit",
                )
            numbers = _unsquashed(numbers)
        if numbers.shape[1] == 1:
            return numbers[:, 0]
        difference: NDArray[np.float64] = numbers[:, self.relevant] - numbers[:, 1 - self.relevant]
        return difference


def _farthest(numbers: NDArray[np.float64]) -> float:
    low, high = float(numbers.min()), float(numbers.max())
    return low if -low > high - 1 else high


def _unsquashed(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    import numpy as np

    kept = np.clip(numbers, 1.2e-38, 1 - 6e-8)
    logits: NDArray[np.float64] = np.log(kept)
    return logits if numbers.shape[1] == 2 else logits - np.log1p(-kept)


def chosen_reading(
    wanted: Outputs, operator: str | None, probe: NDArray[np.floating], relevant: int
) -> OutputReading:
    """Return how a graph's numbers are read.

    Parameters
    ----------
    wanted
        ``auto`` goes by the graph's last operator, and of two columns also by whether each row of
        the probe is two shares of 1.
    operator
        The graph's last operator, None when it is not known.
    probe
        The graph's numbers for a few pairs, of shape (rows, 1) or (rows, 2).
    relevant
        Of two columns, the one that means relevant.
    """
    import numpy as np

    if wanted != "auto":
        return OutputReading(wanted, "as asked", relevant)
    if operator in _SQUASHING:
        return OutputReading("probability", f"the graph ends in {operator}", relevant)
    shares = probe.shape[1] == 2 and probe.min() >= 0 and probe.max() <= 1
    if shares and bool(np.all(np.abs(probe.sum(axis=1) - 1) < 1e-3)):
        return OutputReading("probability", "its two numbers add up to 1", relevant)
    told = f"the graph ends in {operator}" if operator else "nothing says otherwise"
    return OutputReading("logit", told, relevant)


def sigmoid(logits: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return ``1 / (1 + exp(-logit))``, 0 to 1, without overflow."""
    import numpy as np

    numbers = np.asarray(logits, dtype=np.float64)
    small = np.exp(-np.abs(numbers))
    squashed: NDArray[np.float64] = np.where(numbers >= 0, 1 / (1 + small), small / (1 + small))
    return squashed
