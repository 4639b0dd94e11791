"""Inputs by name, read and checked before anything is joined or computed."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.checks.evaluation import NotANumber
from edgewise.errors import EdgewiseError, Place, caller, suggest
from edgewise.inputs.collections import read_collection
from edgewise.inputs.errors import BadInput
from edgewise.inputs.facts import FactTables, read_facts
from edgewise.inputs.kinds import (
    Input,
    has_precision,
    numbers,
    parts,
    ragged,
    refuse_layout,
    rows,
    tensor_copy,
    with_own_keys,
)
from edgewise.inputs.prepare import strings
from edgewise.language import nodes
from edgewise.language.program import Program
from edgewise.language.statements import arities_of, atoms
from edgewise.plan.nodes import Plan
from edgewise.weights import PRECISIONS

FACTS = "facts are grounded first: `data = model.ground(facts=...)`, then `model(data)`"


class UnknownInput(EdgewiseError):
    """Inputs are passed by the names of data relations; a misspelt one would be ignored."""

    code = "unknown-input"
    example = "Program([R.h(V.X) <= R.a(V.X)]).compile(R.h)(b=torch.ones(3))"
    instead = "Program([R.h(V.X) <= R.a(V.X)]).compile(R.h)(a=torch.ones(3))"


class MissingInput(EdgewiseError):
    """A relation that no rule derives must be passed, even if it is empty."""

    code = "missing-input"
    example = "Program([R.h(V.X) <= (R.a(V.X), R._b(V.X))]).compile(R.h)(a=torch.ones(3))"
    instead = (
        "Program([R.h(V.X) <= (R.a(V.X), R._b(V.X))]).compile(R.h, fill=0.0)"
        "(a=torch.ones(3), b=torch.tensor([[0, 2]]))"
    )


class DtypeMismatch(EdgewiseError):
    """A model computes in one precision; an input in another would be converted silently."""

    code = "dtype-mismatch"
    example = "Program([R.h(V.X) <= R.a(V.X)]).compile(R.h)(a=torch.ones(3, dtype=torch.float64))"
    instead = (
        "Program([R.h(V.X) <= R.a(V.X)]).compile(R.h).double()"
        "(a=torch.ones(3, dtype=torch.float64))"
    )


class DeviceMismatch(EdgewiseError):
    """A model computes on one device; copying inputs at every step would be silently slow."""

    code = "device-mismatch"
    example = 'Program([R.h(V.X) <= R.a(V.X)]).compile(R.h)(a=torch.ones(3, device="meta"))'
    instead = 'Program([R.h(V.X) <= R.a(V.X)]).compile(R.h)(a=torch.ones(3, device="cpu"))'


class KeysAtStep(EdgewiseError):
    """Keys are joined once, when grounding: a step is tensor work on what was joined. Only keys
    of relations that rules negate come with a step: they leave out what was joined."""

    code = "keys-at-step"
    example = """\
model = Program([R.h(V.X) <= (R.a(V.X), R._b(V.X))]).compile(R.h, fill=0.0)
model(model.ground(), a=torch.ones(3), b=torch.tensor([[0, 2]]))"""
    instead = """\
