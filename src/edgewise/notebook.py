"""Tables and maps in notebooks: HTML without scripts, every string escaped, for light and dark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice

import numpy as np

ROWS = 20  # that a table shows
NUMBERS = 6  # of a vector
SHADES = 4  # of a map
CELL = "padding:1px 12px 1px 0;text-align:left;border:0;background:none"
FONT = "font-family:ui-monospace,Menlo,Consolas,monospace;font-size:13px"


def html_table(
    caption: str,
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    total: int,
    most: int = ROWS,
) -> str:
    """The first `most` rows of a table.

    >>> html_table("2 rows", ["name"], [["<b>"], ["c"]], 2).count("<tr>")
    3
    """
    lines = [_line(header, "th"), *(_line(row, "td") for row in islice(rows, most))]
    more = f'<div style="opacity:.6">… {total - most:,} more</div>' if total > most else ""
    table = f'<table style="border-collapse:collapse">{"".join(lines)}</table>'
    return _captioned(caption, table + more)


def _captioned(caption: str, shown: str) -> str:
    above = f'<div style="opacity:.75">{escape(caption)}</div>' if caption else ""
    return f'<div style="{FONT}">{above}{shown}</div>'


def _line(cells: Sequence[object], tag: str) -> str:
    shown = "".join(f'<{tag} style="{CELL}">{escape(str(cell))}</{tag}>' for cell in cells)
    return f"<tr>{shown}</tr>"


def short_value(value: Sequence[object] | float) -> str:
    """Numbers as a table shows them: `value.tolist()` of a scalar, a vector or a matrix.

    >>> short_value([0.12345678, 2.0]), short_value([[1.0]] * 9), short_value(0.5)
    ('[0.1235, 2]', '9 rows of 1', '0.5')
    """
    if not isinstance(value, Sequence):
        return f"{value:.4g}" if isinstance(value, float) else str(value)
    if value and isinstance(value[0], Sequence):
        return f"{len(value)} rows of {len(value[0])}"
    first = ", ".join(short_value(one) for one in value[:NUMBERS])  # type: ignore[arg-type]
    return f"[{first}{', …' if len(value) > NUMBERS else ''}]"


def side_by_side(parts: Sequence[str], caption: str) -> str:
    """Several pictures in a row that wraps."""
    shown = "".join(f'<div style="margin:0 16px 8px 0">{part}</div>' for part in parts)
    return _captioned(caption, f'<div style="display:flex;flex-wrap:wrap">{shown}</div>')


def bar(share: float, caption: str) -> str:
    """A share from 0 to 1 as a bar, below its caption.

    >>> "width:25%" in bar(0.25, "one of four")
    True
    """
    frame = "width:220px;border:1px solid currentColor;height:8px"
    filled = f"width:{100 * share:.0f}%;height:8px;background:currentColor"
    return _captioned(caption, f'<div style="{frame}"><div style="{filled}"></div></div>')


def svg_map(shares: np.ndarray, caption: str) -> str:
    """A matrix of shares from 0 to 1 as a picture: cells in four shades of the text's colour.

    >>> svg_map(np.eye(2), "two").count("<path")
    1
    """
    high, wide = shares.shape
    shades = np.clip(np.ceil(shares * SHADES), 0, SHADES).astype(int)
    paths = []
    for shade in range(1, SHADES + 1):
        cells = "".join(f"M{x} {y}h1v1h-1z" for y, x in np.argwhere(shades == shade))
        if cells:
            paths.append(f'<path fill-opacity="{shade / SHADES:.2f}" d="{cells}"/>')
    size = 220
    line = 'fill="none" stroke="currentColor" stroke-width=".3"'
    frame = f'<rect width="{wide}" height="{high}" {line}/>'
    picture = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" '
        f'width="{size * wide / max(wide, high):.0f}" fill="currentColor" role="img" '
        f'aria-label="{escape(caption)}" shape-rendering="crispEdges">{frame}{"".join(paths)}</svg>'
    )
    return _captioned(caption, picture)
