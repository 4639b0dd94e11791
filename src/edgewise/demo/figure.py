"""A figure of one sentence on five graphs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Arc, Rectangle

INK, QUIET, BLUE, ORANGE = "#1f2933", "#9aa5b1", "#2563eb", "#ea580c"


@dataclass(frozen=True)
class GraphView:
    """A graph: its name, its condition as code, and the attention weight of every pair."""

    name: str
    condition: str
    weights: Mapping[tuple[int, int], float]


def save(path: Path, words: Sequence[str], views: Sequence[GraphView], query: int) -> Path:
    """Draw the views side by side: the matrix above, the attention of the word `query` below."""
    figure = Figure(figsize=(4.1 * len(views), 7.2), dpi=130, facecolor="white")
    figure.suptitle(" ".join(words), x=0.5, y=0.985, fontsize=17, fontweight="bold", color=INK)
    grid = figure.add_gridspec(
        2, len(views), height_ratios=[3, 1.75], left=0.055, right=0.99, top=0.82, bottom=0.02,
        wspace=0.08, hspace=0.36,
    )  # fmt: skip
    for column, view in enumerate(views):
        above = figure.add_subplot(grid[0, column])
        _matrix(above, words, view, query, labelled=column == 0)
        _arcs(figure.add_subplot(grid[1, column]), words, view, query)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return path


def _matrix(axes: Any, words: Sequence[str], view: GraphView, query: int, labelled: bool) -> None:
    n = len(words)
    for (i, j), weight in view.weights.items():
        colour = ORANGE if i == query else BLUE
        axes.add_patch(Rectangle((j, i), 1, 1, facecolor="#eef2f7", edgecolor="white", lw=1.5))
        axes.add_patch(
            Rectangle((j, i), 1, 1, facecolor=colour, alpha=weight**0.8, edgecolor="white", lw=1.5)
        )
    axes.add_patch(Rectangle((0, query), n, 1, fill=False, edgecolor=ORANGE, lw=1.5))
    axes.set(xlim=(0, n), ylim=(n, 0), aspect="equal")
    axes.set_xticks([j + 0.62 for j in range(n)], words, rotation=55, ha="right", fontsize=9)
    axes.set_yticks([i + 0.5 for i in range(n)], words if labelled else [""] * n, fontsize=10)
    axes.tick_params(length=0, pad=3, colors=INK)
    for label in axes.get_xticklabels():
        label.set_rotation_mode("anchor")
    axes.spines[:].set_visible(False)
    for y, text, style in (
        (-1.6, view.name, {"fontsize": 14, "fontweight": "bold", "color": INK}),
        (-0.95, f"{len(view.weights)} of {n * n} pairs", {"fontsize": 10.5, "color": INK}),
        (-0.35, view.condition, {"fontsize": 8.5, "family": "monospace", "color": ORANGE}),
    ):
        axes.text(n / 2, y, text, ha="center", **style)


def _arcs(axes: Any, words: Sequence[str], view: GraphView, query: int) -> None:
    """The words in a row; an arc for every pair, its width the weight for the word `query`."""
    n = len(words)
    for (i, j), weight in view.weights.items():
        mine = i == query
        width, colour = (0.6 + 6 * weight, ORANGE) if mine else (0.5, QUIET)
        alpha = 0.35 + 0.65 * weight if mine else 0.35
        if i == j:
            axes.add_patch(
                Arc((i, 0.32), 0.5, 0.7, lw=width, color=colour, alpha=alpha, zorder=2 + mine)
            )
        else:
            span = abs(i - j)
            axes.add_patch(
                Arc(((i + j) / 2, 0), span, 0.72 * span, theta2=180, lw=width, color=colour,
                    alpha=alpha, zorder=2 + mine)
            )  # fmt: skip
    for i, word in enumerate(words):
        share = view.weights.get((query, i))
        axes.text(i, -0.22, word, rotation=55, ha="right", va="top", rotation_mode="anchor",
                  fontsize=9, color=INK if share is not None else QUIET,
                  fontweight="bold" if i == query else "normal")  # fmt: skip
    best = max((w, j) for (i, j), w in view.weights.items() if i == query)
    where = "itself" if best[1] == query else f"“{words[best[1]]}”"
    axes.text((n - 1) / 2, 3.25, f"“{words[query]}” attends to {where}: {best[0]:.0%}",
              ha="center", fontsize=11.5, color=ORANGE)  # fmt: skip
    axes.set(xlim=(-1.1, n - 0.3), ylim=(-2.1, 3.5))
    axes.axis("off")
