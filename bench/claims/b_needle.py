"""(b) Needle retrieval: accuracy against hops and spectral gap of each pattern."""

from claims.claim import Claim, Verdict, grouped, main, mean, panel, seeds_of, spread
from claims.runs import short
from claims.tasks import hops_of, task_sweep
from plots import COLOURS

from edgewise.graphs import parse

GRAPHS = {
    "window": "window({w})",
    "random": "random_edges({w}, seed={{seed}})",
    "window + random": "window({w}) | random_edges({r}, seed={{seed}})",
    "window + global": "window({w}) | global_tokens(1)",
    "window + random + global": "window({w}) | random_edges({r}, seed={{seed}}) | global_tokens(1)",
    "full": "full()",
}
LENGTH = {"tiny": 32, "small": 128, "full": 4096}
WINDOW = {"tiny": (2, 2), "small": (8, 4), "full": (64, 32)}
SETTINGS = {
    "tiny": ["data.examples=16", "model.size=16", "training.batch=4", *short(3)],
    "small": short(400, 20),
    "full": ["model.size=128", "model.hidden=256", "training.batch=64", "training.rate=1e-3",
             *short(4000, 200)],
}  # fmt: skip
LAYERS, VALUES = 3, 8


def measure(size):
    n, (w, r) = LENGTH[size], WINDOW[size]
    graphs = {name: text.format(w=w, r=r) for name, text in GRAPHS.items()}
    rows = task_sweep(graphs, [f"data.context={n}", *SETTINGS[size]], seeds_of(size), hops=True)
    for row in rows:
        stats = parse(row["graph"]).stats(n)
        row["reached"] = float((hops_of(row["graph"], n) <= LAYERS).float().mean())
        row |= {"gap": stats.gap, "diameter": stats.diameter, "density": stats.density}
    return rows


def judge(rows):
    near, far = _by_hops(rows)
    inside = [value for hop, value in near if hop <= LAYERS]
    beyond = [value for hop, value in far]
    chance = 1 / VALUES
    found = grouped(rows, "variant")
    most = {name: mean(of, "accuracy") for name, of in found.items()}
    bound = all(row["accuracy"] <= row["reached"] + (1 - row["reached"]) * 0.3 for row in rows)
    short = [name for name, of in found.items() if mean(of, "accuracy") < 0.9 * mean(of, "reached")]
    answer = "does not hold" if not bound else "holds in part" if short else "holds"
    further = f"{sum(beyond) / len(beyond):.2f}" if beyond else "never asked for"
    why = (
        f"what lies within {LAYERS} hops, as many as layers, is found with accuracy "
        f"{sum(inside) / len(inside):.2f}, what lies beyond with {further} (chance is "
        f"{chance:.3f}): hops bound what can be retrieved. The window has {most['window']:.2f}, "
        f"with random keys {most['window + random']:.2f}, with one global token "
        f"{most['window + global']:.2f}, the full graph {most['full']:.2f}. "
    )
    if short:
        why += (
            f"That it can be reached does not make it learned: {', '.join(short)} had less than "
            "90 % of what their hops allow after these steps, though the spectral gap of some is "
            "larger."
        )
    else:
        why += "Each pattern learned what its hops allow, and a larger gap means fewer hops."
    return Verdict(answer, why)


def _by_hops(rows):
    """(hop, accuracy) of all runs, within the layers and beyond them."""
    found = [(int(key.split()[-1]), row[key]) for row in rows for key in row if "at " in key]
    return [p for p in found if p[0] <= LAYERS], [p for p in found if p[0] > LAYERS]


def draw(figure, rows):
    left = panel(figure, "accuracy by hops to the needle", "hops", "accuracy", (1, 2, 1))
    right = panel(figure, "accuracy and spectral gap", "gap", "accuracy", (1, 2, 2))
    for colour, (name, found) in zip(COLOURS, grouped(rows, "variant").items(), strict=False):
        hops = sorted({int(k.split()[-1]) for row in found for k in row if "at " in k})
        line = [
            mean([r for r in found if f"accuracy at {h}" in r], f"accuracy at {h}") for h in hops
        ]
        left.plot(hops, line, "o-", ms=3, color=colour, label=name)
        right.plot([r["gap"] for r in found], [r["accuracy"] for r in found], "o", color=colour)
    left.axvline(LAYERS + 0.5, color="#9aa5b1", lw=1, ls=":")
    right.set_xscale("log")
    left.legend(fontsize=7, frameon=False)


def table(rows):
    head = ("graph", "pairs, % of all", "spectral gap", f"within {LAYERS} hops", "accuracy")
    lines = []
    for name, found in grouped(rows, "variant").items():
        share = 100 * mean(found, "density")
        cells = [spread(found, key, 3) for key in ("gap", "reached", "accuracy")]
        lines.append((name, f"{share:.1f}", *cells))
    return [head, *lines]


CLAIM = Claim(
    letter="b",
    name="b_needle",
    title="Information flows by hops and spectral gap",
    words="This property leads to a rapid mixing time for random walks in the graph, which "
    "informally suggests that information can flow fast between any pair of nodes.",
    source="[BigBird](https://arxiv.org/abs/2007.14062), section 2",
    measured={
        "small": "one of eight values stands at a random place among 128 tokens of noise, and "
        "every token has to say which; three layers of 32 features, 400 steps of 16 sequences, "
        "the same for each graph: a window of 8 on each side, 8 random keys, 4 more random keys, "
        "one global token",
        "full": "the same among 4,096 tokens, a window of 64, 32 random keys, 128 features, 4,000 "
        "steps of 64 sequences",
    },
    measure=measure,
    judge=judge,
    draw=draw,
    table=table,
)

if __name__ == "__main__":
    main(CLAIM)
