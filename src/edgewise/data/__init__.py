"""Databases, tables, graphs, molecules and texts of other programs, as inputs of a model."""

from edgewise.data.big_joins import join
from edgewise.data.dataset import Dataset, Labels
from edgewise.data.encodings import degrees, laplacian, path_edges, random_walk, shortest_paths
from edgewise.data.knowledge_graphs import triples
from edgewise.data.networkx_graphs import from_networkx
from edgewise.data.neuralogic_samples import neuralogic
from edgewise.data.pyg_graphs import from_pyg, typed_graph
from edgewise.data.reading import read
from edgewise.data.schema import Schema, column, days, one_hot, standard, table
from edgewise.data.smiles import molecules
from edgewise.data.tables_on_disk import on_disk
from edgewise.data.trees import DependencyTree, conllu, sentences, to_conllu

__all__ = [
    "Dataset",
    "DependencyTree",
    "Labels",
    "Schema",
    "column",
    "conllu",
    "days",
    "degrees",
    "from_networkx",
    "from_pyg",
    "join",
    "laplacian",
    "molecules",
    "neuralogic",
    "on_disk",
    "one_hot",
    "path_edges",
    "random_walk",
    "read",
    "sentences",
    "shortest_paths",
    "standard",
    "table",
    "to_conllu",
    "triples",
    "typed_graph",
]
