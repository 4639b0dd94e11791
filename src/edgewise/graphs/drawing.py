"""Patterns drawn as text and plotted as figures."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from html import escape
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewise.errors import EdgewiseError, caller
from edgewise.graphs.checks import integer, one_of, short_repr
from edgewise.layouts import Rows
from edgewise.measures import cell_size, density_map
from edgewise.notebook import svg_map

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from edgewise.graphs.pattern import Pattern

PRINTED = 16
WIDEST = 64
MAPPED = 48
SHADES = np.array(list("·░▒▓█"))
KINDS = ("matrix", "ring", "force")
MOST_NODES = 512
EXTRAS = {  # optional package → the extra of pyproject.toml that installs it
    "matplotlib": "plot",
    "networkx": "graphs",
    "scipy": "graphs",
    "pymetis": "distributed",
    "transformers": "hf",
    "gguf": "models",
    "tokenizers": "models",
    "sacrebleu": "train",
    "pyarrow": "data",
    "datasets": "data",
    "pandas": "data",
    "duckdb": "data",
    "psycopg": "postgresql",
    "rdkit": "molecules",
    "tensorboard": "train",
    "onnx": "onnx",
    "onnxscript": "onnx",
}


class GraphTooLarge(EdgewiseError):
    """A node-link drawing of more than 512 tokens is unreadable."""

    code = "graph-too-large"
    example = 'window(3).plot(100_000, kind="ring")'
    instead = "window(3).plot(100_000)"


class MissingPackage(EdgewiseError):
    """Some features need packages that attention itself does not, each installed by an extra.

    Figures need matplotlib, measures SciPy, Hugging Face models transformers.
    """

    code = "missing-package"
    example = 'drawing.require_package("a_package_that_is_not_here")'
    instead = 'drawing.require_package("scipy")'


def draw_rows(rows: Rows) -> str:
    """A line per query, a character per key; beyond 64 tokens, cells shaded by density."""
    size = cell_size(max(rows.n, rows.m), WIDEST)
    if size == 1:
        marks = np.where(rows.dense().numpy(), SHADES[-1], SHADES[0])
    else:
        share = density_map(rows, WIDEST) / areas(rows.n, rows.m, size)
        # A partly filled cell gets one of the intermediate shades.
        shade = np.where(share > 0, np.clip(np.ceil(share * 3), 1, 3), 0).astype(int)
        marks = SHADES[np.where(share >= 1, len(SHADES) - 1, shade)]
    return "\n".join("".join(line) for line in marks)


def map_of(pattern: "Pattern") -> str:
    """The pattern in a notebook: its matrix for 48 tokens, or for those that it is defined for."""
    for n, m in ((MAPPED, MAPPED), *_lengths(pattern)):
        try:
            rows = pattern.rows(n, m)
        except EdgewiseError:  # defined for another number of tokens
            continue
        size = cell_size(max(n, m), WIDEST)
        share = density_map(rows, WIDEST) / areas(n, m, size)
        tokens = f"{n:,} tokens" if n == m else f"{n:,} queries, {m:,} keys"
        return svg_map(share, f"{short_repr(pattern)}: {tokens}, {rows.count():,} pairs")
    return f"<code>{escape(short_repr(pattern))}</code>"


def _lengths(pattern: Any) -> Iterator[tuple[int, int]]:
    """The numbers of queries and keys that a part of a pattern is defined for."""
    if getattr(pattern, "shape", None) is not None:
        yield pattern.shape
    elif hasattr(pattern, "least"):
        yield pattern.least, pattern.least
    if hasattr(pattern, "ends") and len(pattern.ends):
        yield int(pattern.ends[-1]), int(pattern.ends[-1])
    if is_dataclass(pattern):
        for field in fields(pattern):
            value = getattr(pattern, field.name)
            for part in value if isinstance(value, tuple) else (value,):
                if is_dataclass(part):
                    yield from _lengths(part)


def areas(n: int, m: int, size: int) -> np.ndarray:
    """How many pairs each cell could hold: fewer at the border."""
    high, wide = (np.minimum(size, k - np.arange(0, k, size)) for k in (n, m))
    return np.asarray(high[:, None] * wide[None, :], float)


def plot_pattern(pattern: "Pattern", n: int, kind: str) -> "Figure":
    """The pattern as a matplotlib figure."""
    n, kind = integer(n, "n", 1), one_of(kind, "kind", KINDS)
    if kind != "matrix" and n > MOST_NODES:
        raise GraphTooLarge(
            f'kind="{kind}" shows at most {MOST_NODES} tokens, got {n:,}',
            caller(),
            'use fewer tokens, or kind="matrix", which shows any number',
        )
    return _figures().plot(pattern, n, kind)


def compare(*patterns: "Pattern", n: int) -> "Figure":
    """The patterns side by side, each with matrix, graph and measures: a matplotlib figure.

    The page that explains BigBird is `compare(random, window, global, bigbird, n=...)`.

    >>> from edgewise.graphs import global_tokens, window
    >>> figure = compare(window(2), window(2) | global_tokens(1), n=16)
    >>> figure.savefig("compare.png")  # doctest: +SKIP
    """
    from edgewise.graphs.errors import NotAPattern
    from edgewise.graphs.pattern import Pattern

    if not patterns or not all(isinstance(pattern, Pattern) for pattern in patterns):
        raise NotAPattern(
            f"`compare` takes patterns, got {short_repr(patterns)}", caller(), "such as `window(3)`"
        )
    return _figures().compare(patterns, integer(n, "n", 1))


def _figures() -> Any:
    """The module that draws figures, if matplotlib is installed."""
    require_package("matplotlib")
    return import_module("edgewise.viz.graphs")


def require_package(name: str) -> None:
    """Raise `MissingPackage`, with the extra to install, unless a package is installed."""
    if find_spec(name) is None:
        extra = EXTRAS.get(name)
        package = name if extra is None else f"'edgewise[{extra}]'"
        raise MissingPackage(f"this needs `{name}`", caller(), f"pip install {package}")
