"""The data of a run: files → columns → parts → tokens → batches.

A `[data]` section reads a corpus, which gives the batch of any step and iterates over its
validation and test parts. To add a task, write its section and add it to DATA; to add a format,
extend `files.py`.
"""

from edgewise.training.data.algorithms import AlgorithmData
from edgewise.training.data.graph_tables import GraphTables
from edgewise.training.data.graphs import GraphData
from edgewise.training.data.labelled import LabelledData
from edgewise.training.data.pairs import PairData
from edgewise.training.data.text import TextData
from edgewise.training.data.treebank import TreebankData
from edgewise.training.data.triples import TripleData

GRAPH_DATA = (GraphData, GraphTables)
DATA = {
    "text": TextData,
    "labelled": LabelledData,
    "pairs": PairData,
    "treebank": TreebankData,
    "graphs": GraphData,
    "triples": TripleData,
    "algorithms": AlgorithmData,
    "graph-tables": GraphTables,
}
