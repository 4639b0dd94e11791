"""Figures of attention graphs: density maps, node-link drawings, and comparisons with measures."""

from collections.abc import Sequence
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.ticker import MaxNLocator

from edgewise.graphs.drawing import areas
from edgewise.graphs.pattern import Pattern
from edgewise.measures import Stats, cell_size, density_map
from edgewise.measures.stats import shortened
from edgewise.viz.figure import BLUE, INK, ORANGE, QUIET, NotebookFigure

MAP = LinearSegmentedColormap.from_list("pairs", ["#e3ebfb", "#7ea6f4", BLUE, "#12307d"])
# No more cells than the axes have pixels: every cell is drawn, a line of one token too.
CELLS, COMPARED, SKETCH = 400, 256, 64


def plot(pattern: Pattern, n: int, kind: str) -> NotebookFigure:
    """The pattern on n tokens: "matrix", "ring" or "force"."""
    figure = NotebookFigure(figsize=(6.4, 6.6), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    if kind == "matrix":
        shown = matrix(axes, pattern, n)
        if n > CELLS:  # else a cell is one pair
            bar = figure.colorbar(shown, ax=axes, shrink=0.7, pad=0.02)
            bar.set_label("share of a cell's pairs", color=INK)
            bar.outline.set_visible(False)
    else:
        graph(axes, pattern, n, kind)
    edges = pattern.count(n)
    code = fill(shortened(repr(pattern)), 60)
    axes.set_title(
        f"{code}\n{n:,} tokens, {edges:,} edges ({edges / n**2:.2%} of pairs)",
        fontsize=11, color=INK,
    )  # fmt: skip
    return figure


def matrix(axes: Any, pattern: Pattern, n: int, cells: int = CELLS) -> Any:
    """The adjacency matrix: cells coloured by density."""
    rows = pattern.rows(n)
    share = density_map(rows, cells) / areas(n, n, cell_size(n, cells))
    # A single random edge must be visible at any n: a logarithmic scale, without white.
    least = max(share[share > 0].min(initial=1.0), 1e-4)
    norm = LogNorm(min(least, 0.5), 1.0, clip=True)
    shown = axes.imshow(
        np.ma.masked_equal(share, 0), cmap=MAP, norm=norm, extent=(0, n, n, 0),
        interpolation="nearest",
    )  # fmt: skip
    axes.set_xlabel("key j", color=INK)
    axes.set_ylabel("query i", color=INK)
    axes.tick_params(colors=INK, length=2, labelsize=8)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(5, integer=True))
        axis.set_major_formatter(_tokens)
    axes.spines[:].set_color(QUIET)
    axes.spines[:].set_position(("outward", 1.5))  # a frame on the edge would hide one token
    return shown


def _tokens(value: float, _: int) -> str:
    """An abbreviated number of tokens: 600k."""
    return f"{value / 1000:g}k" if value >= 10_000 else f"{value:g}"


def graph(axes: Any, pattern: Pattern, n: int, kind: str) -> None:
    """Tokens as dots, pairs as lines, without self-loops."""
    from matplotlib.collections import LineCollection

    i, j = pattern.edges(n).numpy()
    ends = np.unique(np.sort(np.stack([i[i != j], j[i != j]]), axis=0), axis=1)
    place = _circle(n) if kind == "ring" else _springs(n, ends)
    degree = np.bincount(ends.ravel(), minlength=n)
    hub = degree > 4 * max(float(np.median(degree)), 1.0)
    colour = [ORANGE if hub[a] or hub[b] else BLUE for a, b in ends.T]
    alpha = float(np.clip(9 / max(np.sqrt(ends.shape[1]), 1), 0.08, 0.6))
    lines = LineCollection(
        list(place[ends.T]), colors=colour, linewidths=0.8, alpha=alpha, zorder=1
    )
    axes.add_collection(lines)
    size = float(np.clip(1200 / n, 4, 60))
    axes.scatter(*place.T, s=np.where(hub, 3 * size, size), c=np.where(hub, ORANGE, INK), zorder=2)
    axes.set(aspect="equal")
    axes.margins(0.06)
    axes.axis("off")


