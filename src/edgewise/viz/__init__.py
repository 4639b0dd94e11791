"""Pictures of programs and of the networks that samples ground to: SVG, drawn here."""

from edgewise.viz.picture import Picture, PictureTooLarge, UnknownPictureFormat
from edgewise.viz.program import draw_program
from edgewise.viz.solution import draw_solution

__all__ = ["Picture", "PictureTooLarge", "UnknownPictureFormat", "draw_program", "draw_solution"]
