"""A picture: its SVG, shown by notebooks and saved to a file."""

from dataclasses import dataclass, field
from pathlib import Path

from edgewise.errors import EdgewiseError, caller


class UnknownPictureFormat(EdgewiseError):
    """Pictures are saved as SVG, which browsers, editors and converters all read."""

    code = "unknown-picture-format"
    example = 'Program([R.h <= R.a]).draw().save("net.png")'
    instead = 'Program([R.h <= R.a]).draw().save("net.svg")'


class PictureTooLarge(EdgewiseError):
    """A network of more than a few hundred nodes cannot be read as a picture."""

    code = "picture-too-large"
    example = "Program([R.h(V.X) <= R.a(V.X)]).solve([R.a(i)[1.0] for i in range(500)]).draw()"
    instead = (
        "Program([R.h(V.X) <= R.a(V.X)]).solve([R.a(i)[1.0] for i in range(500)]).draw(R.h(7))"
    )


@dataclass(frozen=True)
class Picture:
    """A drawing as SVG text; notebooks show it, `save` writes it.

    >>> Picture('<svg xmlns="http://www.w3.org/2000/svg"/>')._repr_svg_()[:4]
    '<svg'
    """

    svg: str = field(repr=False)

    def save(self, path: str | Path) -> Path:
        """Write the picture to a file whose name ends in `.svg`."""
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
