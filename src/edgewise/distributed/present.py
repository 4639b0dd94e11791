"""The plan of an attention on many ranks as text, from its JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

UNITS = ("B", "kB", "MB", "GB", "TB")
BANDWIDTHS = (50e9,)  # bytes a second


def table(plan: Mapping[str, Any], bandwidths: Sequence[float] = BANDWIDTHS) -> list[str]:
    """One attention: what the worst rank receives, by kind, beside all-gather and Ulysses; times
    are at this many bytes a second."""
    ranks, shared, gathered = plan["ranks"], plan["key_heads"], plan["all_gather"]
    shape = f"{plan['query_heads']} heads of {plan['size']}"
    if shared != plan["query_heads"]:
        shape += f", {shared} of keys"
    lines = [f"{plan['graph']}, {plan['tokens']:,} tokens on {ranks} ranks, {shape}"]
    lines.append(f"{'way':<28}{plan['way']}")
    rates = "".join(f"{f'{rate / 1e9:g} GB/s':>11}" for rate in bandwidths)
    lines.append(f"{'':<28}{'bytes':>10}  {'share':>9}{rates}")
    for kind, count in plan["received"].items():
        lines.append(_line(f"  {kind}", count, gathered, bandwidths))
    lines.append(_line("received, worst rank", plan["worst"], gathered, bandwidths))
    lines.append(_line("backward, worst rank", plan["worst_back"], gathered, bandwidths))
    lines.append(_line("all-gather of keys", gathered, gathered, bandwidths))
    missing = "" if shared % ranks == 0 else f"  (needs {ranks} heads of keys)"
    lines.append(_line("heads (Ulysses)", plan["heads"], gathered, bandwidths) + missing)
    lines.append(f"{'memory, worst rank':<28}{size(plan['memory']):>10}")
    lines.append(f"{'pairs, worst rank':<28}{plan['imbalance']:>9.2f}× the mean")
    return lines


def _line(name: str, count: int, gathered: int, bandwidths: Sequence[float]) -> str:
    share = f"{count / gathered:.3%}" if gathered else "-"
    times = "".join(f"{seconds(count / rate):>11}" for rate in bandwidths)
    return f"{name:<28}{size(count):>10}  {share:>9}{times}"


def size(count: float) -> str:
    """A number of bytes for people.

    >>> size(2_140_000_000)
    '2.14 GB'
    """
    for unit in UNITS[:-1]:
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} {UNITS[-1]}"


def seconds(time: float) -> str:
    """A time for people.

    >>> seconds(0.0428)
    '42.8 ms'
    """
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
        if time * factor >= 1 or unit == "µs":
            return f"{time * factor:.3g} {unit}"
    raise AssertionError
