"""(p) Agreement of verbs with their subjects, by distance: is the next word `walks` or `walk`?

A model reads the words of a sentence of UD English EWT before a verb in the present tense and says
which form the verb has (VBZ or VBP, Penn's tags), as in https://arxiv.org/abs/1611.01368. Words
that are rare in training are their tags. The distance is that from subject to verb. Each seed
trains on four fifths of all sentences and is measured on the last fifth, so that every verb is
measured once: few of them are far from their subject.
"""

import gzip
import statistics
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from claims.claim import Claim, Row, Verdict, grouped, main, mean, panel, seeds_of, spread_table
from claims.runs import data_folder
from plots import COLOURS
from torch import Tensor
from torch.nn.functional import cross_entropy

from edgewise import F, Program, R, V, W, numbers, zoo
from edgewise.training.data.batches import Buckets, padded
from edgewise.training.models.classifier import mask_of
from edgewise.zoo.parts import Statements, affine, dropped, present

MODELS = ("RNN", "RNN with attention", "Transformer")
TREEBANK = "text/ud_ewt/en_ewt-ud-{}.conllu.gz"
FORMS = ("VBZ", "VBP")
DISTANCES = ((1, 1), (2, 3), (4, 7), (8, 60))
FOLDS = (1, 2, 3, 4, 5)  # seeds, each with a fifth of the sentences to measure on
ERRORS = 2  # standard errors from which a difference counts
SEEN = 3  # occurrences from which a word is a word and not its tag
LONGEST = 60
DROPOUT = 0.3
LAYERS = 2
BATCH = 64
SIZES = {"tiny": 8, "small": 64, "full": 256}
STEPS = {"tiny": 2, "small": 600, "full": 2000}


class Example(NamedTuple):
    """The words before a verb, its form, and how many words before it its subject stands."""

    words: list[str]
    form: int
    distance: int


