"""Inputs: everything a caller may pass, read, checked and turned into sources in one place.

`InputReader` (`read`) reads them by name: each item becomes one of the `kinds`, as a collection
(`collections`, with keys by `key_columns`) or by the first of `READERS` that accepts it.
`prepare` makes a source of each, and of each relation of facts. To read
a new type, add one function `(name, item) -> Tensor | rows | None` and one entry in `READERS`.
"""
