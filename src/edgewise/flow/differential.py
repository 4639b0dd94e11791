"""Two programs on random data: facts for which they differ, as few as were found."""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import EdgewiseError, EdgewiseWarning, caller, safe_repr
from edgewise.language import nodes
from edgewise.language.program import Program
from edgewise.language.statements import atoms, name_weights
from edgewise.language.statements import weights as weights_of

KEYS = 4  # integers that keys are drawn from, beside the constants of the programs
RELATIVE, ABSOLUTE = 1e-6, 1e-9  # differences that are rounding

Facts = tuple[nodes.Atom, ...]


class NotComparable(EdgewiseError):
    """Programs are compared at the same outputs, with the same weights: by name."""

    code = "not-comparable"
    example = "Program([R.h(V.X) <= R.a(V.X)]).counterexample(Program([R.g(V.X) <= R.a(V.X)]))"
    instead = "Program([R.h(V.X) <= R.a(V.X)]).counterexample(Program([R.h(V.Y) <= R.a(V.Y)]))"


@dataclass(frozen=True, eq=False)
class Counterexample:
    """Facts for which two programs differ: `one` and `other` are the values of `atom`, None where
    it does not hold, or the error that a program ends with; `seed` drew the weights.

    >>> from edgewise import F, Program, R, V
    >>> one = Program([R.h(V.I) <= R.e(V.I, V.J)])
    >>> found = one.counterexample(Program([(R.h(V.I) <= R.e(V.I, V.J)) | [F.max_agg]]))
    >>> found.atom.relation, bool(found.one != found.other)
    ('h', True)
    """

    facts: Facts
    seed: int
    atom: nodes.Atom | None
    one: Tensor | str | None
    other: Tensor | str | None

    def __repr__(self) -> str:
        shown = "absent" if self.atom is not None else "solved"
        one, other = (shown if x is None else _shown(x) for x in (self.one, self.other))
        of = "the program" if self.atom is None else repr(self.atom)
        facts = ", ".join(map(repr, self.facts)) or "no facts"
        return f"{of}: {one}, and {other} in the other, with {facts} (seed {self.seed})"


def _shown(value: Tensor | str) -> str:
    if isinstance(value, str):
        return value
    return repr([round(x, 4) for x in value.tolist()] if value.ndim == 1 else value.tolist())


def counterexample(
    program: Program,
    other: Program,
    *,
    trials: int,
    seed: int,
    shapes: Mapping[str, tuple[int, ...]],
) -> Counterexample | None:
    """Facts for which the outputs of two programs differ, None if `trials` found none."""
    if not isinstance(other, Program):
        raise NotComparable(f"{safe_repr(other)} is not a program", caller(), "give a `Program`")
    if not isinstance(trials, int) or trials < 1:
        raise NotComparable(f"`trials` is {safe_repr(trials)}", caller(), "give a number from 1 on")
    outputs = _outputs(program, other)
    inputs = _Inputs((program, other), shapes)
    refused = None
    for trial in range(seed, seed + trials):
        facts = inputs.drawn(random.Random(trial), torch.Generator().manual_seed(trial))
        found = _difference(program, other, outputs, facts, trial)
        if isinstance(found, Counterexample):
            return _smallest(program, other, outputs, found)
        refused = found
    if isinstance(refused, EdgewiseError):
        raise refused
    return None


def _outputs(program: Program, other: Program) -> list[str]:
    """What no rule reads, the same in both; weights must have partners."""
    ends, names = [], []
    for one in (program, other):
        read = {a.relation for r in one.rules for a in atoms(r) if isinstance(a, nodes.Atom)}
        ends.append({rule.head.relation for rule in one.rules} - read)
        named = [w for s in name_weights(one) for w in weights_of(s) if not w.is_fixed]
        names.append({w.name for w in named if w.value is None})
    for what, (mine, theirs) in (("outputs", ends), ("weights", names)):
        if mine != theirs or not ends[0]:
            alone = ", ".join(f"`{x}`" for x in sorted(map(str, mine ^ theirs))) or "no relation"
            raise NotComparable(
                f"the {what} differ: {alone} in one of them alone",
                caller(),
                "give the outputs the same names"
                if what == "outputs"
                else 'give the weights the same names: `R.x(V.I)["w": 8, 8]`',
            )
    return sorted(ends[0])


