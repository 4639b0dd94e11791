"""SVG: pictures and the shapes they are made of."""

import itertools
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from edgewise.errors import EdgewiseError, caller

FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
ADVANCE = 0.62  # width of a character over its size; monospaced fonts have 0.55 to 0.61
INK = "#24292f"
DARK = {  # each colour of a drawing, and the one that it has where a reader prefers the dark
    "#ffffff": "#161b22", INK: "#e6edf3", "#57606a": "#9da7b3", "#8c959f": "#7d8590",
    "#afb8c1": "#545d68", "#d8dee4": "#373e47", "#eaeef2": "#30363d", "#f6f8fa": "#21262d",
    "#c62828": "#ff7b72", "#8250df": "#a371f7", "#fbf9ff": "#1b1a29", "#6f42c1": "#bc8cff",
    "#8a5a00": "#e3b341", "#fff1cf": "#3a2d0b", "#e7f1fb": "#12263f", "#3f7fbf": "#58a6ff",
    "#e6f5ea": "#12281c", "#2e8b57": "#3fb950", "#0550ae": "#79c0ff", "#0969da": "#58a6ff",
}  # fmt: skip
# themes that a reader chooses in a page: of JupyterLab, Material for MkDocs and VS Code
DARK_PAGE = ":is([data-jp-theme-light=false],[data-md-color-scheme=slate],.vscode-dark)"
LIGHT_PAGE = ":is([data-jp-theme-light=true],[data-md-color-scheme=default],.vscode-light)"
Point = tuple[float, float]


def width(text: str, size: float) -> float:
    """An upper bound of the width of a text: East Asian characters and symbols count twice.

    >>> round(width("h(1)", 10), 1), round(width("注意", 10), 1)
    (24.8, 24.8)
    """
    wide = sum(2 if unicodedata.east_asian_width(c) in "WF" or ord(c) > 0xFFFF else 1 for c in text)
    return wide * size * ADVANCE


def clipped(text: str, most: int) -> str:
    """At most `most` characters; control characters, which XML does not allow, are replaced.

    >>> clipped("a very long name", 8)
    'a very …'
    """
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def number(x: float) -> str:
    shown = f"{x:.1f}"
    return shown[:-2] if shown.endswith(".0") else shown


def tag(name: str, inside: str = "", /, **attributes: object) -> str:
    """`<name key="value">inside</name>`; `stroke_width` is `stroke-width`.

    >>> tag("rect", x=1.25, class_="box")
    '<rect x="1.2" class="box"/>'
    """
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="'
        + escape(number(value) if isinstance(value, int | float) else str(value))
        + '"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{shown}>{inside}</{name}>" if inside else f"<{name}{shown}/>"


def text(
    x: float, y: float, words: str, size: float, *, anchor: str = "middle", **more: object
) -> str:
    """Text whose middle height is `y`."""
    more = {"fill": INK} | more
    anchored = None if anchor == "start" else anchor
    return tag("text", escape(words), x=x, y=y + 0.35 * size, font_size=size,
               text_anchor=anchored, **more)  # fmt: skip


def box(x: float, y: float, w: float, h: float, **more: object) -> str:
    """A rounded rectangle by its top left corner."""
    return tag("rect", x=x, y=y, width=w, height=h, **({"rx": 6} | more))


def curve(points: Sequence[Point], *, upright: bool) -> str:
    """A path through points, leaving and arriving `upright` (or flat), straight where it can."""
    parts = [f"M{number(points[0][0])},{number(points[0][1])}"]
    for (x, y), (u, v) in itertools.pairwise(points):
        if (x == u) if upright else (y == v):
            parts.append(f"L{number(u)},{number(v)}")
        else:
            first, second = ((x, (y + v) / 2), (u, (y + v) / 2)) if upright else (
                ((x + u) / 2, y), ((x + u) / 2, v))  # fmt: skip
            bends = " ".join(f"{number(a)},{number(b)}" for a, b in (first, second, (u, v)))
            parts.append(f"C{bends}")
    return " ".join(parts)


