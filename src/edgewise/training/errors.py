"""What can be wrong with a recipe, its data, or a run that is to be continued."""

from edgewise.errors import EdgewiseError

RECIPE = '''\
recipe = """
[data]
kind = "characters"
path = "text.txt"
context = 8

[model]
kind = "gpt"
layers = 1
heads = 2
size = 8

[objective]
kind = "causal"

[training]
steps = 2
batch = 2
"""
from pathlib import Path
from edgewise import training
Path("text.txt").write_text("to be or not to be " * 20)
'''
RUN = (
    RECIPE
    + """\
Path("a.toml").write_text(recipe)
run = training.train(training.load("a.toml"), Path("run"))
events = list(run)
"""
)


class BadRecipe(EdgewiseError):
    """A recipe says everything that a run depends on; what it does not know, it does not guess."""

    code = "bad-recipe"
    example = (
        RECIPE
        + """\
Path("a.toml").write_text(recipe.replace("layers", "layres"))
training.load("a.toml")"""
    )
    instead = (
        RECIPE
        + """\
Path("a.toml").write_text(recipe)
loaded = training.load("a.toml")"""
    )


class BadData(EdgewiseError):
    """A run reads all of its data before it starts; what cannot be read stops it there."""

    code = "bad-data"
    example = (
        RECIPE
        + """\
Path("a.toml").write_text(recipe.replace("text.txt", "txet.txt"))
events = list(training.train(training.load("a.toml"), Path("run")))"""
    )
    instead = RUN


class BadCheckpoint(EdgewiseError):
    """A checkpoint is used whole, and for the run that wrote it, or not at all."""

    code = "bad-checkpoint"
    example = (
        RUN
        + """\
weights = Path("run/checkpoints/step-00000002/model.safetensors")
weights.write_bytes(weights.read_bytes()[:-1])
events = list(training.train(training.load("a.toml"), Path("run"), resume=True))"""
    )
    instead = (
        RUN
        + """\
events = list(training.train(training.load("a.toml"), Path("run"), resume=True))"""
    )


class RunExists(EdgewiseError):
    """A run never overwrites another one: its folder is new, or it continues what is there."""

    code = "run-exists"
    example = (
        RUN
        + """\
events = list(training.train(training.load("a.toml"), Path("run")))"""
    )
    instead = (
        RUN
        + """\
events = list(training.train(training.load("a.toml"), Path("other")))"""
    )


class NotWritable(EdgewiseError):
    """A run writes to its folder all the time; it stops where it cannot, and keeps what it has."""

    code = "not-writable"
    example = (
        RECIPE
        + """\
Path("a.toml").write_text(recipe)
events = list(training.train(training.load("a.toml"), Path("text.txt") / "run"))"""
    )
    instead = RUN


class Diverged(EdgewiseError):
    """A loss that is no number teaches nothing: the run stops at its last good checkpoint."""

    code = "diverged"
    example = (
        RECIPE
        + """\
Path("a.toml").write_text(recipe.replace("steps = 2", "steps = 9") + "rate = 1e30\\nclip = 0.0")
events = list(training.train(training.load("a.toml"), Path("run")))"""
    )
    instead = RUN


class NotRepeatable(EdgewiseError):
    """The same bits in every run are asked for, and torch has no such way for an operation."""

    code = "not-repeatable"
    example = """\
import torch
from edgewise.training.repeatable import repeatable
with repeatable(True):
    torch.zeros(3).put_(torch.tensor([0]), torch.ones(1))"""
    instead = """\
import torch
from edgewise.training.repeatable import repeatable
with repeatable(False):
    torch.zeros(3).put_(torch.tensor([0]), torch.ones(1))"""
