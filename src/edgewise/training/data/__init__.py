"""Where the data of a run comes from: one file for each kind.

A section of a recipe `read`s a corpus, which gives the batch of any step and goes through its
validation part in order.
"""

from edgewise.training.data.characters import Characters
from edgewise.training.data.labelled import Labelled
from edgewise.training.data.pairs import Pairs

DATA = {"characters": Characters, "labelled": Labelled, "pairs": Pairs}
