"""Grounded data: what a model reads, checked and joined once for many steps."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from edgewise.errors import EdgewiseError
from edgewise.ground.source import Live
from edgewise.inputs.facts import FactTables
from edgewise.inputs.kinds import Input
from edgewise.physical.demand import Chooser
from edgewise.physical.output import Outputs
from edgewise.physical.plan import PhysicalPlan, Signature
from edgewise.physical.step import Step
from edgewise.physical.tracing import handle
from edgewise.physical.want import Want

WISHES = 16  # sets of wanted rows that one data holds plans for
LENGTHS, BUDGET = 64, 256 << 20  # for how many shapes, and in how many bytes, plans are held


class ForeignData(EdgewiseError):
    """Data is joined for the rules of one model and holds nothing that another could use."""

    code = "foreign-data"
    example = """\
one, two = (Program([R.h(V.X) <= R.a(V.X)]).compile(R.h) for _ in range(2))
two(one.ground(a=torch.ones(3)))"""
    instead = """\
one, two = (Program([R.h(V.X) <= R.a(V.X)]).compile(R.h) for _ in range(2))
two(two.ground(a=torch.ones(3)))"""


@dataclass(frozen=True, eq=False)
class Demand:
    """Some rows of the outputs of a plan on other data, perhaps with chosen groundings alone."""

    origin: Data
    want: Want
    choose: Chooser | None = None


@dataclass(frozen=True, eq=False)
class ReadyCall:
    """A call of a model with inputs like earlier ones: its plan, and what it reads before them."""

    plan: PhysicalPlan
    first: list[Tensor]
    weights: Signature
    outputs: Outputs


class Data:
    """Grounded inputs: keys and facts, and what has been built for the shapes seen so far."""

    def __init__(
        self,
        model: int,
        inputs: dict[str, Input],
        facts: FactTables | None = None,
        open: bool = True,
        padded: bool = False,
    ) -> None:
        self.model = model
        self.inputs = inputs
        self.facts = facts
        self.open = open  # whether relations that are absent may still come with a call
        self.padded = padded  # one sample of a batch: what is built is all there is
        self.built: dict[Any, Step] = {}
        self.parts: dict[Any, Any] = {}  # plans of which parts are taken
        self.demand: Demand | None = None  # the part of another's plan that this one has
        self._parts: dict[Any, Data] = {}
        self.prepared: dict[Any, ReadyCall] = {}  # calls like earlier ones
        self.volatile: frozenset[str] = frozenset()  # values that changed after grounding
        self._seen: dict[str, tuple[Live, Any]] = {}
        self.handle = handle(self)

    def keep(self, key: Hashable, step: Step) -> None:
        """Remember what was built, and the values that it takes to be constant."""
        object.__setattr__(step, "handle", handle(step))
        if not self.padded:
            self._forget_oldest(step.bytes)
        self.built[key] = step
        for name, live in _lives(step).items():
            self._seen[name] = live, live.mark
            if live.trained:
                self.volatile |= {name}

    def _forget_oldest(self, more: int) -> None:
        """Make way for what takes so many bytes: many lengths in a row must not add up."""
        total = more + sum(step.bytes for step in self.built.values())
        while self.built and (len(self.built) >= LENGTHS or total > BUDGET):
            old = self.built.pop(next(iter(self.built)))
            total -= old.bytes
            calls = self.prepared.items()
            self.prepared = {key: call for key, call in calls if call.outputs is not old.outputs}

    def forget_changed(self) -> None:
        """Leave what was built if values that were taken to be constant are not."""
        if not self._seen:
            return
        changed = {name for name, (live, mark) in self._seen.items() if live.mark != mark}
        if changed - self.volatile:
            self.volatile |= changed
            self._seen.clear()
            self.prepared.clear()
            if not self.padded:
                self.built.clear()

    def live(self, step: Step) -> dict[str, Tensor]:
        """The values that were trained or written into, as they are now."""
        if not self.volatile:
            return {}
        return {n: live.column() for n, live in _lives(step).items() if n in self.volatile}

    def wanting(self, want: Want) -> Data:
        """The same data for some rows of the outputs; equal wishes share what is built for them."""
        mark = want.mark
        if mark not in self._parts:
            while len(self._parts) >= WISHES:
                del self._parts[next(iter(self._parts))]
            self._parts[mark] = self.part(Demand(self, want))
        return self._parts[mark]

    def part(self, demand: Demand, more: Mapping[str, Input] | None = None) -> Data:
        """Data that is computed in part; `more` are dense inputs beside its own."""
        found = Data(self.model, {**self.inputs, **(more or {})}, self.facts, self.open)
        found.demand = demand
        return found

    @property
    def stated(self) -> set[str]:
        """The relations that facts give."""
        return set() if self.facts is None else set(self.facts.tables)

    def __getstate__(self) -> dict[str, Any]:
        # a copy builds its own when it needs it
        empty: dict[str, Any] = {"built": {}, "prepared": {}, "_seen": {}, "parts": {}}
        return self.__dict__ | empty | {"_parts": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self.handle = handle(self)  # a copy has its own

    def __repr__(self) -> str:
        return f"<data: {', '.join(self.inputs) or 'facts'}>"


def _lives(step: Step) -> dict[str, Live]:
    sources = step.executable.sources.items()
    return {name: source.live for name, source in sources if source.live is not None}
