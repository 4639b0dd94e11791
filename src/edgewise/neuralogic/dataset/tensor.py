"""Graphs as tensors or lists: features, edges and labels."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from edgewise.errors import caller, safe_repr
from edgewise.neuralogic.core.constructs.factories import R
from edgewise.neuralogic.dataset.base import ConvertibleDataset
from edgewise.neuralogic.dataset.logic import Dataset
from edgewise.neuralogic.errors import BadSample


def _listed(item: Any) -> Any:
    """Tensors and arrays as lists."""
    if isinstance(item, Tensor):
        return item.detach().tolist()
    if hasattr(item, "tolist"):
        return item.tolist()
    return [_listed(one) for one in item] if isinstance(item, list | tuple) else item


def _value(row: Any) -> Any:
    """One number alone is a number."""
    return (
        row[0] if isinstance(row, list) and len(row) == 1 and not isinstance(row[0], list) else row
    )


def _largest(row: list[float]) -> int:
    return max(range(len(row)), key=lambda at: row[at])


class TensorGraph:
    """One graph: `x` features, `edge_index` two rows, `y` labels, of the nodes in `y_mask`.

    >>> graph = TensorGraph(x=[[1.0], [2.0]], edge_index=[[0], [1]], y=1.0)
    >>> query, facts = graph.to_logic_form()
    >>> print(query, *facts, sep="\\n")
    1.0 predict.
    <1> edge(0, 1).
    <1.0> node_feature(0).
    <2.0> node_feature(1).
    """

    def __init__(
        self, x: Any, edge_index: Any, y: Any = 0.0, edge_attr: Any = None, y_mask: Any = None
    ) -> None:
        self.x = x
        self.edge_index = edge_index
        self.y = y
        self.edge_attr = edge_attr
        self.y_mask = y_mask

    @staticmethod
    def get_query(
        y: Any,
        output_name: str = "predict",
        one_hot_encode_labels: bool = False,
        max_classes: int = 1,
        index: int | None = None,
    ) -> Any:
        relation = R.get(output_name) if index is None else R.get(output_name)(index)
        label = _listed(y)
        if one_hot_encode_labels and not (isinstance(label, list) and len(label) == max_classes):
            at = int(_value(label))
            return relation[[float(at == i) for i in range(max_classes)]]
        single = _value(label)
        return relation[single if isinstance(single, list) else float(single)]

    def to_logic_form(
        self,
        feature_name: str = "node_feature",
        edge_name: str = "edge",
        output_name: str = "predict",
        one_hot_encode_labels: bool = False,
        one_hot_decode_features: bool = False,
        one_hot_decode_edge_features: bool = False,
        max_classes: int = 1,
    ) -> tuple[Any, list[Any]]:
        """The query, or a list of them, and the facts."""
        options = (output_name, one_hot_encode_labels, max_classes)
        if self.y_mask is None:
            query = self.get_query(self.y, *options)
        else:
            marked = [int(i) for i in _listed(self.y_mask)]
            query = [self.get_query(self.y[i], *options, i) for i in marked]
        edges = _listed(self.edge_index)
        if not isinstance(edges, list) or len(edges) != 2 or len(edges[0]) != len(edges[1]):
            raise BadSample(
                f"`edge_index` is {safe_repr(edges)}",
                caller(),
                "write two rows of one length: sources and targets",
            )
        sources, targets = edges
        weights = [1] * len(sources) if self.edge_attr is None else _listed(self.edge_attr)
        facts = []
        for u, v, w in zip(sources, targets, weights, strict=True):
            is_class = one_hot_decode_edge_features and self.edge_attr is not None
            name = f"{edge_name}_{_largest(w)}" if is_class else edge_name
            facts.append(R.get(name)(int(u), int(v))[1 if is_class else w].fixed())
        for i, row in enumerate(_listed(self.x)):
            if one_hot_decode_features:
                facts.append(R.get(f"{feature_name}_{_largest(row)}")(i)[1].fixed())
            else:
                facts.append(R.get(feature_name)(i)[_value(row)].fixed())
        return query, facts

    @staticmethod
    def from_pyg(data: Any) -> list[TensorGraph]:
        """One graph for each mask of a PyG `Data`; one without where it has none."""
        masks = [getattr(data, f"{part}_mask", None) for part in ("train", "test", "val")]
        marked = [mask.nonzero().view(-1) for mask in masks if mask is not None]
        parts = (data.x, data.edge_index, data.y, data.edge_attr)
        return [TensorGraph(*parts, mask) for mask in marked or [None]]


class TensorDataset(ConvertibleDataset):
    """Graphs, and the names of the relations that they become.

    >>> graph = TensorGraph(x=[[1.0], [2.0]], edge_index=[[0], [1]], y=1.0)
    >>> len(TensorDataset([graph]).to_dataset().pairs())
    1
    >>> import io
    >>> queries, examples = io.StringIO(), io.StringIO()
    >>> TensorDataset([graph]).dump(queries, examples)
    >>> queries.getvalue()
    '1.0 predict.\\n'
    """

    def __init__(
        self,
        data: list[TensorGraph],
        one_hot_encode_labels: bool = False,
        one_hot_decode_features: bool = False,
        one_hot_decode_edge_features: bool = False,
        number_of_classes: int = 1,
        feature_name: str = "node_feature",
        edge_name: str = "edge",
        output_name: str = "predict",
    ) -> None:
        self.data = data
        self.one_hot_encode_labels = one_hot_encode_labels
        self.one_hot_decode_features = one_hot_decode_features
        self.one_hot_decode_edge_features = one_hot_decode_edge_features
        self.number_of_classes = number_of_classes
        self.feature_name = feature_name
        self.edge_name = edge_name
        self.output_name = output_name

    def add_data(self, data: TensorGraph) -> None:
        self.data.append(data)

    def _logic_forms(self) -> list[tuple[Any, list[Any]]]:
        names = (self.feature_name, self.edge_name, self.output_name)
        flags = (self.one_hot_encode_labels, self.one_hot_decode_features)
        rest = (self.one_hot_decode_edge_features, self.number_of_classes)
        return [graph.to_logic_form(*names, *flags, *rest) for graph in self.data]

    def to_dataset(self) -> Dataset:
        found = Dataset()
        for query, example in self._logic_forms():
            for one in query if isinstance(query, list) else [query]:
                found.add(one, example)
        return found

    def dump(self, queries_fp: Any, examples_fp: Any, sep: str = "\n") -> None:
        """Write queries and examples in NeuraLogic's text format."""
        for query, example in self._logic_forms():
            queries_fp.write(f"{query}{sep}")
            examples_fp.write(f"{','.join(fact.to_str(False) for fact in example)}.{sep}")


Data = TensorGraph
