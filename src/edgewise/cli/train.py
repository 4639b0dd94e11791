"""`edgewise train`: run a recipe, or continue it."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.cli.checkpoint import check_device

if TYPE_CHECKING:
    from rich.console import Console

    from edgewise.graphs import Pattern
    from edgewise.training import Estimate, Event, Recipe

UNITS = ("", "k", "M", "G", "T", "P", "E")
PICTURE = 32  # tokens of a graph that is drawn
INTERRUPTED = 130  # the exit code of a command that was interrupted


def train(
    recipe: Annotated[Path, typer.Argument(help="a recipe in TOML")],
    data: Annotated[
        Path | None,
        typer.Option(help="the folder that its data is in; by default that of the recipe"),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="the folder to write the run to")] = None,
    resume: Annotated[
        bool, typer.Option("--resume/--no-resume", help="continue a run that is there")
    ] = True,
    device: Annotated[str | None, typer.Option(help="cpu or cuda")] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="threads of the CPU; by default one for each core")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="change a key of the recipe: model.graph='window(64)'"),
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="write events for TensorBoard too")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="print weights, FLOPs and memory; train nothing")
    ] = False,
) -> None:
    """Train a model from a recipe; metrics, checkpoints and a plot go to a folder.

    Ctrl-C once saves and ends, twice stops at once; the same command continues. On many ranks:
    `torchrun --nproc-per-node 2 -m edgewise train RECIPE`.
    """
    from rich.console import Console

    from edgewise.training import estimate, load
    from edgewise.training import train as run
    from edgewise.training.overrides import folder_name
    from edgewise.training.ranks.group import joined, own_rank

    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    out = Path("runs") / folder_name(recipe.stem, settings or ()) if out is None else out
    console = Console(highlight=False, quiet=own_rank() > 0)
    if dry_run:
        check_device(device)
        loaded = load(recipe, settings or ())
        _show(console, loaded, estimate(loaded, data=data))
        return
    with joined() as ranks, _interruptible(console) as stop:
        ranks.each(lambda: check_device(device))
        loaded = ranks.each(lambda: load(recipe, settings or ()))
        how: Any = {"resume": resume, "device": device, "tensorboard": tensorboard, "stop": stop}
        last = _follow(console, run(loaded, out, data=data, **how), loaded, out)
    if last == "interrupted":
        raise typer.Exit(INTERRUPTED)


def _follow(console: "Console", events: Iterator["Event"], recipe: "Recipe", out: Path) -> str:
    """Show events as they come, with a bar and the time left on a terminal; the last kind."""
    from rich import progress as bars

    columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), bars.MofNCompleteColumn())
    kind, quiet = "", not console.is_terminal
    with bars.Progress(
        *columns, bars.TimeRemainingColumn(), console=console, disable=quiet
    ) as progress:
        task = progress.add_task(recipe.path.stem, total=recipe.training.steps)
        for event in events:
            kind = event.kind
            progress.update(task, completed=event.step)
            if kind == "step":
                progress.update(task, description=f"loss {event.values['loss']:.4f}")
            elif line := _line(event, out):
                progress.console.print(line, soft_wrap=True)
    return kind


@contextmanager
def _interruptible(console: "Console") -> Iterator[threading.Event]:
    """The first SIGINT or SIGTERM sets the event, the second stops the process as usual."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # only the main thread handles signals
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def interrupt(number: int, frame: object) -> None:
        stop.set()
        for known, handler in before.items():
            signal.signal(known, handler)
        console.print("saving after this step; once more stops at once")

    for number in before:
        signal.signal(number, interrupt)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _line(event: "Event", out: Path) -> str | None:
    match event.kind:
        case "start":
            where = f" from step {event.step:,}" if event.step else ""
            return f"{event.values['parameters']:,} weights{where}, in {out}"
        case "evaluate":
            return f"step {event.step:,}: {_shown(event.values)}"
        case "interrupted":
            return f"saved at step {event.step:,}; the same command continues"
        case "end":
            return "\n".join(
                f"{name}: {_number(value)}"
                for name, value in event.values.items()
                if isinstance(value, float)
            )
    return None


def _shown(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {_number(value)}" for name, value in values.items())


def _number(value: float) -> str:
    return f"{value:.4f}"


def _show(console: "Console", recipe: "Recipe", cost: "Estimate") -> None:
    """What a run will cost, and the graphs of its attention."""
    console.print(f"{cost.parameters:,} weights, {cost.words:,} tokens in the vocabulary")
    console.print(
        f"{cost.steps:,} steps of {amount(cost.step_flops)}FLOP, {amount(cost.flops)}FLOP in all"
    )
    parts = [f"{name} {amount(size)}B" for name, size in cost.memory.items() if size]
    console.print(f"{amount(sum(cost.memory.values()))}B of memory: {', '.join(parts)}")
    for line in cost.plan:
        console.print(line)
    for name, picture in pictures(recipe).items():
        console.print(f"\n{name}, the first {PICTURE} tokens:\n{picture}")


def pictures(recipe: "Recipe") -> dict[str, str]:
    """The attention graphs of a model, drawn; conditions, which are not patterns, are not."""
    from edgewise.graphs import causal, parse

    section = recipe.json()["model"]
    if "graph" not in section:
        return {}
    named = section["graph"] or ("causal()" if section["kind"] == "gpt" else "full()")
    found = {}
    for text in named if isinstance(named, list) else [named]:
        for graph in _patterns(parse(text)) if "@" not in text else ():
            shown = graph & causal() if section["kind"] == "gpt" else graph
            found[repr(graph)] = shown.draw(PICTURE)
    return found


def _patterns(graph: Any) -> Iterator["Pattern"]:
    """One pattern, or those of layers and heads."""
    from edgewise.graphs import Pattern

    for one in (graph,) if isinstance(graph, Pattern) else graph:
        yield from (one,) if isinstance(one, Pattern) else _patterns(one)


def amount(number: float) -> str:
    """Three digits and a unit: 12.3 G."""
    for unit in UNITS[:-1]:
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} {UNITS[-1]}"
