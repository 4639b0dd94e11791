"""Models in files: rules, weights and options in one archive; loading runs no code.

A file is a zip archive of three uncompressed parts: `program.rules` (the rules as text),
`weights.safetensors` and `manifest.json` (options, and the hashes of the other two). It is one
file because one file can be replaced atomically. Grounded data is one file of safetensors, which is
written and read without a copy of it as bytes.
"""

from edgewise.save.data_reading import BadDataFile, load_data
from edgewise.save.data_writing import save_data
from edgewise.save.reading import BadModelFile, load
from edgewise.save.writing import NotSavable, save

__all__ = ["BadDataFile", "BadModelFile", "NotSavable", "load", "load_data", "save", "save_data"]