def arrow(tip: Point, toward: Point, colour: str, size: float = 6) -> str:
    """A filled head at `tip`, pointing in direction `toward`."""
    (x, y), (dx, dy) = tip, toward
    corners = (
        (x, y),
        (x - size * dx + size / 2 * dy, y - size * dy + size / 2 * dx),
        (x - size * dx - size / 2 * dy, y - size * dy - size / 2 * dx),
    )
    return tag("polygon", points=" ".join(f"{number(a)},{number(b)}" for a, b in corners),
               fill=colour)  # fmt: skip


def document(parts: Iterable[str], w: float, h: float, title: str) -> str:
    """The SVG document, on white; in the dark, on black."""
    background = tag("rect", width=w, height=h, fill="#ffffff", class_="ground")
    drawn = "\n".join([background, *parts])
    inside = "\n".join([tag("title", escape(title)), _dark_style(drawn), drawn])
    return tag(
        "svg", f"\n{inside}\n", xmlns="http://www.w3.org/2000/svg", class_="edgewise", width=w,
        height=h, viewBox=f"0 0 {number(w)} {number(h)}", font_family=FONT, role="img",
    ) + "\n"  # fmt: skip


def _dark_style(drawn: str) -> str:
    """Rules of CSS for the colours of a drawing; of this picture alone, also inside of a page.

    The theme of the page decides, and where it has none, what the reader prefers everywhere.
    """
    colours = [
        f'[{part}="{light}"]{{{part}:{dark}}}'
        for light, dark in DARK.items()
        for part in ("fill", "stroke")
        if f'{part}="{light}"' in drawn
    ]
    preferred = "".join(f".edgewise:not({LIGHT_PAGE} *) {colour}" for colour in colours)
    themed = "".join(f"{DARK_PAGE} .edgewise {colour}" for colour in colours)
    return tag("style", f"@media (prefers-color-scheme:dark){{{preferred}}}{themed}")


class UnknownPictureFormat(EdgewiseError):
    """Pictures are saved as SVG."""

    code = "unknown-picture-format"
    example = 'Program([R.h <= R.a]).draw().save("net.png")'
    instead = 'Program([R.h <= R.a]).draw().save("net.svg")'


class PictureTooLarge(EdgewiseError):
    """A picture of more than 400 nodes is unreadable."""

    code = "picture-too-large"
    example = "Program([R.h(V.X) <= R.a(V.X)]).solve([R.a(i)[1.0] for i in range(500)]).draw()"
    instead = (
        "Program([R.h(V.X) <= R.a(V.X)]).solve([R.a(i)[1.0] for i in range(500)]).draw(R.h(7))"
    )


@dataclass(frozen=True, repr=False)
class Picture:
    """A drawing as SVG text; notebooks show it, `save` writes it.

    >>> Picture('<svg xmlns="http://www.w3.org/2000/svg"/>')._repr_svg_()[:4]
    '<svg'
    """

    svg: str

    def __repr__(self) -> str:
        """What a console shows, which has no pictures."""
        return f'<picture of {len(self.svg):,} characters of SVG: `.save("picture.svg")`>'

    def save(self, path: str | Path) -> Path:
        """Write the picture to a file whose name ends in `.svg`.

        >>> import tempfile
        >>> from edgewise import Program, R, V
        >>> Program([R.h(V.I) <= R.x(V.I)]).draw().save(tempfile.mkdtemp() + "/rules.svg").name
        'rules.svg'
        """
        target = Path(path)
        if target.suffix.lower() != ".svg":
            raise UnknownPictureFormat(
                f"a picture is saved as SVG, not as `{target.suffix or target.name}`",
                caller(),
                f'save it as "{target.with_suffix(".svg")}"; `rsvg-convert` makes a PNG of it',
            )
        target.write_text(self.svg, encoding="utf-8")
        return target

    def _repr_svg_(self) -> str:
        return self.svg
