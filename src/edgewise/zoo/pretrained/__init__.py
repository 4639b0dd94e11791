"""Checkpoints of other libraries: read, checked name by name, and written back.

`from_pretrained(path)` reads a folder of `config.json`, safetensors and `tokenizer.json`, or a GGUF
file. Nothing is evaluated, and no pickle is opened.
"""

from edgewise.zoo.pretrained.architectures import MODEL_TYPES
from edgewise.zoo.pretrained.fetch import cached, fetch
from edgewise.zoo.pretrained.fields import BadPretrained
from edgewise.zoo.pretrained.loading import from_pretrained
from edgewise.zoo.pretrained.model import Pretrained
from edgewise.zoo.pretrained.saving import save_pretrained

__all__ = [
    "MODEL_TYPES",
    "BadPretrained",
    "Pretrained",
    "cached",
    "fetch",
    "from_pretrained",
    "save_pretrained",
]
