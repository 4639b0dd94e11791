"""Training from recipes: data, model, objective and optimiser in one file, runs that resume.

`edgewise train RECIPE.toml` is this from the command line.
"""

from edgewise.training.cost import Estimate, estimate
from edgewise.training.loop import Event, train
from edgewise.training.recipe import Recipe, load

__all__ = ["Estimate", "Event", "Recipe", "estimate", "load", "train"]
