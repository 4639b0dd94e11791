"""Pictures: programs and networks of groundings as SVG, attention and graphs as figures."""

from typing import TYPE_CHECKING, Any

from edgewise.viz.program import draw_program
from edgewise.viz.solution import draw_solution
from edgewise.viz.svg import Picture, PictureTooLarge, UnknownPictureFormat

if TYPE_CHECKING:
    from edgewise.viz.attention_map import attention

__all__ = [
    "Picture",
    "PictureTooLarge",
    "UnknownPictureFormat",
    "attention",
    "draw_program",
    "draw_solution",
]


def __getattr__(name: str) -> Any:
    """`attention` needs matplotlib, which the other pictures do not."""
    if name == "attention":
        from edgewise.graphs.drawing import require_package

        require_package("matplotlib")
        from edgewise.viz.attention_map import attention

        return attention
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
