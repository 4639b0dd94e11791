"""All kernels, and the choice among them."""

from edgewise.errors import caller, nearest
from edgewise.kernels.attention import (
    blocks,
    csr,
    dense,
    empty,
    gather,
    permuted,
    rectangles,
    reference,
    triton_blocks,
    triton_csr,
    union,
)
from edgewise.kernels.attention.contract import Case, Implementation, cached_by_case
from edgewise.kernels.attention.errors import KernelRefuses, UnknownKernel
from edgewise.kernels.attention.planner import Choice, cheapest

IMPLEMENTATIONS: tuple[Implementation, ...] = (
    empty,
    dense,
    rectangles,
    permuted,
    triton_blocks,
    blocks,
    triton_csr,
    csr,
    gather,
    union,
    reference,
)


def choose(case: Case, kernel: str | None = None) -> Choice:
    """The kernel for `case`: the cheapest that accepts it, or the one requested by name."""
    return _chosen(case, kernel)


@cached_by_case
def _chosen(case: Case, kernel: str | None) -> Choice:
    if kernel is None:
        return cheapest(case, IMPLEMENTATIONS)
    named = {implementation.name: implementation for implementation in IMPLEMENTATIONS}
    if kernel not in named:
        near = nearest(kernel, list(named))
        help = f"did you mean `{near}`?" if near else f"choose one of {', '.join(named)}"
        raise UnknownKernel(f"there is no kernel `{kernel}`", caller(), help)
    if reason := named[kernel].refuses(case):
        raise KernelRefuses(
            f"`{kernel}` refuses: {reason}", caller(), "leave out `kernel=` to have one chosen"
        )
    return Choice(named[kernel])
