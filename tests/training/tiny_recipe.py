"""A recipe of a few seconds, and its data."""

from pathlib import Path

from edgewise import training

TEXT = "to be, or not to be, that is the question: whether 'tis nobler in the mind to suffer\n" * 12

RECIPE = """\
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
dropout = 0.1
graph = ["window(2)", "strided(3)"]

[objective]
kind = "causal"

[training]
steps = 12
batch = 3
rate = 0.01
warmup = 2
log = 2
evaluate = 6
checkpoint = 4
"""


def put(folder: Path, text: str = RECIPE) -> Path:
    (folder / "text.txt").write_text(TEXT)
    path = folder / "recipe.toml"
    path.write_text(text)
    return path


def loaded(folder: Path, text: str = RECIPE) -> training.Recipe:
    return training.load(put(folder, text))
