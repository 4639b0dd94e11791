"""Training from recipes: data, model, objective and optimiser in one file, runs that resume.

`edgewise train RECIPE.toml` is this from the command line. Examples below run in a folder with
`recipe.toml`, a small GPT of the characters of `text.txt`, and `graph.toml`, a network on a graph.
"""

from edgewise.training.cost import Estimate, estimate
from edgewise.training.loop import Event, train
from edgewise.training.predicting import predict, why
from edgewise.training.recipe import Recipe, load
from edgewise.training.runs.exporting import export, push
from edgewise.training.runs.run import Run

__all__ = [
    "Estimate",
    "Event",
    "Recipe",
    "Run",
    "estimate",
    "export",
    "load",
    "predict",
    "push",
    "train",
    "why",
]
