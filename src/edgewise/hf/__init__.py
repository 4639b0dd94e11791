"""A graph or a rule program as the attention of Hugging Face models.

`use` puts it there, `restore` takes it out again, `longer` turns a dense pretrained model into
one for long texts. A saved model keeps its graph: `load` brings it back, `graph_of` says it.
"""

from edgewise.hf.longer import longer
from edgewise.hf.saved import graph_of, load
from edgewise.hf.switch import restore, use

__all__ = ["graph_of", "load", "longer", "restore", "use"]
