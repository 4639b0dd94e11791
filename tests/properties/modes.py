"""The modes in which random programs are compared with the oracle."""

import random
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from edgewise import EdgewiseError, F, Program, R, V, W, pipeline, ragged, rows
from edgewise.data import on_disk
from edgewise.errors import EdgewiseWarning
from edgewise.graphs import causal, window
from edgewise.ground import magic_sets
from edgewise.language import nodes
from edgewise.module import Model, Relation
from edgewise.physical.demand import partial_grounding
from edgewise.physical.passes import gathers
from tests.properties.attentions import difference
from tests.properties.evaluable import INPUTS, case_of
from tests.properties.oracle import Key, Oracle, Refused, initial, order

Found = dict[Key, Tensor]
PASSES = [step.name for step in pipeline.PASSES]
# tensors: of numbers and vectors, whose number of axes says which they are
FILLED = {r.name: r for r in INPUTS if r.name in ("a", "b", "x", "y", "e", "f")}
SIZE = 4
FILL = 7.25


class Difference(Exception):
    """The package gives something else than the oracle."""


class Skipped(Exception):
    """The mode has nothing to say about this case, and says why."""


@dataclass(frozen=True)
class Trial:
    """A program, its facts and its output: what the oracle and the package are both given."""

    program: Program
    facts: tuple[nodes.Atom, ...]
    output: str
    seed: int
    without: tuple[str, ...] = ()
    weights: dict[str, Tensor] = field(default_factory=dict)
    learnable: tuple[str, ...] = ()

    def random(self) -> random.Random:
        return random.Random(self.seed)


def trial_of(seed: int) -> Trial:
    choices = random.Random(seed)
    case = case_of(choices)
    query = choices.choice(case.queries)
    return prepared(Trial(case.program, tuple(case.facts), query.relation, seed))


def prepared(trial: Trial) -> Trial:
    weights, learnable = initial(trial.program, trial.seed)
    return replace(trial, weights=weights, learnable=tuple(learnable))


def leaves(facts: Sequence[nodes.Atom]) -> list[Tensor]:
    """A tensor that requires gradients for each fact that has a value, 1 for the others."""
    found = []
    for fact in facts:
        value = None if fact.weight is None else fact.weight.value
        leaf = torch.tensor(1.0 if value is None else value, dtype=torch.float64)
        found.append(leaf.requires_grad_(fact.weight is not None))
    return found


def with_values(facts: Sequence[nodes.Atom], tensors: Sequence[Tensor]) -> list[nodes.Atom]:
    """The facts with their tensors as values."""
    return [
        nodes.Atom(f.relation, f.terms)[t] if f.weight is not None else f
        for f, t in zip(facts, tensors, strict=True)
    ]


def expected(
    trial: Trial, facts: Sequence[nodes.Atom], tensors: Sequence[Tensor]
) -> tuple[Found, bool]:
    """The output by the oracle, and whether it stands on the edge of some function."""
    oracle = Oracle(trial.program, trial.weights)
    name = trial.program.aliases.get(trial.output, trial.output)
    given = [(f.relation, f.terms, t) for f, t in zip(facts, tensors, strict=True)]
    values = oracle.values(given)  # type: ignore[arg-type]
    found = {key: v for (relation, key), v in values.items() if relation == name}
    if not all(v.isfinite().all() for v in values.values()):
        raise Skipped("not finite")
    return {key: found[key] for key in sorted(found, key=order)}, oracle.fragile


def model_of(
    trial: Trial,
    dtype: torch.dtype = torch.float64,
    program: Program | None = None,
    fill: float | None = None,
) -> Model:
    model = (
        (trial.program if program is None else program)
        .compile(nodes.Atom(trial.output), dtype=dtype, without=trial.without, fill=fill)
        .eval()
    )
    with torch.no_grad():
        for name in trial.learnable:
            if name in model._paths:
                model.weight(name).copy_(trial.weights[name])
    return model


def keyed(relation: Any) -> Found:
    return {atom.terms: value for atom, value in relation.items()}


def weighed(found: Found) -> Tensor:
    """A sum in which every element has a weight of its own, so that no gradient cancels."""
    total = torch.zeros((), dtype=torch.float64)
    for at, key in enumerate(sorted(found, key=order)):
        value = found[key].double().reshape(-1)
        total = total + (value * torch.linspace(0.3 + 0.1 * (at % 7), 1.7, len(value))).sum()
    return total


def assert_values(found: Found, wanted: Found, rtol: float = 1e-8, atol: float = 1e-9) -> None:
    if set(found) != set(wanted):
        extra, missing = set(found) - set(wanted), set(wanted) - set(found)
        raise Difference(
            f"atoms: {sorted(extra, key=order)} extra, {sorted(missing, key=order)} missing"
        )
    if list(found) != list(wanted):
        raise Difference(f"order: {list(found)} instead of {list(wanted)}")
    for key, value in wanted.items():
        ours = found[key].detach().double()
        if ours.shape != value.shape:
            raise Difference(f"shape at {key}: {tuple(ours.shape)} instead of {tuple(value.shape)}")
        if not torch.allclose(ours, value.detach(), rtol, atol):
            raise Difference(f"value at {key}: {ours.tolist()} instead of {value.tolist()}")


