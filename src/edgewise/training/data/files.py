"""Text files, plain or gzipped, and how their examples become batches."""

import gzip
import hashlib
import zlib
from pathlib import Path

import torch
from torch import Tensor

from edgewise.errors import Span
from edgewise.training.errors import BadData
from edgewise.training.randomness import generator


def text_of(path: Path) -> str:
    """The text in a file, or in the same with `.gz` at the end."""
    packed = path.with_name(path.name + ".gz")
    found = path if path.exists() or not packed.exists() else packed
    try:
        data = found.read_bytes()
        return (gzip.decompress(data) if found.suffix == ".gz" else data).decode("utf-8")
    except OSError as problem:
        why = problem.strerror or "truncated or corrupt gzip file"
        raise bad(f"cannot read the file: {why}", found, "check `path`, or give `--data`") from None
    except (EOFError, zlib.error):
        raise bad("truncated or corrupt gzip file", found, "download the file again") from None
    except UnicodeDecodeError:
        raise bad("not UTF-8 text", found, "give a text file") from None


def lines_of(path: Path) -> list[str]:
    return text_of(path).removesuffix("\n").split("\n")


def bad(what: str, path: Path, help: str) -> BadData:
    return BadData(what, Span.of("<data>", path), help)


def digest(*texts: str) -> str:
    """A fingerprint of the data: equal if all texts are."""
    found = hashlib.sha256()
    for text in texts:
        found.update(text.encode() + b"\0")
    return found.hexdigest()


def examples(count: int, size: int, seed: int, step: int) -> Tensor:
    """Indices of the examples of a step; each epoch has its own order, drawn from the seed."""
    found, at = [], step * size
    while size > 0:
        epoch, first = divmod(at, count)
        order = torch.randperm(count, generator=generator(seed, "round", epoch))
        found.append(order[first : first + size])
        at, size = at + len(found[-1]), size - len(found[-1])
    return torch.cat(found)


def padded(rows: list[list[int]], fill: int = 0) -> tuple[Tensor, Tensor]:
    """Rows of different lengths as one tensor, and their lengths."""
    lengths = torch.tensor([len(row) for row in rows])
    out = torch.full((len(rows), max(map(len, rows), default=0)), fill)
    for i, row in enumerate(rows):
        out[i, : len(row)] = torch.tensor(row, dtype=torch.long)
    return out, lengths
