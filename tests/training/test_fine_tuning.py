"""A recipe that starts from a checkpoint: its weights, its tokenizer, a new head."""

import pytest
import torch

from edgewise import EdgewiseError, training, zoo
from edgewise.training.models.pretrained import FineTuned

TEXTS = ["a fine film", "a bad film", "fine acting", "bad acting", "a film", "so bad", "so fine"]
RECIPE = """\
[data]
kind = "labelled"
train = "train.txt"
validation = "train.txt"
test = "train.txt"
tokenizer = "start"
longest = 8

[model]
kind = "pretrained"
path = "{path}"
dropout = 0.0
{more}

[objective]
kind = "classification"

[training]
steps = {steps}
batch = 7
rate = 1e-2
warmup = 1
evaluate = 100
checkpoint = 100
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small BERT as Hugging Face saves it, and sentences with a class."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder = tmp_path_factory.mktemp("fine-tuning")
    words = sorted({word for text in TEXTS for word in text.split()})
    known = {word: i for i, word in enumerate(["[PAD]", "[UNK]", *words])}
    tokenizer = Tokenizer(models.WordLevel(known, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    config = zoo.bert.Config(len(known), 8, 2, 12, 2, 10, dropout=0.1)
    weights = zoo.bert.program(config).weights(seed=0, dtype=torch.float32)
    zoo.save_pretrained(folder / "start", zoo.bert, config, weights, tokenizer=tokenizer)
    lines = [f"{int('bad' in text)} {text}" for text in TEXTS]
    (folder / "train.txt").write_text("\n".join(lines) + "\n")
    return folder


def loaded(folder, path="start", steps=40, more=""):
    (folder / "recipe.toml").write_text(
        RECIPE.format(path=(folder / path).as_posix(), steps=steps, more=more)
    )
    return training.load(folder / "recipe.toml")


def test_it_starts_from_the_weights_of_the_checkpoint(folder):
    recipe = loaded(folder)
    corpus = recipe.data.read(folder)
    model = recipe.model.build(recipe.objective.words(corpus), corpus, 0)
    start = zoo.from_pretrained(folder / "start")
    for name in ("word", "type", "layer.1.q.weight", "layer.0.norm2.gain"):
        assert torch.equal(model.program.weight(name), start.weights[name])


@pytest.mark.parametrize("more", ["", 'pooling = "first"', 'graph = "window(1)"'])
def test_a_run_learns_its_classes_and_is_a_model(more, folder, tmp_path):
    *_, end = training.train(loaded(folder, more=more), tmp_path / "run")
    assert end.values["test accuracy"] == 1.0
    run = zoo.from_pretrained(tmp_path / "run")
    found = run.classify(["a bad film", "a fine film"])
    assert [max(row, key=row.get) for row in found] == ["1", "0"]
    assert run.embed(["a film"]).shape == (1, 8)


OPTIONS = {
    "graph": "per_head(window(1), full())",
    "norm": "pre",
    "scale": "none",
    "feed_forward": "swiglu",
    "aggregation": "mean",
    "positions": "sinusoidal",
}


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_takes_the_place_of_the_checkpoint_s_own(name, folder):
    own, changed = loaded(folder), loaded(folder, more=f'{name} = "{OPTIONS[name]}"')
    corpus = own.data.read(folder)
    batch = corpus.batch(4, 0, 0)
    outs = []
    for recipe in (own, changed):
        model = recipe.model.build(own.objective.words(corpus), corpus, 0).eval()
        start = zoo.from_pretrained(folder / "start")
        assert torch.equal(model.program.weight("word"), start.weights["word"])
        outs.append(model(batch["token"], batch["lengths"]))
    assert not torch.allclose(*outs)


def test_a_run_is_a_start_too(folder, tmp_path):
    loaded(folder, steps=2)
    text = (folder / "recipe.toml").read_text()
    sizes = 'kind = "classifier"\nlayers = 1\nheads = 2\nsize = 8\nhidden = 8\n'
    first = text.partition("[model]")[0] + "[model]\n" + sizes
    first += "[objective]" + text.partition("[objective]")[2]
    (folder / "first.toml").write_text(first.replace('tokenizer = "start"\n', ""))
    list(training.train(training.load(folder / "first.toml"), tmp_path / "first"))
    start = (tmp_path / "first").as_posix()
    text = text.replace('tokenizer = "start"', f'tokenizer = "{start}"')
    (folder / "next.toml").write_text(text.replace((folder / "start").as_posix(), start))
    recipe = training.load(folder / "next.toml")
    corpus = recipe.data.read(folder)
    model = recipe.model.build(recipe.objective.words(corpus), corpus, 0)
    first = zoo.from_pretrained(start)
    assert torch.equal(model.program.weight("word"), first.model.weight("word"))
    *_, end = training.train(recipe, tmp_path / "run")
    assert end.kind == "end"
    with pytest.raises(EdgewiseError, match="`norm` cannot be changed: the checkpoint is a run"):
        FineTuned(path=start, norm="post").build(recipe.objective.words(corpus), corpus, 0)


def test_data_of_another_tokenizer_or_too_long_is_refused(folder):
    recipe = loaded(folder)
    corpus = recipe.data.read(folder)
    with pytest.raises(EdgewiseError, match="tokenizer of the data has 9,999 tokens") as caught:
        recipe.model.build(9_999, corpus, 0)
    assert caught.value.code == "bad-data"
    corpus.longest = 50
    with pytest.raises(EdgewiseError, match="50 tokens, the checkpoint 10 positions"):
        recipe.model.build(8, corpus, 0)


def test_a_path_without_a_checkpoint_and_a_bad_graph_are_refused(folder):
    with pytest.raises(EdgewiseError):
        FineTuned(path="nowhere").build(8, None, 0)
    with pytest.raises(EdgewiseError, match="windw"):
        loaded(folder, more='graph = "windw(1)"')
