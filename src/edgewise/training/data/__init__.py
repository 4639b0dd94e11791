"""The data of a run, one file for each kind.

A `[data]` section reads a corpus, which gives the batch of any step and iterates over its
validation and test parts.
"""

from edgewise.training.data.characters import CharacterData
from edgewise.training.data.labelled import LabelledData
from edgewise.training.data.pairs import PairData

DATA = {"characters": CharacterData, "labelled": LabelledData, "pairs": PairData}
