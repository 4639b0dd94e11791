"""Every kernel, in order, and the choice among them. To add one, such as a banded kernel for a CPU,
write its file and add it to IMPLEMENTATIONS.

A kernel is a module with `name`, `refuses(case)` (why not, or None), `cost(case)` in pairs of a
large dense product, `forward` and `backward`. It may have `least(case)`, a lower bound of its cost
that is cheap to find, `bind(case, layout)`, a differentiable call of its own, and
`backward_with_lse(case, saved, dout, dlse)`, if it knows that gradient itself. One whose parts
are computed by other kernels has a `nesting` above theirs, which is 0.
"""

from dataclasses import dataclass, field

from edgewise.errors import caller, suggest
from edgewise.kernels.attention import (
    blocks,
    dense,
    empty,
    flash4,
    permuted,
    rectangles,
    reference,
    slabs,
    sliced,
    tiled,
    union,
)
from edgewise.kernels.attention.contract import Case, Implementation, cached_by_case
from edgewise.kernels.attention.edges import csr, gather, triton_csr
from edgewise.kernels.attention.errors import KernelRefuses, NoKernel, UnknownKernel
from edgewise.kernels.attention.triton import blocks as triton_blocks
from edgewise.kernels.attention.triton import decoding as triton_decoding

IMPLEMENTATIONS: tuple[Implementation, ...] = (
    empty,
    dense,
    sliced,
    rectangles,
    slabs,
    permuted,
    tiled,
    triton_decoding,
    flash4,
    triton_blocks,
    blocks,
    triton_csr,
    csr,
    gather,
    union,
    reference,
)


@dataclass(frozen=True)
class Choice:
    """The kernel chosen, and why not each of the others.

    Printed it is the chosen name, then a line `not <name>: <reason>` for each other.
    """

    implementation: Implementation
    refusals: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.implementation.name

    def __str__(self) -> str:
        lines = [f"  not {name}: {reason}" for name, reason in self.refusals.items()]
        return "\n".join([self.name, *lines])


def choose(case: Case, kernel: str | None = None) -> Choice:
    """The kernel for `case`: the cheapest that accepts it, or the one requested by name."""
    return _chosen(case, kernel)


@cached_by_case
def _chosen(case: Case, kernel: str | None) -> Choice:
    if kernel is None:
        return cheapest(case)
    named = {implementation.name: implementation for implementation in IMPLEMENTATIONS}
    if kernel not in named:
        help = suggest(kernel, list(named))
        raise UnknownKernel(f"there is no kernel `{kernel}`", caller(), help)
    if reason := named[kernel].refuses(case):
        raise KernelRefuses(
            f"`{kernel}` refuses: {reason}", caller(), "leave out `kernel=` to have one chosen"
        )
    return Choice(named[kernel])


def cheapest(case: Case, nesting: int | None = None) -> Choice:
    """The kernel of least estimated cost among those that accept the case, for a part of another
    kernel among those below its `nesting`."""
    implementations = IMPLEMENTATIONS if nesting is None else _below(nesting)
    refusals: dict[str, str] = {}
    costs: dict[Implementation, float] = {}
    least = {found: _least(case, found) for found in implementations}
    for implementation in sorted(implementations, key=lambda found: least[found]):
        if reason := _too_costly(least[implementation], costs):
            refusals[implementation.name] = reason
            continue
        reason = implementation.refuses(case)
        if reason is None:
            costs[implementation] = implementation.cost(case)
        else:
            refusals[implementation.name] = reason
    if not costs:
        listed = "\n".join(f"  not {name}: {reason}" for name, reason in refusals.items())
        raise NoKernel(f"no kernel supports this case\n{listed}", caller(), "change one of these")
    best = min(costs, key=lambda implementation: costs[implementation])
    for implementation, cost in costs.items():
        if implementation is not best:
            times = cost / max(costs[best], 1.0)
            refusals[implementation.name] = f"about {times:.1f}× the work of {best.name}"
    order = [i.name for i in implementations if i.name in refusals]
    return Choice(best, {name: refusals[name] for name in order})


def _below(nesting: int) -> tuple[Implementation, ...]:
    return tuple(x for x in IMPLEMENTATIONS if getattr(x, "nesting", 0) < nesting)


def _least(case: Case, implementation: Implementation) -> float:
    """What a kernel costs at least, where it can tell before it is looked at closely."""
    least = getattr(implementation, "least", None)
    return 0.0 if least is None else least(case)


def _too_costly(least: float, costs: dict[Implementation, float]) -> str | None:
    """Why a kernel needs no closer look: planning takes longer than small cases themselves."""
    if not least or not costs:
        return None
    best = min(costs, key=lambda found: costs[found])
    times = least / max(costs[best], 1.0)
    return f"at least {times:.1f}× the work of {best.name}" if times >= 1.1 else None
