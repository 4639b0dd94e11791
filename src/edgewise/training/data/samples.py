"""Molecules as ground atoms, in NeuraLogic's text format: each line of `examples.txt` is one.

    bond(a, b, 7), c_22(a), c_22(b), b_1(7)     atoms a and b, a bond of kind b_1 between them

The relation with three terms has the bonds, those with one the kinds of atoms and of bonds.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgewise.data.neuralogic_samples import neuralogic
from edgewise.language import nodes
from edgewise.training.data.files import bad
from edgewise.training.data.graph_corpus import GRAPH, Graph, GraphCorpus

EXAMPLES, QUERIES = "examples.txt", "queries.txt"


def is_samples(path: Path) -> bool:
    """Whether a folder holds samples."""
    return (path / EXAMPLES).is_file()


def read_samples(path: Path) -> GraphCorpus:
    """The samples of a folder as graphs, with the targets of their queries as classes."""
    found = neuralogic(path / EXAMPLES, path / QUERIES)
    if len(found.labels) != 1:
        what = f"there are queries of {len(found.labels)} relations"
        raise bad(what, path / QUERIES, "write one query for each sample, such as `1.0 predict.`")
    (labels,) = found.labels.values()
    every: list[list[nodes.Atom]] = found.inputs["facts"].samples  # type: ignore[union-attr,assignment]
    if labels.keys[0].tolist() != list(range(len(every))):
        what = f"there are {labels.keys.shape[1]:,} queries for {len(every):,} samples"
        raise bad(what, path / QUERIES, "write one query for each sample")
    sorted_ = [_by_terms(atoms, path, at) for at, atoms in enumerate(every, start=1)]
    kinds = sorted({kind for ends, own, _ in sorted_ for at in ends for kind in own.get(at, ())})
    ties = sorted({kind for _, own, bonds in sorted_ for b in bonds for kind in own.get(b[2], ())})
    graphs = [_graph(*one, kinds, ties) for one in sorted_]
    values, target = np.unique(labels.values.numpy(), return_inverse=True)
    return GraphCorpus(
        graphs, torch.from_numpy(target.astype(np.int64)), GRAPH, {}, [f"{v:g}" for v in values]
    )


Parts = tuple[
    list[nodes.Constant],
    dict[nodes.Constant, list[str]],
    list[tuple[nodes.Constant, nodes.Constant, nodes.Constant]],
]


def _by_terms(atoms: list[nodes.Atom], path: Path, line: int) -> Parts:
    """The ends of bonds in order, the kinds of everything, and the bonds."""
    bonds: list[Any] = []
    kinds: dict[Any, list[str]] = defaultdict(list)
    for atom in atoms:
        if len(atom.terms) == 3:
            bonds.append(atom.terms)
        elif len(atom.terms) == 1:
            kinds[atom.terms[0]].append(atom.relation)
        else:
            what = f"line {line:,} has `{atom!r:.60}`, with {len(atom.terms)} terms"
            raise bad(what, path / EXAMPLES, "write `bond(a, b, 7)`, `c(a)` and `single(7)`")
    if not bonds:
        raise bad(f"line {line:,} has no bonds", path / EXAMPLES, "write `bond(a, b, 7)`")
    ends = list(dict.fromkeys(end for bond in bonds for end in bond[:2]))
    return ends, dict(kinds), bonds


def _graph(
    ends: list[nodes.Constant],
    own: dict[nodes.Constant, list[str]],
    bonds: list[tuple[nodes.Constant, nodes.Constant, nodes.Constant]],
    kinds: list[str],
    ties: list[str],
) -> Graph:
    number = {end: at for at, end in enumerate(ends)}
    x = torch.zeros(len(ends), max(len(kinds), 1))
    for end, at in number.items():
        for kind in own.get(end, ()):
            x[at, kinds.index(kind)] = 1.0
    distinct = {(number[a], number[b]): bond for a, b, bond in bonds}
    edge = torch.tensor(sorted(distinct)).T
    edge_x = torch.zeros(edge.shape[1], max(len(ties), 1))
    for at, pair in enumerate(sorted(distinct)):
        for kind in own.get(distinct[pair], ()):
            edge_x[at, ties.index(kind)] = 1.0
    return Graph(x, edge, edge_x)
