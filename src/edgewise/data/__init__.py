"""Databases, tables, graphs, molecules and texts of other programs, as inputs of a model."""

from edgewise.data.conllu import Sentence, conllu, sentences, to_conllu
from edgewise.data.dataset import Dataset, Labels
from edgewise.data.from_networkx import from_networkx
from edgewise.data.from_pyg import from_pyg
from edgewise.data.molecules import molecules
from edgewise.data.neuralogic import neuralogic
from edgewise.data.reading import read
from edgewise.data.schema import Schema, column, one_hot, table
from edgewise.data.triples import triples

__all__ = [
    "Dataset",
    "Labels",
    "Schema",
    "Sentence",
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
