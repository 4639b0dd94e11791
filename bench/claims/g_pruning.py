"""(g) Heads removed after training, the least important first, until 1 % is lost."""

import torch
from claims.claim import Claim, Verdict, grouped, main, mean, panel, seeds_of
from claims.runs import RECIPES, short, text_folder, trained
from plots import COLOURS, INK
from torch.nn.functional import cross_entropy

from edgewise import numbers, training
from edgewise.pruning import importance, prune
from edgewise.training.runs.run import read_run

SETTINGS = {
    "tiny": ["data.context=16", "model.size=16", "model.layers=2", "model.heads=2", *short(3)],
    "small": ["data.context=64", "training.batch=8", "model.size=64", "model.layers=4",
              "model.heads=4", *short(800, 40)],
    "full": ["data.context=256", "training.batch=64", "model.size=384", "model.layers=6",
             "model.heads=6", *short(5000, 100)],
}  # fmt: skip
WINDOWS = {"tiny": 4, "small": 128, "full": 512}  # of each part to measure on
LOST = 0.01


def measure(size):
    rows, data = [], text_folder(size)
    for seed in seeds_of(size):
        recipe = training.load(
            RECIPES / "shakespeare-cpu.toml", [*SETTINGS[size], f"training.seed={seed}"]
        )
        found = trained(
            recipe, data=data, use=lambda out, of=recipe: {"left": pruned(out, of, size, data)}
        )
        rows += [{"seed": seed, **row} for row in found["left"]]
        print(f"seed {seed}: {found['left']}", flush=True)
    return rows


def pruned(out, recipe, size, data):
    """The validation loss with fewer and fewer heads.

    The order is that of the loss on training texts without each head alone.
    """
    model, corpus = read_run(out).model.eval(), recipe.data.read(data)
    train, held_out = (
        ({"token": numbers(batch["token"])}, batch["next"])
        for part in ("train", "validation")
        for batch in [next(iter(corpus.validation(WINDOWS[size], part)))]
    )
    scores = importance(model, [train], loss=loss_of, method="ablation").scores
    order = sorted(
        ((k, h) for k, layer in enumerate(scores) for h in range(len(layer))),
        key=lambda head: scores[head[0]][head[1]],
    )
    rows = []
    for gone in range(len(order)):
        heads = {k: [h for at, h in order[:gone] if at == k] for k, _ in order[:gone]}
        smaller = prune(model, heads).eval() if gone else model
        with torch.no_grad():
            loss = float(loss_of(smaller(**held_out[0]), held_out[1]))
        weights = sum(weight.numel() for weight in smaller.parameters())
        rows.append({"heads": len(order) - gone, "of": len(order), "loss": loss,
                     "weights": weights})  # fmt: skip
    return rows


def loss_of(logits, following):
    return cross_entropy(logits.flatten(0, 1), following.flatten())


def spared(rows):
    """How many heads each seed can lose before its loss is 1 % higher."""
    found = []
    for run in grouped(rows, "seed").values():
        first = run[0]["loss"]
        gone = 0
        while gone + 1 < len(run) and run[gone + 1]["loss"] <= (1 + LOST) * first:
            gone += 1
        found.append(gone)
    return found


def judge(rows):
    gone, every = spared(rows), rows[0]["of"]
    share = sum(gone) / len(gone) / every
    half = mean([row for row in rows if row["heads"] == every // 2], "loss")
    first, one = (mean([r for r in rows if r["heads"] == k], "loss") for k in (every, 1))
    answer = "holds" if share >= 0.2 else "holds in part" if min(gone) > 0 else "does not hold"
    why = (
        f"{', '.join(map(str, gone))} of {every} heads of the three seeds can be removed before "
        f"the loss is 1 % higher ({100 * share:.0f} %). From {first:.3f} with all heads it rises "
        f"to {half:.3f} with half of them and {one:.3f} with one. The smaller model is not "
        "trained further."
    )
    return Verdict(answer, why)


def draw(figure, rows):
    axes = panel(figure, "heads removed, least important first", "heads left", "validation loss")
    for colour, (seed, run) in zip(COLOURS, grouped(rows, "seed").items(), strict=False):
        heads, losses = ([row[key] for row in run] for key in ("heads", "loss"))
        axes.plot(heads, losses, "o-", ms=3, color=colour, label=f"seed {seed}")
        axes.axhline((1 + LOST) * losses[0], color=colour, lw=0.6, ls=":")
    axes.plot([], [], ":", color=INK, label="1 % above all heads")
    axes.invert_xaxis()
    axes.legend(fontsize=8, frameon=False)


def table(rows):
    every = rows[0]["of"]
    seeds = grouped(rows, "seed")
    shown = [k for k in range(every, 0, -1) if k == 1 or k % max(1, every // 8) == 0]
    lines = [
        (k, *(f"{row['loss']:.3f}" for run in seeds.values() for row in run if row["heads"] == k))
        for k in shown
    ]
    return [("heads left", *(f"loss, seed {seed}" for seed in seeds)), *lines]


CLAIM = Claim(
    letter="g",
    name="g_pruning",
    title="Heads can be pruned after training",
    words="Transformer heads can be 'pruned' or removed after training without significant "
    "performance impact.",
    source="[Transformers are Graph Neural Networks]"
    "(https://thegradient.pub/transformers-are-graph-neural-networks/), after "
    "[Michel et al.](https://arxiv.org/abs/1905.10650)",
    measured={
        "small": "the recipe `shakespeare-cpu` at four layers of four heads of 16 features, 800 "
        "steps of 8 texts of 64 characters, on the first 300,000; then `edgewise.pruning` removes "
        "heads in the order of the loss on training texts without each alone, down to one, and the "
        "loss of 128 validation texts is measured",
        "full": "six layers of six heads of 64, 5,000 steps of 64 texts of 256 characters",
    },
    measure=measure,
    judge=judge,
    draw=draw,
    table=table,
    data=True,
)

if __name__ == "__main__":
    main(CLAIM)
