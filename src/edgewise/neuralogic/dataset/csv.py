"""Tables in CSV files as facts and queries: a row is a fact, its columns are terms and a value."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from edgewise.errors import caller, nearest, safe_repr
from edgewise.neuralogic.core.constructs.factories import R
from edgewise.neuralogic.dataset.base import ConvertibleDataset
from edgewise.neuralogic.dataset.logic import Dataset, Sample
from edgewise.neuralogic.errors import BadSample


class Mode(Enum):
    """What a sample is made of: all files, one file, or the rows of one number in all files.

    >>> Mode("zip")
    <Mode.ZIP: 'zip'>
    """

    ONE_EXAMPLE = "one"
    EXAMPLE_PER_SOURCE = "example_per_source"
    ZIP = "zip"


class CSVFile:
    """A file, the relation that its rows are facts of, and which columns are terms and the value.

    Columns are numbers from 0 on, or names if there is a header; without `term_columns` all are
    terms.

    >>> import io
    >>> rows = io.StringIO("home,mill,4\\nhome,lake,1\\n")
    >>> print(
    ...     *CSVFile("road", rows, value_column=2, term_columns=[0, 1]).to_logic_form(), sep="\\n"
    ... )
    4.0 road(home, mill).
    1.0 road(home, lake).
    """

    def __init__(
        self,
        relation_name: str,
        csv_source: TextIO | Path | str,
        sep: str = ",",
        value_column: str | int | None = None,
        default_value: float | None = None,
        value_mapper: Callable[[Any], Any] | None = None,
        term_columns: Sequence[str | int] | None = None,
        header: bool = False,
        skip_rows: int = 0,
        n_rows: int | None = None,
        replace_empty_column: str | float = 0,
    ) -> None:
        self.relation_name, self.csv_source, self.sep = relation_name, csv_source, sep
        self.value_column, self.default_value = value_column, default_value
        self.value_mapper, self.term_columns = value_mapper, term_columns
        self.header, self.skip_rows, self.n_rows = header, skip_rows, n_rows
        self.replace_empty_column = replace_empty_column

    def to_logic_form(self) -> list[Any]:
        """A fact for each row, up to the first empty line."""
        if not isinstance(self.csv_source, str | Path):
            return list(self._facts(self.csv_source))
        try:
            with Path(self.csv_source).open(encoding="utf-8", newline="") as file:
                return list(self._facts(file))
        except (OSError, UnicodeDecodeError) as problem:
            why = problem.strerror if isinstance(problem, OSError) else problem
            raise BadSample(
                f"cannot read `{self.csv_source}`: {why}", caller(), "give the path of a CSV file"
            ) from None

    def _facts(self, file: TextIO) -> Iterator[Any]:
        rows = enumerate(csv.reader(file, delimiter=self.sep), 1)
        names: list[str] = []
        if self.header:
            _, names = next(rows, (0, []))
            names = [name.strip() for name in names]
        chosen = (
            None if self.term_columns is None else [self._at(c, names) for c in self.term_columns]
        )
        value = None if self.value_column is None else self._at(self.value_column, names)
        relation = R.get(self.relation_name)
        last = None if self.n_rows is None else self.skip_rows + self.n_rows
        for number, row in islice(rows, self.skip_rows, last):
            if not any(cell.strip() for cell in row) and len(row) < 2:
                return
            columns = range(len(row)) if chosen is None else chosen
            cells = [self._cell(row, column, number) for column in columns]
            terms = [c.lower() if c else self.replace_empty_column for c in cells]
            fact = relation(terms)
            if value is not None:
                yield fact[self._value(self._cell(row, value, number), number)]
            else:
                yield fact if self.default_value is None else fact[float(self.default_value)]

    def _at(self, column: str | int, names: list[str]) -> int:
        """The number of a column."""
        if column in names:
            return names.index(str(column))
        if isinstance(column, int) and not isinstance(column, bool) and column >= 0:
            return column
        near = nearest(str(column), names)
        raise BadSample(
            f"`{self.csv_source}` has no column `{column}`",
            caller(),
            f"did you mean `{near}`?"
            if near
            else f"its columns are {', '.join(names) or 'unnamed'}",
        )

    def _cell(self, row: list[str], column: int, number: int) -> str:
        if column >= len(row):
            raise BadSample(
                f"row {number} of `{self.csv_source}` has {len(row)} columns, and column {column} "
                "is read (counted from 0)",
                caller(),
                "give every row as many columns, or choose another `sep`",
            )
        return row[column].strip()

    def _value(self, cell: str, number: int) -> Any:
        empty = self.replace_empty_column if self.default_value is None else self.default_value
        found: Any = cell or empty
        if self.value_mapper is not None:
            return self.value_mapper(found)
        try:
            return float(found)
        except ValueError:
            raise BadSample(
                f"row {number} of `{self.csv_source}` has the value {safe_repr(found)}",
                caller(),
                "write a number, or give a `value_mapper`",
            ) from None


class CSVDataset(ConvertibleDataset):
    """Files of facts, and a file of queries.

    >>> import io
    >>> facts = CSVFile("x", io.StringIO("1\\n2\\n"), default_value=1.0)
    >>> queries = CSVFile("y", io.StringIO("1\\n2\\n"), default_value=1.0)
    >>> len(CSVDataset(facts, queries).to_dataset().pairs())
    2
    """

    def __init__(
        self,
        csv_files: list[CSVFile] | CSVFile,
        csv_queries: CSVFile | None = None,
        mode: Mode = Mode.ONE_EXAMPLE,
    ) -> None:
        self.csv_files = [csv_files] if isinstance(csv_files, CSVFile) else list(csv_files)
        self.csv_queries, self.mode = csv_queries, mode

    def add_csv_file(self, file: CSVFile) -> None:
        self.csv_files.append(file)

    def set_query_csv_file(self, file: CSVFile) -> None:
        self.csv_queries = file

    def to_dataset(self) -> Dataset:
        """Samples; one query each, as many as there are of both."""
        read = [file.to_logic_form() for file in self.csv_files]
        queries = None if self.csv_queries is None else self.csv_queries.to_logic_form()
        if self.mode == Mode.ONE_EXAMPLE:
            together = [fact for facts in read for fact in facts]
            return Dataset([Sample(query, together) for query in queries or [None]])
        if self.mode not in list(Mode):
            raise BadSample(f"the mode is {self.mode!r}", caller(), "write `Mode.ZIP`")
        if self.mode == Mode.ZIP:
            lengths = [len(facts) for facts in read]
            self._refuse_lengths("rows of files", lengths)
            read = [list(facts) for facts in zip(*read, strict=True)]
        if queries is None:
            return Dataset([Sample(None, facts) for facts in read])
        self._refuse_lengths("samples and queries", [len(read), len(queries)])
        return Dataset([Sample(q, facts) for q, facts in zip(queries, read, strict=True)])

    def _refuse_lengths(self, what: str, lengths: list[int]) -> None:
        """PyNeuraLogic drops what has no partner, without a word."""
        if len(set(lengths)) > 1:
            raise BadSample(
                f"there are {' and '.join(map(str, lengths))} {what}",
                caller(),
                "give as many of each",
            )
