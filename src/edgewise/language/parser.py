"""Being written."""

from typing import Any


def parser(*a: Any) -> Any: ...
