"""Attention and GELU as single operators, where exporters write them out in many.

Attention is found around each softmax: the product of queries and keys before it, the product with
the values after it. The many ways of writing scales, masks, transpositions and guards against rows
that are masked whole are not told apart; whoever fuses must compare the outputs afterwards.

The runtime's own fusion of a sum with the layer norm behind it is left out on purpose: its operator
took 1.0 ms where the three separate ones took 0.22 ms (2 x 256 tokens of 384, one thread, 1.32).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from nbrag.models.preparing._graph import CONTRIBUTED, Graph

__all__ = ["Fusions", "fuse"]

_MASK = "attention_mask"
_MASK_32 = "nbrag_attention_mask_32"
_SOFTMAX = "Softmax"


@dataclass(frozen=True, slots=True)
class Fusions:
    """What was fused.

    Attributes
    ----------
    attention, gelu
        How many of each.
    unfused_attention
        How many softmaxes stand in something that was not recognised.
    """

    attention: int
    gelu: int
    unfused_attention: int


@dataclass(frozen=True, slots=True)
class _Attention:
    queries: str
    keys: str
    values: str
    output: str
    scale: float


def fuse(model: Any, heads: int | None) -> Fusions:
    """Fuse what can be recognised, in place.

    Parameters
    ----------
    model
        The ``onnx.ModelProto``, with constants folded.
    heads
        Attention heads; None leaves attention as it is.
    """
    gelu = _fuse_gelu(Graph(model))
    graph = Graph(model)
    found = [node for node in graph.nodes if node.op_type == _SOFTMAX]
    recognised = [_recognised(graph, node) for node in found] if heads else []
    attention = [entry for entry in recognised if entry is not None]
    if attention:
        _put_attention(graph, attention, heads or 1)
    return Fusions(len(attention), gelu, len(found) - len(attention))


def _put_attention(graph: Graph, found: list[_Attention], heads: int) -> None:
    from onnx import TensorProto, helper

    added = []
    mask = ""
    if _MASK in graph.inputs:
        mask = _MASK_32
        added.append(helper.make_node("Cast", [_MASK], [mask], to=TensorProto.INT32))
    replaced = {entry.output for entry in found}
    for entry in found:
        inputs = [entry.queries, entry.keys, entry.values, *(["", mask] if mask else [])]
        added.append(
            helper.make_node(
                "MultiHeadAttention",
                inputs,
                [entry.output],
                domain=CONTRIBUTED,
                num_heads=heads,
                scale=entry.scale,
            )
        )
    graph.rebuild([*(n for n in graph.nodes if n.output[0] not in replaced), *added])


def _recognised(graph: Graph, softmax: Any) -> _Attention | None:
    """Return the attention around a softmax, None when it is written in another way."""
    shares = softmax.output[0]
    # Rows that are masked whole give what is not a number, and some exporters guard against it.
    # Here no row is: a text always has a token, and it sees itself.
    guards = [node for node in graph.readers[shares] if node.op_type == "Where"]
    if guards and any(node.op_type == "IsNaN" for node in graph.readers[shares]):
        shares = guards[0].output[0]
    product = graph.only_reader(shares, "MatMul")
    if product is None or product.input[0] != shares:
        return None
    turned = graph.only_reader(product.output[0], "Transpose")
    joined = turned and graph.only_reader(turned.output[0], "Reshape")
    scored = _scored(graph, softmax.input[0])
    if joined is None or scored is None:
        return None
    scores, scale = scored
    queries = _projected(graph, scores.input[0])
    keys = _projected(graph, scores.input[1])
    values = _projected(graph, product.input[1])
    if queries is None or keys is None or values is None or values[1] != 1:
        return None
    total = scale * queries[1] * keys[1]
    return _Attention(queries[0], keys[0], values[0], joined.output[0], total)


def _scored(graph: Graph, name: str) -> tuple[Any, float] | None:
    """Return the product of queries and keys behind masks and scales, and the scale."""
    node = graph.makers.get(name)
    if node is None:
        return None
    if node.op_type == "MatMul":
        return node, 1.0
    if node.op_type in ("Mul", "Div"):
        scaled = _scaled(graph, node)
        inner = scaled and _scored(graph, scaled[0])
        return (inner[0], inner[1] * scaled[1]) if scaled and inner else None
    if node.op_type in ("Add", "Where"):
        branches = node.input[1:] if node.op_type == "Where" else node.input
        found = [entry for branch in branches if (entry := _scored(graph, branch)) is not None]
        return found[0] if len(found) == 1 else None
    return None


def _scaled(graph: Graph, node: Any) -> tuple[str, float] | None:
    """Return what a multiplication or division by a stored number scales, and by how much."""
    factor = graph.number(node.input[1])
    if factor is not None:
        return node.input[0], factor if node.op_type == "Mul" else 1 / factor
    factor = graph.number(node.input[0])
    return (node.input[1], factor) if factor is not None and node.op_type == "Mul" else None


def _projected(graph: Graph, name: str) -> tuple[str, float] | None:
    """Return the projection behind a head's shapes and scales, and the scale."""
    scale = 1.0
    while (node := graph.makers.get(name)) is not None:
        if node.op_type in ("Transpose", "Reshape"):
            name = node.input[0]
        elif node.op_type in ("Mul", "Div") and (scaled := _scaled(graph, node)) is not None:
            name, scale = scaled[0], scale * scaled[1]
        else:
            product = node.op_type == "MatMul" and graph.matrix(node.input[1]) is not None
            biased = node.op_type == "Add" and any(map(graph.is_constant, node.input))
            return (name, scale) if product or biased else None
    return None


def _fuse_gelu(graph: Graph) -> int:
    """Put one operator where x / 2 * (1 + erf(x / sqrt(2))) is written out."""
    from onnx import helper

    added: list[Any] = []
    removed: set[int] = set()
    for node in graph.nodes:
        if node.op_type != "Erf":
            continue
        halved = graph.makers.get(node.input[0])
        if halved is None or halved.op_type not in ("Mul", "Div"):
            continue
        scaled = _scaled(graph, halved)
        if scaled is None or not math.isclose(scaled[1], math.sqrt(0.5), rel_tol=1e-4):
            continue
        last = _gelu_end(graph, node.output[0], scaled[0])
        if last is not None:
            removed.add(id(last))
            added.append(
                helper.make_node("Gelu", [scaled[0]], [last.output[0]], domain=CONTRIBUTED)
            )
    if added:
        graph.rebuild([*(node for node in graph.nodes if id(node) not in removed), *added])
    return len(added)


def _gelu_end(graph: Graph, name: str, source: str) -> Any | None:
    """Return the last operator of a GELU: after adding 1, times x and times 0.5."""
    node = graph.only_reader(name, "Add")
    if node is None or not any(graph.number(entry) == 1 for entry in node.input):
        return None
    wanted = {"x", "half"}
    while wanted:
        name = node.output[0]
        node = graph.only_reader(name, "Mul")
        if node is None:
            return None
        other = node.input[0] if node.input[1] == name else node.input[1]
        if other == source:
            wanted.discard("x")
        elif graph.number(other) == 0.5:
            wanted.discard("half")
        elif _half_of(graph, other) == source:
            wanted.clear()
        else:
            return None
    return node


def _half_of(graph: Graph, name: str) -> str | None:
    """Return what is halved, None when the tensor is something else."""
    node = graph.makers.get(name)
    if node is None or node.op_type not in ("Mul", "Div"):
        return None
    scaled = _scaled(graph, node)
    return scaled[0] if scaled is not None and math.isclose(scaled[1], 0.5) else None
