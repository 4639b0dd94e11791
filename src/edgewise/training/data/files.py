"""Files of text, plain or packed, with errors that name them."""

import gzip
import hashlib
import zlib
from pathlib import Path

from edgewise.errors import Span
from edgewise.training.errors import BadData


def text_of(path: Path) -> str:
    """The text in a file, or in the same with `.gz` at the end."""
    packed = path.with_name(path.name + ".gz")
    found = path if path.exists() or not packed.exists() else packed
    try:
        data = found.read_bytes()
        return (gzip.decompress(data) if found.suffix == ".gz" else data).decode("utf-8")
    except OSError as problem:
        why = problem.strerror or "it is not a whole gzip file"
        raise bad(f"it cannot be read: {why}", found, "check `path`, or give `--data`") from None
    except (EOFError, zlib.error):
        raise bad("it is not a whole gzip file", found, "get the file again") from None
    except UnicodeDecodeError:
        raise bad("it is not text in UTF-8", found, "give a text file") from None


def lines_of(path: Path) -> list[str]:
    return text_of(path).removesuffix("\n").split("\n")


def bad(what: str, path: Path, help: str) -> BadData:
    return BadData(what, Span("<data>", 1, 1, len(str(path)) + 1, source=str(path)), help)


def digest(*texts: str) -> str:
    """What data is the same as before."""
    found = hashlib.sha256()
    for text in texts:
        found.update(text.encode() + b"\0")
    return found.hexdigest()
