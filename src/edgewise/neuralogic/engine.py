"""Samples on a compiled program: outputs, errors and updates of weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgewise.errors import caller, counted
from edgewise.inputs.kinds import ragged
from edgewise.language import Program, nodes, statements
from edgewise.language.functions import call, named
from edgewise.language.text_form.published import FACTS, NAMED, Relation
from edgewise.module import Data, Model
from edgewise.neuralogic.errors import BadSample
from edgewise.neuralogic.learned_facts import LEARNED, LearnedFacts
from edgewise.neuralogic.text import TextTemplate
from edgewise.neuralogic.translate import TemplateTranslator
from edgewise.neuralogic.values import plain
from edgewise.viz.svg import Picture

if TYPE_CHECKING:
    from edgewise.reference.why import Why

Template = TemplateTranslator | TextTemplate
KERNELS = (
    "fuse attention",
    "fuse gathers",
    "fuse messages",
    "scan levels",
)  # passes that call loops of our own


@dataclass(eq=False)
class Example:
    """Ground atoms, each with its value; samples of one example share it."""

    atoms: list[nodes.Atom]

    def relations(self) -> set[Relation]:
        return {(atom.relation, len(atom.terms)) for atom in self.atoms}

    def constants(self) -> set[nodes.Constant]:
        terms = [a.terms[:-1] if LEARNED in a.relation else a.terms for a in self.atoms]
        return {t for each in terms for t in each if not isinstance(t, nodes.Variable)}


@dataclass(eq=False)
class NeuralSample:
    """A query on an example, and what it should give."""

    example: Example
    query: nodes.Atom | None
    target: Tensor
    importance: float = 1.0
    programs: Programs | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{plain(self.target)} {self.query!r}"

    def why(self) -> Why:
        """The groundings behind the output, with their shares, for the current weights."""
        model, data, query = self._derived()
        return model.why(query, data)

    def draw(self, filename: str | Path | None = None) -> Picture:
        """The network behind the output, as SVG; with a name, it is saved too."""
        model, data, query = self._derived()
        return saved_picture(model.draw(query, data), filename)

    def _derived(self) -> tuple[Model, Data, nodes.Atom]:
        batch = None if self.programs is None else SampleBatch(self.programs, [self])
        if batch is None or batch.model is None or self.query is None:
            raise BadSample(
                f"nothing derives `{self.query!r}`", caller(), "query what a rule of the model has"
            )
        return batch.model, batch.data, self.query


def saved_picture(picture: Picture, filename: str | Path | None) -> Picture:
    """A picture, written to a file if that has a name."""
    if filename is not None:
        picture.save(filename)
    return picture


class Programs:
    """A template compiled for the queries and facts that appear, with one set of weights."""

    def __init__(
        self,
        template: Template,
        settings: Any,
        weights: dict[str, Tensor],
        domains: Mapping[str, int] | None = None,
    ) -> None:
        self.template = template
        self.settings = settings
        self.weights = weights
        self.domains = dict(domains or {})
        self._programs: dict[Any, Program] = {}
        self._models: dict[Any, Model] = {}

    def program(self, with_facts: Iterable[Relation] = ()) -> Program:
        key = frozenset(with_facts)
        if key not in self._programs:
            aggregation = self.settings.rule_aggregation
            default = call(named(aggregation.ours), (), dict(aggregation.arguments))
            rules = self.template.statements(sorted(key))
            self._programs[key] = Program(rules, aggregation=default, domains=self.domains)
        return self._programs[key]

    def learning(self, facts: LearnedFacts) -> Programs:
        """The same template, and the same weights, beside learned facts."""
        template = self.template.extended(facts.rules(self.template.derived()))
        weights = {**self.weights, **facts.make_weights()}
        return Programs(template, self.settings, weights, facts.domains())

    def model(self, program: Program, outputs: tuple[str, ...], taped: bool = False) -> Model:
        """The compiled program; to be taped, by operators of torch alone."""
        key = (id(program), outputs, taped)
        if key not in self._models:
            used = {w.name for rule in program.statements for w in statements.weights(rule)}
            weights = {name: value for name, value in self.weights.items() if name in used}
            atoms = [nodes.Atom(name) for name in outputs]
            options: dict[str, Any] = {"dtype": torch.float64, "weights": weights}
            options |= {"without": KERNELS} if taped else {}
            self._models[key] = program.compile(atoms, **options)
        return self._models[key]

    def derived(self, examples: Iterable[Example]) -> frozenset[Relation]:
        """The relations that have rules, and facts in the data."""
        heads = {r.head.relation for r in self.program().rules} - {NAMED}
        return frozenset(r for e in examples for r in e.relations() if r[0] in heads)


Descended = tuple[NeuralSample, Tensor, Tensor]


class SampleBatch:
    """Some samples, grounded together: `outputs()` has the value of each query."""

    def __init__(
        self, programs: Programs, samples: Sequence[NeuralSample], taped: bool = False
    ) -> None:
        self.samples = list(samples)
        examples = list({id(s.example): s.example for s in samples}.values())
        program = programs.program(programs.derived(examples))
        rules = program.rules
        heads = {rule.head.relation for rule in rules}
        read = {a.relation for r in rules for a in statements.atoms(r) if isinstance(a, nodes.Atom)}
        queries = [s.query for s in samples if s.query is not None]
        outputs = tuple(sorted({q.relation for q in queries if q.relation in heads}))
        self.facts = [_facts(example, heads, read) for example in examples]
        self._positions = {id(example): at for at, example in enumerate(examples)}
        self._rows: list[tuple[str, int] | None] | None = None
        self.model: Model | None = None
        if outputs:
            self.model = programs.model(program, outputs, taped)
            self.data = self.model.ground(facts=ragged(self.facts))

    def outputs(self) -> list[Tensor]:
        """The value of each query; 0 where nothing derives it."""
        found: dict[str, Any] = {}
        if self.model is not None:
            found = self.model.rows(self.data)  # type: ignore[assignment]
        if self._rows is None:
            self._rows = [self._row(found, sample) for sample in self.samples]
        zero = torch.zeros((), dtype=torch.float64)
        return [zero if at is None else found[at[0]].data[at[1]] for at in self._rows]

    def is_derived(self, at: int) -> bool:
        """Whether anything derives the query of a sample, once outputs are known."""
        return self._rows is not None and self._rows[at] is not None

    def _row(self, found: dict[str, Any], sample: NeuralSample) -> tuple[str, int] | None:
        query, position = sample.query, self._positions[id(sample.example)]
        if query is None:
            return None
        if query.relation not in found:
            return None
        row = found[query.relation]._rows.get((position, *query.terms))
        return None if row is None else (query.relation, row)

    def matches(self, query: nodes.Atom, example: Example) -> list[nodes.Atom]:
        """The derived atoms that a query with variables stands for."""
        found: Any = {} if self.model is None else self.model.rows(self.data)
        if query.relation not in found:
            return []
        at = self._positions[id(example)]
        atoms = [
            nodes.Atom(a.relation, a.terms[1:]) for a in found[query.relation] if a.terms[0] == at
        ]
        return [atom for atom in atoms if matched(query, atom) is not None]


def matched(query: nodes.Atom, atom: nodes.Atom) -> dict[str, nodes.Constant] | None:
    """The values of the variables of a query for an atom, or None if it is another atom."""
    if len(query.terms) != len(atom.terms):
        return None
    found: dict[str, Any] = {}
    for term, value in zip(query.terms, atom.terms, strict=True):
        if isinstance(term, nodes.Variable):
            if found.setdefault(term.name, value) != value:
                return None
        elif type(term) is not type(value) or term != value:
            return None
    return found


def _facts(example: Example, heads: set[str], read: set[str]) -> list[nodes.Atom]:
    """The atoms that the program reads; those of a relation that rules derive stand apart."""
    found: dict[tuple[str, tuple[Any, ...]], nodes.Atom] = {}
    for atom in example.atoms:
        apart = atom.relation + FACTS
        name = apart if apart in read else atom.relation
        if name in read or name in heads:
            found.setdefault((name, atom.terms), nodes.Atom(name, atom.terms, atom.weight))
    if NAMED in read:
        for constant in sorted(example.constants(), key=str):
            found.setdefault((NAMED, (constant,)), nodes.Atom(NAMED, (constant,)))
    return list(found.values())


def errors(batch: SampleBatch, function: Any) -> list[tuple[Any, Any, float]]:
    """Target, output and error of every sample."""
    found = []
    for at, (sample, value) in enumerate(zip(batch.samples, batch.outputs(), strict=True)):
        is_derived = batch.is_derived(at)
        shown = plain(function.output(value).detach() if is_derived else value)
        value = value.detach() if is_derived else torch.zeros_like(sample.target)
        error = float(function.error(value, _alike(sample, value)))
        found.append((plain(sample.target), shown, error))
    return found


def shown_outputs(batch: SampleBatch, function: Any) -> list[Any]:
    """The output of every sample, 0 where nothing derives its query."""
    found = enumerate(batch.outputs())
    return [plain(function.output(v) if batch.is_derived(at) else v) for at, v in found]


def descended(batch: SampleBatch, function: Any) -> tuple[Tensor, list[Descended]]:
    """What a batch descends, and the sample, output and error of each query that is derived."""
    total = torch.zeros((), dtype=torch.float64)
    elements, found = 0.0, []
    for at, (sample, value) in enumerate(zip(batch.samples, batch.outputs(), strict=True)):
        if not batch.is_derived(at):
            continue
        target = _alike(sample, value)
        total = total + sample.importance * function.descended(value, target)
        elements += sample.importance * value.numel()
        found.append((sample, function.output(value).detach(), function.error(value, target)))
    is_mean = function.reduction == "mean" and elements > 0
    return (total / elements if is_mean else total), found


def result(sample: NeuralSample, output: Tensor, error: Tensor) -> tuple[Any, Any, float]:
    """Target, output and error."""
    return plain(sample.target), plain(output), error.item()


def _alike(sample: NeuralSample, value: Tensor) -> Tensor:
    """The target in the shape of the output."""
    if sample.target.numel() not in (1, value.numel()):
        raise BadSample(
            f"the target of `{sample.query!r}` has {counted(sample.target.numel(), 'element')}, "
            f"its value {value.numel()}",
            caller(),
            "give a target of the shape of the output",
        )
    target = sample.target
    return target.expand(value.shape) if target.dim() == 0 else target.reshape(value.shape)
