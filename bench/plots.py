"""The plots and tables of docs/benchmarks.md, from bench/results: `python bench/plots.py`.

Nothing is measured here. The page has a marker for each table; what follows it is rewritten.
"""

import re
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from page import TABLES, results

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
ASSETS = HERE.parent / "docs" / "assets"
INK, QUIET = "#1f2933", "#6b7785"
COLOURS = ["#ea580c", "#0f766e", "#4f46e5", "#4d7c0f", "#be185d", "#6b7785"]
PUBLISHED = {  # figures of others, on their hardware and settings
    "FlashAttention 3, H100, d = 128, all pairs: up to 740": 740,
    "Triton's tutorial kernel, H100, d = 128: up to 477": 477,
}


def rows(name, section):
    return results(name)[section]["rows"]


def series(found, case):
    return [row for row in found if row["case"] == case and "ours" in row]


def drawn(figure, name):
    ASSETS.mkdir(exist_ok=True)
    figure.savefig(ASSETS / f"{name}.svg", metadata={"Date": None}, bbox_inches="tight")


def axes_of(figure, place, title, x, y):
    axes = figure.add_subplot(*place)
    axes.set_title(title, color=INK, fontsize=11, loc="left")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, which="major", color="#e4e7eb", lw=0.6)
    axes.set_axisbelow(True)
    return axes


def by_length():
    found = rows("attention_sweep", "length")
    names = ["window ±256", "causal window 256", "BigBird", "causal, every 64th", "causal",
             "SDPA, all pairs"]  # fmt: skip
    figure = Figure(figsize=(12, 4.6))
    time = axes_of(figure, (1, 2, 1), "forward and backward", "tokens", "milliseconds")
    memory = axes_of(figure, (1, 2, 2), "memory beyond the inputs", "tokens", "GiB")
    for colour, name in zip(COLOURS, names, strict=True):
        line = series(found, name)
        n = [row["n"] for row in line]
        time.loglog(n, [row["ours"]["both"] for row in line], "o-", ms=3, color=colour, label=name)
        floor = [row["ours"]["floor_both"] for row in line]
        time.loglog(n, floor, ":", lw=1, color=colour)
        memory.loglog(n, [row["ours"]["extra_gib"] for row in line], "o-", ms=3, color=colour)
    time.loglog([], [], ":", color=INK, label="the floor of each")
    time.legend(fontsize=8, frameon=False)
    drawn(figure, "bench-length")


def by_density():
    found = rows("attention_sweep", "density")
    figure = Figure(figsize=(12, 4.6))
    time = axes_of(figure, (1, 2, 1), "16,384 tokens", "share of all pairs", "milliseconds")
    rate = axes_of(figure, (1, 2, 2), "the same", "share of all pairs", "TFLOP/s of its pairs")
    names = ["window", "causal window", "BigBird with more random blocks"]
    for colour, name in zip(COLOURS, names, strict=False):
        line = sorted(series(found, name), key=lambda row: row["density"])
        x = [row["density"] for row in line]
        time.loglog(x, [row["ours"]["both"] for row in line], "o-", ms=3, color=colour, label=name)
        rate.semilogx(x, [row["ours"]["tflops_both"] for row in line], "o-", ms=3, color=colour)
    line = sorted(series(found, "window"), key=lambda row: row["density"])
    floor = [row["ours"]["floor_both"] for row in line]
    time.loglog([row["density"] for row in line], floor, ":", color=INK, label="the floor")
    (dense,) = series(found, "SDPA, all pairs")
    time.axhline(dense["ours"]["both"], color=QUIET, lw=1, label="SDPA, all pairs")
    rate.axhline(dense["ours"]["tflops_both"], color=QUIET, lw=1)
    time.legend(fontsize=8, frameon=False)
    drawn(figure, "bench-density")


def rates():
    figure = Figure(figsize=(10, 5))
    title = "forward, TFLOP/s of the pairs of the graph, H200, bf16, 16 heads of 64"
    axes = axes_of(figure, (1, 1, 1), title, "tokens", "TFLOP/s")
    names = ["window ±256", "BigBird", "causal, every 64th", "causal", "SDPA, all pairs"]
    for colour, name in zip(COLOURS, names, strict=False):
        line = series(rows("attention_sweep", "length"), name)
        y = [row["ours"]["tflops"] for row in line]
        axes.semilogx([row["n"] for row in line], y, "o-", ms=3, color=colour, label=name)
    axes.axhline(790, color=INK, lw=1, ls=":")
    axes.text(1024, 796, "a large product of matrices on the same chip: 790", fontsize=8)
    for text, level in PUBLISHED.items():
        axes.axhline(level, color=QUIET, lw=0.8, ls="--")
        axes.text(1024, level + 6, text, fontsize=8, color="#52606d")
    axes.set_ylim(0, 850)
    axes.legend(fontsize=8, frameon=False, loc="lower right")
    drawn(figure, "bench-tflops")


def filled(page: str) -> str:
    """The page with its tables."""
    for name, table in TABLES.items():
        mark = f"<!-- {name} -->"
        page = re.sub(rf"{mark}\n(?:\n(?:\|.*\n)+)?", f"{mark}\n\n{table()}\n", page)
    return page


def main() -> None:
    matplotlib.rcParams["svg.hashsalt"] = "edgewise"
    by_length()
    by_density()
    rates()
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
