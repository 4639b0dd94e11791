"""Training, validation and test parts: the files of each in a folder, and held-out rows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import torch

from edgewise.training.data.files import (
    FORMATS,
    Columns,
    bad,
    concatenated,
    read,
    saved_dataset,
    suffix,
)
from edgewise.training.randomness import generator
from edgewise.training.schema import number

NAMES = {  # of a split that the recipe does not name
    "train": ("train",),
    "validation": ("validation", "val", "valid", "dev"),
    "test": ("test",),
}
SAVED = ("dataset_dict.json", "state.json")  # what `save_to_disk` of `datasets` writes


@dataclass(frozen=True, kw_only=True)
class Splits:
    """`path` is a file, or a folder with a file or several for each part.

    `train`, `validation` and `test` name files, such as `a.csv`, or splits: `train` is `train.csv`,
    `train-00000-of-00002.parquet` and so on, or a split of a saved dataset. Without a validation
    part, `held_out` of the training part is used.
    """

    path: str = "."
    train: str = ""
    validation: str = ""
    test: str = ""
    held_out: float = number(0.1, least=0.0, below=1.0)

    def tables(self, folder: Path) -> dict[str, Columns]:
        """The columns of the parts that are there."""
        base = folder / self.path
        if not base.is_dir():
            return {"train": read(base)}
        saved = saved_dataset(base) if any((base / name).is_file() for name in SAVED) else None
        found = {}
        for part, usual in NAMES.items():
            named = getattr(self, part)
            for name in (named,) if named else usual:
                table = _split(base, name) if saved is None else saved.get(name)
                if table is not None:
                    found[part] = table
                    break
            else:
                if named or part == "train":
                    raise _missing(base, named or part, sorted(saved or ()))
        return found

    def parts(self, folder: Path) -> dict[str, Columns]:
        """The same, with held-out rows where there is no validation part."""
        found = self.tables(folder)
        if "validation" in found:
            return found
        table = found["train"]
        count = int(len(table) * self.held_out)
        if not 0 < count < len(table):
            raise _none_held_out(table.path, len(table), self.held_out)
        order = torch.randperm(len(table), generator=generator(0, "held out")).tolist()
        held, rest = sorted(order[:count]), sorted(order[count:])
        return found | {"train": table.take(rest), "validation": table.take(held)}


def files_of(base: Path, name: str) -> list[Path]:
    """The files of a split: that file, or all in the folder of that name, or `name-….suffix`."""
    exact = base / name
    if exact.is_file() or exact.with_name(f"{exact.name}.gz").is_file():
        return [exact]
    if exact.is_dir():
        return sorted(p for p in exact.iterdir() if p.is_file() and suffix(p) in FORMATS)
    start = re.compile(rf"{re.escape(exact.name)}([-_.].*)?")
    folders = (exact.parent, exact.parent / "data")
    found = [p for folder in folders if folder.is_dir() for p in folder.iterdir() if p.is_file()]
    return sorted(p for p in found if suffix(p) in FORMATS and start.fullmatch(_stem(p)))


def _stem(path: Path) -> str:
    return (path.with_suffix("") if path.suffix == ".gz" else path).stem


def _split(base: Path, name: str) -> Columns | None:
    files = files_of(base, name)
    if not files:
        return None
    kinds = sorted({suffix(file) for file in files})
    if len(kinds) > 1:
        what = f"the split `{name}` has files of several formats: {', '.join(kinds)}"
        raise bad(what, base, f"name one file in `[data]`, such as `{files[0].name}`")
    return concatenated([read(file) for file in files], base / name)


def _missing(base: Path, name: str, splits: list[str]) -> Exception:
    there = splits or sorted(p.name for p in base.iterdir() if not p.name.startswith("."))
    listed = ", ".join(f"`{known}`" for known in there[:12]) or "nothing"
    more = f" and {len(there) - 12} more" if len(there) > 12 else ""
    what = f"there is no split `{name}`; the folder has {listed}{more}"
    return bad(what, base, "name a file or a split in `[data]`, or give `--data`")


def _none_held_out(path: Path, rows: int, share: float) -> Exception:
    what = f"there is no validation part, and {share:g} of {rows:,} rows rounds to none"
    return bad(what, path, "name one in `validation`, or raise `held_out`")
