"""What the verbs that run a model share: opening it, and reading texts."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.errors import EdgewiseError, Span, caller

if TYPE_CHECKING:
    from edgewise.zoo.pretrained import Pretrained

STDIN = "-"


class NoTexts(EdgewiseError):
    """A command that reads texts needs one: as an argument, or in a file, one per line."""

    code = "no-texts"
    example = """\
from edgewise.cli.checkpoint import read_texts
read_texts([], None)"""
    instead = """\
from edgewise.cli.checkpoint import read_texts
read_texts(["a text"], None)"""


class NoSuchDevice(EdgewiseError):
    """A model is on the CPU or on a CUDA GPU that this machine has."""

    code = "no-such-device"
    example = """\
from edgewise.cli.checkpoint import check_device
check_device("gpu")"""
    instead = """\
from edgewise.cli.checkpoint import check_device
check_device("cpu")"""


Model = Annotated[
    str,
    typer.Argument(
        help="the folder of a run or of a checkpoint, a GGUF file, or a name that "
        "`edgewise models` lists"
    ),
]
Texts = Annotated[list[str] | None, typer.Argument(help="texts")]
File = Annotated[
    Path | None, typer.Option(help="a file with one text per line; - is the standard input")
]
Truncate = Annotated[bool, typer.Option("--truncate", help="truncate texts that are too long")]
Json = Annotated[bool, typer.Option("--json", help="print JSON, one object per line")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda; by default cpu")]
Batch = Annotated[int, typer.Option(help="how many texts are computed together")]


def opened(model: str, device: str | None = None) -> "Pretrained":
    """The model of a folder or file, or of a known name, which is downloaded once."""
    from edgewise.zoo.pretrained import from_pretrained
    from edgewise.zoo.pretrained.fetch import SOURCES

    check_device(device)
    known = model in SOURCES and not Path(model).exists()
    found = from_pretrained(_fetched(model) if known else Path(model))
    if getattr(found, "step", None) == 0:
        note(f"{model} is not trained yet: its weights are those of step 0")
    return found if device is None else found.to(device)


def _fetched(name: str) -> Path:
    from rich.console import Console

    from edgewise.zoo.pretrained import cached
    from edgewise.zoo.pretrained.fetch import SOURCES, fetch

    if cached(name) is None:
        with Console(stderr=True).status(f"fetching {name}, {SOURCES[name].megabytes} MB"):
            fetch(name)
    return fetch(name)


def check_device(device: str | None) -> None:
    import torch

    known = {"cpu", *(("cuda",) if torch.cuda.is_available() else ())}
    if device is not None and device not in known:
        raise NoSuchDevice(
            f"there is no device `{device}`",
            Span.of("<device>", device),
            f"choose one of {', '.join(sorted(known))}",
        )


def note(text: str) -> None:
    """A remark beside the output."""
    print(f"note: {text}", file=sys.stderr)


def note_unknown(model: "Pretrained", texts: list[str]) -> None:
    """Say which parts of texts the tokenizer does not know, if its vocabulary is not open."""
    from edgewise.training.runs.run import Run

    unknown = model.table.get("tokens", {}).get("unknown") if isinstance(model, Run) else None
    if unknown is None:
        return
    odd: dict[str, None] = {}
    for text in texts:
        found = model.tokenizer.encode(text)
        pairs = zip(found.ids, found.offsets, strict=True)
        odd |= dict.fromkeys(text[a:b] for token, (a, b) in pairs if token == unknown and b > a)
    if odd:
        more = f" and {len(odd) - 8} more" if len(odd) > 8 else ""
        shown = ", ".join(f"`{word}`" for word in list(odd)[:8])
        note(f"not in the vocabulary, read as unknown: {shown}{more}")


def read_texts(texts: list[str], file: Path | None, *, blank: bool = False) -> list[str]:
    """The texts of the command line and of a file, one per line; blank lines only if wanted."""
    found = list(texts)
    if file is not None:
        found += [line for line in _lines(file) if blank or line.strip()]
    if not any(text.strip() for text in found):
        what = "the texts are empty" if found else "no texts"
        raise NoTexts(what, caller(), 'write one: "a text", or --file FILE')
    return found


def _lines(file: Path) -> list[str]:
    try:
        data = sys.stdin.buffer.read() if str(file) == STDIN else file.read_bytes()
        return data.decode("utf-8").removesuffix("\n").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8"
        raise NoTexts(
            f"cannot read the file: {reason}",
            Span.of("<file>", file),
            "give a text file with one text per line",
        ) from None


def json_line(**values: Any) -> str:
    return json.dumps(values, ensure_ascii=False)
