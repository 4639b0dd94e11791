"""Samples and queries in files, in NeuraLogic's text format."""

from __future__ import annotations

from pathlib import Path

from edgewise.errors import caller
from edgewise.neuralogic.dataset.base import BaseDataset
from edgewise.neuralogic.errors import BadSample


class FileDataset(BaseDataset):
    """The paths of examples and of their queries.

    >>> Path(FileDataset("examples.txt", "queries.txt").queries_file).name
    'queries.txt'
    """

    def __init__(
        self, examples_file: str | Path | None = None, queries_file: str | Path | None = None
    ) -> None:
        if examples_file is None:
            raise BadSample("a dataset of files needs examples", caller(), "give their path")
        self.examples_file = str(Path(examples_file).absolute())
        self.queries_file = None if queries_file is None else str(Path(queries_file).absolute())
