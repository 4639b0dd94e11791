"""(l) Random graphs approach the spectrum of the complete graph: the gap against the degree."""

import math

from claims.claim import SEEDS, Claim, Verdict, grouped, main, mean, panel, spread_table
from plots import COLOURS, INK

from edgewise.graphs import erdos_renyi, random_edges, window

LENGTHS = {"tiny": (64, 128), "small": (1024, 4096, 16384), "full": (1024, 4096, 16384, 65536)}
KEYS = {"tiny": (8, 16), "small": (2, 4, 8, 16, 32, 64), "full": (2, 4, 8, 16, 32, 64, 128)}


def measure(size):
    rows = []
    for n in LENGTHS[size]:
        for keys in KEYS[size]:
            graphs = {"window": lambda seed, keys=keys: window(keys // 2),
                      "random keys": lambda seed, keys=keys: random_edges(keys, seed=seed),
                      "Erdős–Rényi": lambda seed, keys=keys, n=n: erdos_renyi(keys / n, seed=seed),
                      }  # fmt: skip
            for name, graph in graphs.items():
                for seed in SEEDS if name != "window" else SEEDS[:1]:
                    stats = graph(seed).stats(n)
                    rows.append({"graph": name, "tokens": n, "keys": keys, "seed": seed,
                                 "gap": stats.gap, "complete": stats.complete_gap,
                                 "diameter": stats.diameter})  # fmt: skip
    return rows


def bound(keys):
    """1 − 2√(d − 1)/d, the gap of a Ramanujan graph, with d = 2 · keys symmetric neighbours."""
    return 1 - 2 * math.sqrt(2 * keys - 1) / (2 * keys)


def judge(rows):
    random = [row for row in rows if row["graph"] == "random keys"]
    most, longest = max(row["keys"] for row in rows), max(row["tokens"] for row in rows)
    far = {k: [row for row in random if row["keys"] == k] for k in (min(8, most), most)}
    ends = [row for row in far[most] if row["tokens"] == longest]
    local = [
        r for r in rows if r["graph"] == "window" and (r["keys"], r["tokens"]) == (most, longest)
    ]
    gaps = [mean(found, "gap") for found in grouped(far[most], "tokens").values()]
    holds = max(gaps) - min(gaps) < 0.1 and mean(ends, "gap") > 100 * mean(local, "gap")
    few, many = far
    why = (
        f"with {few} random keys a query the gap is {mean(far[few], 'gap'):.2f}, with {many} "
        f"{mean(far[many], 'gap'):.2f}, of 1.00 of the complete graph, and hardly depends on the "
        f"length; a window of {many} keys at {longest:,} tokens has {mean(local, 'gap'):.1g}. The "
        f"approach is slow: the gap follows 1 − 2√(d − 1)/d, so half of what is missing costs four "
        "times the keys."
    )
    return Verdict("holds" if holds else "does not hold", why)


def draw(figure, rows):
    axes = panel(figure, "spectral gap of D^-½ A D^-½", "keys of a query", "gap")
    for colour, (name, found) in zip(COLOURS, grouped(rows, "graph").items(), strict=False):
        for style, (n, line) in zip(
            (":", "--", "-", "-."), grouped(found, "tokens").items(), strict=False
        ):
            points = grouped(line, "keys")
            gaps = [mean(of, "gap") for of in points.values()]
            axes.semilogx(list(points), gaps, style, base=2, color=colour, label=f"{name}, {n:,}")
    keys = sorted({row["keys"] for row in rows})
    axes.semilogx(keys, [bound(k) for k in keys], color=INK, lw=0.8, label="1 − 2√(d − 1)/d")
    axes.axhline(1, color=INK, lw=0.8, ls=":", label="complete graph")
    axes.legend(fontsize=7, frameon=False, ncols=2)


def table(rows):
    longest = max(row["tokens"] for row in rows)
    shown = [{**row, f"at {longest:,} tokens": f"{row['graph']}, {row['keys']} keys"}
             for row in rows if row["tokens"] == longest]  # fmt: skip
    return spread_table(shown, f"at {longest:,} tokens", gap="gap", diameter=("diameter", 0))


CLAIM = Claim(
    letter="l",
    name="l_spectrum",
    title="Random graphs approach the complete graph's spectrum",
    words="such a random graph approximates the complete graph spectrally and its second "
    "eigenvalue (of the adjacency matrix) is quite far from the first eigenvalue",
    source="[BigBird](https://arxiv.org/abs/2007.14062), section 2",
    measured={
        "small": "`Pattern.stats` of random keys and of Erdős–Rényi graphs of the same mean degree "
        "beside a window, at 1,024 to 16,384 tokens; three seeds of each random graph",
        "full": "the same, to 65,536 tokens and 128 keys",
    },
    measure=measure,
    judge=judge,
    draw=draw,
    table=table,
)

if __name__ == "__main__":
    main(CLAIM)
