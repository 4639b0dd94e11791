"""Being written."""

from typing import Any


def text(*a: Any) -> Any: ...
