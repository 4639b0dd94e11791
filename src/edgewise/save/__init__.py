"""Models in files: rules, weights and options in one archive; loading runs no code.

A file is a zip archive of three uncompressed parts: `program.rules` (the rules as text),
`weights.safetensors` and `manifest.json` (options, and the hashes of the other two). It is one
file because one file can be replaced atomically.
"""

from edgewise.save.reading import BadModelFile, load
from edgewise.save.writing import NotSavable, save

__all__ = ["BadModelFile", "NotSavable", "load", "save"]
