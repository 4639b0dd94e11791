"""What a claim is: its words, its sizes, its results, figure and verdict.

A script is one claim: the words it is stated in, `measure(size)` for its rows, `draw(axes, rows)`
for its figure, `judge(rows)` for the verdict. It ends with `main(CLAIM)`:

    PYTHONPATH=bench python bench/claims/l_spectrum.py --size small

writes `bench/results/claims_l.json` and `docs/assets/claim-l.svg`; `bench/claims/report.py` then
writes docs/claims.md. A size `tiny` takes seconds and writes nothing: it is for tests.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from measure import RESULTS, commit, machine
from plots import COLOURS, INK, axes_of, drawn

ROOT = Path(__file__).resolve().parents[2]
SIZES = ("tiny", "small", "full")
SEEDS = (1, 2, 3)
Row = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """`answer` is holds, holds in part, does not hold, or open; `why` names the figures."""

    answer: str
    why: str

    def __post_init__(self) -> None:
        assert self.answer in ("holds", "holds in part", "does not hold", "open"), self.answer


@dataclass(frozen=True)
class Claim:
    """`words` are a quotation and `source` where it is from; `columns` are those of the table."""

    letter: str
    name: str
    title: str
    words: str
    source: str
    measured: dict[str, str]  # what each size does
    measure: Callable[[str], list[Row]]
    judge: Callable[[list[Row]], Verdict]
    draw: Callable[[Figure, list[Row]], None]
    table: Callable[[list[Row]], list[Sequence[object]]]
    seeds: Sequence[int] = SEEDS
    data: bool = False  # whether it reads data sets

    @property
    def result(self) -> str:
        return f"claims_{self.letter}"

    def command(self, size: str) -> str:
        data = " --data DATA" if self.data else ""
        return f"PYTHONPATH=bench python bench/claims/{self.name}.py --size {size}{data}"


def main(claim: Claim) -> None:
    """Measure a claim at a size, write its results and its figure."""
    parser = argparse.ArgumentParser(description=claim.title)
    parser.add_argument("--size", choices=SIZES, default="small", help=str(claim.measured))
    parser.add_argument("--data", default="", help="the folder with the data sets")
    chosen = parser.parse_args()
    if chosen.data:
        os.environ["EDGEWISE_DATA"] = chosen.data
    began, at = time.process_time(), commit()
    rows = claim.measure(chosen.size)
    verdict = claim.judge(rows)
    print(json.dumps(rows, indent=1))
    print(f"({claim.letter}) {verdict.answer}: {verdict.why}")
    if chosen.size != "tiny":
        store(claim, chosen.size, rows, at, time.process_time() - began)
        figure(claim, rows)


def store(claim: Claim, size: str, rows: list[Row], at: str, seconds: float) -> None:
    """Write the rows of one size beside those of the other."""
    path = RESULTS / f"{claim.result}.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    known[size] = {
        "command": claim.command(size),
        "commit": at,
        "machine": machine(),
        "seeds": list(claim.seeds),
        "cpu_s": round(seconds),
        "rows": rows,
    }
    path.write_text(json.dumps(known, indent=1) + "\n")


def seeds_of(size: str, seeds: Sequence[int] = SEEDS) -> Sequence[int]:
    """One seed is enough for a test."""
    return seeds[:1] if size == "tiny" else seeds


def stored(claim: Claim) -> dict[str, Any]:
    """The results of each size that was run."""
    path = RESULTS / f"{claim.result}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def figure(claim: Claim, rows: list[Row]) -> None:
    matplotlib.rcParams["svg.hashsalt"] = "edgewise"
    made = Figure(figsize=(9, 4))
    claim.draw(made, rows)
    drawn(made, f"claim-{claim.letter}")


def panel(figure: Figure, title: str, x: str, y: str, place: tuple[int, int, int] = (1, 1, 1)):
    """Axes in the style of the benchmark page."""
    return axes_of(figure, place, title, x, y)


def mean(rows: Iterable[Row], key: str) -> float:
    return statistics.fmean(row[key] for row in rows)


def spread(rows: Iterable[Row], key: str, digits: int = 3) -> str:
    """The mean, and the smallest and largest of all seeds where they differ."""
    found = [row[key] for row in rows]
    shown = [_digits(value, digits) for value in (statistics.fmean(found), min(found), max(found))]
    return shown[0] if shown[1] == shown[2] else f"{shown[0]} ({shown[1]} – {shown[2]})"


def _digits(value: float, digits: int) -> str:
    """So many digits after the point, or two of a smaller number."""
    return f"{value:.2g}" if 0 < abs(value) < 10**-digits else f"{value:,.{digits}f}"


def grouped(rows: Iterable[Row], key: str) -> dict[Any, list[Row]]:
    """Rows by the value of a key, in the order in which they come."""
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(row[key], []).append(row)
    return found


def spread_table(rows: list[Row], by: str, **columns: str | tuple[str, int]) -> list[Sequence]:
    """A line for each value of `by`: the mean and range over seeds of each column."""
    head = (by, *columns)
    lines = []
    for value, found in grouped(rows, by).items():
        cells = [
            spread(found, *([how] if isinstance(how, str) else how)) for how in columns.values()
        ]
        lines.append((value, *cells))
    return [tuple(name.replace("_", " ") for name in head), *lines]


def bars(figure: Figure, rows: list[Row], title: str, y: str, key: str = "loss") -> None:
    """A bar for each variant: the mean over seeds, and a dot for each of them."""
    axes = panel(figure, title, "", y)
    for at, (colour, found) in enumerate(
        zip(cycle(COLOURS), grouped(rows, "variant").values(), strict=False)
    ):
        values = [row[key] for row in found if key in row]
        axes.bar(at, statistics.fmean(values) if values else 0, color=colour, alpha=0.6)
        axes.plot([at] * len(values), values, "o", ms=3, color=INK)
    names = list(grouped(rows, "variant"))
    axes.set_xticks(range(len(names)), [n.replace(" + ", " +\n") for n in names], fontsize=8)
    values = [row[key] for row in rows if key in row]
    low, high = min(values), max(values)
    axes.set_ylim(low - 0.3 * (high - low) - 1e-3, high + 0.1 * (high - low) + 1e-3)
