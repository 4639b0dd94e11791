"""(f) BLEU by sentence length: an RNN, one with Luong's attention, a Transformer.

Recurrent models of minutes learn next to nothing of English and German, and then do not show what
they lose by length. So the small size translates a made-up language word for word, every two words
in the other order: what is hard in it is the length alone.
"""

import gzip
import random

from claims.claim import Claim, Row, Verdict, grouped, main, mean, panel, seeds_of
from claims.runs import data_folder, made_folder, short, trained
from plots import COLOURS

from edgewise.training.objectives.texts import bleu

MODELS = {
    "RNN": ("multi30k-rnn", ["model.size={rnn}"]),
    "RNN with Luong's attention": ("multi30k-rnn-luong", ["model.size={rnn}"]),
    "Transformer": (
        "multi30k-cpu",
        ["model.size={size}", "model.hidden={hidden}", "training.ema=0"],
    ),
}
SIZES = {
    "tiny": {"rnn": 8, "size": 8, "hidden": 8},
    "small": {"rnn": 64, "size": 64, "hidden": 128},
    "full": {"rnn": 512, "size": 256, "hidden": 512},
}
SETTINGS = {
    "tiny": ["data.pieces=300", "data.longest=16", "training.batch=8", "objective.beams=1",
             *short(2)],
    "small": ["data.tokenizer=words", "data.longest=28", "data.batch_tokens=512",
              "training.batch=64", "training.rate=4e-3", "objective.beams=1",
              "objective.smoothing=0", "model.dropout=0", *short(1000, 100)],
    "full": ["data.pieces=8000", "data.longest=48", "data.batch_tokens=8192",
             "training.batch=256", *short(6000, 300)],
}  # fmt: skip
MADE_UP = 12  # words of the made-up language
PAIRS = {"tiny": (40, 8, 8), "small": (20_000, 200, 400)}  # of train, val and test
LEAST = 10  # BLEU from which a fall by length is that of a trained model
LENGTHS = ((1, 8), (9, 12), (13, 16), (17, 60))


def folder(size):
    """Multi30k, or sentences of 2 to 24 words of a made-up language."""
    if size == "full":
        return data_folder() / "multi30k"
    draws, files = random.Random(0), {}
    for part, count in zip(("train", "val", "test_2016_flickr"), PAIRS[size], strict=True):
        lines = [
            [draws.randrange(MADE_UP) for _ in range(draws.randint(2, 24))] for _ in range(count)
        ]
        swapped = [
            [k for at in range(0, len(line), 2) for k in line[at : at + 2][::-1]] for line in lines
        ]
        for language, word, of in (("en", "a", lines), ("de", "b", swapped)):
            text = "".join(" ".join(f"{word}{k}" for k in line) + "\n" for line in of)
            files[f"{part}.{language}.gz"] = gzip.compress(text.encode())
    return made_folder(files)


def texts(data, language):
    with gzip.open(data / f"test_2016_flickr.{language}.gz", "rt", encoding="utf-8") as file:
        return [line.rstrip("\n") for line in file]


def measure(size):
    data, rows = folder(size), []
    source, target = (texts(data, language) for language in ("en", "de"))
    for name, (recipe, own) in MODELS.items():
        for seed in seeds_of(size):
            settings = [*SETTINGS[size], *(s.format(**SIZES[size]) for s in own)]
            settings.append(f"training.seed={seed}")

            def written(out) -> Row:
                return {"written": (out / "translations.txt").read_text().splitlines()}

            run = trained(recipe, settings, data=data, finish=True, use=written)
            row = {"variant": name, "seed": seed, "weights": run["parameters"]}
            row |= {"loss": run["validation loss"], "bleu": run["test bleu"]}
            rows.append(row | by_length(source, target, run["written"]))
            print(rows[-1], flush=True)
    return rows


def by_length(source, target, written):
    """BLEU of the sentences of each range of lengths, in words of the source."""
    found = {}
    for low, high in LENGTHS:
        at = [k for k, text in enumerate(source) if low <= len(text.split()) <= high]
        if at:
            found[f"{low}–{high}"] = bleu([written[k] for k in at], [target[k] for k in at])
    return found


def judge(rows):
    found = grouped(rows, "variant")
    ranges = [key for key in rows[0] if "–" in key]
    first, last = ranges[0], ranges[-1]
    kept = {n: mean(of, last) / max(mean(of, first), 1e-9) for n, of in found.items()}
    score = {name: mean(of, "bleu") for name, of in found.items()}
    attends = [name for name in MODELS if name != "RNN"]
    order = score["RNN"] < min(score[name] for name in attends)
    falls = kept["RNN"] < min(kept[name] for name in attends)
    answer = ("does not hold", "holds in part", "holds")[order + falls]
    parts = [f"{n} {score[n]:.1f} ({mean(of, first):.1f} at {first} words, {mean(of, last):.1f} at "
             f"{last})" for n, of in found.items()]  # fmt: skip
    why = (
        f"BLEU of {', '.join(parts)}. The RNN without attention has "
        f"{'less than' if order else 'no less than'} each model with attention, and "
        f"{'loses most' if falls else 'does not lose most'} from the shortest to the longest."
    )
    if untrained := [name for name in score if score[name] < LEAST]:
        why += (
            f" Below a BLEU of {LEAST} ({', '.join(untrained)}) a model is hardly trained, and "
            "what it loses by length says little."
        )
    return Verdict(answer, why)


def draw(figure, rows):
    axes = panel(figure, "BLEU by the length of the source", "words", "BLEU")
    ranges = [key for key in rows[0] if "–" in key]
    for colour, (name, found) in zip(COLOURS, grouped(rows, "variant").items(), strict=False):
        axes.plot(ranges, [mean(found, key) for key in ranges], "o-", color=colour, label=name)
        for row in found:
            axes.plot(ranges, [row[key] for key in ranges], ".", ms=3, color=colour)
    axes.legend(fontsize=8, frameon=False)


def table(rows):
    ranges = [key for key in rows[0] if "–" in key]
    head = ("model", "weights", "loss", "BLEU", *(f"{key} words" for key in ranges))
    return [
        head,
        *(
            (name, f"{of[0]['weights']:,}", f"{mean(of, 'loss'):.3f}",
             *(f"{mean(of, key):.1f}" for key in ("bleu", *ranges)))
            for name, of in grouped(rows, "variant").items()
        ),
    ]  # fmt: skip


CLAIM = Claim(
    letter="f",
    name="f_translation",
    title="Attention helps where sentences are long",
    words="our attentional models are more effective than the non-attentional one in handling long "
    "sentences: the quality does not degrade as sentences become longer.",
    source="[Luong et al.](https://arxiv.org/abs/1508.04025), section 5.2",
    measured={
        "small": "sentences of 2 to 24 words, drawn from twelve, of a made-up language; the "
        "translation has another word for each, every two in the other order. 20,000 sentences, "
        "1,000 steps of about 500 words, models of 64 features, greedy translations of 400 other "
        "sentences, BLEU by the words of the source",
        "full": "English to German on Multi30k, models of 512 and 256 features, 6,000 steps of "
        "about 8,000 pieces, five beams",
    },
    measure=measure,
    judge=judge,
    draw=draw,
    table=table,
    data=True,
)

if __name__ == "__main__":
    main(CLAIM)
