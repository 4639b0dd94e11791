"""Models in files: weights, rules and options in one archive, and nothing that is evaluated.

A file is a zip archive of three stored parts: `program.rules` (the rules as text),
`weights.safetensors` and `manifest.json` (options, and the hash of the other two). One file,
because only one file can be replaced at once: a reader sees the model before or after.
"""

from edgewise.save.reading import BadModelFile, load
from edgewise.save.writing import NotSavable, save

__all__ = ["BadModelFile", "NotSavable", "load", "save"]
