"""(c) Post-norm without warm-up, with, and pre-norm, at two learning rates."""

from claims.claim import Claim, Verdict, grouped, main, mean, panel, seeds_of, spread_table
from claims.runs import short, sweep, text_folder
from plots import COLOURS

RATES = (5e-4, 2e-3)
PLACES = {
    "post-norm": ["model.norm=post"],
    "post-norm, warm-up": ["model.norm=post", "training.warmup={warmup}"],
    "pre-norm": ["model.norm=pre"],
    "pre-norm, warm-up": ["model.norm=pre", "training.warmup={warmup}"],
}
WARMUP = {"tiny": 1, "small": 80, "full": 400}
SETTINGS = {
    "tiny": ["data.context=8", "model.size=16", "model.layers=2", "model.heads=2", *short(3)],
    "small": ["data.context=32", "training.batch=8", "model.size=64", "model.layers=6",
              *short(320), "training.evaluate=80"],
    "full": ["data.context=256", "training.batch=64", "model.size=384", "model.layers=12",
             "model.heads=6", *short(3000), "training.evaluate=250"],
}  # fmt: skip


def measure(size):
    variants = {
        f"{name}, rate {rate:g}": [
            f"training.rate={rate}", *(s.format(warmup=WARMUP[size]) for s in settings)
        ]
        for rate in RATES
        for name, settings in PLACES.items()
    }  # fmt: skip
    return sweep(variants, "shakespeare-cpu", SETTINGS[size], seeds_of(size), text_folder(size))


def judge(rows):
    found = grouped(rows, "variant")
    high = max(RATES)
    losses = {name: _loss(found[f"{name}, rate {high:g}"]) for name in PLACES}
    needs = losses["post-norm"] - losses["post-norm, warm-up"]
    spared = losses["pre-norm"] - losses["pre-norm, warm-up"]
    first, second = needs > 0.05, spared < 0.05
    answer = ("does not hold", "holds in part", "holds")[first + second]
    why = (
        f"at rate {high:g} warm-up changes the loss of post-norm from {losses['post-norm']:.3f} to "
        f"{losses['post-norm, warm-up']:.3f} and that of pre-norm from {losses['pre-norm']:.3f} to "
        f"{losses['pre-norm, warm-up']:.3f}. So post-norm {'needs' if first else 'does not need'} "
        f"it here, and pre-norm {'does without' if second else 'gains by it too'}; with warm-up "
        "the loss of post-norm is that of pre-norm "
        f"{losses['post-norm, warm-up'] - losses['pre-norm, warm-up']:+.3f}."
    )
    return Verdict(answer, why)


def _loss(rows):
    """The mean; a run that diverged counts as the loss of guessing evenly among 65 characters."""
    return mean([{"loss": row.get("loss", 4.17)} for row in rows], "loss")


def draw(figure, rows):
    for at, rate in enumerate(RATES, 1):
        axes = panel(figure, f"rate {rate:g}", "step", "validation loss", (1, 2, at))
        for colour, name in zip(COLOURS, PLACES, strict=False):
            of = [r for r in rows if r["variant"] == f"{name}, rate {rate:g}" and r["curve"]]
            for k, row in enumerate(of):
                steps, losses = zip(*row["curve"], strict=True)
                axes.plot(steps, losses, "o-", ms=2, color=colour, label=name if not k else None)
        axes.legend(fontsize=7, frameon=False)


def table(rows):
    return spread_table([row for row in rows if "loss" in row], "variant", loss="loss")


CLAIM = Claim(
    letter="c",
    name="c_norm",
    title="Training depends on where the norm is placed",
    words="it could also be due to the specific permutation of normalization and residual "
    "connections within the architecture",
    source="[Transformers are Graph Neural Networks]"
    "(https://thegradient.pub/transformers-are-graph-neural-networks/), after "
    '[Xiong et al.](https://arxiv.org/abs/2002.04745): for pre-norm "the learning rate warm-up '
    'stage can be safely removed"',
    measured={
        "small": "the recipe `shakespeare-cpu` at six layers of 64 features, 32 characters, 320 "
        "steps of 8 texts, on the first 300,000 characters; warm-up is 80 steps, initial values "
        "are GPT-2's",
        "full": "twelve layers of 384 features, 256 characters, 3,000 steps of 64 texts; warm-up "
        "is 400 steps",
    },
    measure=measure,
    judge=judge,
    draw=draw,
    table=table,
    data=True,
)

if __name__ == "__main__":
    main(CLAIM)
