"""What the demo prints: readable with colours and without."""

import math
from collections.abc import Iterable, Iterator, Mapping

from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from edgewise.demo.long import LENGTH, RADIUS, Long
from edgewise.demo.model import Graph
from edgewise.demo.real import Real
from edgewise.language import Program
from edgewise.measures import Stats

WIDTH = 96
BAR = 40


def console() -> Console:
    plain = Console()
    return plain if plain.is_terminal else Console(width=WIDTH)


def title(words: str) -> Panel:
    return Panel(Text(words, style="bold", justify="center"), subtitle="what is “it”?", width=WIDTH)


def rules(program: Program) -> Text:
    """The program's rules, one to a line where it fits."""
    lines = [_folded(repr(statement)) for statement in program.statements]
    text = Text("\n".join(lines))
    text.highlight_regex(r"\b[RFWV]\.\w+", "cyan")
    return text


def _folded(line: str) -> str:
    return line if len(line) < 80 else line.replace(" | [", "\n    | [")


def atoms(graph: Graph) -> Text:
    """The condition that a graph adds to the body of `weights`."""
    if not graph.condition:
        return Text("nothing: this is the program above", style="dim")
    shown = ", ".join(map(repr, graph.condition))
    return Text.assemble(("+ ", "bold green"), (shown, "bold black on yellow"))


def bars(shares: Mapping[str, float], count: int = 4) -> Text:
    """A bar for each of the words with the largest shares."""
    top = sorted(shares.items(), key=lambda item: -item[1])[:count]
    text = Text()
    for word, share in top:
        text.append(f"{word:>10} ", "bold" if share > 0.5 else "")
        text.append("█" * round(BAR * share) or "▏", "green" if share > 0.5 else "blue")
        text.append(f" {share:.0%}\n")
    text.rstrip()
    return text


def graph_panel(graph: Graph, stats: Stats, shares: Mapping[str, float]) -> Panel:
    inside = Group(
        Text.assemble("in the body of weights: ", atoms(graph)),
        Text(f"pairs computed: {stats.edges} of {stats.n**2}"),
        Text(_hops(stats)),
        Text(f"“it” looks at (of {len(shares)} words it hears)"),
        Padding(bars(shares), (0, 0, 0, 2)),
    )
    return Panel(inside, title=f"{graph.name}: {graph.says}", title_align="left", width=WIDTH)


def _hops(stats: Stats) -> str:
    reached = stats.reach[min(1, len(stats.reach) - 1)]
    every = f"{stats.layers:.0f}" if math.isfinite(stats.layers) else "never"
    return (
        f"a word hears {reached:.0%} in one layer; layers until all hear all: {every}; "
        f"spectral gap {stats.gap:.2f}"
    )


def long_panel(far: Long) -> Panel:
    of = LENGTH * LENGTH
    inside = Group(
        Text.assemble(
            "in the body of weights: ",
            ("+ ", "bold green"),
            (f"window({RADIUS})(V.I, V.J)", "bold black on yellow"),
        ),
        Text(f"pairs computed: {far.pairs:,} of {of:,} ({far.pairs / of:.2%}), by {far.kernel}"),
        Text(f"joins and layouts, once: {far.ground_s:.1f} s"),
        Text(f"one step, forward and backward: {far.step_s:.1f} s"),
        Text(
            f"memory of this process at its peak: {far.peak_gib:.2f} GiB; "
            f"a matrix of all scores alone: {of * 4 / 2**30:.0f} GiB"
        ),
    )
    return Panel(inside, title="window: nothing is N×N", title_align="left", width=WIDTH)


def progress(losses: Iterable[float], total: int, on: Console, every: int = 20) -> Iterator[float]:
    """Pass the losses on behind a progress bar; without a terminal, a line now and then."""
    columns = (
        TextColumn("training"),
        BarColumn(BAR),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("loss {task.fields[loss]:.2f}"),
    )
    with Progress(*columns, console=on, disable=not on.is_terminal) as bar:
        task = bar.add_task("training", total=total, loss=float("nan"))
        for step, loss in enumerate(losses, 1):
            bar.update(task, advance=1, loss=loss)
            if not on.is_terminal and (step % every == 0 or step == total):
                on.print(f"training {step:>3}/{total}  loss {loss:.2f}")
            yield loss


def real_panel(real: Real) -> Panel:
    """Where a trained model looks, and what it finds."""
    place = f"layer {real.layer + 1}, head {real.head + 1}"
    lines: list[Text] = [
        Text(f"Of its {real.heads} heads, {place} looks from “it” to “music” most:"),
        bars(real.shares, 5),
        Text("\nA search by meaning in 30 lines; no word needs to be the same:"),
    ]
    for query, found in real.found.items():
        lines.append(Text.assemble(("\n" + query, "bold")))
        lines += [Text(f"  {cosine:.2f}  {line}") for cosine, line in found]
    return Panel(Group(*lines), title="a real checkpoint", title_align="left", width=WIDTH)
