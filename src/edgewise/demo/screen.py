"""The console output of the demo."""

import math
from collections.abc import Iterable, Iterator, Mapping

from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from edgewise.demo.checkpoint import CheckpointResult
from edgewise.demo.long_text import LENGTH, RADIUS, LongTextRun
from edgewise.demo.model import DemoGraph
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


def atoms(graph: DemoGraph) -> Text:
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


def graph_panel(graph: DemoGraph, stats: Stats, shares: Mapping[str, float]) -> Panel:
    inside = Group(
        Text.assemble("in the body of weights: ", atoms(graph)),
        Text(f"pairs computed: {stats.edges} of {stats.n**2}"),
        Text(_hops(stats)),
        Text(f"“it” attends to (of {len(shares)} visible words)"),
        Padding(bars(shares), (0, 0, 0, 2)),
    )
    return Panel(
        inside, title=f"{graph.name}: {graph.description}", title_align="left", width=WIDTH
    )


def _hops(stats: Stats) -> str:
    reached = stats.reach[min(1, len(stats.reach) - 1)]
    every = f"{stats.layers:.0f}" if math.isfinite(stats.layers) else "never"
    return (
        f"receptive field after one layer: {reached:.0%}; layers to the full one: {every}; "
        f"spectral gap {stats.gap:.2f}"
    )


def long_panel(far: LongTextRun) -> Panel:
    of = LENGTH * LENGTH
    inside = Group(
        Text.assemble(
            "in the body of weights: ",
            ("+ ", "bold green"),
            (f"window({RADIUS})(V.I, V.J)", "bold black on yellow"),
        ),
        Text(f"pairs computed: {far.pairs:,} of {of:,} ({far.pairs / of:.2%}), by {far.kernel}"),
        Text(f"grounding, once: {far.ground_s:.1f} s"),
        Text(f"one step, forward and backward: {far.step_s:.1f} s"),
        Text(
            f"peak memory of the process: {far.peak_gib:.2f} GiB; "
            f"a dense score matrix alone: {of * 4 / 2**30:.0f} GiB"
        ),
    )
    return Panel(inside, title="window: nothing is N×N", title_align="left", width=WIDTH)


def progress(losses: Iterable[float], total: int, on: Console, every: int = 20) -> Iterator[float]:
    """Yield the losses with a progress bar; without a terminal, print every `every` steps."""
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


def checkpoint_panel(result: CheckpointResult) -> Panel:
    """Where a pretrained model attends, and what it finds."""
    where = f"layer {result.layer + 1}, head {result.head + 1}"
    lines: list[Text] = [
        Text(f"Of its {result.heads} heads, {where} attends most from “it” to “music”:"),
        bars(result.shares, 5),
        Text("\nSemantic search in 30 lines:"),
    ]
    for query, found in result.found.items():
        lines.append(Text.assemble(("\n" + query, "bold")))
        lines += [Text(f"  {cosine:.2f}  {line}") for cosine, line in found]
    return Panel(Group(*lines), title="a pretrained checkpoint", title_align="left", width=WIDTH)
