"""What is common to datasets."""

from __future__ import annotations

from typing import Any


class BaseDataset:
    """Anything that `model.build_dataset` takes.

    >>> from edgewise.neuralogic import Dataset
    >>> isinstance(Dataset(), BaseDataset)
    True
    """


class ConvertibleDataset(BaseDataset):
    """A dataset in another form.

    >>> from edgewise.neuralogic.dataset import CSVDataset
    >>> issubclass(CSVDataset, ConvertibleDataset)
    True
    """

    def to_dataset(self) -> Any:
        raise NotImplementedError
