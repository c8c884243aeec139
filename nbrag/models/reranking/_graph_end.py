"""By which operator an ONNX graph makes an output: whether it squashes its own scores.

ONNX Runtime doesn't tell, so the file's Protocol Buffers fields are walked: the nodes' operators
and the names that they read and write, nothing else.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

__all__ = ["last_operator"]

#: Field numbers of onnx.proto.
_MODEL_GRAPH, _GRAPH_NODE = 7, 1
_NODE_INPUT, _NODE_OUTPUT, _NODE_OPERATOR = 1, 2, 4
#: Operators that pass numbers on as they are.
_PASSING = frozenset(
    (
        "Identity", "Cast", "Squeeze", "Unsqueeze", "Reshape", "Flatten", "Gather", "Slice",
        "Transpose", "QuantizeLinear", "DequantizeLinear",
    )
)  # fmt: skip


def last_operator(path: Path, output: str) -> str | None:
    """Return the operator that makes an output's numbers, e.g. ``Gemm`` or ``Sigmoid``.

    Operators that only give numbers another shape or type are looked through. None when the file
    can't be followed.

    Parameters
    ----------
    path
        The ``.onnx`` file.
    output
        Name of the graph's output.
    """
    makers: dict[str, tuple[str, str]] = {}
    try:
        with (
            path.open("rb") as stream,
            mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            for number, start, end in _fields(data, 0, len(data)):
                if number == _MODEL_GRAPH:
                    for inner, begin, stop in _fields(data, start, end):
                        if inner == _GRAPH_NODE:
                            _note(data, begin, stop, makers)
    except (OSError, ValueError, IndexError):
        return None
    for _ in range(len(makers)):
        operator, source = makers.get(output, (None, ""))
        if operator not in _PASSING:
            return operator
        output = source
    return None


def _note(data: mmap.mmap, start: int, end: int, makers: dict[str, tuple[str, str]]) -> None:
    """Note which operator makes a node's outputs, and from what first."""
    found: dict[int, list[str]] = {_NODE_INPUT: [], _NODE_OUTPUT: [], _NODE_OPERATOR: []}
    for number, begin, stop in _fields(data, start, end):
        if number in found:
            found[number].append(data[begin:stop].decode("utf-8"))
    operator = "".join(found[_NODE_OPERATOR])
    source = next(iter(found[_NODE_INPUT]), "")
    makers.update((name, (operator, source)) for name in found[_NODE_OUTPUT])


def _fields(data: mmap.mmap, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (field number, start, end) of a message's fields with a length."""
    while start < end:
        key, start = _number(data, start)
        wire = key & 7
        if wire == 0:
            _, start = _number(data, start)
        elif wire == 2:
            length, start = _number(data, start)
            yield key >> 3, start, start + length
            start += length
        elif wire in (1, 5):
            start += 8 if wire == 1 else 4
        else:
            raise ValueError("not a message")


def _number(data: mmap.mmap, start: int) -> tuple[int, int]:
    """Return a number of seven bits per byte, and where it ends."""
    value = shift = 0
    while True:
        byte = data[start]
        value |= (byte & 127) << shift
        start += 1
        shift += 7
        if byte < 128:
            return value, start
        if shift > 70:
            raise ValueError("not a number")
