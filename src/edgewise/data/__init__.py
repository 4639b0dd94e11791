"""Databases, tables, graphs, molecules and texts of other programs, as inputs of a model."""

from edgewise.data.dataset import Dataset, Labels
from edgewise.data.knowledge_graphs import triples
from edgewise.data.networkx_graphs import from_networkx
from edgewise.data.neuralogic_samples import neuralogic
from edgewise.data.pyg_graphs import from_pyg
from edgewise.data.reading import read
from edgewise.data.schema import Schema, column, one_hot, table
from edgewise.data.smiles import molecules
from edgewise.data.trees import DependencyTree, conllu, sentences, to_conllu

__all__ = [
    "Dataset",
    "DependencyTree",
    "Labels",
    "Schema",
    "column",
    "conllu",
    "from_networkx",
    "from_pyg",
    "molecules",
    "neuralogic",
    "one_hot",
    "read",
    "sentences",
    "table",
    "to_conllu",
    "triples",
]
