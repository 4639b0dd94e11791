"""(a) Masked language modelling at equal steps: random, window, both, with global tokens, full."""

from claims.claim import Claim, Verdict, bars, grouped, main, mean, seeds_of, spread_table
from claims.runs import short, sweep, text_folder

GRAPHS = {
    "random": "random_edges({r}, seed=0)",
    "window": "window({w})",
    "random + window": "random_edges({r}, seed=0) | window({w})",
    "random + window + global (BigBird)": "random_edges({r}, seed=0) | window({w}) | "
    "global_tokens({g})",
    "window + global (Longformer)": "window({long}) | global_tokens({g})",
    "full": "full()",
}
WIDTH = {"tiny": {"r": 2, "w": 1, "g": 1, "long": 2}, "small": {"r": 6, "w": 3, "g": 2, "long": 6},
         "full": {"r": 48, "w": 24, "g": 16, "long": 48}}  # fmt: skip
MASKED = ["model.kind=encoder", "objective.kind=masked"]
SETTINGS = {
    "tiny": ["data.context=16", "model.size=16", "model.hidden=16", "model.layers=1",
             "model.heads=2", *short(3)],
    "small": ["data.context=96", "training.batch=8", "model.size=64", "model.hidden=128",
              "model.layers=2", *short(600, 50)],
    "full": ["data.context=512", "training.batch=64", "model.size=384", "model.hidden=1536",
             "model.layers=6", "model.heads=6", *short(10_000, 500)],
}  # fmt: skip


def measure(size):
    variants = {
        name: [f"model.graph={text.format(**WIDTH[size])}"] for name, text in GRAPHS.items()
    }
    return sweep(
        variants, "shakespeare-cpu", [*MASKED, *SETTINGS[size]], seeds_of(size), text_folder(size)
    )


def judge(rows):
    found = grouped(rows, "variant")
    loss = {name: mean(of, "loss") for name, of in found.items()}
    both, bird = "random + window", "random + window + global (BigBird)"
    longformer = "window + global (Longformer)"
    noise = max(max(r["loss"] for r in of) - min(r["loss"] for r in of) for of in found.values())
    short_ = loss[both] > loss["full"] + noise
    restored = loss[bird] < loss["full"] + noise
    answer = "holds" if short_ and restored else "holds in part" if short_ else "does not hold"
    best = min(loss, key=loss.get)
    why = (
        f"random keys end at {loss['random']:.3f} nats, a window at {loss['window']:.3f}, both at "
        f"{loss[both]:.3f}, with global tokens at {loss[bird]:.3f}, all pairs at "
        f"{loss['full']:.3f}; seeds differ by up to {noise:.3f}. Random keys and a window "
        f"{'fall short of' if short_ else 'do not fall short of'} all pairs"
        f"{(', with global tokens they ' + ('do not' if restored else 'still do')) * short_}; "
        "BigBird and Longformer are "
        f"{abs(loss[bird] - loss[longformer]):.3f} apart. The lowest loss has: {best}. A window "
        f"alone is {'worth more than' if loss['window'] < loss['random'] else 'no better than'} "
        "random keys alone here: characters are told by their neighbours."
    )
    if loss["full"] > loss["window"]:
        why += (
            " All pairs are learned more slowly than the window: so few steps do not show what a "
            "trained model lacks, only what helps at first."
        )
    return Verdict(answer, why)


def draw(figure, rows):
    shown = [{**row, "variant": row["variant"].replace(" (", "\n(")} for row in rows]
    bars(figure, shown, "loss at masked characters of the validation part", "nats")


def table(rows):
    return spread_table(
        rows, "variant", loss="loss", accuracy="accuracy", pairs_of_a_text=("pairs", 0)
    )


CLAIM = Claim(
    letter="a",
    name="a_masked",
    title="Random and local edges alone fall short; global tokens restore quality",
    words="We found that random blocks and local window were insufficient in capturing all the "
    "context necessary to compete with the performance of BERT. The final piece of BigBird is "
    "inspired from our theoretical analysis, which is critical for empirical performance [...] the "
    'importance of "global tokens"',
    source="[BigBird](https://arxiv.org/abs/2007.14062), section 2 and table 1",
    measured={
        "small": "masked characters of the first 300,000 of Tiny Shakespeare (the recipe "
        "`shakespeare-cpu` with an encoder), 96 at a time, two layers of 64 features, 600 steps of "
        "8 texts; 6 random keys, a window of 3 on each side, 2 global tokens; Longformer's window "
        "is 6, so that it has about as many pairs as BigBird",
        "full": "512 characters, six layers of 384 features, 10,000 steps of 64 texts; 48 random "
        "keys, a window of 24, 16 global tokens, Longformer's window 48",
    },
    measure=measure,
    judge=judge,
    draw=draw,
    table=table,
    data=True,
)

if __name__ == "__main__":
    main(CLAIM)
