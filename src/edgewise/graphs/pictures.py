"""Graphs as text, and the way to their figures."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewise.errors import EdgewiseError, caller
from edgewise.graphs.checks import one_of, shown, whole
from edgewise.layouts import Rows
from edgewise.measures import density_map
from edgewise.measures.density import cell_size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from edgewise.graphs.pairs import Pairs

PRINTED = 16
WIDEST = 64
SHADES = np.array(list("·░▒▓█"))
KINDS = ("matrix", "ring", "force")
MOST_NODES = 512


class GraphTooLarge(EdgewiseError):
    """A graph of more than a few hundred tokens cannot be read as circles and lines."""

    code = "graph-too-large"
    example = 'window(3).plot(100_000, kind="ring")'
    instead = "window(3).plot(100_000)"


class MissingPackage(EdgewiseError):
    """Figures are matplotlib's and measures SciPy's: packages that attention itself does not need.

    `pip install 'edgewise[demo]'` brings both.
    """

    code = "missing-package"
    example = 'pictures.package("a_package_that_is_not_here")'
    instead = 'pictures.package("scipy")'


def drawn(rows: Rows, width: int = WIDEST) -> str:
    """A line per query, a sign per key; beyond `width` tokens, cells and how full they are."""
    size = cell_size(max(rows.n, rows.m), width)
    if size == 1:
        marks = np.where(rows.dense().numpy(), SHADES[-1], SHADES[0])
    else:
        share = density_map(rows, width) / areas(rows.n, rows.m, size)
        # Anything between nothing and everything has one of the shades in between.
        shade = np.where(share > 0, np.clip(np.ceil(share * 3), 1, 3), 0).astype(int)
        marks = SHADES[np.where(share >= 1, len(SHADES) - 1, shade)]
    return "\n".join("".join(line) for line in marks)


def areas(n: int, m: int, size: int) -> np.ndarray:
    """How many pairs each cell could hold: fewer in those that stick out."""
    high, wide = (np.minimum(size, k - np.arange(0, k, size)) for k in (n, m))
    return np.asarray(high[:, None] * wide[None, :], float)


def plotted(pattern: "Pairs", n: int, kind: str) -> "Figure":
    """The pattern as a matplotlib figure."""
    n, kind = whole(n, "n", 1), one_of(kind, "kind", KINDS)
    if kind != "matrix" and n > MOST_NODES:
        raise GraphTooLarge(
            f'kind="{kind}" shows at most {MOST_NODES} tokens, got {n:,}',
            caller(),
            'ask for fewer tokens, or for kind="matrix", which shows any number',
        )
    return _figures().plot(pattern, n, kind)


def compare(*patterns: "Pairs", n: int) -> "Figure":
    """The patterns side by side: matrix, graph, and measures beneath; a matplotlib figure.

    The page that explains BigBird is `compare(random, window, global, bigbird, n=...)`.
    """
    from edgewise.graphs.errors import NotAPattern
    from edgewise.graphs.pairs import Pairs

    if not patterns or not all(isinstance(pattern, Pairs) for pattern in patterns):
        raise NotAPattern(
            f"`compare` takes patterns, got {shown(patterns)}", caller(), "such as `window(3)`"
        )
    return _figures().compare(patterns, whole(n, "n", 1))


def _figures() -> Any:
    """The module that draws figures, if matplotlib is there."""
    package("matplotlib")
    return import_module("edgewise.viz.graphs")


def package(name: str) -> None:
    """Refuse to go on without an optional package."""
    try:
        import_module(name)
    except ModuleNotFoundError:
        raise MissingPackage(
            f"this needs `{name}`", caller(), "pip install 'edgewise[demo]' brings it"
        ) from None