def sentences(path: Path) -> Iterator[list[Example]]:
    """Of each sentence all verbs in the present tense whose subject stands before them."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for sentence in file.read().strip().split("\n\n"):
            lines = [line.split("\t") for line in sentence.split("\n") if line[0] != "#"]
            words, found = [line for line in lines if line[0].isdigit()], []
            for at, (_, _, _, _, tag, _, head, relation, *_) in enumerate(words):
                # of "is walking" and "is tall" the subject depends on the last word
                last = head if relation.split(":")[0] in ("aux", "cop") else words[at][0]
                subjects = [
                    k
                    for k, other in enumerate(words[:at])
                    if other[6] == last and other[7].startswith("nsubj")
                ]
                if tag in FORMS and subjects:
                    before = [f"{word[1].lower()} {word[4]}" for word in words[:at]]
                    distance = at - subjects[-1]
                    found.append(Example(before[-LONGEST:], FORMS.index(tag), distance))
            yield found


class Vocabulary:
    """The words of the training part; a rare word has the number of its tag."""

    def __init__(self, train: list[Example]) -> None:
        found = Counter(word for example in train for word in example.words)
        often = [word for word, count in found.items() if count >= SEEN]
        tags = {word.split(" ")[1] for word in found}
        self.numbers = {name: k for k, name in enumerate((*sorted(tags), *sorted(often)), start=1)}

    def of(self, example: Example) -> list[int]:
        known = self.numbers
        return [known.get(word) or known.get(word.split(" ")[1], 0) for word in example.words]


def rules(name: str, words: int, size: int) -> Program:
    """Reads `token(i)`, `mask(i)`, `end(i)` (1 at the last word), derives `logits`."""
    config = zoo.transformer.Config(
        vocabulary=words, size=size, heads=4, hidden=2 * size, layers=LAYERS, length=LONGEST,
        dropout=DROPOUT, norm="pre",
    )  # fmt: skip
    last = R.last_row <= (R.end(V.I), R.states(V.I))
    if name == "Transformer":
        states: Statements = [
            *zoo.transformer.embedded(R.token, R.x, config),
            *present(R.mask, R.present),
            *zoo.transformer.stacked("encoder", R.x, config.layers, config),
            R.states(V.I) <= R["encoder.out"](V.I),
        ]
        return Program(
            [*states, last | [F.product], _logits(R.last_row, size)],
            domains=zoo.layers.domains(config),
        )
    first = W["first"][size,].filled(0.0).fixed()
    word = F.lookup(W.word[words, size], R.token(V.T))
    states = [
        R.x(V.T) <= dropped(word, DROPOUT),
        *zoo.rnn.gru(R.x, R.states, size, first),
        last | [F.product],
    ]
    if name == "RNN":
        return Program([*states, _logits(R.last_row, size)])
    own = zoo.rnn.Config(size=size)
    return Program(
        [
            *states,
            R.query(0) <= R.last_row,
            *zoo.rnn.luong(R.query, R.states, R.out, own),
            R.attended <= R.out(0),
            _logits(R.attended, size),
        ]
    )


def _logits(row, size):
    return R.logits <= affine(dropped(row, DROPOUT), "logits", size, len(FORMS))


class Reader:
    """A model that says the form of a verb from the words before it."""

    def __init__(self, name: str, vocabulary: Vocabulary, size: int, seed: int) -> None:
        self.vocabulary = vocabulary
        words = len(vocabulary.numbers) + 1
        self.model = rules(name, words, size).compile(R.logits, seed=seed)
        self.masked = name != "RNN"

    def logits(self, some: list[Example]) -> Tensor:
        token, lengths = padded([self.vocabulary.of(example) for example in some], 0)
        mask = mask_of(token, lengths, torch.float32)
        end = torch.zeros_like(mask)
        end[torch.arange(len(some)), lengths - 1] = 1.0
        padding = {"mask": mask} if self.masked else {}
        return self.model(token=numbers(token), end=end, **padding)

    def train(self, some: list[Example], steps: int, seed: int) -> None:
        optimiser = torch.optim.AdamW(self.model.parameters(), lr=2e-3, weight_decay=0.01)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=steps)
        buckets = Buckets([len(example.words) for example in some], BATCH, BATCH * LONGEST)
        self.model.train()
        for step in range(steps):
            torch.manual_seed(1000 * seed + step)
            _, chosen = buckets.batch(seed, step)
            batch = [some[k] for k in chosen.tolist()]
            form = torch.tensor([example.form for example in batch])
            cross_entropy(self.logits(batch), form).backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            optimiser.step()
            optimiser.zero_grad()
            schedule.step()

    @torch.inference_mode()
    def right(self, some: list[Example]) -> list[bool]:
        """For each example whether the more likely form is its own."""
        self.model.eval()
        found: dict[int, bool] = {}
        order = sorted(range(len(some)), key=lambda k: len(some[k].words))
        for first in range(0, len(order), BATCH):
            at = order[first : first + BATCH]
            said = self.logits([some[k] for k in at]).argmax(1).tolist()
            found |= {k: form == some[k].form for k, form in zip(at, said, strict=True)}
        return [found[k] for k in range(len(some))]


def corpus(size: str) -> list[list[Example]]:
    """The examples of every sentence."""
    if size == "tiny":
        made = [Example(["the DT", "dog NN"], 0, 1), Example(["the DT", "dogs NNS"], 1, 1)]
        return [made] * 8
    paths = (data_folder() / TREEBANK.format(part) for part in ("train", "dev", "test"))
    return [found for path in paths for found in sentences(path)]


def parts_of(every: list[list[Example]], seed: int) -> tuple[list[Example], list[Example]]:
    """Examples to train on, and those of the fifth of the sentences that this seed leaves out."""
    of = [at % len(FOLDS) == seed % len(FOLDS) for at in range(len(every))]
    train, held_out = (
        [e for out, some in zip(of, every, strict=True) if out is part for e in some]
        for part in (False, True)
    )
    return train, held_out


def measure(size):
    every, rows = corpus(size), []
    for name in MODELS:
        for seed in seeds_of(size, FOLDS):
            train, held_out = parts_of(every, seed)
            vocabulary = Vocabulary(train)
            reader = Reader(name, vocabulary, SIZES[size], seed)
            reader.train(train, STEPS[size], seed)
            right = reader.right(held_out)
            weights = sum(weight.numel() for weight in reader.model.parameters())
            row: Row = {"variant": name, "seed": seed, "weights": weights}
            row |= {"all": sum(right) / len(right)}
            rows.append(row | by_distance(right, held_out))
            print(rows[-1], flush=True)
    return rows


def by_distance(right: list[bool], some: list[Example]) -> Row:
    """The share of right forms at each range of distances."""
    found: Row = {}
    for low, high in DISTANCES:
        here = [r for r, e in zip(right, some, strict=True) if low <= e.distance <= high]
        if here:
            name = f"{low}" if low == high else f"{low}–{high}"
            found[f"{name} apart"] = sum(here) / len(here)
            found[f"{name} verbs"] = len(here)
    return found


def distances(rows):
    return [key for key in rows[0] if key.endswith(" apart")]


def judge(rows):
    far, found = distances(rows)[-1], grouped(rows, "variant")
    share = {name: mean(of, far) for name, of in found.items()}
    gains = {
        name: [r[far] - rnn[far] for r, rnn in zip(found[name], found["RNN"], strict=True)]
        for name in MODELS[1:]
    }
    gain = {name: statistics.fmean(of) for name, of in gains.items()}
    error = {
        name: statistics.stdev(of) / len(of) ** 0.5 if len(of) > 1 else float("inf")
        for name, of in gains.items()
    }
    above = all(gain[name] > ERRORS * error[name] for name in gains)
    below = any(gain[name] < -ERRORS * error[name] for name in gains)
    answer = "holds" if above else "does not hold" if below else "open"
    verbs = sum(row[far.replace("apart", "verbs")] for row in found["RNN"])
    near = ", ".join(f"{name} {mean(of, distances(rows)[0]):.1%}" for name, of in found.items())
    shown = ", ".join(f"{name} {value:.1%}" for name, value in share.items())
    why = (
        f"where the subject is the word before the verb: {near}; {far} ({verbs:,} verbs): {shown}. "
        "There "
        + " and ".join(f"{n} gains {gain[n]:+.1%} ± {error[n]:.1%} on the RNN" for n in gains)
        + " (mean and standard error over the fifths). "
    )
    why += {
        "holds": "Models in which the subject is one step away are right more often.",
        "open": f"Not both gains are more than {ERRORS} standard errors.",
        "does not hold": "A model in which the subject is one step away is right less often.",
    }[answer]
    return Verdict(answer, why)


def draw(figure, rows):
    axes = panel(figure, "Verbs that agree with their subject", "distance in words", "share")
    names = distances(rows)
    shown = [name.removesuffix(" apart") for name in names]
    for colour, (name, found) in zip(COLOURS, grouped(rows, "variant").items(), strict=False):
        axes.plot(shown, [mean(found, key) for key in names], "o-", color=colour, label=name)
        for row in found:
            axes.plot(shown, [row[key] for key in names], ".", ms=3, color=colour)
    axes.legend(fontsize=8, frameon=False)


def table(rows):
    return spread_table(
        rows, "variant", weights=("weights", 0), all="all", **{key: key for key in distances(rows)}
    )


VERBS, FAR = "10,652", 272
SETTING = (
    "{} features, {} steps of 64 beginnings of sentences of UD English EWT; each says the form of "
    "the next word, a verb in the present tense. Five seeds train on four fifths of the sentences "
    "each, and are measured on the last fifth: {} verbs in all, {} of them 8 or more words after "
    "their subject"
)
CLAIM = Claim(
    letter="p",
    name="p_agreement",
    title="Short paths make long-range dependencies easier",
    words="The shorter these paths between any combination of positions in the input and output "
    "sequences, the easier it is to learn long-range dependencies.",
    source="[Attention is all you need](https://arxiv.org/abs/1706.03762), section 4",
    measured={
        "small": SETTING.format("models of 64", 600, VERBS, FAR),
        "full": SETTING.format("models of 256", "2,000", VERBS, FAR),
    },
    measure=measure,
    judge=judge,
    draw=draw,
    table=table,
    seeds=FOLDS,
    data=True,
)

if __name__ == "__main__":
    main(CLAIM)
