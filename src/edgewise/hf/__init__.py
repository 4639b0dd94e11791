"""A graph or a rule program as the attention of Hugging Face models.

`use` puts it there, `restore` takes it out again, `longer` turns a dense pretrained model into
one for long texts.
"""

from edgewise.hf.longer import longer
from edgewise.hf.switch import restore, use

__all__ = ["longer", "restore", "use"]
