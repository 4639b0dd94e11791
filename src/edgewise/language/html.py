"""Being written."""

from typing import Any


def html(*a: Any) -> Any: ...