model = Program([R.h(V.X) <= (R.a(V.X), R._b(V.X))]).compile(R.h, fill=0.0)
model(model.ground(b=torch.tensor([[0, 2]])), a=torch.ones(3))"""


class InputReader:
    """Reads the inputs of one model, by name, and facts."""

    def __init__(self, program: Program, plan: Plan, before: Plan) -> None:
        """`before` is the plan without passes, whose constants facts may have too."""
        self.program = program
        self.arities = arities_of(plan.rules, plan.facts)  # of relations that the output needs
        self.relations = arities_of(program.rules, program.facts)  # all of the program
        own = {rule.head.relation for rule in plan.rules}
        own |= {fact.atom.relation for fact in plan.facts}
        self.required = tuple(name for name in self.arities if name not in own)
        self._strings = {*strings(plan), *strings(before)}
        valued = {
            atom.relation
            for rule in before.rules
            for atom in atoms(rule)
            if isinstance(atom, nodes.Atom) and atom.carries_value and not atom.negated
        }
        self._conditions = {name for name in self.required if name not in valued}

    def read(self, inputs: Mapping[str, Any], unit: Tensor) -> dict[str, Input]:
        """Inputs of relations that the output needs, of the precision and device of `unit`."""
        check_precision(unit)
        found = {}
        casts = unit.device.type != "meta" and torch.is_autocast_enabled(unit.device.type)
        self.refuse_unknown(inputs)
        for name, item in inputs.items():
            found[name] = read_one(name, item, self.arities[name], unit.dtype)
            if isinstance(found[name], rows) and torch.compiler.is_exporting():
                raise KeysAtStep(
                    f"`{name}` has keys, and joins of keys are not exported",
                    caller(),
                    f"join before: `data = model.ground({name}=...)`, and export a module whose "
                    "`forward` returns `model(data, x=x)`",
                )
            if name in self._conditions and self.arities[name] > 1:
                refuse_ignored(name, item if isinstance(item, rows) else found[name])
            if not isinstance(item, Tensor | rows | ragged | numbers):
                check_numbers({name: found[name]})
            for part in parts(found[name]):
                keys = not isinstance(found[name], Tensor) and not part.is_floating_point()
                if not (keys and part.device.type == "cpu"):
                    check_device(name, part.device, unit)
                if part.is_floating_point() and not casts:
                    check_dtype(name, part.dtype, unit, isinstance(item, np.ndarray))
        return found

    def read_to_ground(self, inputs: Mapping[str, Any], unit: Tensor) -> dict[str, Input]:
        """Inputs that are joined once: with keys of their own, and values that are numbers."""
        found = {name: with_own_keys(item) for name, item in self.read(inputs, unit).items()}
        check_numbers(found)
        return found

    def facts(self, facts: Iterable[Any] | ragged | None) -> FactTables | None:
        if facts is None:
            return None
        return read_facts(facts, self.program, self._strings, self._check_facts)

    def _check_facts(self, facts: tuple[nodes.Atom, ...]) -> None:
        """Refuse facts of relations that the program does not have, and values like NaN."""
        for atom in facts:
            if atom.relation not in self.relations and atom.relation not in self.arities:
                raise _unknown(atom.relation, self.relations, atom.place)
            value = atom.weight.value if atom.weight is not None else None
            thing = value.thing if isinstance(value, nodes.Opaque) else value
            if thing is not None and bool(torch.as_tensor(thing).isnan().any()):
                raise NotANumber(
                    f"the value of `{atom!r}` is not a number",
                    atom.place or caller(),
                    "drop the fact",
                )

    def refuse_unknown(self, names: Iterable[str]) -> None:
        """Refuse a name that is not one of the relations that the output needs."""
        for name in names:
            if name not in self.arities:
                if name in self.relations:
                    raise UnknownInput(
                        f"the output does not read `{name}`", caller(), "leave it out"
                    )
                raise _unknown(name, self.arities)

    def missing(self, names: Container[str]) -> str | None:
        """A required relation that is not among `names`."""
        return next((name for name in self.required if name not in names), None)

    def refuse_missing(self, names: Container[str]) -> None:
        missing = self.missing(names)
        if missing is not None:
            raise MissingInput(
                f"`{missing}` is missing", caller(), f"call `model({missing}=...)` or ground it"
            )

    def unnamed(self, kind: str, callee: str = "model") -> BadInput:
        """The error for a thing of this kind in the place of grounded data."""
        names = ", ".join(f"{name}=..." for name in self.required or ("x",))
        help = f"name it: `{callee}({names})`"
        if kind == "list":
            help += f"; {FACTS}"
        elif callee == "model":
            help += "; only what `model.ground(...)` gives has none"
        return BadInput(f"an input of type {kind} was passed without a name", caller(), help)


def _unknown(name: str, known: Mapping[str, int], place: Place | None = None) -> UnknownInput:
    others = FACTS if name == "facts" else f"its relations are {', '.join(known)}"
    help = suggest(name, list(known), others)
    return UnknownInput(f"the program has no relation `{name}`", place or caller(), help)


def kinds_of(inputs: Mapping[str, Any]) -> tuple[tuple[str, torch.dtype, str], ...]:
    """The precision and the device of every input that is real numbers."""
    tensors = [(n, t) for n, t in inputs.items() if isinstance(t, Tensor)]
    return tuple([(n, t.dtype, str(t.device)) for n, t in tensors if t.is_floating_point()])


def check_dtype(name: str, dtype: torch.dtype, unit: Tensor, is_array: bool = False) -> None:
    if dtype != unit.dtype:
        own = str(unit.dtype).removeprefix("torch.")
        other = f'{name}.astype("{own}")' if is_array else f"{name}.to({unit.dtype})"
        raise DtypeMismatch(
            f"`{name}` is {dtype}, the model {unit.dtype}",
            caller(),
            f"convert one of them: `{other}` or `model.to({dtype})`",
        )


def check_precision(unit: Tensor) -> None:
    """Refuse a model that was converted to numbers which torch only stores."""
    if unit.dtype not in PRECISIONS:
        raise DtypeMismatch(
            f"the model is {unit.dtype}, in which torch does not compute",
            caller(),
            "convert it: `model.to(torch.bfloat16)`",
        )


def check_device(name: str, device: torch.device, unit: Tensor) -> None:
    if device != unit.device:
        raise DeviceMismatch(
            f"`{name}` is on {device}, the model on {unit.device}",
            caller(),
            "move one of them: `x.to(device)` or `model.to(device)`",
        )


def check_numbers(inputs: Mapping[str, Input]) -> None:
    """Refuse values that are not numbers; done when grounding, not at every step."""
    for name, item in inputs.items():
        for part in parts(item):
            if part.is_floating_point() and bool(part.isnan().any()):
                raise NotANumber(
                    f"`{name}` holds a value that is not a number",
                    caller(),
                    "drop those rows, or replace them: `torch.nan_to_num(x)`",
                )


def refuse_ignored(name: str, item: Input) -> None:
    """Refuse values of a relation that rules read as a condition alone, where they seem to say
    something: a zero of a dense tensor holds as well."""
    help = f"to read its values, write `R.{name}(...)` in a rule; "
    if isinstance(item, Tensor) and _has_zeros(item):
        raise BadInput(
            f"`{name}` is a condition in every rule; in a dense tensor all pairs hold, zeros too",
            caller(),
            help + "keys are integers, `x.long()`; of a mask, `mask.nonzero().T`",
        )
    if isinstance(item, rows) and item.are_combined:
        raise BadInput(
            f"`{name}` is a condition in every rule, which holds once however often it is listed",
            caller(),
            help + "else `duplicates='once'`",
        )


def _has_zeros(tensor: Tensor) -> bool:
    """Whether a value is 0; not asked of tensors without numbers, as those of a trace."""
    known = not (tensor.is_meta or torch.compiler.is_compiling())
    return known and bool((tensor == 0).any())


def step_tensor(name: str, item: Input) -> Tensor:
    """What may come with a step: a tensor of values."""
    if isinstance(item, Tensor):
        return item
    raise KeysAtStep(
        f"`{name}` has keys, which are joined when grounding",
        caller(),
        f"give it to `model.ground({name}=...)`",
    )


def read_one(name: str, item: Any, arity: int, dtype: torch.dtype = torch.float32) -> Input:
    """An input as a tensor of values, rows, or a batch of those; numbers of which nobody chose
    the precision, as those of lists, get this one."""
    if isinstance(item, numbers):
        return item.on(name, arity)
    if isinstance(item, ragged):
        return ragged([_sample(name, sample, arity, dtype) for sample in item.samples])
    if isinstance(item, rows):
        return item.in_precision(dtype)
    if not (isinstance(item, Tensor) and item.layout == torch.strided):
        held = read_collection(name, item, arity)
        if held is not None:
            if isinstance(held, rows):
                return held.in_precision(dtype)
            return held if has_precision(item) else held.to(dtype)
    for reader in READERS:
        found = reader(name, item)
        if found is not None:
            return found
    if isinstance(item, str | PurePath) or type(item).__module__.startswith(("duckdb", "_duckdb")):
        raise BadInput(
            f"`{name}` is a {type(item).__name__}: keys in memory, or a table on disk?",
            caller(),
            f"in memory, `{name}=rows(pyarrow.parquet.read_table(path))`; joined where it is, "
            f"`{name}=edgewise.data.on_disk(path)`, also of a query of DuckDB",
        )
    raise BadInput(f"`{name}` has type {type(item).__name__}", caller(), _instead(item))


def _instead(item: object) -> str:
    """What to give in the place of an object that is no input."""
    if isinstance(item, Iterator):
        return "list it: `list(...)`"
    if hasattr(item, "rows_between"):
        return "a pattern is an atom of a rule, `window(1)(V.I, V.J)`; as keys, `graph.edges(n)`"
    if hasattr(item, "edge_index"):
        return "give its tensors by their names here: `x=data.x, edge=data.edge_index`"
    return (
        "give a float tensor (dense), an integer tensor (keys), `rows(...)`, `ragged([...])`, a "
        "list of tuples (keys), a mapping from key to value, a frame or a networkx graph"
    )


def _sample(name: str, item: Any, arity: int, dtype: torch.dtype) -> rows | Tensor:
    if isinstance(item, numbers):
        raise BadInput(
            f"a sample of `{name}` is `numbers`",
            caller(),
            "pad the samples to one length, `numbers(padded)`, and give the padding as a mask",
        )
    found = read_one(name, item, arity, dtype)
    if isinstance(found, ragged):
        raise BadInput(
            f"a sample of `{name}` is itself a batch", caller(), "one batch holds plain samples"
        )
    return found


def tensor(name: str, item: Any) -> Tensor | rows | None:
    """Real numbers are values, integers are keys."""
    if not isinstance(item, Tensor):
        return None
    refuse_layout(item, f"`{name}`")
    if item.is_complex():
        raise BadInput(f"`{name}` has complex numbers", caller(), "give real ones")
    return item if item.is_floating_point() else rows(item)


def array(name: str, item: Any) -> Tensor | rows | None:
    """What has numpy's `__array__`, read as a tensor."""
    if not (hasattr(item, "__array__") and hasattr(item, "dtype")):
        return None
    try:
        return tensor(name, tensor_copy(item))
    except (TypeError, ValueError):
        raise BadInput(
            f"`{name}` is an array of {item.dtype}", caller(), "give numbers: floats or integers"
        ) from None


