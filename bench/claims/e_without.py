"""(e) Without √d, without the feed-forward, without LayerNorm."""

from claims.claim import Claim, Verdict, bars, grouped, main, mean, seeds_of, spread_table
from claims.runs import short, sweep, text_folder

VARIANTS = {
    "all": [],
    "without √d": ["model.scale=none"],
    "without feed-forward": ["model.feed_forward=none"],
    "without LayerNorm": ["model.norm=none"],
    "without all three": ["model.scale=none", "model.feed_forward=none", "model.norm=none"],
}
SETTINGS = {
    "tiny": ["data.context=8", "model.size=16", "model.layers=1", "model.heads=1", *short(3)],
    "small": ["data.context=32", "training.batch=8", "model.layers=4", "model.heads=1",
              "model.size=64", *short(400, 20)],
    "full": ["data.context=256", "training.batch=64", "model.size=384", "model.layers=6",
             "model.heads=6", *short(3000, 100)],
}  # fmt: skip


def measure(size):
    return sweep(VARIANTS, "shakespeare-cpu", SETTINGS[size], seeds_of(size), text_folder(size))


def judge(rows):
    found = {name: of for name, of in grouped(rows, "variant").items()}
    worse, said = [], []
    for name in list(VARIANTS)[1:4]:
        if any(row["diverged"] for row in found[name]):
            worse.append(True)
            said.append(f"{name} {sum(r['diverged'] for r in found[name])} of {len(found[name])} "
                        "runs diverge")  # fmt: skip
            continue
        off = min(row["loss"] for row in found[name]) - max(row["loss"] for row in found["all"])
        worse.append(off > 0)
        said.append(f"{name} {mean(found[name], 'loss'):.3f}")
    answer = "holds" if all(worse) else "holds in part" if any(worse) else "does not hold"
    names = [name for name, bad in zip(list(VARIANTS)[1:4], worse, strict=True) if bad]
    why = (
        f"with everything the loss is {mean(found['all'], 'loss'):.3f}, {', '.join(said)}. Worse "
        f"with every seed than any run with everything: {', '.join(names) or 'none of them'}."
    )
    return Verdict(answer, why)


def draw(figure, rows):
    bars(figure, rows, "validation loss", "nats per character")


def table(rows):
    shown = [row for row in rows if "loss" in row]
    return spread_table(shown, "variant", loss="loss", weights=("parameters", 0))


CLAIM = Claim(
    letter="e",
    name="e_without",
    title="Scaled products, the feed-forward and LayerNorm keep features in scale",
    words="Transformers overcome issue (2) with LayerNorm [...] scaling the dot-product attention "
    "by the square-root of the feature dimension helps counteract issue (1). Finally, the authors "
    "propose another 'trick' to control the scale issue: a position-wise 2-layer MLP",
    source="[Transformers are Graph Neural Networks]"
    "(https://thegradient.pub/transformers-are-graph-neural-networks/)",
    measured={
        "small": "the recipe `shakespeare-cpu` at four layers of one head of 64 features, 32 "
        "characters, 400 steps of 8 texts, on the first 300,000 characters; each part left out "
        "by one setting, without making up for its weights",
        "full": "six layers of six heads of 64, 256 characters, 3,000 steps of 64 texts",
    },
    measure=measure,
    judge=judge,
    draw=draw,
    table=table,
    data=True,
)

if __name__ == "__main__":
    main(CLAIM)