class _Inputs:
    """The relations that data states: how many terms, which constants, and the shapes of values."""

    def __init__(self, programs: Sequence[Program], shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.terms: dict[str, list[set[Any]]] = {}
        self.shapes: dict[str, tuple[int, ...] | None] = {}
        derived = {rule.head.relation for p in programs for rule in p.rules}
        domains = {name: size for p in programs for name, size in p.domains}
        for atom in (a for p in programs for r in p.rules for a in atoms(r)):
            if not isinstance(atom, nodes.Atom) or atom.relation in derived:
                continue
            name = atom.relation
            places = self.terms.setdefault(name, [set(range(KEYS)) for _ in atom.terms])
            for place, term in zip(places, atom.terms, strict=False):
                if isinstance(term, int | str):
                    place.add(term)
                elif isinstance(term, nodes.Variable) and term.name in domains:
                    size = domains[term.name]
                    place.intersection_update(range(size) if isinstance(size, int) else size)
            if atom.carries_value and self.shapes.get(name) in (None, ()):
                self.shapes[name] = shapes.get(name, _columns(atom))

    def drawn(self, choices: random.Random, numbers: torch.Generator) -> Facts:
        found: list[nodes.Atom] = []
        for name, places in sorted(self.terms.items()):
            share = choices.choice((0.2, 0.5, 0.9))
            for key in product(*(sorted(place, key=str) for place in places)):
                if choices.random() < share or not places:
                    found.append(self._fact(nodes.Atom(name, key), numbers))
        return tuple(found)

    def _fact(self, atom: nodes.Atom, numbers: torch.Generator) -> nodes.Atom:
        shape = self.shapes.get(atom.relation)
        if shape is None:
            return atom
        short = torch.randn(shape, generator=numbers, dtype=torch.float64).mul(100).round() / 100
        fact: nodes.Atom = atom[short.tolist()]
        return fact


def _columns(atom: nodes.Atom) -> tuple[int, ...]:
    """The shape of a value that a matrix is applied to; else a number."""
    shape = None if atom.weight is None else atom.weight.shape
    return tuple(shape[1:]) if shape is not None and len(shape) == 2 and shape[1] > 1 else ()


def _difference(
    program: Program, other: Program, outputs: Sequence[str], facts: Facts, seed: int
) -> Counterexample | EdgewiseError | None:
    """Where they differ; an error that both end with."""
    mine, theirs = (_solved(p, outputs, facts, seed) for p in (program, other))
    if isinstance(mine, EdgewiseError) and isinstance(theirs, EdgewiseError):
        return mine
    if isinstance(mine, EdgewiseError) or isinstance(theirs, EdgewiseError):
        codes = (
            f"error {x.code}" if isinstance(x, EdgewiseError) else None for x in (mine, theirs)
        )
        return Counterexample(facts, seed, None, *codes)
    for atom in (*mine, *theirs):
        a, b = mine.get(atom), theirs.get(atom)
        if (
            a is None
            or b is None
            or a.shape != b.shape
            or not torch.allclose(a, b, RELATIVE, ABSOLUTE)
        ):
            return Counterexample(facts, seed, atom, a, b)
    return None


def _solved(
    program: Program, outputs: Sequence[str], facts: Facts, seed: int
) -> dict[nodes.Atom, Tensor] | EdgewiseError:
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore", EdgewiseWarning)
            found = program.solve(facts, seed=seed)
            return {atom: found[atom] for atom in found if atom.relation in outputs}
    except EdgewiseError as error:
        return error


def _smallest(
    program: Program, other: Program, outputs: Sequence[str], found: Counterexample
) -> Counterexample:
    """With fact after fact left out that the difference does not need."""
    for fact in found.facts:
        fewer = tuple(f for f in found.facts if f is not fact)
        less = _difference(program, other, outputs, fewer, found.seed)
        found = less if isinstance(less, Counterexample) else found
    return found
