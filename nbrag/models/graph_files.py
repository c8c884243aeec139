"""Looks into ONNX files before they are opened: whole or not, and where their weights lie.

An ONNX file is one Protocol Buffers message; here only its skeleton is walked (field numbers and
lengths), which needs no package and takes milliseconds.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from nbrag.errors import ModelInvalid, ModelNotFound

__all__ = ["check_graph", "external_weights", "is_pointer"]

#: Field numbers of onnx.proto that lead to tensors, by kind of message.
_INTO = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
}
#: Graphs within graphs (If, Loop); deeper ones are not a model's.
_DEEPEST = 64
_AGAIN = "get the file again"
#: What stands in place of a large file where only Git, not its large-file storage, was asked.
_POINTER = b"version https://git-lfs"
_STARTS = (
    (_POINTER, "is a Git LFS pointer, not the file itself", "git lfs pull"),
    (b"\x80", "is a pickle, which may hold code and is never loaded", "take an .onnx file"),
    (b"PK\x03\x04", "is a ZIP archive, perhaps pickled weights", "take an .onnx file"),
    (b"<", "is a web page, not a model", _AGAIN),
    (b"GGUF", "is a GGUF file, which is for chat models", "take an .onnx file"),
)


class _Field(NamedTuple):
    number: int
    start: int
    end: int


class _Broken(Exception):
    """The bytes are not a message, or end too early."""


def check_graph(path: Path) -> tuple[Path, ...]:
    """Check that an ONNX file is whole, and that its weights are there and nowhere else.

    Parameters
    ----------
    path
        The ``.onnx`` file.

    Returns
    -------
    tuple[Path, ...]
        The files beside it in which it keeps weights; most models have none.

    Raises
    ------
    ModelNotFound
        When the file is not there.
    ModelInvalid
        When it is empty, truncated or something else than an ONNX file; when a file of weights is
        missing or too short, or its path leaves the model's folder.
    """
    if not path.is_file():
        raise ModelNotFound(f"the model file {path} is missing.")
    for name, needed in external_weights(path).items():
        weights = path.parent / name
        if not weights.is_file():
            raise ModelInvalid(
                f"{path.name} keeps its weights in {name}, which is missing from {path.parent}.",
                hint="copy or download that file as well",
            )
        with weights.open("rb") as stream:
            _refuse_start(weights, stream.read(64))
        size = weights.stat().st_size
        if size < needed:
            raise ModelInvalid(
                f"{weights} is truncated: it has {size:,} of at least {needed:,} bytes.",
                hint=_AGAIN,
            )
    return tuple(path.parent / name for name in external_weights(path))


def is_pointer(path: Path) -> bool:
    """Return whether a file is a Git LFS pointer instead of its content."""
    with path.open("rb") as stream:
        return stream.read(len(_POINTER)) == _POINTER


def external_weights(path: Path) -> dict[str, int]:
    """Return the files that a graph keeps weights in, with the bytes that each must have.

    Names count from the graph's folder. Errors are those of :func:`check_graph`, but the files
    themselves are not looked at.
    """
    status = path.stat()
    return dict(_external_weights(path, status.st_mtime_ns, status.st_size))


@lru_cache(maxsize=64)
def _external_weights(path: Path, _modified: int, size: int) -> tuple[tuple[str, int], ...]:
    if not size:
        raise ModelInvalid(f"{path} can't be opened as an ONNX model: it is empty.", hint=_AGAIN)
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        _refuse_start(path, data[:64])
        try:
            fields = list(_fields(data, 0, size))
        except _Broken as broken:
            raise ModelInvalid(
                f"{path} can't be opened as an ONNX model: {broken}.",
                hint="get the file again; it may be truncated or not an ONNX graph",
            ) from None
        if not any(field.number == 7 for field in fields):
            raise ModelInvalid(
                f"{path} can't be opened as an ONNX model: it holds no graph.", hint=_AGAIN
            )
        found: dict[str, int] = {}
        # The key under which a tensor names its file; most graphs don't have it anywhere.
        if data.find(b"location") >= 0:
            try:
                for entries in _tensors(data, 0, size, "model", 0):
                    _note(path, entries, found)
            except _Broken as broken:
                raise ModelInvalid(
                    f"{path} can't be opened as an ONNX model: {broken}.", hint=_AGAIN
                ) from None
    return tuple(found.items())


def _refuse_start(path: Path, start: bytes) -> None:
    for beginning, what, hint in _STARTS:
        if start.startswith(beginning):
            raise ModelInvalid(f"{path} can't be opened as an ONNX model: it {what}.", hint=hint)


def _note(path: Path, entries: dict[str, str], found: dict[str, int]) -> None:
    """Note a tensor's file and how far it reaches into it."""
    location = entries["location"]
    place = PurePosixPath(location.replace("\\", "/"))
    if place.is_absolute() or ".." in place.parts or ":" in location or not place.parts:
        raise ModelInvalid(
            f"{path} wants to read its weights from '{location}', outside its own folder: refused.",
            hint="take the model from a source that you trust",
        )
    try:
        needed = int(entries.get("offset", "0")) + int(entries.get("length", "0"))
    except ValueError:
        raise ModelInvalid(
            f"{path} names a place in {location} that is not a number.", hint=_AGAIN
        ) from None
    name = str(place)
    found[name] = max(found.get(name, 0), needed)


def _tensors(
    data: mmap.mmap, start: int, end: int, kind: str, depth: int
) -> Iterator[dict[str, str]]:
    """Yield what each tensor with weights elsewhere says about them."""
    if depth > _DEEPEST:
        raise _Broken("its graphs are nested too deeply")
    into = _INTO[kind]
    entries: dict[str, str] = {}
    for field in _fields(data, start, end):
        inner = into.get(field.number)
        if inner == "entry":
            parts = {
                part.number: data[part.start : part.end].decode("utf-8", "replace")
                for part in _fields(data, field.start, field.end)
            }
            entries[parts.get(1, "")] = parts.get(2, "")
        elif inner is not None:
            yield from _tensors(data, field.start, field.end, inner, depth + 1)
    if "location" in entries:
        yield entries


def _fields(data: mmap.mmap, start: int, end: int) -> Iterator[_Field]:
    """Yield the fields of one message; those without a length have an empty stretch."""
    place = start
    while place < end:
        key, place = _number(data, place, end)
        number, wire = key >> 3, key & 7
        if wire == 0:
            _, after = _number(data, place, end)
            field = _Field(number, after, after)
        elif wire in (1, 5):
            after = place + (8 if wire == 1 else 4)
            field = _Field(number, after, after)
        elif wire == 2 and number:
            length, place = _number(data, place, end)
            after = place + length
            field = _Field(number, place, after)
        else:
            raise _Broken("it is no ONNX graph")
        if after > end:
            raise _Broken(f"it is truncated, {after - end:,} bytes are missing at least")
        yield field
        place = after


def _number(data: mmap.mmap, place: int, end: int) -> tuple[int, int]:
    """Return a number of seven bits per byte, and where it ends."""
    value = shift = 0
    while place < end and shift < 70:
        byte = data[place]
        value |= (byte & 127) << shift
        place += 1
        if byte < 128:
            return value, place
        shift += 7
    raise _Broken("it is truncated" if place >= end else "it is no ONNX graph")
