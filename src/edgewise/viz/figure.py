"""Figures of matplotlib that notebooks show by themselves."""

from io import BytesIO
from typing import Any

from matplotlib.figure import Figure

INK, QUIET, BLUE, ORANGE = "#1f2933", "#9aa5b1", "#2563eb", "#ea580c"


class NotebookFigure(Figure):
    """A figure without pyplot: shown as the result of a cell, drawn on white."""

    def __init__(self, **options: Any) -> None:
        super().__init__(facecolor="white", **options)

    def _repr_png_(self) -> bytes:
        file = BytesIO()
        self.savefig(file, format="png")
        return file.getvalue()
