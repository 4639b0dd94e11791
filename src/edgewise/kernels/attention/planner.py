"""Which kernel: the cheapest that accepts, and why not the others."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from edgewise.errors import caller
from edgewise.kernels.attention.contract import Case, Implementation
from edgewise.kernels.attention.errors import NoKernel


@dataclass(frozen=True)
class Choice:
    """The kernel chosen, and the reason against each of the others.

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


def cheapest(case: Case, implementations: Sequence[Implementation]) -> Choice:
    """The implementation of least estimated cost among those that accept the case."""
    refusals: dict[str, str] = {}
    costs: dict[Implementation, float] = {}
    least = {found: _least(case, found) for found in implementations}
    for implementation in sorted(implementations, key=lambda found: least[found]):
        if reason := _too_dear(least[implementation], costs):
            refusals[implementation.name] = reason
            continue
        reason = implementation.refuses(case)
        if reason is None:
            costs[implementation] = implementation.cost(case)
        else:
            refusals[implementation.name] = reason
    if not costs:
        listed = "\n".join(f"  not {name}: {reason}" for name, reason in refusals.items())
        raise NoKernel(
            f"no kernel takes this case\n{listed}", caller(), "change what one of them names"
        )
    best = min(costs, key=lambda implementation: costs[implementation])
    for implementation, cost in costs.items():
        if implementation is not best:
            times = cost / max(costs[best], 1.0)
            refusals[implementation.name] = f"about {times:.1f}× the work of {best.name}"
    order = [i.name for i in implementations if i.name in refusals]
    return Choice(best, {name: refusals[name] for name in order})


def _least(case: Case, implementation: Implementation) -> float:
    """What a kernel costs at least, where it can tell before it is looked at closely."""
    least = getattr(implementation, "least", None)
    return 0.0 if least is None else least(case)


def _too_dear(least: float, costs: dict[Implementation, float]) -> str | None:
    """Why a kernel needs no closer look: planning takes longer than small cases themselves."""
    if not least or not costs:
        return None
    best = min(costs, key=lambda found: costs[found])
    times = least / max(costs[best], 1.0)
    return f"at least {times:.1f}× the work of {best.name}" if times >= 1.1 else None
