"""`edgewise train`: run a recipe, or resume it."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from edgewise.errors import EdgewiseError, Span
from edgewise.training import Event, load
from edgewise.training import train as run


class NoSuchDevice(EdgewiseError):
    """A run is on the CPU or on a CUDA GPU that this machine has."""

    code = "no-such-device"
    example = """\
from pathlib import Path
from edgewise.cli.train import train
train(Path("a.toml"), device="gpu")"""
    instead = """\
from edgewise.cli.train import check_device
check_device("cpu")"""


def train(
    recipe: Annotated[Path, typer.Argument(help="a recipe in TOML")],
    data: Annotated[Path | None, typer.Option(help="the folder that its data is in")] = None,
    out: Annotated[Path | None, typer.Option(help="the folder to write the run to")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="continue from the last checkpoint")
    ] = False,
    device: Annotated[str | None, typer.Option(help="cpu or cuda")] = None,
) -> None:
    """Train a model from a recipe; metrics, checkpoints and a plot go to a folder."""
    check_device(device)
    loaded = load(recipe)
    out = Path("runs") / recipe.stem if out is None else out
    events = run(loaded, out, data=data, resume=resume, device=device)
    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        task = progress.add_task(recipe.stem, total=loaded.training.steps)
        for event in events:
            progress.update(task, completed=event.step)
            if event.kind == "step":
                progress.update(task, description=f"loss {event.values['loss']:.4f}")
            elif line := _line(event, out):
                progress.console.print(line, highlight=False)


def check_device(device: str | None) -> None:
    import torch

    known = {"cpu", *(("cuda",) if torch.cuda.is_available() else ())}
    if device is not None and device not in known:
        raise NoSuchDevice(
            f"there is no device `{device}`",
            Span.of("<device>", device),
            f"choose one of {', '.join(sorted(known))}",
        )


def _line(event: Event, out: Path) -> str | None:
    match event.kind:
        case "start":
            where = f" from step {event.step:,}" if event.step else ""
            return f"{event.values['parameters']:,} weights{where}, in {out}"
        case "evaluate":
            return f"step {event.step:,}: {_shown(event.values)}"
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
