"""Attention of one head over a text: the matrix of weights above, arcs between the tokens below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from matplotlib.patches import Arc, Rectangle
from torch import Tensor

from edgewise.errors import EdgewiseError, caller
from edgewise.graphs.checks import short_repr
from edgewise.language.nodes import Atom
from edgewise.viz.figure import BLUE, INK, ORANGE, QUIET, NotebookFigure
from edgewise.viz.svg import PictureTooLarge

MOST_TOKENS = 64
CELL = "#eef2f7"  # a pair of weight 0, as against one that is not in the graph
Weights = dict[tuple[int, int], float]
Head = (
    Tensor
    | np.ndarray
    | Sequence[Sequence[float]]
    | Mapping[tuple[int, int], float]
    | Mapping[Atom, Tensor]
)


class BadWeights(EdgewiseError):
    """Attention weights are drawn from one head: a number for each pair (query, key) of tokens.

    They are a matrix (dense or sparse), a mapping from (i, j) to a number, or the atoms of a
    relation whose last two terms are i and j.
    """

    code = "bad-weights"
    example = 'viz.attention(torch.ones(2, 8, 8) / 8, ["to", "be"])'
    instead = 'viz.attention(torch.ones(2, 2) / 2, ["to", "be"])'


def attention(
    weights: Head | Mapping[str, Head],
    tokens: Sequence[str],
    *,
    keys: Sequence[str] | None = None,
    query: int | str | None = None,
    notes: Mapping[str, str] | None = None,
) -> NotebookFigure:
    """Attention weights over `tokens`: matrix and arcs, several heads or graphs side by side.

    `weights` is a matrix (a tensor, an array or lists), a mapping `{(i, j): weight}`, or
    `{atom: value}` as a solution or a model gives it; a mapping from names to those draws one
    column for each, with its line of `notes` underneath. `keys` are the tokens attended
    to, if they differ (cross-attention). `query` is the token, or its position, whose attention is
    highlighted.

        >>> weights = {(0, 0): 1.0, (1, 0): 0.3, (1, 1): 0.7}
        >>> attention(weights, ["to", "be"], query="be").axes[1].texts[-1].get_text()
        '“be” attends to itself: 70%'
    """
    queries, attended = _words(tokens), _words(tokens if keys is None else keys)
    columns = {
        name: _pairs(one, len(queries), len(attended)) for name, one in _named(weights).items()
    }
    chosen = None if query is None else _position(query, queries)
    figure = NotebookFigure(figsize=(4.1 * len(columns), 7.2), dpi=130)
    if keys is None:
        _title(figure, " ".join(queries))
    grid = figure.add_gridspec(
        2, len(columns), height_ratios=[3, 1.75], left=0.22 / len(columns) + 0.01, right=0.99,
        top=0.82, bottom=0.02, wspace=0.08, hspace=0.36,
    )  # fmt: skip
    for at, (name, pairs) in enumerate(columns.items()):
        above = figure.add_subplot(grid[0, at])
        _matrix(above, queries if at == 0 else [""] * len(queries), attended, pairs, chosen)
        _heading(above, name, len(pairs), len(queries), len(attended), (notes or {}).get(name, ""))
        _arcs(figure.add_subplot(grid[1, at]), queries, attended, pairs, chosen)
    return figure


def _title(figure: NotebookFigure, text: str) -> None:
    """The text on one line, if it is readable on the width of the figure."""
    size = min(17.0, 72 * figure.get_figwidth() / (0.64 * len(text)))
    if size >= 7:
        figure.suptitle(text, y=0.985, fontsize=size, fontweight="bold", color=INK)


def _named(weights: Any) -> dict[str, Any]:
    """The columns by name; weights alone are one column without a name."""
    if isinstance(weights, Mapping) and weights and all(isinstance(k, str) for k in weights):
        return dict(weights)
    return {"": weights}


def _words(tokens: Sequence[str]) -> list[str]:
    if isinstance(tokens, str) or not tokens or not all(isinstance(t, str) for t in tokens):
        raise BadWeights(
            f"tokens are a list of texts, got {short_repr(tokens)}",
            caller(),
            'such as ["to", "be"]',
        )
    if len(tokens) > MOST_TOKENS:
        raise PictureTooLarge(
            f"attention is drawn for at most {MOST_TOKENS} tokens, got {len(tokens):,}",
            caller(),
            "choose a part of the text; `graph.plot(n)` draws a graph of any number of tokens",
        )
    return list(tokens)


def _position(query: int | str, words: list[str]) -> int:
    if isinstance(query, str) and query in words:
        return words.index(query)
    if isinstance(query, int) and not isinstance(query, bool) and -len(words) <= query < len(words):
        return query % len(words)
    raise BadWeights(
        f"`query` is {short_repr(query)}, which is not a token",
        caller(),
        f"choose one of {', '.join(words[:6])}, or a position below {len(words)}",
    )


def _pairs(weights: Any, n: int, m: int) -> Weights:
    """The weight of each pair; pairs outside the graph are absent."""
    if isinstance(weights, np.ndarray | list | tuple):
        with suppress(TypeError, ValueError):
            weights = torch.as_tensor(np.array(weights, np.float64))
    if isinstance(weights, Tensor):
        found = _of_matrix(weights.detach().cpu(), n, m)
    elif isinstance(weights, Mapping):
        found = dict(_of_entry(key, value) for key, value in weights.items())
    else:
        raise _bad(f"got {short_repr(weights)}")
    for (i, j), weight in found.items():
        if not (0 <= i < n and 0 <= j < m):
            raise _bad(f"the pair ({i}, {j}) is outside {n} queries and {m} keys")
        if not -1e-6 <= weight <= 1 + 1e-3:
            raise _bad(f"the weight of ({i}, {j}) is {weight:.4g}, not from 0 to 1")
    return {pair: min(max(weight, 0.0), 1.0) for pair, weight in found.items()}


def _of_matrix(matrix: Tensor, n: int, m: int) -> Weights:
    if tuple(matrix.shape) != (n, m):
        shape = "×".join(map(str, matrix.shape)) or "a number"
        raise _bad(f"got {shape}; there are {n} queries and {m} keys")
    if matrix.layout != torch.strided:
        entries = matrix.to_sparse_coo().coalesce()
        return dict(
            zip(map(tuple, entries.indices().T.tolist()), entries.values().tolist(), strict=True)
        )
    i, j = matrix.nonzero(as_tuple=True)
    return dict(zip(zip(i.tolist(), j.tolist(), strict=True), matrix[i, j].tolist(), strict=True))


def _of_entry(key: Any, value: Any) -> tuple[tuple[int, int], float]:
    """`((i, j), weight)` of an entry of a mapping, whose key is a pair or an atom."""
    pair = (
        tuple(getattr(key, "terms", key)[-2:])
        if hasattr(key, "terms") or isinstance(key, tuple)
        else ()
    )
    number = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
    if len(pair) != 2 or not all(isinstance(end, int) for end in pair):
        raise _bad(f"{short_repr(key)} is not a pair (query, key) of positions")
    if not isinstance(number, int | float):
        raise _bad(f"the weight of {short_repr(key)} is {short_repr(value)}, not a number")
    return (pair[0], pair[1]), float(number)


def _bad(what: str) -> BadWeights:
    return BadWeights(
        f"attention weights are one number for each pair: {what}",
        caller(),
        "pass the matrix of one head, such as `weights[0, 3]`, or a mapping {(i, j): weight}",
    )


def _matrix(
    axes: Any, labels: Sequence[str], keys: Sequence[str], pairs: Weights, chosen: int | None
) -> None:
    n, m = len(labels), len(keys)
    frame: dict[str, Any] = {"edgecolor": "white", "lw": min(1.5, 15 / max(n, m))}
    for (i, j), weight in pairs.items():
        colour = ORANGE if i == chosen else BLUE
        axes.add_patch(Rectangle((j, i), 1, 1, facecolor=CELL, **frame))
        axes.add_patch(Rectangle((j, i), 1, 1, facecolor=colour, alpha=weight**0.8, **frame))
    if chosen is not None:
        axes.add_patch(Rectangle((0, chosen), m, 1, fill=False, edgecolor=ORANGE, lw=1.5))
    axes.set(xlim=(0, m), ylim=(n, 0), aspect="equal")
    size = min(10.0, 160 / max(n, m))
    axes.set_xticks([j + 0.62 for j in range(m)], keys, rotation=55, ha="right", fontsize=size)
    axes.set_yticks([i + 0.5 for i in range(n)], labels, fontsize=size)
    axes.tick_params(length=0, pad=3, colors=INK)
    for label in axes.get_xticklabels():
        label.set_rotation_mode("anchor")
    axes.spines[:].set_visible(False)


def _heading(axes: Any, name: str, pairs: int, n: int, m: int, note: str) -> None:
    for lines, text, style in (
        (3.2, name, {"fontsize": 14, "fontweight": "bold", "color": INK}),
        (1.9, f"{pairs} of {n * m} pairs", {"fontsize": 10.5, "color": INK}),
        (0.7, note, {"fontsize": 8.5, "family": "monospace", "color": ORANGE}),
    ):
        axes.annotate(text, (0.5, 1), (0, 10 * lines), xycoords="axes fraction",
                      textcoords="offset points", ha="center", **style)  # fmt: skip


def _arcs(
    axes: Any, queries: Sequence[str], keys: Sequence[str], pairs: Weights, chosen: int | None
) -> None:
    """The tokens in a row; an arc for every pair, its width the weight of highlighted ones."""
    m = max(len(queries), len(keys))
    scale = 9 / max(m, 9)
    for (i, j), weight in pairs.items():
        shown = chosen is None or i == chosen
        width, colour = ((0.6 + 6 * weight) * scale, ORANGE) if shown else (0.5 * scale, QUIET)
        style: dict[str, Any] = {
            "lw": width, "color": colour, "alpha": 0.1 + 0.9 * weight if shown else 0.35,
            "zorder": 2 + shown,
        }  # fmt: skip
        span = abs(i - j)
        axes.add_patch(
            Arc(((i + j) / 2, 0), span, 0.72 * span * 8 / max(m - 1, 8), theta2=180, **style)
            if span
            else Arc((i, 0.32), 0.5, 0.7, **style)
        )
    for j, word in enumerate(keys):
        seen = chosen is None or (chosen, j) in pairs
        axes.text(j, -0.22, word, rotation=55, ha="right", va="top", rotation_mode="anchor",
                  fontsize=9 * scale, color=INK if seen else QUIET,
                  fontweight="bold" if j == chosen else "normal")  # fmt: skip
    if chosen is not None:
        axes.text((m - 1) / 2, 3.25, _most(queries, keys, pairs, chosen), ha="center",
                  fontsize=11.5, color=ORANGE)  # fmt: skip
    axes.set(xlim=(-1.1, m - 0.3), ylim=(-2.1, 3.5))
    axes.axis("off")


def _most(queries: Sequence[str], keys: Sequence[str], pairs: Weights, chosen: int) -> str:
    """What the highlighted token attends to most."""
    found = [(weight, j) for (i, j), weight in pairs.items() if i == chosen]
    if not found:
        return f"“{queries[chosen]}” attends to no token"
    weight, j = max(found)
    what = "itself" if j == chosen and keys == queries else f"“{keys[j]}”"
    return f"“{queries[chosen]}” attends to {what}: {weight:.0%}"
