"""Runs of a second each, one for every task, and their data."""

import shutil
import tempfile
from functools import cache
from pathlib import Path

from edgewise import training

TRAINING = """
[training]
steps = 4
batch = 4
rate = 0.01
warmup = 1
log = 2
evaluate = 2
checkpoint = 2
"""
SIZES = "layers = 1\nheads = 2\nsize = 8\n"
CHARACTERS = """\
[data]
kind = "text"
path = "text.txt"
tokenizer = "characters"
context = 8
"""
RECIPES = {
    "generate": f"""{CHARACTERS}
[model]
kind = "gpt"
{SIZES}
[objective]
kind = "causal"
{TRAINING}""",
    "embed": f"""{CHARACTERS}
[model]
kind = "encoder"
hidden = 8
{SIZES}
[objective]
kind = "masked"
{TRAINING}""",
    "classify": f"""\
[data]
kind = "labelled"
train = "train.txt"
validation = "train.txt"
test = "train.txt"
longest = 8

[model]
kind = "classifier"
hidden = 8
{SIZES}
[objective]
kind = "classification"
{TRAINING}""",
    "translate": f"""\
[data]
kind = "pairs"
source = "en"
target = "de"
validation = "train"
test = "train"
pieces = 300
longest = 12

[model]
kind = "translator"
hidden = 8
{SIZES}
[objective]
kind = "translation"
beams = 2
{TRAINING}""",
}
RECIPES["subwords"] = (
    RECIPES["generate"]
    .replace('"characters"', '"byte_bpe"\npieces = 300')
    .replace("context = 8", "context = 8\nheld_out = 0.2")
)
RECIPES["pairs"] = (
    RECIPES["classify"]
    .replace('"labelled"', '"labelled"\nsecond = "second"')
    .replace("train.txt", "train.csv")
)
RECIPES["recurrent"] = (
    RECIPES["translate"]
    .replace('"translator"\nhidden = 8', '"recurrent"')
    .replace("layers = 1\nheads = 2\n", "")
)
TEXTS = {
    "text.txt": "to be, or not to be, that is the question\n" * 20,
    "train.txt": "1 a fine film\n0 a bad film\n1 good\n0 dull and long\n" * 8,
    "train.csv": "text,second,label\n" + "a dog,the dog,same\na cat,a man,other\n" * 8,
    "train.en": "a man walks\na dog runs\ntwo men sit on a bench\n" * 4,
    "train.de": "ein mann geht\nein hund rennt\nzwei maenner sitzen auf einer bank\n" * 4,
}


@cache
def run_of(kind: str) -> Path:
    """The folder of a run that several tests read; `copied` is one to change."""
    return trained(Path(tempfile.mkdtemp()), kind)


def copied(kind: str, folder: Path) -> Path:
    return Path(shutil.copytree(run_of(kind), folder / kind))


def trained(folder: Path, kind: str, **changes: str) -> Path:
    """The folder of a run of that kind; `changes` replace parts of its recipe."""
    for name, text in TEXTS.items():
        (folder / name).write_text(text)
    recipe = RECIPES[kind]
    for old, new in changes.items():
        assert old in recipe
        recipe = recipe.replace(old, new)
    (folder / f"{kind}.toml").write_text(recipe)
    list(training.train(training.load(folder / f"{kind}.toml"), folder / kind))
    return folder / kind
