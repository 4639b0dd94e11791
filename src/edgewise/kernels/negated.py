"""Views that are negated when they are read, such as the imaginary part of a conjugate.

Operations of torch know them; a kernel that reads memory would take the numbers without the sign.
"""

from torch import Tensor


def written(x: Tensor) -> Tensor:
    """The same numbers, in memory as they are."""
    return x.resolve_neg() if x.is_neg() else x
