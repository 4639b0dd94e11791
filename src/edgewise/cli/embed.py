"""`edgewise embed`: texts as vectors, by a checkpoint."""

import json
from io import BytesIO
from pathlib import Path
from typing import Annotated

import typer

from edgewise.cli.checkpoint import opened
from edgewise.cli.graph import CannotWrite
from edgewise.errors import EdgewiseError, Span, caller
from edgewise.save.archive import write

FORMATS = (".json", ".npy")


class NoTexts(EdgewiseError):
    """A command that reads texts needs one: as an argument, or a file with one in each line."""

    code = "no-texts"
    example = """\
from edgewise.cli.embed import given_texts
given_texts([], None)"""
    instead = """\
from edgewise.cli.embed import given_texts
given_texts(["a text"], None)"""


Model = Annotated[str, typer.Argument(help="a folder, or a name that `edgewise models` lists")]
File = Annotated[Path | None, typer.Option(help="a file with one text in each line")]
Cut = Annotated[bool, typer.Option("--truncate", help="cut texts that are too long")]


def embed(
    model: Model,
    texts: Annotated[list[str] | None, typer.Argument(help="texts")] = None,
    file: File = None,
    out: Annotated[Path | None, typer.Option(help="write the vectors: .json or .npy")] = None,
    truncate: Cut = False,
) -> None:
    """Turn texts into vectors of length 1."""
    if out is not None:
        check_out(out)
    rows = given_texts(texts or [], file)
    vectors = opened(model).embed(rows, truncate=truncate)
    if out is not None and out.suffix == ".npy":
        import numpy as np

        data = BytesIO()
        np.save(data, vectors.numpy())
        _put(out, data.getvalue())
        return
    shown = [
        {"text": text, "vector": [round(x, 6) for x in v.tolist()]}
        for text, v in zip(rows, vectors, strict=True)
    ]
    lines = "\n".join(json.dumps(one, ensure_ascii=False) for one in shown)
    if out is None:
        print(lines)
    else:
        _put(out, (lines + "\n").encode())


def given_texts(texts: list[str], file: Path | None) -> list[str]:
    """The texts of the command line and of the lines of a file."""
    found = list(texts)
    if file is not None:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8"
            raise NoTexts(
                f"the file cannot be read: {reason}",
                Span("<file>", 1, 1, len(str(file)) + 1, source=str(file)),
                "give a text file with one text in each line",
            ) from None
        found += [line for line in lines if line.strip()]
    if not found:
        raise NoTexts("there is no text", caller(), 'write one: "a text", or --file FILE')
    return found


def _put(path: Path, data: bytes) -> None:
    try:
        write(path, data)
    except OSError as problem:
        place = Span("<out>", 1, 1, len(str(path)) + 1, source=str(path))
        raise CannotWrite(
            f"the file cannot be written: {problem.strerror}", place, "choose another"
        ) from None


def check_out(path: Path) -> None:
    place = Span("<out>", 1, 1, len(str(path)) + 1, source=str(path))
    if path.suffix not in FORMATS:
        raise CannotWrite(
            "vectors are not written to such a file", place, f"end its name in {FORMATS[0]} or .npy"
        )
    if not path.absolute().parent.is_dir():
        raise CannotWrite("there is no such folder", place, f"make it: mkdir -p {path.parent}")
