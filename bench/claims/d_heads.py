"""(d) One head against eight over twenty initialisations, and sum or max aggregation with one."""

import statistics

from claims.claim import Claim, Verdict, bars, grouped, main, seeds_of, spread_table
from claims.runs import short, sweep, text_folder

SEEDS = tuple(range(1, 21))
VARIANTS = {
    "8 heads": ["model.heads=8"],
    "1 head": ["model.heads=1"],
    "1 head, sum": ["model.heads=1", "model.aggregation=sum"],
    "1 head, max": ["model.heads=1", "model.aggregation=max"],
}
SETTINGS = {
    "tiny": ["data.context=8", "model.size=16", "model.layers=1", *short(3)],
    "small": ["data.context=32", "training.batch=8", "model.size=64", "model.layers=2",
              *short(150, 20)],
    "full": ["data.context=256", "training.batch=64", "model.size=256", "model.layers=6",
             *short(3000, 100)],
}  # fmt: skip


def measure(size):
    seeds = seeds_of(size, SEEDS)
    return sweep(VARIANTS, "shakespeare-cpu", SETTINGS[size], seeds, text_folder(size))


def judge(rows):
    losses = {n: [r["loss"] for r in f if "loss" in r] for n, f in grouped(rows, "variant").items()}
    means = {name: statistics.fmean(found) for name, found in losses.items()}
    deviation = {name: statistics.pstdev(found) for name, found in losses.items()}
    lost = {n: sum(r["diverged"] for r in f) for n, f in grouped(rows, "variant").items()}
    eight, one = "8 heads", "1 head"
    steadier = deviation[one] > 1.5 * deviation[eight] or lost[one] > lost[eight]
    simple = all(deviation[f"1 head, {how}"] <= 1.5 * deviation[eight] for how in ("sum", "max"))
    both = steadier + simple
    answer = ("does not hold", "holds in part", "holds")[both]
    why = (
        f"one head ends at {means[one]:.3f} ± {deviation[one]:.3f} nats (standard deviation over "
        f"{len(losses[one])} initialisations), eight at {means[eight]:.3f} ± "
        f"{deviation[eight]:.3f}, so one head is {'less' if steadier else 'not less'} stable; "
        f"{sum(lost.values())} runs diverged. Sum and max with one head end at "
        f"{means['1 head, sum']:.3f} ± {deviation['1 head, sum']:.3f} and "
        f"{means['1 head, max']:.3f} ± {deviation['1 head, max']:.3f}: "
        f"{'as' if simple else 'not as'} stable as eight heads, and worse than attention by "
        f"{means['1 head, sum'] - means[one]:.2f} and {means['1 head, max'] - means[one]:.2f}. "
        "Less stable is a deviation above 1.5 times that of eight heads, or more runs that diverge."
    )
    return Verdict(answer, why)


def draw(figure, rows):
    bars(figure, rows, "validation loss of each initialisation", "nats per character")


def table(rows):
    shown = []
    for found in grouped(rows, "variant").values():
        deviation = statistics.pstdev(row["loss"] for row in found if "loss" in row)
        shown += [{**row, "deviation": deviation} for row in found if "loss" in row]
    return spread_table(shown, "variant", loss="loss", standard_deviation=("deviation", 4))


CLAIM = Claim(
    letter="d",
    name="d_heads",
    title="Many heads overcome bad initialisations; sum and max need one head",
    words="having multiple attention heads stabilizes training and overcomes bad random "
    "initializations [...] Conversely, GNNs with simpler aggregation functions such as sum or max "
    "do not require multiple aggregation heads for stable training.",
    source="[Transformers are Graph Neural Networks]"
    "(https://thegradient.pub/transformers-are-graph-neural-networks/)",
    measured={
        "small": "the recipe `shakespeare-cpu` at two layers of 64 features, 32 characters, 150 "
        "steps of 8 texts, on the first 300,000 characters; twenty seeds of each of four "
        "aggregations, of which eight heads and one have as many weights",
        "full": "six layers of 256 features, 256 characters, 3,000 steps of 64 texts",
    },
    measure=measure,
    judge=judge,
    draw=draw,
    table=table,
    seeds=SEEDS,
    data=True,
)

if __name__ == "__main__":
    main(CLAIM)
