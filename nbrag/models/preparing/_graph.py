"""An ONNX graph with its connections, to be looked through and changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["CONTRIBUTED", "Graph"]

#: The domain of the runtime's own fused operators.
CONTRIBUTED = "com.microsoft"


class Graph:
    """A model's graph, indexed by names.

    Parameters
    ----------
    model
        The ``onnx.ModelProto``; it is changed in place.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.nodes: list[Any] = list(model.graph.node)
        #: The node that makes a tensor.
        self.makers: dict[str, Any] = {name: node for node in self.nodes for name in node.output}
        #: The nodes that read a tensor.
        self.readers: dict[str, list[Any]] = defaultdict(list)
        for node in self.nodes:
            for name in node.input:
                self.readers[name].append(node)
        self._constants: dict[str, Any] = {entry.name: entry for entry in model.graph.initializer}

    @property
    def opset(self) -> int:
        """The version of the standard operators."""
        return next((int(e.version) for e in self.model.opset_import if not e.domain), 1)

    @property
    def inputs(self) -> list[str]:
        """The names of the graph's inputs, weights left out."""
        return [e.name for e in self.model.graph.input if e.name not in self._constants]

    def is_constant(self, name: str) -> bool:
        """Return whether a tensor is stored with the model."""
        return name in self._constants

    def array(self, name: str) -> NDArray[Any]:
        """Return a stored tensor."""
        from onnx import numpy_helper

        array: NDArray[Any] = numpy_helper.to_array(self._constants[name])
        return array

    def matrix(self, name: str) -> NDArray[np.float32] | None:
        """Return a stored float32 matrix, None for anything else."""
        from onnx import TensorProto

        entry = self._constants.get(name)
        if entry is None or entry.data_type != TensorProto.FLOAT or len(entry.dims) != 2:
            return None
        return self.array(name)

    def number(self, name: str) -> float | None:
        """Return a stored tensor of one number, None for anything else."""
        entry = self._constants.get(name)
        if entry is None or any(size != 1 for size in entry.dims):
            return None
        return float(self.array(name).reshape(-1)[0])

    def constant(self, name: str, array: NDArray[Any]) -> str:
        """Store a tensor under a name, if there is none yet; return the name."""
        if name not in self._constants:
            from onnx import numpy_helper

            entry = numpy_helper.from_array(array, name)
            self.model.graph.initializer.append(entry)
            self._constants[name] = entry
        return name

    def only_reader(self, name: str, operator: str) -> Any | None:
        """Return the one node that reads a tensor, if it is such an operator."""
        found = self.readers[name]
        return found[0] if len(found) == 1 and found[0].op_type == operator else None

    def rebuild(self, nodes: Iterable[Any]) -> None:
        """Give the model these nodes, in an order that works, without what nothing needs.

        Stored tensors that no node reads are left out as well.
        """
        from onnx import NodeProto, TensorProto

        graph = self.model.graph
        makers = {name: node for node in nodes for name in node.output if name}
        ordered: list[Any] = []
        done: set[int] = set()
        stack = [(entry.name, False) for entry in reversed(graph.output)]
        while stack:
            name, ready = stack.pop()
            node = makers.get(name)
            if node is None or id(node) in done:
                continue
            if ready:
                done.add(id(node))
                ordered.append(node)
                continue
            stack.append((name, True))
            stack.extend((source, False) for source in reversed(node.input))
        kept = [NodeProto.FromString(node.SerializeToString()) for node in ordered]
        used = {name for node in kept for name in node.input}
        used.update(entry.name for entry in graph.output)
        stored = [
            TensorProto.FromString(entry.SerializeToString())
            for entry in graph.initializer
            if entry.name in used
        ]
        del graph.node[:], graph.initializer[:], graph.value_info[:]
        graph.node.extend(kept)
        graph.initializer.extend(stored)
        if not any(entry.domain == CONTRIBUTED for entry in self.model.opset_import):
            from onnx import helper

            self.model.opset_import.append(helper.make_opsetid(CONTRIBUTED, 1))
