"""The archive: three uncompressed parts."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FORMAT = 1
MANIFEST, RULES, WEIGHTS = "manifest.json", "program.rules", "weights.safetensors"
PARTS = (MANIFEST, RULES, WEIGHTS)
LARGEST = {MANIFEST: 1 << 26, RULES: 1 << 26}  # weights may have any size


class Broken(Exception):
    """Internal: what is wrong with an archive, and the next step."""

    def __init__(self, what: str, help: str = "save the model again") -> None:
        super().__init__(what)
        self.help = help


def pack(parts: Mapping[str, bytes]) -> bytes:
    """The archive as bytes; equal parts give equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in PARTS:
            archive.writestr(zipfile.ZipInfo(name), parts[name])
    return buffer.getvalue()


def write(path: Path, data: bytes) -> None:
    """Write a file atomically: a reader sees the old content or the new."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file to write into, which then replaces another."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        yield Path(name)
        with open(name, "rb") as file:
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read(path: Path) -> dict[str, bytes]:
    """The three parts; compressed ones are refused, so a small file cannot expand."""
    try:
        with zipfile.ZipFile(path) as archive:
            listed = archive.infolist()
            _check_listed(listed, path.stat().st_size)
            return {item.filename: archive.read(item) for item in listed}
    except FileNotFoundError:
        raise Broken("no such file", "check the path") from None
    except (IsADirectoryError, PermissionError) as problem:
        help = "give a file, or the folder of a run"
        raise Broken(f"cannot read it ({problem.strerror})", help) from None
    except (zipfile.BadZipFile, EOFError, OSError, RuntimeError, NotImplementedError, ValueError):
        raise Broken("truncated or corrupt archive") from None


def _check_listed(listed: list[zipfile.ZipInfo], size: int) -> None:
    names = sorted(item.filename for item in listed)
    if names != sorted(PARTS):
        strange = [name for name in names if name not in PARTS]
        missing = [name for name in PARTS if name not in names]
        what = f"unexpected `{strange[0]}`" if strange else f"no `{missing[0]}`" if missing else ""
        raise Broken(what or "a part occurs twice", f"a model file has {', '.join(PARTS)}")
    for item in listed:
        if item.compress_type != zipfile.ZIP_STORED or item.flag_bits & 1:
            raise Broken(f"`{item.filename}` is compressed or encrypted", "store it uncompressed")
        if item.file_size > min(size, LARGEST.get(item.filename, size)):
            raise Broken(f"`{item.filename}` is too large ({item.file_size:,} bytes)")


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def dump(manifest: Mapping[str, Any]) -> bytes:
    return json.dumps(manifest, indent=1, allow_nan=False).encode()


def parse(data: bytes) -> dict[str, Any]:
    """The manifest; NaN and Infinity, which JSON lacks, are refused."""

    def refuse(word: str) -> None:
        raise ValueError(word)

    try:
        found = json.loads(data.decode(), parse_constant=refuse)
    except (ValueError, RecursionError):
        raise Broken("the manifest is not JSON") from None
    if not isinstance(found, dict):
        raise Broken("the manifest is not a JSON object")
    return found