def assert_gradients(
    trial: Trial, model: Model, found: Found, wanted: Found, tensors: Sequence[Tensor]
) -> None:
    names = [n for n in trial.learnable if n in model._paths]
    ours = _gradients(weighed(found), [*(model.weight(n) for n in names), *tensors])
    theirs = _gradients(weighed(wanted), [*(trial.weights[n] for n in names), *tensors])
    for name, a, b in zip([*names, *["a fact"] * len(tensors)], ours, theirs, strict=True):
        if not torch.allclose(a, b, 1e-6, 1e-7):
            raise Difference(f"gradient of {name}: {a.tolist()} instead of {b.tolist()}")


def _gradients(total: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
    learnt = [t for t in inputs if t.requires_grad]
    if not total.requires_grad:
        return [torch.zeros_like(t) for t in inputs]
    each = iter(torch.autograd.grad(total, learnt, allow_unused=True, retain_graph=True))
    found = [next(each) if t.requires_grad else None for t in inputs]
    return [torch.zeros_like(t) if g is None else g for t, g in zip(inputs, found, strict=True)]


def check(trial: Trial, model: Model, data: Any, tensors: Sequence[Tensor], **inputs: Any) -> None:
    """The output three times, since what is recorded once is replayed; and its gradients."""
    wanted, fragile = expected(trial, trial.facts, tensors)
    for _ in range(3):
        found = keyed(model.rows(data, **inputs))
        assert_values(found, wanted)
    if not fragile:
        assert_gradients(trial, model, found, wanted, tensors)


# the modes


def plain(trial: Trial) -> None:
    tensors = leaves(trial.facts)
    model = model_of(trial)
    check(trial, model, model.ground(facts=with_values(trial.facts, tensors)), tensors)


def solved(trial: Trial) -> None:
    """The reference evaluator of the package itself."""
    tensors = leaves(trial.facts)
    wanted, fragile = expected(trial, trial.facts, tensors)
    weights = {n: trial.weights[n] for n in trial.learnable}
    solution = trial.program.solve(with_values(trial.facts, tensors), weights=weights)
    name = trial.program.aliases.get(trial.output, trial.output)
    found = {a.terms: v for a, v in solution.items() if a.relation == name}
    found = {key: found[key] for key in sorted(found, key=order)}
    assert_values(found, wanted)
    if fragile:
        return
    inputs = [*weights.values(), *tensors]
    for a, b in zip(
        _gradients(weighed(found), inputs), _gradients(weighed(wanted), inputs), strict=True
    ):
        if not torch.allclose(a, b, 1e-6, 1e-7):
            raise Difference(f"gradient: {a.tolist()} instead of {b.tolist()}")


def without(name: str) -> Callable[[Trial], None]:
    return lambda trial: plain(replace(trial, without=(name,)))


def some_passes(trial: Trial) -> None:
    """Any subset of the passes switched off, in one of the other modes."""
    random = trial.random()
    off = tuple(name for name in PASSES if random.random() < 0.5)
    mode = random.choice([plain, dense, ragged_facts, sample_by_sample, batched, updating])
    mode(replace(trial, without=off))


def separated(trial: Trial) -> tuple[dict[str, list[int]], list[int]]:
    """Where the facts of relations that fill a grid are, in its order, and all that are left."""
    dense: dict[str, list[int]] = {}
    for name in FILLED:
        own = {f.terms: at for at, f in enumerate(trial.facts) if f.relation == name}
        if own and sorted(own) == list(product(*map(range, lengths(own)))):
            dense[name] = [own[key] for key in sorted(own)]
    return dense, [at for at, f in enumerate(trial.facts) if f.relation not in dense]


def lengths(keys: Iterable[Key]) -> list[int]:
    return [max(axis) + 1 for axis in zip(*keys, strict=True)]


def on_axes(trial: Trial, places: Sequence[int], tensors: Sequence[Tensor]) -> Tensor:
    """The values of facts that fill a grid as one tensor."""
    axes = lengths(trial.facts[at].terms for at in places)
    values = torch.stack([tensors[at] for at in places])
    return values.reshape(*axes, *values.shape[1:])


def dense(trial: Trial) -> None:
    """Relations that fill their grid as tensors, at every call; the others grounded."""
    tensors = leaves(trial.facts)
    places, left = separated(trial)
    model = model_of(trial)
    inputs = {n: on_axes(trial, at, tensors) for n, at in places.items() if n in model.inputs}
    facts = with_values([trial.facts[at] for at in left], [tensors[at] for at in left])
    if not inputs:
        raise Skipped("nothing dense")
    check(trial, model, model.ground(facts=facts), tensors, **inputs)


def by_rows(trial: Trial) -> None:
    """Every relation as rows, in any order of its keys."""
    tensors, random = leaves(trial.facts), trial.random()
    model = model_of(trial)
    given, left = {}, []
    for name in {f.relation for f in trial.facts}:
        some = [at for at, f in enumerate(trial.facts) if f.relation == name]
        if name in FILLED and name in model.inputs:
            random.shuffle(some)
            keys = torch.tensor([trial.facts[at].terms for at in some])
            given[name] = rows(keys.T, torch.stack([tensors[at] for at in some]))
        else:
            left += some
    facts = with_values([trial.facts[at] for at in left], [tensors[at] for at in left])
    check(trial, model, model.ground(facts=facts, **given), tensors)


def on_tables(trial: Trial) -> None:
    """Relations as tables on disk, in any order of their keys; values of a table do not train."""
    pytest.importorskip("duckdb", reason="duckdb is not installed")
    tensors, random = leaves(trial.facts), trial.random()
    model = model_of(trial)
    given, left = {}, []
    for name in sorted({f.relation for f in trial.facts}):
        some = [at for at, f in enumerate(trial.facts) if f.relation == name]
        random.shuffle(some)
        values = [tensors[at].detach() for at in some]
        columns = list(zip(*(trial.facts[at].terms for at in some), strict=True))
        alike = all(len({type(key) for key in column}) == 1 for column in columns)
        plain = alike and len({v.shape for v in values}) == 1 and values[0].ndim < 2
        negative = any(isinstance(key, int) and key < 0 for column in columns for key in column)
        if name not in model.inputs or not columns or not plain or negative:
            left += some
            continue
        table = {f"k{at}": list(column) for at, column in enumerate(columns)}
        held = []
        if any(trial.facts[at].weight is not None for at in some):
            held = [f"v{at}" for at in range(values[0].numel())]
            table |= {v: [x.reshape(-1)[at].item() for x in values] for at, v in enumerate(held)}
        given[name] = on_disk({name: table}, values=held)
        for at, value in zip(some, values, strict=True):
            tensors[at] = value
    if not given:
        raise Skipped("no tables")
    facts = with_values([trial.facts[at] for at in left], [tensors[at] for at in left])
    check(trial, model, model.ground(facts=facts, **given), tensors)


def check_wanted(
    trial: Trial,
    model: Model,
    wanted: tuple[Found, bool],
    data: Any,
    tensors: Sequence[Tensor],
    **inputs: Any,
) -> None:
    """Some rows, in any order and some twice: their values, and their gradients."""
    choices, (every, fragile) = trial.random(), wanted
    if () in every or not every:
        raise Skipped("no keys")
    keys = [choices.choice(list(every)) for _ in range(choices.randint(0, 5))]
    for _ in range(2):
        got = model(data, want=keys, **inputs)
        assert isinstance(got, Tensor)
        found = {(at, *key): row for at, (key, row) in enumerate(zip(keys, got, strict=True))}
        some = {(at, *key): every[key] for at, key in enumerate(keys)}
        assert_values(found, some)
    if not fragile:
        assert_gradients(trial, model, found, some, tensors)


def wanted_rows(trial: Trial) -> None:
    tensors = leaves(trial.facts)
    model = model_of(trial)
    data = model.ground(facts=with_values(trial.facts, tensors))
    check_wanted(trial, model, expected(trial, trial.facts, tensors), data, tensors)


def wanted_of_dense(trial: Trial) -> None:
    tensors = leaves(trial.facts)
    places, left = separated(trial)
    model = model_of(trial)
    inputs = {n: on_axes(trial, at, tensors) for n, at in places.items() if n in model.inputs}
    data = model.ground(
        facts=with_values([trial.facts[at] for at in left], [tensors[at] for at in left])
    )
    check_wanted(trial, model, expected(trial, trial.facts, tensors), data, tensors, **inputs)


def wanted_of_samples(trial: Trial) -> None:
    samples = samples_of(trial)
    every, fragile, tensors = in_samples(trial, samples)
    model = model_of(trial)
    batch = [with_values(facts, own) for facts, own in zip(samples, tensors, strict=True)]
    data = model.ground(facts=ragged(batch))
    check_wanted(trial, model, (every, fragile), data, [t for own in tensors for t in own])


def joined_alone(mode: Callable[[Trial], None]) -> Callable[[Trial], None]:
    """Wanted rows whose data is found backwards through the rules, however little there is."""

    def run(trial: Trial) -> None:
        small = 0 if trial.seed % 4 == 0 else magic_sets.SMALL
        with (
            mock.patch.object(partial_grounding, "LEAST", 0),
            mock.patch.object(magic_sets, "SMALL", small),
        ):
            mode(trial)

    return run


def several(trial: Trial) -> None:
    """All derived relations at once, by name."""
    tensors = leaves(trial.facts)
    names = {rule.head.relation for rule in trial.program.rules}
    heads = sorted(name for name in names if not name.startswith("@"))
    model = trial.program.compile([nodes.Atom(name) for name in heads], dtype=torch.float64).eval()
    with torch.no_grad():
        for name in trial.learnable:
            if name in model._paths:
                model.weight(name).copy_(trial.weights[name])
    found = model.rows(model.ground(facts=with_values(trial.facts, tensors)))
    for name in heads:
        own, _ = expected(replace(trial, output=name), trial.facts, tensors)
        assert_values(keyed(found[name]), own)


def samples_of(trial: Trial, alike: bool = False) -> list[list[nodes.Atom]]:
    """Some samples: each a part of the facts, with values of its own."""
    random = trial.random()
    found = []
    for _ in range(random.randint(1, 4)):
        share = 1.0 if alike else random.choice([1.0, 0.8, 0.5, 0.0])
        kept = [f for f in trial.facts if random.random() < share]
        found.append([f if alike else _changed(f, random) for f in kept])
    return found


def _changed(fact: nodes.Atom, random: random.Random) -> nodes.Atom:
    if fact.weight is None or random.random() < 0.3:
        return fact

    def moved(value: Any) -> Any:
        if isinstance(value, tuple):
            return [moved(v) for v in value]
        return value + random.choice([0.25, -0.5, 0.125])

    return nodes.Atom(fact.relation, fact.terms)[moved(fact.weight.value)]


def in_samples(
    trial: Trial, samples: Sequence[Sequence[nodes.Atom]]
) -> tuple[Found, bool, list[list[Tensor]]]:
    """What each sample gives alone, keyed by its number too."""
    wanted: Found = {}
    fragile, tensors = False, []
    for at, facts in enumerate(samples):
        own = leaves(facts)
        found, edge = expected(trial, facts, own)
        wanted |= {(at, *key): value for key, value in found.items()}
        fragile, tensors = fragile or edge, [*tensors, own]
    return wanted, fragile, tensors


def ragged_facts(trial: Trial, alike: bool = False) -> None:
    samples = samples_of(trial, alike)
    wanted, fragile, tensors = in_samples(trial, samples)
    model = model_of(trial)
    batch = [with_values(facts, own) for facts, own in zip(samples, tensors, strict=True)]
    data = model.ground(facts=ragged(batch))
    for _ in range(3):
        found = keyed(model.rows(data))
        assert_values(found, wanted)
    if not fragile:
        assert_gradients(trial, model, found, wanted, [t for own in tensors for t in own])


def twins(trial: Trial) -> None:
    """Samples that are all the same, so that every row has equals."""
    samples = [list(trial.facts)] * 3
    wanted, _, _ = in_samples(trial, samples)
    model = model_of(trial)
    data = model.ground(facts=ragged(samples))
    assert_values(keyed(model.rows(data)), wanted)


def sample_by_sample(trial: Trial) -> None:
    """The samples of a ragged batch, one after another."""
    samples = samples_of(trial)
    wanted, _, _ = in_samples(trial, samples)
    model = model_of(trial)
    data = model.ground(facts=ragged(samples))
    for at, one in enumerate(model.samples(data)):
        own = {key[1:]: value for key, value in wanted.items() if key[0] == at}
        for _ in range(3):
            assert_values(keyed(model.rows(one)), own)


@dataclass(frozen=True)
class Batch:
    """Samples that share a grounding: tensors with a batch axis, and facts."""

    samples: list[list[nodes.Atom]]
    tensors: list[list[Tensor]]
    inputs: dict[str, Tensor]
    data: Any

    @staticmethod
    def of(trial: Trial, model: Model, learnt: bool = True) -> "Batch":
        random = trial.random()
        places, _ = separated(trial)
        names = [name for name in places if name in model.inputs]
        if not names:
            raise Skipped("nothing dense")
        moving = [n for n in names if random.random() < 0.7] or names[:1]
        size = random.choice([1, 2, 3])
        samples = [
            [_changed(f, random) if f.relation in moving else f for f in trial.facts]
            for _ in range(size)
        ]
        own = [leaves(facts) for facts in samples]
        own = own if learnt else [[t.detach() for t in each] for each in own]
        for each in own[1:]:
            for at, fact in enumerate(trial.facts):
                each[at] = each[at] if fact.relation in moving else own[0][at]
        inputs = {
            name: torch.stack([on_axes(trial, places[name], each) for each in own])
            for name in moving
        }
        shared = [n for n in names if n not in moving and random.random() < 0.5]
        inputs |= {name: on_axes(trial, places[name], own[0]) for name in shared}
        inputs = {n: x if FILLED[n].shape else x[..., None] for n, x in inputs.items()}
        rest = [at for at, f in enumerate(trial.facts) if f.relation not in inputs]
        facts = with_values([trial.facts[at] for at in rest], [own[0][at] for at in rest])
        return Batch(samples, own, inputs, model.ground(facts=facts))

    def expected(self, trial: Trial) -> tuple[Found, bool]:
        wanted: Found = {}
        fragile = False
        for at, (facts, each) in enumerate(zip(self.samples, self.tensors, strict=True)):
            found, edge = expected(trial, facts, each)
            wanted |= {(at, *key): v for key, v in found.items()}
            fragile = fragile or edge
        return wanted, fragile

    def leaves(self) -> list[Tensor]:
        return list({id(t): t for each in self.tensors for t in each}.values())


def batched(trial: Trial) -> None:
    """Dense relations with a batch axis, the others grounded once for all samples."""
    model = model_of(trial)
    batch = Batch.of(trial, model)
    wanted, fragile = batch.expected(trial)
    for _ in range(3):
        relation = model.rows(batch.data, **batch.inputs)
        found = {
            (at, *key): value[at] if relation.batched else value
            for at in range(len(batch.samples))
            for key, value in keyed(relation).items()
        }
        if has_own_keys(model, relation):
            found = keyed(relation)
        assert_values(found, wanted)
    if not fragile:
        assert_gradients(trial, model, found, wanted, batch.leaves())


def has_own_keys(model: Model, relation: Relation) -> bool:
    """Whether each sample has other rows: the first key is the number of the sample."""
    return len(relation.index) > len(model.plan.outputs[0].terms)


def called(trial: Trial) -> None:
    """The tensor that a call gives for a batch: values where atoms hold, `fill` elsewhere."""
    model = model_of(trial, fill=FILL)
    batch = Batch.of(trial, model)
    wanted, fragile = batch.expected(trial)
    for _ in range(3):
        tensor = model(batch.data, **batch.inputs)
        if not isinstance(tensor, Tensor):
            raise Skipped("the output has no axes")
        arity = len(next(iter(wanted), (0,))) - 1
        size = len(batch.samples)
        relation = model.rows(batch.data, **batch.inputs)
        is_batched = relation.batched or has_own_keys(model, relation)
        each = tensor if is_batched else tensor.expand(size, *tensor.shape)
        found: Found = {key: each[key] for key in wanted}
        assert_values(found, wanted)
        rest = torch.ones(each.shape[: 1 + arity], dtype=torch.bool)
        for key in wanted:
            rest[key] = False
        if not (each[rest] == FILL).all():
            raise Difference(f"an atom that does not hold is not {FILL}")
    if not fragile:
        assert_gradients(trial, model, found, wanted, batch.leaves())


def updating(trial: Trial) -> None:
    """Facts that are added a few at a time, in any order, some of them with another value first."""
    random, facts = trial.random(), list(trial.facts)
    random.shuffle(facts)
    model = model_of(trial)
    cuts = sorted(random.randint(0, len(facts)) for _ in range(random.randint(1, 4)))
    parts = [facts[a:b] for a, b in zip([0, *cuts], [*cuts, len(facts)], strict=True)]
    parts[0] = [_changed(f, random) for f in parts[0]]
    parts[-1] = [*parts[-1], *facts[: cuts[0]]]
    tracker = model.updating(facts=parts[0])
    known: dict[tuple[str, Any], nodes.Atom] = {}
    for at, part in enumerate(parts):
        known |= {(f.relation, f.terms): f for f in part}
        if at:
            tracker.add(part)
        now = list(known.values())
        wanted, _ = expected(trial, now, leaves(now))
        assert_values(keyed(tracker.output), wanted)


def edits(trial: Trial) -> None:
    """Facts that are added, changed and removed, several at once, compared after every edit."""
    random, facts = trial.random(), list(trial.facts)
    random.shuffle(facts)
    model = model_of(trial)
    known = {(f.relation, f.terms): f for f in facts if random.random() < 0.7}
    tracker = model.updating(facts=list(known.values()))
    for _ in range(random.randint(2, 5)):
        removed = [known.pop(key) for key in list(known) if random.random() < 0.2]
        more = [f for f in facts if random.random() < 0.2]
        added = {(f.relation, f.terms): random.choice([f, _changed(f, random)]) for f in more}
        known |= added
        plain = [nodes.Atom(f.relation, f.terms) for f in removed]
        tracker.edit(add=list(added.values()), remove=plain)
        now = list(known.values())
        wanted, _ = expected(trial, now, leaves(now))
        assert_values(keyed(tracker.output), wanted)


def explained(trial: Trial) -> None:
    """`why` of a model, which joins only what is behind an atom, against the reference."""
    random, model = trial.random(), model_of(trial)
    data = model.ground(facts=trial.facts)
    weights = {name: model.weight(name).detach() for name in model._paths}
    wanted, _ = expected(trial, list(trial.facts), leaves(trial.facts))
    solution = trial.program.solve(trial.facts, dtype=torch.float64, weights=weights)
    for key in random.sample(sorted(wanted, key=repr), min(3, len(wanted))):
        atom = nodes.Atom(trial.output, key)
        found, other = model.why(atom, data).to_json(), solution.why(atom).to_json()
        assert_same_reasons(found, other)


def assert_same_reasons(found: Any, wanted: Any) -> None:
    """Two explanations, but for witnesses and the names of weights."""
    match found, wanted:
        case dict(), dict():
            for name in wanted.keys() - {"conditions", "rule"}:
                assert_same_reasons(found[name], wanted[name])
        case list(), list() if len(found) == len(wanted):
            for one, other in zip(found, wanted, strict=True):
                assert_same_reasons(one, other)
        case float() | int(), float() | int():
            close = found == wanted or abs(found - wanted) <= 1e-9 * max(1, abs(wanted))
            if not close and not (found != found and wanted != wanted):
                raise Difference(f"why: {found} instead of {wanted}")
        case _:
            if found != wanted:
                raise Difference(f"why: {found} instead of {wanted}")


def causal_trial(seed: int) -> Trial:
    """Layers over one sequence in which no place needs a later one."""
    choices = random.Random(seed)
    before, statements = R.x, []
    for at in range(choices.randint(1, 3)):
        name = f"h{at}"
        statements += choices.choice(LAYERS)(name, before, choices)
        before = R[name]
    facts = [R.x(i)[[choices.randint(-9, 9) / 4, choices.randint(-9, 9) / 8]] for i in range(SIZE)]
    program = Program(statements, domains={V.H: 2, V.I: SIZE + 2})
    return prepared(Trial(program, tuple(facts), before.relation, seed))


def _placewise(name: str, x: Any, choices: random.Random) -> list[Any]:
    functions = choices.choice([[F.relu], [F.norm(eps=0.1)], [F.tanh, F.square], []])
    more = choices.choice([
        (), (W[f"{name}_b"][2,],), (R.special.add_eval(V.I, 1),), (W[f"{name}_p"](V.I)[2,],),
        (R.special.leq(V.I, 9),), (x(V.I),),
    ])  # fmt: skip
    return [(R[name](V.I) <= (x(V.I)[2, 2], *more)) | functions]


def _causal_attention(name: str, x: Any, choices: random.Random) -> list[Any]:
    near = choices.choice([
        (R.special.leq(V.J, V.I),), (causal()(V.I, V.J),), ((causal() & window(2))(V.I, V.J),),
        (R.special.sub(V.I, V.J, V.D), R.special.leq(V.D, 1)),
    ])  # fmt: skip
    score = choices.choice([(x(V.J).T, x(V.I)), (R.half, x(V.J).T, x(V.I)[2, 2])])
    rules: list[Any] = [R.half[0.5].fixed()] if len(score) == 3 else []
    gate = R[f"{name}_gate"]
    if choices.random() < 0.3:  # a condition on values, which row 0 meets more often than not
        rules.append(gate(V.I) <= x(V.I)[[[0.5, 0.25]]])
        near = (*near, choices.choice([gate(V.J) > -1, gate(V.I) >= gate(V.J) - 2]))
    weights = R[f"{name}_w"](V.I, V.J) <= (*score, *near)
    rules.append(weights | [F.product, F.softmax_agg(agg_terms=[V.J])])
    attend = R[f"{name}_a"](V.I) <= (R[f"{name}_w"](V.I, V.J), x(V.J)[2, 2])
    return [*rules, attend | [F.product], R[name](V.I) <= (R[f"{name}_a"](V.I), x(V.I))]


def _heads(name: str, x: Any, choices: random.Random) -> list[Any]:
    q, k, v, w = (R[f"{name}_{letter}"] for letter in "qkvw")
    return [
        q(V.H, V.I) <= x(V.I)[W[f"{name}_q"](V.H)[2, 2]],
        k(V.H, V.I) <= x(V.I)[W[f"{name}_k"](V.H)[2, 2]],
        v(V.H, V.I) <= x(V.I)[W[f"{name}_v"](V.H)[1, 2]],
        (w(V.H, V.I, V.J) <= (k(V.H, V.J).T, q(V.H, V.I), causal()(V.I, V.J)))
        | [F.product, F.softmax_agg(agg_terms=[V.J])],
        (R[f"{name}_o"](V.H, V.I) <= (w(V.H, V.I, V.J), v(V.H, V.J))) | [F.product],
        (R[name](V.I) <= R[f"{name}_o"](V.H, V.I)) | [F.concat_agg],
    ]


LAYERS = (_placewise, _causal_attention, _heads)


def growing(trial: Trial) -> None:
    """Rows that are appended a few at a time, the first of which come by an edit."""
    random, tensors = trial.random(), leaves(trial.facts)
    wanted, _ = expected(trial, trial.facts, tensors)
    by_key = {f.terms: t.detach() for f, t in zip(trial.facts, tensors, strict=True)}
    x = torch.stack([by_key[key] for key in sorted(by_key)])
    grown = model_of(trial).growing(len(x) + random.randint(0, 2))
    ends = sorted({*random.sample(range(1, len(x)), random.randint(0, len(x) - 1)), len(x)})
    together = torch.cat([grown(x=x[a:b]) for a, b in pairwise([0, *ends])])
    assert_values({(i,): row for i, row in enumerate(together)}, wanted)
    start = random.randrange(len(x))
    stop = random.randint(start + 1, len(x))
    grown.edit(start, stop, x=x[start:stop] + 1)  # another value, and back
    again = grown.edit(start, stop, x=x[start:stop])
    together[start : start + len(again)] = again
    if start:
        one = grown.edit(start - 1, x=x[start - 1 : start])
        together[start - 1 : start - 1 + len(one)] = one
    assert_values({(i,): row for i, row in enumerate(together)}, wanted)


def saved(trial: Trial) -> None:
    tensors = leaves(trial.facts)
    if "F.call(" in repr(trial.program) or "fn(" in repr(trial.program):
        raise Skipped("Python functions are not saved")
    model = model_of(trial)
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        loaded = Model.load(Path(folder) / "model").eval()
    check(trial, loaded, loaded.ground(facts=with_values(trial.facts, tensors)), tensors)


def as_text(trial: Trial) -> None:
    tensors = leaves(trial.facts)
    if "F.call(" in repr(trial.program) or "fn(" in repr(trial.program):
        raise Skipped("Python functions have no text")
    again = Program.parse(trial.program.text())
    if again != trial.program:
        raise Difference(f"text: {again!r}")
    model = model_of(trial, program=again)
    check(trial, model, model.ground(facts=with_values(trial.facts, tensors)), tensors)


def learning(trial: Trial) -> None:
    """The same data after the weights have moved, as in training."""
    tensors = leaves(trial.facts)
    model = model_of(trial)
    data = model.ground(facts=with_values(trial.facts, tensors))
    check(trial, model, data, tensors)
    moved = {n: (w.detach() * 0.5 + 0.1).requires_grad_() for n, w in trial.weights.items()}
    moved = {n: moved[n] if n in trial.learnable else w for n, w in trial.weights.items()}
    later = replace(trial, weights=moved)
    with torch.no_grad():
        for name in trial.learnable:
            if name in model._paths:
                model.weight(name).copy_(moved[name])
    check(later, model, data, tensors)


def compiled(trial: Trial) -> None:
    """`torch.compile` of the model, the graph itself run as it is."""
    tensors = leaves(trial.facts)
    _, fragile = expected(trial, trial.facts, tensors)
    model = model_of(trial)
    data = model.ground(facts=with_values(trial.facts, tensors))
    if not keyed(model.rows(data)):
        raise Skipped("nothing is derived")
    torch._dynamo.reset()
    fast = torch.compile(model, backend="aot_eager")
    assert_alike(trial, model, tensors, model(data), fast(data), fragile)


def compiled_batch(trial: Trial) -> None:
    """`torch.compile` of the model on a batch of tensors."""
    model = model_of(trial, fill=FILL)
    batch = Batch.of(trial, model)
    wanted, fragile = batch.expected(trial)
    if not wanted:
        raise Skipped("nothing is derived")
    torch._dynamo.reset()
    fast = torch.compile(model, backend="aot_eager")
    inputs = {n: x.detach().requires_grad_() for n, x in batch.inputs.items()}  # leaves
    eager = model(batch.data, **inputs)
    for _ in range(2):
        with warnings.catch_warnings():  # after a graph break, Dynamo looks at tensors in between
            warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf")
            found = fast(batch.data, **inputs)
        assert_alike(trial, model, list(inputs.values()), eager, found, fragile)


def exported(trial: Trial) -> None:
    """`torch.export` of the model on its data."""
    model = model_of(trial, fill=FILL)
    batch = Batch.of(trial, model, learnt=False)
    if not batch.expected(trial)[0]:
        raise Skipped("nothing is derived")

    class Bound(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, **inputs: Tensor) -> Tensor:
            return values_of(self.model(batch.data, **inputs))

    program = torch.export.export(Bound(), (), batch.inputs)
    eager = values_of(model(batch.data, **batch.inputs))
    assert_alike(trial, model, [], eager, program.module()(**batch.inputs), fragile=True)


def values_of(output: Any) -> Tensor:
    return output if isinstance(output, Tensor) else output.data


def assert_alike(
    trial: Trial, model: Model, tensors: Sequence[Tensor], eager: Any, found: Any, fragile: bool
) -> None:
    """Two outputs of one model, and their gradients."""
    a, b = values_of(eager), values_of(found)
    if a.shape != b.shape or not torch.allclose(a, b, 1e-9, 1e-10):
        raise Difference(f"compiled: {b.tolist()} instead of {a.tolist()}")
    if not fragile and b.requires_grad:
        names = [n for n in trial.learnable if n in model._paths]
        learnt = [*(model.weight(n) for n in names), *tensors]
        mark = torch.linspace(0.3, 1.7, b.numel(), dtype=torch.float64).reshape(b.shape)
        for x, y in zip(
            _gradients((a * mark).sum(), learnt), _gradients((b * mark).sum(), learnt), strict=True
        ):
            if not torch.allclose(x, y, 1e-6, 1e-7):
                raise Difference(f"compiled gradient: {y.tolist()} instead of {x.tolist()}")


def lower(dtype: torch.dtype, cast: bool) -> Callable[[Trial], None]:
    """A lower precision, by the model or by autocast: as near as its digits allow."""
    digits = 0.06 if dtype == torch.bfloat16 else 0.02

    def run(trial: Trial) -> None:
        if "F.signum" in repr(trial.program):
            raise Skipped("a step has no nearby values")
        tensors = [t.detach() for t in leaves(trial.facts)]
        wanted, fragile = expected(trial, trial.facts, tensors)
        if fragile or any(v.detach().abs().max() > 50 for v in wanted.values() if v.numel()):
            raise Skipped("values that a lower precision does not keep")
        if len(trial.program.rules) > 6:
            raise Skipped("too deep for few digits")
        model = model_of(trial, torch.float32 if cast else dtype)
        data = model.ground(facts=list(trial.facts))
        for _ in range(3):
            if cast:
                with torch.autocast("cpu", dtype):
                    found = keyed(model.rows(data))
            else:
                found = keyed(model.rows(data))
        assert_values(found, wanted, rtol=digits * 4, atol=digits * 4)

    return run


def fresh(trial: Trial) -> None:
    """Several data sets through one model: their layouts differ, plans of one may serve another."""
    choices = trial.random()
    model = model_of(trial)
    model.check = False
    given = [name for name in dict.fromkeys(f.relation for f in trial.facts)]
    if not set(model.inputs) & set(given):
        raise Skipped("nothing is given as tensors")
    mine = [fact for fact in trial.facts if fact.relation in model.inputs]
    if any(isinstance(key, str) for fact in mine for key in fact.terms):
        raise Skipped("strings")
    if any(fact.weight is not None and fact.relation not in FILLED for fact in mine):
        raise Skipped("values of other shapes")
    if not set(model.inputs) <= model._reader.arities.keys():
        raise Skipped("values decide")
    trial = replace(trial, facts=tuple(mine))
    as_rows, compared = choices.random() < 0.5, 0
    forms = {name: choices.choice(["rows", "dense", "keys"]) for name in model.inputs}
    for _ in range(8):
        facts = other_facts(trial, choices)
        compared += one_set(trial, model, facts, forms, choices, as_rows)
    if not compared:
        raise Skipped("refused")


def other_facts(trial: Trial, choices: random.Random) -> tuple[nodes.Atom, ...]:
    """Facts like those of a trial: some of them, with other keys, or all that fill a grid."""
    found: list[nodes.Atom] = []
    for name in dict.fromkeys(f.relation for f in trial.facts):
        own = [f for f in trial.facts if f.relation == name]
        kind = choices.choice(["all", "all", "some", "none", "moved", "grid", "more", "one"])
        keys = [f.terms for f in own]
        arity = len(keys[0])
        high = 1 + max((key for terms in keys for key in terms), default=0)
        if kind == "some":
            keys = [key for key in keys if choices.random() < 0.6]
        elif kind == "none":
            keys = keys[:0] if choices.random() < 0.5 else keys
        elif kind == "moved":  # gaps
            step = choices.randint(1, 3)
            keys = [tuple([step * key for key in terms]) for terms in keys]
        elif kind == "grid":
            keys = list(product(range(choices.randint(1, 4)), repeat=arity))
        elif kind == "more":
            more = {tuple(choices.randrange(high + 2) for _ in range(arity)) for _ in range(12)}
            keys = list(dict.fromkeys([*keys, *sorted(more)]))
        elif kind == "one":
            keys = keys[:1]
        keys = [key for key in keys if len(key) == arity]
        for at, key in enumerate(dict.fromkeys(keys)):
            like = own[at % len(own)]
            weight = like.weight
            if weight is not None:
                value = torch.tensor(weight.value, dtype=torch.float64)
                value.apply_(lambda number: number * choices.uniform(0.5, 1.5))
                weight = replace(weight, value=value.tolist())
            found.append(replace(like, terms=key, weight=weight))
    return tuple(found)


def one_set(
    trial: Trial,
    model: Model,
    facts: tuple[nodes.Atom, ...],
    forms: dict[str, str],
    choices: random.Random,
    as_rows: bool,
) -> bool:
    """Whether one data set was compared: some are refused."""
    mine = replace(trial, facts=facts)
    tensors = leaves(facts)
    inputs: dict[str, Any] = {}
    for name in model.inputs:
        own = [at for at, f in enumerate(facts) if f.relation == name]
        arity = model._reader.arities[name]
        valued = any(f.weight is not None for f in trial.facts if f.relation == name)
        dense = sorted(facts[at].terms for at in own)
        fills = bool(own) and dense == list(product(*map(range, lengths(dense))))
        if forms[name] == "dense" and fills and valued and arity:
            own.sort(key=lambda at: facts[at].terms)
            inputs[name] = on_axes(mine, own, tensors)
            continue
        choices.shuffle(own)
        keys = torch.tensor([facts[at].terms for at in own], dtype=torch.int64)
        keys = keys.reshape(len(own), arity).T
        if forms[name] == "keys" and not valued and arity:
            inputs[name] = keys.contiguous()
        elif valued and own:
            inputs[name] = rows(keys, torch.stack([tensors[at] for at in own]))
        elif valued:
            like = next(f for f in trial.facts if f.relation == name)
            shape = torch.as_tensor(like.weight.value).shape  # type: ignore[union-attr]
            inputs[name] = rows(keys, torch.zeros(0, *shape, dtype=torch.float64))
        else:
            inputs[name] = rows(keys)
    try:
        found = model.rows(**inputs) if as_rows else model(**inputs)
    except EdgewiseError as error:
        with pytest.raises(EdgewiseError, match=f"error.{error.code}"):
            model_of(trial).rows(**inputs) if as_rows else model_of(trial)(**inputs)
        return False
    wanted, fragile = expected(mine, facts, tensors)
    if isinstance(found, Tensor):
        keys = list(product(*map(range, found.shape[: len(next(iter(wanted), ()))])))
        values = {key: found[key] for key in keys}
    else:
        values = keyed(found)
    assert_values(values, wanted)
    if not fragile:
        assert_gradients(mine, model, values, wanted, tensors)
    return True


def along_graphs(trial: Trial) -> None:
    """`attention` along random graphs: one for all, for each head or for each sample."""
    found = difference(trial.seed)
    if found is not None:
        raise Difference(found)


MODES: dict[str, Callable[[Trial], None]] = {
    "plain": plain,
    "solve": solved,
    "dense": dense,
    "rows": by_rows,
    "tables": on_tables,
    "ragged": ragged_facts,
    "want": wanted_rows,
    "want dense": wanted_of_dense,
    "want ragged": wanted_of_samples,
    "want alone": joined_alone(wanted_rows),
    "want dense alone": joined_alone(wanted_of_dense),
    "want ragged alone": joined_alone(wanted_of_samples),
    "several": several,
    "twins": twins,
    "samples": sample_by_sample,
    "batch": batched,
    "call": called,
    "fresh": fresh,
    "updating": updating,
    "edits": edits,
    "why": explained,
    "growing": growing,
    "save": saved,
    "text": as_text,
    "learning": learning,
    "autocast": lower(torch.bfloat16, cast=True),
    "bfloat16": lower(torch.bfloat16, cast=False),
    "float16": lower(torch.float16, cast=False),
    "graphs": along_graphs,
    "some passes": some_passes,
    "compile": compiled,
    "compile batch": compiled_batch,
    "export": exported,
    **{f"without {name}": without(name) for name in PASSES},
}
SLOW = ("compile", "compile batch", "export")
MAKERS: dict[str, Callable[[int], Trial]] = {"growing": causal_trial}
ALLOWED = {  # refusals that are part of the language or of a mode
    "shape-mismatch",  # a compiled relation has values of one shape
    "cannot-grow",
    "decided-by-values",  # there is no one graph
    "not-stratified",  # a comparison of what is being derived
    "key-out-of-range",  # a dense axis has no strings
    "not-padded",  # samples of a recursion are not padded alike
}


def outcome(mode: str, trial: Trial) -> str:
    """`same`, `skipped: ...`, or `different: ...`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EdgewiseWarning)
            if trial.seed % 2:
                MODES[mode](trial)
            else:  # kernels that are left to larger data
                with mock.patch.object(gathers, "SMALL_ROWS", 0):
                    MODES[mode](trial)
    except Skipped as why:
        return f"skipped: {why}"
    except Refused as why:
        return f"skipped: refused, {why}"
    except Difference as what:
        return f"different: {what}"
    except EdgewiseError as error:
        if error.code in ALLOWED:
            return f"skipped: {error.code}"
        return f"different: error[{error.code}] {error.message}"
    except Exception:
        last = traceback.format_exc().strip().splitlines()
        return f"different: {last[-1][:300]}"
    return "same"
