"""The picture of the README: the conditions on the left, the graphs they make on the right.

The weights are the demo's, trained anew; `python docs/picture.py` writes docs/assets/attention.svg
and, for phones, docs/assets/attention-narrow.svg.
"""

import sys
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import Arc

from edgewise.demo.model import GRAPHS, STORY, attention, compile_model, train
from edgewise.demo.story import QUERY, view

INK, QUIET, ORANGE = "#1f2933", "#6b7785", "#ea580c"
RULES = """weights(I, J) <= d_k, k(J).T, q(I)      | product, softmax over J
attention(I)  <= weights(I, J), v(J)    | product, sum over J"""
CONDITIONS = {
    "complete": "",
    "causal": "leq(J, I)",
    "the last five": "sub(I, J, D), leq(D, 5)",
    "dependency tree": "edge(I, J)",
}
STEP, LEFT, WIDTH, NARROW = 1.4, 9.1, 24.0, 12.6


def row(axes, top, name, weights):
    """One condition and its graph, `top` being where the words stand."""
    condition = CONDITIONS[name]
    axes.text(0, top + 1.35, name, fontsize=15, fontweight="bold", color=INK)
    axes.text(0, top + 0.45, f"+ {condition}" if condition else "the two rules alone", fontsize=14,
              family="monospace", color=ORANGE if condition else QUIET)  # fmt: skip
    axes.text(0, top - 0.35, f"{len(weights)} pairs", fontsize=12, color=INK)
    graph(axes, top, LEFT, weights, 11)
    axes.text(LEFT + STEP * 8 + 0.8, top + 0.75, found(weights, "\n"), fontsize=12, color=ORANGE,
              va="center")  # fmt: skip


def narrow_row(axes, top, name, weights):
    """The same with the condition above its graph."""
    condition = CONDITIONS[name]
    axes.text(0, top + 3.5, f"{name}: {len(weights)} pairs", fontsize=10, fontweight="bold",
              color=INK)  # fmt: skip
    axes.text(0, top + 2.85, f"+ {condition}" if condition else "the two rules alone", fontsize=9,
              family="monospace", color=ORANGE if condition else QUIET)  # fmt: skip
    graph(axes, top, 0.7, weights, 7.5)
    axes.text(NARROW, top + 2.85, found(weights, " "), fontsize=9, color=ORANGE, ha="right")


def graph(axes, top, left, weights, size):
    """The words, and an arc for each pair."""
    for (i, j), weight in weights.items():
        mine = i == QUERY
        width, colour = ((0.8 + 6 * weight) * size / 11, ORANGE) if mine else (0.6, QUIET)
        alpha = 0.4 + 0.6 * weight if mine else 0.4
        centre, span = left + STEP * (i + j) / 2, STEP * abs(i - j)
        shape = (span, 0.46 * span) if span else (0.42, 0.56)
        axes.add_patch(Arc((centre, top + (0 if span else 0.25)), *shape, lw=width, color=colour,
                           alpha=alpha, theta2=180 if span else 360, zorder=2 + mine))  # fmt: skip
    for i, word in enumerate(STORY.words):
        visible = (QUERY, i) in weights
        axes.text(left + STEP * i, top - 0.2, word, ha="center", va="top", fontsize=size,
                  color=INK if visible else QUIET,
                  fontweight="bold" if i == QUERY else "normal")  # fmt: skip


def found(weights, between):
    """What the query attends to most."""
    share, best = max((w, j) for (i, j), w in weights.items() if i == QUERY)
    where = "itself" if best == QUERY else f"“{STORY.words[best]}”"
    return f"“it” attends to{between}{where}: {share:.0%}"


def main(path: Path) -> None:
    matplotlib.rcParams["svg.hashsalt"] = "edgewise"
    model = compile_model()
    for _ in train(model):
        pass
    weights = {name: model.weight(name).detach() for name in attention().weights()}
    views = [(g.name, view(g, weights).weights) for g in GRAPHS if g.name in CONDITIONS]
    figure = Figure(figsize=(12, 7.6), facecolor="white")
    axes = figure.add_axes((0.015, 0.0, 0.98, 1))
    axes.text(0, 15.4, RULES, fontsize=15, family="monospace", color=INK, va="top", linespacing=1.6)
    for number, (name, pairs) in enumerate(views):
        row(axes, 10.0 - 3.3 * number, name, pairs)
    save(figure, axes, (WIDTH, 15.8), path)
    figure = Figure(figsize=(5, 8.6), facecolor="white")
    axes = figure.add_axes((0.02, 0.0, 0.96, 1))
    axes.text(0, 21.6, RULES.replace("   |", "|"), fontsize=7.6, family="monospace", color=INK,
              va="top", linespacing=1.7)  # fmt: skip
    for number, (name, pairs) in enumerate(views):
        narrow_row(axes, 15.6 - 5.2 * number, name, pairs)
    save(figure, axes, (NARROW, 22), path.with_stem(f"{path.stem}-narrow"))


def save(figure, axes, size, path):
    axes.set(xlim=(0, size[0]), ylim=(-0.8, size[1]))
    axes.axis("off")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/assets/attention.svg"))
