"""Errors of recipes, data, runs and checkpoints."""

from edgewise.errors import EdgewiseError

RECIPE = '''\
recipe = """
[data]
kind = "text"
path = "text.txt"
tokenizer = "characters"
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

def run(recipe, folder="run", **options):
    Path("a.toml").write_text(recipe)
    return list(training.train(training.load("a.toml"), folder, **options))

'''


class BadRecipe(EdgewiseError):
    """A recipe holds everything that a run depends on; an unknown key is an error."""

    code = "bad-recipe"
    example = RECIPE + 'run(recipe.replace("layers", "layres"))'
    instead = RECIPE + "events = run(recipe)"


class BadData(EdgewiseError):
    """A run reads all of its data before training starts, and stops if it cannot."""

    code = "bad-data"
    example = RECIPE + 'run(recipe.replace("text.txt", "txet.txt"))'
    instead = RECIPE + "events = run(recipe)"


class BadCheckpoint(EdgewiseError):
    """A run resumes only from a complete checkpoint of the same recipe and data."""

    code = "bad-checkpoint"
    example = (
        RECIPE
        + """\
run(recipe)
weights = Path("run/checkpoints/step-00000002/model.safetensors")
weights.write_bytes(weights.read_bytes()[:-1])
run(recipe)"""
    )
    instead = RECIPE + "run(recipe)\nevents = run(recipe)"


class OtherRecipe(EdgewiseError):
    """A run continues with the recipe and the data that it began with; others are another run."""

    code = "other-recipe"
    example = RECIPE + 'run(recipe)\nrun(recipe + "rate = 0.01")'
    instead = RECIPE + 'run(recipe)\nevents = run(recipe + "rate = 0.01", "other")'


class RunExists(EdgewiseError):
    """A run never overwrites another one: its folder is new, or the run is resumed."""

    code = "run-exists"
    example = RECIPE + "run(recipe)\nrun(recipe, resume=False)"
    instead = RECIPE + 'run(recipe)\nevents = run(recipe, "other")'


class NotWritable(EdgewiseError):
    """A run writes metrics and checkpoints to its folder, which must be writable."""

    code = "not-writable"
    example = RECIPE + 'run(recipe, "text.txt/run")'
    instead = RECIPE + "events = run(recipe)"


class Diverged(EdgewiseError):
    """A loss that is NaN or infinite stops the run; its last checkpoint is good."""

    code = "diverged"
    example = RECIPE + 'run(recipe.replace("steps = 2", "steps = 9") + "rate = 1e30\\nclip = 0.0")'
    instead = RECIPE + "events = run(recipe)"


class NotRepeatable(EdgewiseError):
    """The recipe requires determinism, and torch lacks a deterministic algorithm."""

    code = "not-repeatable"
    example = """\
import torch
from edgewise.training.randomness import deterministic
with deterministic(True):
    torch.zeros(3).put_(torch.tensor([0]), torch.ones(1))"""
    instead = """\
import torch
from edgewise.training.randomness import deterministic
with deterministic(False):
    torch.zeros(3).put_(torch.tensor([0]), torch.ones(1))"""


class BadRun(EdgewiseError):
    """A run is a model once it has weights; its files are checked before anything is built."""

    code = "bad-run"
    example = (
        RECIPE
        + """\
from edgewise import zoo
run(recipe)
Path("run/rules.txt").write_text("logits(I) :- token(I).")
zoo.from_pretrained("run")"""
    )
    instead = (
        RECIPE
        + """\
from edgewise import zoo
run(recipe)
model = zoo.from_pretrained("run")"""
    )


class WrongTask(EdgewiseError):
    """A model is for one task: a translator translates, a classifier classifies."""

    code = "wrong-task"
    example = (
        RECIPE
        + """\
from edgewise import zoo
run(recipe)
zoo.from_pretrained("run").translate(["to be"])"""
    )
    instead = (
        RECIPE
        + """\
from edgewise import zoo
run(recipe)
zoo.from_pretrained("run").generate("to be", most=3)"""
    )


class NotExportable(EdgewiseError):
    """A format holds the models that it has a layout for; safetensors with rules hold every one."""

    code = "not-exportable"
    example = (
        RECIPE
        + """\
run(recipe)
training.export("run", "gguf", "model.gguf")"""
    )
    instead = (
        RECIPE
        + """\
run(recipe)
training.export("run", "safetensors", "exported")"""
    )


class RankMissing(EdgewiseError):
    """All ranks of a run start together: one that is missing ends the others."""

    code = "rank-missing"
    example = 'training.train(recipe, "run")  # on two ranks, one of which does not start'
    instead = 'training.train(recipe, "run")  # on two ranks, by torchrun --nproc-per-node 2'
