"""SVG pictures of programs and of the networks that samples ground to."""

from edgewise.viz.program import draw_program
from edgewise.viz.solution import draw_solution
from edgewise.viz.svg import Picture, PictureTooLarge, UnknownPictureFormat

__all__ = ["Picture", "PictureTooLarge", "UnknownPictureFormat", "draw_program", "draw_solution"]