def _circle(n: int) -> np.ndarray:
    """Token 0 on top, then clockwise."""
    angle = np.pi / 2 - 2 * np.pi * np.arange(n) / max(n, 1)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def _springs(n: int, ends: np.ndarray) -> np.ndarray:
    """Fruchterman & Reingold 1991: neighbours attract, all repel, with decreasing step size."""
    place = _circle(n)
    near = 1.6 / np.sqrt(n)
    a, b = ends
    for heat in np.linspace(0.12, 0.004, 150):
        apart = place[:, None] - place[None, :]
        distance = np.maximum(np.linalg.norm(apart, axis=2), 1e-3)
        force = (apart * (near / distance)[:, :, None] ** 2 / distance[:, :, None] * near).sum(1)
        along = place[b] - place[a]
        pull = along * np.linalg.norm(along, axis=1, keepdims=True) / near / 4
        np.add.at(force, a, pull * 0.25)
        np.add.at(force, b, -pull * 0.25)
        length = np.maximum(np.linalg.norm(force, axis=1, keepdims=True), 1e-9)
        place = place + force / length * np.minimum(length, heat)
    return np.asarray(place - place.mean(axis=0))


def compare(patterns: Sequence[Pattern], n: int) -> NotebookFigure:
    """A column for each pattern: its code, its matrix, a sketch of its graph, its measures."""
    wide = len(patterns)
    figure = NotebookFigure(figsize=(3.5 * wide + 0.6, 9.2), dpi=120)
    figure.suptitle(f"{n:,} tokens", x=0.5, y=0.985, fontsize=13, color=INK)
    grid = figure.add_gridspec(
        3, wide, height_ratios=[3, 2.6, 2.2], left=0.07, right=0.99, top=0.89, bottom=0.02,
        wspace=0.22, hspace=0.16,
    )  # fmt: skip
    for column, pattern in enumerate(patterns):
        above = figure.add_subplot(grid[0, column])
        matrix(above, pattern, n, COMPARED)
        if column:
            above.set_ylabel("")
        title = fill(shortened(repr(pattern)), 30)
        above.set_title(title, fontsize=10.5, fontweight="bold", color=INK, pad=8)
        middle = figure.add_subplot(grid[1, column])
        sketch(middle, pattern, n)
        below = figure.add_subplot(grid[2, column])
        _table(below, pattern.stats(n))
    return figure


def sketch(axes: Any, pattern: Pattern, n: int) -> None:
    """The graph on a ring of at most 64 cells, linked if any of their tokens are."""
    cells = min(n, SKETCH)
    if n <= SKETCH:
        graph(axes, pattern, n, "ring")
        return
    from edgewise.graphs import from_dense

    graph(axes, from_dense(density_map(pattern.rows(n), cells) > 0), cells_of(n, cells), "ring")


def cells_of(n: int, cells: int) -> int:
    """The number of equal cells for n tokens, at most `cells`."""
    return -(-n // cell_size(n, cells))


def _table(axes: Any, stats: Stats) -> None:
    lines = (
        ("edges", f"{stats.edges:,}"),
        ("of all pairs", f"{stats.density:.2%}"),
        ("layers to full receptive field", _with_sign(stats, "layers", f"{stats.layers:,.0f}")),
        ("average path", _with_sign(stats, "average_path", f"{stats.average_path:.1f}")),
        ("clustering", _with_sign(stats, "clustering", f"{stats.clustering:.2f}")),
        ("spectral gap", _with_sign(stats, "gap", f"{stats.gap:.2g}")),
        ("mixing time", f"≈ {stats.mixing_time:,.0f}"),
    )
    axes.axis("off")
    axes.set(xlim=(0, 1), ylim=(0, 1))
    for number, (name, value) in enumerate(lines):
        y = 0.95 - number * 0.14
        axes.text(0.0, y, name, fontsize=9.5, color=QUIET, va="top")
        strong = name in ("layers to full receptive field", "spectral gap")
        axes.text(1.0, y, value.replace("inf", "never"), fontsize=10.5, color=INK, ha="right",
                  va="top", fontweight="bold" if strong else "normal")  # fmt: skip


def _with_sign(stats: Stats, key: str, value: str) -> str:
    """The value with a sign for bounds and estimates."""
    how = stats.how[key]
    if how.startswith("bound"):
        return ("≤ " if "at most" in how.split(",")[0] else "≥ ") + value
    return value if how.startswith("exact") else f"≈ {value}"
