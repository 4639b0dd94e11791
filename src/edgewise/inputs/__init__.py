"""Inputs: all that a caller may give, read, checked and turned into sources, in one place.

`InputReader` reads them by name: each item, by the first of `readers.READERS` that knows it, is one
of the `kinds`. `prepare` makes a source of each, and one of each relation that `facts` state. A new
reader is one function `(name, item) -> Tensor | rows | None` and one entry in `READERS`.
"""
