"""A small treebank of our own, a small BERT, and a recipe: parsers of a second each."""

from pathlib import Path

import torch

from edgewise import zoo

SUBJECTS = ("a man", "the dog", "a child", "the old cat")
VERBS = ("sees", "likes", "finds")
TREES = [f"{a} {verb} {b}" for a in SUBJECTS for verb in VERBS for b in SUBJECTS if a != b]
UPOS = {"a": "DET", "the": "DET", "old": "ADJ"} | dict.fromkeys(VERBS, "VERB")
RECIPE = """\
[data]
kind = "treebank"
train = "train.conllu"
validation = "dev.conllu"
test = "dev.conllu"
tokenizer = "start"
longest = 24
batch_tokens = 96

[model]
kind = "parser"
path = "{path}"
dropout = 0.0
arcs = 12
labels = 8
word_dropout = 0.0

[objective]
kind = "dependencies"

[training]
steps = {steps}
batch = 12
rate = 5e-3
fresh_rate = 1e-2
warmup = 2
evaluate = 20
checkpoint = 20
"""


def conllu_of(sentence: str) -> str:
    """Its tree: determiners and adjectives below nouns, nouns below the verb."""
    words = sentence.split()
    verb = next(k for k, word in enumerate(words) if word in VERBS)
    nouns = [k for k, word in enumerate(words) if word not in UPOS]
    lines = [f"# text = {sentence}"]
    for k, word in enumerate(words):
        upos = UPOS.get(word, "NOUN")
        if k == verb:
            head, relation = 0, "root"
        elif k in nouns:
            head, relation = verb + 1, "nsubj" if k < verb else "obj"
        else:
            head, relation = min(n for n in nouns if n > k) + 1, "det" if upos == "DET" else "amod"
        lines.append(
            "\t".join([str(k + 1), word, word, upos, "_", "_", str(head), relation, "_", "_"])
        )
    return "\n".join(lines) + "\n\n"


def small_parser(folder: Path, steps: int = 60) -> Path:
    """Write the data, the checkpoint and the recipe; the path of the recipe."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = sorted({word for text in TREES for word in text.split()})
    known = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words])}
    tokenizer = Tokenizer(models.WordLevel(known, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    config = zoo.bert.Config(len(known), 16, 2, 24, 1, 24, dropout=0.0)
    weights = zoo.bert.program(config).weights(seed=0, dtype=torch.float32)
    zoo.save_pretrained(folder / "start", zoo.bert, config, weights, tokenizer=tokenizer)
    (folder / "train.conllu").write_text("".join(map(conllu_of, TREES)))
    (folder / "dev.conllu").write_text("".join(map(conllu_of, TREES[::5])))
    path = folder / "parser.toml"
    path.write_text(RECIPE.format(path=(folder / "start").as_posix(), steps=steps))
    return path
