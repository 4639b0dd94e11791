"""Rows with equal keys are merged, and sorted by key: the order of a source does not matter."""

from __future__ import annotations

import numpy as np

MERGE = {"sum": np.add, "mean": np.add, "min": np.minimum, "max": np.maximum}


def combined(
    keys: np.ndarray, values: np.ndarray | None, duplicates: str
) -> tuple[np.ndarray, np.ndarray | None]:
    """Distinct keys (arity, rows) in order, and the values of each, combined.

    Values are sorted before they are added: a sum is the same to the bit from every source. A key
    that must not repeat raises `ValueError` with the number of its row.

    >>> combined(np.array([[1, 0, 1]]), np.array([[2.0], [5.0], [3.0]]), "sum")
    (array([[0, 1]]), array([[5.],
           [5.]]))
    """
    if not keys.shape[1]:
        none = np.zeros((0, 1)) if duplicates == "count" else values
        return keys, none
    minor = [] if values is None else list(values.T[::-1])
    order = np.lexsort([*minor, *keys[::-1]])
    keys = keys[:, order]
    new = np.ones(keys.shape[1], dtype=bool)
    new[1:] = (keys[:, 1:] != keys[:, :-1]).any(0)
    starts = new.nonzero()[0]
    counts = np.diff(np.append(starts, keys.shape[1]))
    if duplicates == "count":
        return keys[:, starts], counts[:, None].astype(np.float64)
    if values is None:
        return keys[:, starts], None
    values = values[order]
    if len(starts) == keys.shape[1]:
        return keys, values
    if duplicates == "refuse":
        raise ValueError(int(order[(~new).argmax()]))
    merged = MERGE[duplicates].reduceat(values, starts, axis=0)
    return keys[:, starts], merged / counts[:, None] if duplicates == "mean" else merged