def networkx_graph(name: str, graph: Any) -> rows | None:
    """The edges of a networkx graph; an undirected one has each edge both ways."""
    if not (hasattr(graph, "edges") and hasattr(graph, "nodes")):
        return None
    ends = [(_key(a), _key(b)) for a, b in graph.edges()]
    pairs = [(a, b) for a, b in ends if a is not None and b is not None]
    if len(pairs) != graph.number_of_edges():
        raise BadInput(
            f"the nodes of the graph for `{name}` are not integers or strings",
            caller(),
            "relabel them: `networkx.convert_node_labels_to_integers(graph)`",
        )
    if not graph.is_directed():
        pairs = list(dict.fromkeys([*pairs, *((b, a) for a, b in pairs)]))
    return rows(pairs) if pairs else rows(torch.zeros(2, 0, dtype=torch.int64))


def _key(node: Any) -> int | str | None:
    """A node that is a string or an integer, also one of numpy's; True and False are not."""
    if isinstance(node, str):
        return str(node)
    if isinstance(node, bool) or not hasattr(node, "__index__") or hasattr(node, "__len__"):
        return None
    return int(node)


# in this order: each gives None for what it does not read
READERS: tuple[Callable[[str, Any], Tensor | rows | None], ...] = (tensor, array, networkx_graph)
