"""Figures of matplotlib that notebooks show by themselves, on light and on dark pages."""

from base64 import b64encode
from io import BytesIO
from typing import Any

from matplotlib.figure import Figure

from edgewise.viz.svg import DARK_PAGE, LIGHT_PAGE

INK, QUIET, BLUE, ORANGE = "#1f2933", "#6b7785", "#2563eb", "#ea580c"
DARK = "{filter:invert(1) hue-rotate(180deg)}"  # black is white, and blue stays blue
STYLE = (
    f"@media (prefers-color-scheme:dark){{.edgewise-figure:not({LIGHT_PAGE} *){DARK}}}"
    f"{DARK_PAGE} .edgewise-figure{DARK}"
)


class NotebookFigure(Figure):
    """A figure without pyplot, shown as the result of a cell: on the ground of its page.

    A page without our style, and a file, have it on white.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(facecolor="white", **options)

    def _repr_html_(self) -> str:
        image = b64encode(self._drawn(transparent=True)).decode()
        shown = f'style="max-width:100%" alt="figure" src="data:image/png;base64,{image}"'
        return f'<style>{STYLE}</style><img class="edgewise-figure" {shown}>'

    def _repr_png_(self) -> bytes:
        return self._drawn(transparent=False)

    def _drawn(self, *, transparent: bool) -> bytes:
        file = BytesIO()
        self.savefig(file, format="png", transparent=transparent)
        return file.getvalue()
