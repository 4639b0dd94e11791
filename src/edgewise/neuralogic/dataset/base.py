"""What is common to datasets."""

from __future__ import annotations

from typing import Any


class BaseDataset:
    """Anything that `model.build_dataset` takes."""


class ConvertibleDataset(BaseDataset):
    """A dataset in another form."""

    def to_dataset(self) -> Any:
        raise NotImplementedError
