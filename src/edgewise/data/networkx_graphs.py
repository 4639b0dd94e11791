"""A graph of networkx: `node(I)` and `edge(I, J)`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from edgewise.data.dataset import Dataset
from edgewise.data.errors import BadGraph, UnreadableSource
from edgewise.data.reading import read
from edgewise.data.schema import Schema, ValueColumn, table
from edgewise.data.sources.table_source import unreadable
from edgewise.errors import caller, safe_repr
from edgewise.graphs.drawing import require_package

if TYPE_CHECKING:
    import networkx

MISSING = object()
FORMATS = {".graphml": "read_graphml", ".gml": "read_gml", ".gexf": "read_gexf"}
NamedColumns = dict[str, list[Any]]


def from_networkx(
    graph: networkx.Graph,
    *,
    values: Sequence[ValueColumn] = (),
    edge_values: Sequence[ValueColumn] = (),
    label: str | None = None,
    duplicates: str = "refuse",
    dtype: torch.dtype | None = None,
) -> Dataset:
    """A networkx graph: attributes of nodes and edges are values, undirected edges hold both ways.

    Nodes are integers or strings, numbered in sorted order. `label` is an attribute of nodes, which
    some may lack. Parallel edges with values are combined as `duplicates` says.

    >>> import networkx
    >>> graph = networkx.Graph([("ann", "bob", {"years": 3.0})])
    >>> from_networkx(graph, edge_values=["years"])
    Dataset(node: 2 rows; edge: 2 rows; node: 2 names)
    """
    if not (hasattr(graph, "nodes") and hasattr(graph, "edges") and hasattr(graph, "is_directed")):
        raise BadGraph(
            f"{safe_repr(graph)} is not a graph of networkx", caller(), "give a `networkx.Graph`"
        )
    nodes = list(graph.nodes(data=True))
    edges = list(graph.edges(data=True))
    if not graph.is_directed():
        edges += [(b, a, data) for a, b, data in edges if a != b]
    label_columns = [] if label is None else [label]
    taken = [*_names(values), *_names(edge_values), *label_columns]
    own, start, end = (_free(name, taken) for name in ("id", "from", "to"))
    of_nodes = {own: [node for node, _ in nodes]}
    of_nodes |= _attributes([data for _, data in nodes], values, "node", label_columns)
    of_edges = {start: [a for a, _, _ in edges], end: [b for _, b, _ in edges]}
    of_edges |= _attributes([data for _, _, data in edges], edge_values, "edge")
    _check_names(of_nodes[own])
    keys = {start: "node", end: "node"}
    schema = Schema(
        node=table("nodes", keys=[own], values=values, label=label),
        edge=table("edges", keys=keys, values=edge_values, duplicates=duplicates),
    )
    return read({"nodes": of_nodes, "edges": of_edges}, schema, dtype=dtype)


def _names(values: Sequence[ValueColumn]) -> list[str]:
    return [value if isinstance(value, str) else value.name for value in values]


def _free(name: str, taken: Sequence[str]) -> str:
    """A name of a column that no attribute has."""
    while name in taken:
        name += "_"
    return name


def _attributes(
    data: list[dict[str, Any]],
    values: Sequence[ValueColumn],
    of: str,
    optional: Sequence[str] = (),
) -> dict[str, list[Any]]:
    found = {}
    for name in [*_names(values), *optional]:
        column = [one.get(name, MISSING) for one in data]
        if name in optional:
            column = [None if value is MISSING else value for value in column]
        if MISSING in column:
            raise BadGraph(
                f"{column.count(MISSING):,} of {len(column):,} {of}s lack the attribute `{name}`",
                caller(),
                f"set it: `networkx.set_{of}_attributes(graph, 0.0, {name!r})`",
            )
        found[name] = column
    return found


def _check_names(names: list[Any]) -> None:
    kinds = {type(name) for name in names}
    if len(kinds) > 1 or not kinds <= {int, str}:
        raise BadGraph(
            f"nodes are of the types {sorted(kind.__name__ for kind in kinds)}",
            caller(),
            "name them by integers or by strings: `networkx.relabel_nodes(graph, str)`",
        )


def columns_of(path: Path, key: str, ends: tuple[str, str]) -> tuple[NamedColumns, NamedColumns]:
    """The columns of nodes and of edges of a file that networkx wrote.

    Nodes are named in the column `key`, those of an edge in `ends`; an absent attribute is null.
    """
    require_package("networkx")
    import networkx

    try:
        graph = getattr(networkx, FORMATS[path.suffix.lower()])(path)
    except OSError as problem:
        raise unreadable(f"`{path}`", problem, "check the path") from None
    except Exception as problem:  # parsers raise errors of their own
        what = f"`{path}` is not a {path.suffix[1:]} file: {safe_repr(str(problem))[:80]}"
        raise UnreadableSource(what, caller(), "write it again with networkx") from None
    nodes, edges = list(graph.nodes(data=True)), list(graph.edges(data=True))
    of_nodes = _columns([own for _, own in nodes]) | {key: [node for node, _ in nodes]}
    start, end = ends
    both = {start: [a for a, _, _ in edges], end: [b for _, b, _ in edges]}
    return of_nodes, _columns([own for *_, own in edges]) | both


def _columns(rows: list[dict[str, Any]]) -> NamedColumns:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}
