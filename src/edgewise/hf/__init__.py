"""Sparse attention graphs and rule programs as the attention of Hugging Face models.

`use` replaces the attention of a model, `restore` undoes it, `longer` extends a pretrained model
to longer contexts, `neighbourhood` is the graph of image patches. A saved model stores its graph:
`load` restores it, `graph_of` returns it.
"""

from edgewise.hf.long_context import longer
from edgewise.hf.replace import load, restore, use
from edgewise.hf.saved import graph_of
from edgewise.hf.sparse_weights import AttentionWeights
from edgewise.hf.vision import neighbourhood

__all__ = ["AttentionWeights", "graph_of", "load", "longer", "neighbourhood", "restore", "use"]
