"""Which examples are for training, validation and test: as a column says, or drawn in shares."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from edgewise.data import Labels
from edgewise.training.data.files import bad
from edgewise.training.randomness import generator
from edgewise.training.schema import Mistakes, number

SPELLINGS = {"train": "train", "training": "train", "validation": "validation",
             "valid": "validation", "val": "validation", "test": "test"}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Shares:
    """How examples are divided.

    - part: a column that says train, validation or test; otherwise shares are drawn
    - validation, test: the shares; of classes alike
    - folds, fold: the number of folds, and which of them is the test part
    - split_seed: draws another division
    """

    part: str = ""
    validation: float = number(0.1, least=0.0, below=1.0)
    test: float = number(0.2, least=0.0, below=1.0)
    folds: int = number(0, least=0)
    fold: int = number(0, least=0)
    split_seed: int = number(0, least=0)

    def check_shares(self) -> Mistakes:
        if bool(self.folds) != bool(self.fold) or self.fold > self.folds:
            yield "fold", "`fold` is one of 1 to `folds`", "write `folds = 10`, `fold = 1`"
        if self.validation + self.test >= 1:
            yield "test", "nothing is left for training", "make `validation` or `test` smaller"

    def named(self, part: Labels, keys: Tensor, labelled: Tensor, path: Path) -> dict[str, Tensor]:
        """The parts that a column names, of examples that have a label."""
        classes = [str(name) for name in part.classes or ()]
        for name in classes:
            if name.lower() not in SPELLINGS:
                raise bad(f"`{self.part}` says {name!r:.40}", path, "say train, validation or test")
        places = places_of(keys, part.keys, key_bound(keys)).tolist()
        said = [SPELLINGS[classes[at].lower()] for at in part.values.tolist()] if classes else []
        known, found = set(labelled.tolist()), {}
        for name in ("train", "validation", "test"):
            chosen = sorted(
                p for p, n in zip(places, said, strict=False) if n == name and p in known
            )
            found[name] = torch.tensor(chosen, dtype=torch.int64)
        for name in ("train", "validation"):
            if not len(found[name]):
                raise bad(f"no labelled row of `{self.part}` says {name}", path, "say it of some")
        return {name: index for name, index in found.items() if len(index)}

    def drawn(
        self, examples: Tensor, path: Path, target: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Shares drawn at random, of each class alike; of folds, one is the test part."""
        order = torch.randperm(len(examples), generator=generator(self.split_seed, "parts"))
        examples = examples[order]
        if target is not None:
            examples = examples[target[examples].argsort(stable=True)]
        place = torch.arange(len(examples))
        test = place % self.folds == self.fold - 1 if self.folds else _spread(place, self.test)
        rest = torch.cumsum((~test).long(), 0) - 1
        share = self.validation if self.folds else self.validation / (1 - self.test)
        validation = ~test & _spread(rest, share)
        masks = {"train": ~test & ~validation, "validation": validation, "test": test}
        if self.folds and not self.validation:
            masks["validation"] = test
        found = {name: examples[mask].sort().values for name, mask in masks.items() if mask.any()}
        if not {"train", "validation"} <= set(found):
            what = f"{len(examples):,} labelled examples are too few for the parts"
            raise bad(what, path, "give more, or larger shares")
        return found


def _spread(place: Tensor, share: float) -> Tensor:
    """A share of places, evenly: where ⌊(place + 1) · share⌋ grows."""
    return ((place + 1) * share + 1e-9).floor() > (place * share + 1e-9).floor()


def key_bound(keys: Tensor) -> int:
    """A number above all keys."""
    return int(keys.max()) + 1 if keys.numel() else 1


def places_of(keys: Tensor, wanted: Tensor, size: int) -> Tensor:
    """Where each column of `wanted` is among the columns of `keys`, all below `size`."""
    codes, looked = (_coded(part, size) for part in (keys, wanted))
    order = codes.argsort()
    return order[torch.searchsorted(codes[order], looked)]


def _coded(keys: Tensor, size: int) -> Tensor:
    code = keys[0]
    for row in keys[1:]:
        code = code * size + row
    return code
