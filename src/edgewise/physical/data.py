"""Grounded data: what a model reads, checked and joined once for many steps."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import EdgewiseError, caller, counted, safe_repr
from edgewise.ground.joins.recorded import RecordedJoins
from edgewise.ground.source import Live
from edgewise.inputs.facts import FactTables
from edgewise.inputs.kinds import Input, ragged
from edgewise.inputs.prepare import count_samples
from edgewise.layouts.ragged import Ints
from edgewise.notebook import html_table
from edgewise.physical.demand.need import Chooser
from edgewise.physical.demand.wanted import Want
from edgewise.physical.output import Outputs, Returned
from edgewise.physical.plan import Signature
from edgewise.physical.step import Step
from edgewise.physical.tracing import handle

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


class BadSamples(EdgewiseError, IndexError):
    """Batches are taken of the samples of a ragged batch, by their numbers from 0 on."""

    code = "bad-samples"
    example = """\
model = Program([R.h(V.X) <= R.a(V.X)]).compile(R.h)
data = model.ground(a=ragged([torch.ones(3), torch.ones(2)]))
model(data[[0, 2]])"""
    instead = """\
model = Program([R.h(V.X) <= R.a(V.X)]).compile(R.h)
data = model.ground(a=ragged([torch.ones(3), torch.ones(2)]))
model(data[[0, 1]])"""


@dataclass(frozen=True, eq=False)
class Demand:
    """Some rows of the outputs of a plan on other data, perhaps with chosen groundings alone."""

    origin: Data
    want: Want
    choose: Chooser | None = None


@dataclass(frozen=True, eq=False)
class ReadyCall:
    """A call of a model with inputs like earlier ones: its plan, and what it reads before them."""

    plan: Callable[..., Any]
    first: list[Tensor]
    weights: Signature
    outputs: Outputs


@dataclass(frozen=True, eq=False)
class ChosenSamples:
    """Some samples of other data, by their numbers."""

    origin: Data
    numbers: Ints


Numbers = int | slice | Sequence[int] | Tensor | np.ndarray


class Data:
    """Grounded inputs: keys and facts, and what has been built for the shapes seen so far.

    Of a ragged batch, `data[[3, 0, 7]]` are some samples in this order, and `index` their numbers;
    `len(data)` is how many there are. `step` is the number of a batch that `model.batches` made.

    >>> from edgewise import Program, R, V, ragged
    >>> model = Program([R.h(V.I) <= R.x(V.I)]).compile(R.h)
    >>> data = model.ground(x=ragged([torch.ones(3), torch.ones(5)]))
    >>> len(data), model(data[[1]]).data.shape
    (2, torch.Size([5]))
    """

    index: Tensor
    step: int
    is_partitioned = False  # whether each rank has the rows of some nodes

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
        self.hides: frozenset[str] = frozenset()  # relations whose keys come with a step
        self.to_come = False  # whether keys beyond dense axes are of rows that are appended later
        self._hiding: dict[frozenset[str], Data] = {}
        self._parts: dict[Any, Data] = {}
        self.chosen: ChosenSamples | None = None  # of which data it has some samples
        self.batched: frozenset[str] = frozenset()  # dense inputs whose first axis is the sample
        self.templates: dict[Any, Any] = {}  # plans for batches of its samples
        self.joined: str | None = None  # why its samples were joined, not gathered
        self.prepared: dict[Any, ReadyCall] = {}  # calls like earlier ones
        self.volatile: frozenset[str] = frozenset()  # values that changed after grounding
        self._seen: dict[str, tuple[Live, Any]] = {}
        self.of = ""  # the handle of its model
        self.recorded: RecordedJoins | None = None  # of the file that it was read from
        self.handle = handle(self)

    def save(self, path: str | Path) -> None:
        """Write the inputs and the joins to one file that `model.load_data` reads: without joining.

        What is joined once all shapes are known, at the first call, is saved after it. The rules
        are joined again to be written: saving takes as long as grounding.

        >>> import tempfile
        >>> from edgewise import Program, R, V
        >>> model = Program([R.h(V.I) <= (R.x(V.J), R._edge(V.J, V.I))]).compile(R.h)
        >>> data = model.ground(x=torch.tensor([1.0, 2.0]), edge=[(0, 1), (1, 2)])
        >>> data.save(path := tempfile.mkdtemp() + "/graph.edgewise-data")
        >>> model(model.load_data(path)).data.tolist()
        [1.0, 2.0]
        """
        import_module("edgewise.save").save_data(self, path)

    def _output(self, model: Any, inputs: Mapping[str, Any], as_rows: bool) -> Returned:
        """What a model computes of the data of this rank; see `edgewise.distributed`."""
        raise NotImplementedError

    def keep(self, key: Hashable, step: Step) -> None:
        """Remember what was built, and the values that it takes to be constant."""
        object.__setattr__(step, "handle", handle(step))
        if not self.padded:
            self._forget_oldest(step.bytes)
        self.built[key] = step
        for name, live in lives(step).items():
            self.watch(name, live)
        note_trained(self, step)

    def watch(self, name: str, live: Live) -> None:
        """Take the current values to be constant, until they are written into."""
        self._seen[name] = live, live.mark

    def _forget_oldest(self, more: int) -> None:
        """Make way for what takes this many bytes: many lengths in a row must not add up."""
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

    def facts_stand(self) -> bool:
        """Whether the values of facts are those of grounding, and none is trained."""
        seen = {name: seen for name, seen in self._seen.items() if name not in self.inputs}
        stale = {name for name, (live, mark) in seen.items() if live.mark != mark}
        return not (stale or self.volatile.difference(self.inputs))

    def live(self, step: Step) -> dict[str, Tensor]:
        """The values that were trained or written into, as they are now."""
        if not self.volatile:
            return {}
        return {n: live.column() for n, live in lives(step).items() if n in self.volatile}

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

    def hiding(self, empty: Mapping[str, Input]) -> Data:
        """The same data for steps that bring keys of relations; here these are `empty`."""
        names = frozenset(empty)
        if names not in self._hiding:
            found = Data(self.model, {**self.inputs, **empty}, self.facts, self.open)
            found.hides = names
            self._hiding[names] = found
        return self._hiding[names]

    @property
    def samples(self) -> int | None:
        """The samples of a ragged batch.

        >>> import torch
        >>> from edgewise import Program, R, V, ragged
        >>> model = Program([R.h(V.I) <= R.x(V.I)]).compile(R.h)
        >>> model.ground(x=ragged([torch.ones(2), torch.ones(3)])).samples
        2
        """
        return count_samples(self.inputs, self.facts)

    def __len__(self) -> int:
        count = self.samples
        if count is None:
            raise _no_samples()
        return count

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, numbers: Numbers) -> Data:
        return self.of_samples(self.numbers_of(numbers))

    def numbers_of(self, numbers: Numbers) -> Ints:
        """The samples that an index chooses."""
        if self.is_part:
            raise BadSamples(
                "the data was grounded for some rows",
                caller(),
                "take samples of data that is not: `model(data[[0, 1]], want=...)`",
            )
        return _numbers(numbers, len(self))

    @property
    def is_part(self) -> bool:
        """Whether it is for some rows of the outputs."""
        return self.demand is not None

    def of_samples(self, numbers: Ints) -> Data:
        """The same data of some samples, whose numbers are known to be right."""
        chosen = numbers.tolist()
        inputs: dict[str, Input] = dict(self.inputs)
        for name, item in self.inputs.items():
            if isinstance(item, ragged):
                inputs[name] = ragged([item.samples[number] for number in chosen])
            elif name in self.batched and isinstance(item, Tensor):
                inputs[name] = item[torch.from_numpy(numbers).to(item.device)]
        facts = None if self.facts is None else self.facts.of_samples(numbers)
        found = Data(self.model, inputs, facts, self.open)
        found.chosen, found.batched = ChosenSamples(self, numbers), self.batched
        found.index = torch.from_numpy(numbers)
        return found

    @property
    def stated(self) -> set[str]:
        """The relations that facts give."""
        return set() if self.facts is None else set(self.facts.tables)

    def __getstate__(self) -> dict[str, Any]:
        # a copy builds its own when it needs it
        empty: dict[str, Any] = {"built": {}, "prepared": {}, "_seen": {}, "parts": {}}
        return (
            self.__dict__ | empty | {"_parts": {}, "_hiding": {}, "templates": {}, "chosen": None}
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self.handle = handle(self)  # a copy has its own

    def __repr__(self) -> str:
        return f"<data: {', '.join(self.inputs) or 'facts'}>"

    def _repr_html_(self) -> str:
        rows = [(name, *_described(item)) for name, item in self.inputs.items()]
        tables = {} if self.facts is None else self.facts.tables
        rows += [(name, "facts", f"{len(table.keys):,} rows") for name, table in tables.items()]
        samples = "" if self.samples is None else f", {counted(self.samples, 'sample')}"
        caption = f"data: {counted(len(rows), 'relation')}{samples}"
        return html_table(caption, ["relation", "holds", "size"], rows, len(rows))


def _described(item: Input) -> tuple[str, str]:
    """What an input is, and its size."""
    if isinstance(item, ragged):
        return "ragged", counted(len(item.samples), "sample")
    if isinstance(item, Tensor):
        return "dense", str(tuple(item.shape))
    kind = "keys" if item.values is None else f"keys, values {tuple(item.values.shape[1:])}"
    return kind, counted(item.keys.shape[1], "row")


def _no_samples() -> BadSamples:
    return BadSamples(
        "the data is not a ragged batch, of which samples could be taken",
        caller(),
        "ground samples: `model.ground(x=ragged([...]))`",
    )


def _numbers(numbers: Any, count: int) -> Ints:
    """The numbers of samples; negative ones count from the end, as those of a list."""
    if isinstance(numbers, slice):
        return np.arange(count)[numbers]
    try:
        found = np.asarray(numbers.cpu() if isinstance(numbers, Tensor) else numbers)
        found = found.reshape(-1) if found.size else np.zeros(0, np.int64)
    except (TypeError, ValueError, RuntimeError):
        found = np.zeros(1)
    if found.dtype.kind not in "iu":
        raise BadSamples(
            f"samples are chosen by {safe_repr(numbers)}",
            caller(),
            "give their numbers: `data[[3, 0, 7]]`, a tensor of integers or a slice",
        )
    wrong = found[(found < -count) | (found >= count)]
    if len(wrong):
        raise BadSamples(
            f"there is no sample {int(wrong[0])}: the data has {counted(count, 'sample')}",
            caller(),
            f"give numbers from 0 to {count - 1}" if count else "ground some samples",
        )
    return np.where(found < 0, found + count, found).astype(np.int64)


def lives(step: Step) -> dict[str, Live]:
    sources = step.executable.sources.items()
    return {name: source.live for name, source in sources if source.live is not None}


def note_trained(data: Data, step: Step) -> None:
    """Values that are trained are taken from the caller's tensors at every call."""
    data.volatile |= {name for name, live in lives(step).items() if live.trained}
