"""The archive: three parts, stored as they are, whole or refused."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FORMAT = 1
MANIFEST, RULES, WEIGHTS = "manifest.json", "program.rules", "weights.safetensors"
PARTS = (MANIFEST, RULES, WEIGHTS)
LARGEST = {MANIFEST: 1 << 26, RULES: 1 << 26}  # weights are as large as they are


class Broken(Exception):
    """Internal: what is wrong with an archive, and what to do."""

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
    """Put `data` at `path` at once: a reader sees what was there before, or all of it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read(path: Path) -> dict[str, bytes]:
    """The three parts. Only stored parts are read, so nothing grows when it is opened."""
    try:
        with zipfile.ZipFile(path) as archive:
            listed = archive.infolist()
            _check_listed(listed, path.stat().st_size)
            return {item.filename: archive.read(item) for item in listed}
    except FileNotFoundError:
        raise Broken("there is no such file", "check the path") from None
    except (IsADirectoryError, PermissionError) as problem:
        raise Broken(f"it cannot be read ({problem.strerror})", "give a file") from None
    except (zipfile.BadZipFile, EOFError, OSError, RuntimeError, NotImplementedError, ValueError):
        raise Broken("it is not a whole archive: damaged, truncated or of another kind") from None


def _check_listed(listed: list[zipfile.ZipInfo], size: int) -> None:
    names = sorted(item.filename for item in listed)
    if names != sorted(PARTS):
        strange = [name for name in names if name not in PARTS]
        missing = [name for name in PARTS if name not in names]
        what = f"holds `{strange[0]}`" if strange else f"lacks `{missing[0]}`" if missing else ""
        raise Broken(f"it {what or 'holds a part twice'}", f"a model has {', '.join(PARTS)}")
    for item in listed:
        if item.compress_type != zipfile.ZIP_STORED or item.flag_bits & 1:
            raise Broken(f"`{item.filename}` is compressed or encrypted", "store it as it is")
        if item.file_size > min(size, LARGEST.get(item.filename, size)):
            raise Broken(f"`{item.filename}` is larger than it can be ({item.file_size:,} bytes)")


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def dump(manifest: Mapping[str, Any]) -> bytes:
    return json.dumps(manifest, indent=1, allow_nan=False).encode()


def parse(data: bytes) -> dict[str, Any]:
    """The manifest as a table; numbers that JSON does not have are refused."""

    def refuse(word: str) -> None:
        raise ValueError(word)

    try:
        found = json.loads(data.decode(), parse_constant=refuse)
    except (ValueError, RecursionError):
        raise Broken("its manifest is not JSON") from None
    if not isinstance(found, dict):
        raise Broken("its manifest is not a table")
    return found
