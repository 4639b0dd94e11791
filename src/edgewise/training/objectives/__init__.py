"""Objectives of a run: the loss that is minimised and the measures that are reported.

To add one, write its class and add it to OBJECTIVES.
"""

from edgewise.training.objectives.algorithms import NextHints
from edgewise.training.objectives.graphs import GraphClasses, GraphLabels, GraphLinks, GraphValues
from edgewise.training.objectives.parsing import Dependencies
from edgewise.training.objectives.texts import Causal, Classification, Masked, Translation
from edgewise.training.objectives.triples import Ranking

OBJECTIVES = {
    "causal": Causal,
    "masked": Masked,
    "classification": Classification,
    "translation": Translation,
    "dependencies": Dependencies,
    "classes": GraphClasses,
    "values": GraphValues,
    "labels": GraphLabels,
    "ranking": Ranking,
    "hints": NextHints,
    "links": GraphLinks,
}
