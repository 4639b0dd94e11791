"""Templates of PyNeuraLogic as rules: every construct is one of `edgewise.language`, or several.

A name with several arities becomes one relation for each. A variable that no ordinary atom binds
ranges over the constants that occur, in the relation `any.name`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from edgewise.errors import Place, caller, safe_repr
from edgewise.language import nodes, statements
from edgewise.language.functions import call, named
from edgewise.language.specials import SPECIALS
from edgewise.language.text_form.published import (
    DERIVED,
    FACTS,
    NAMED,
    Relation,
    of_type,
    with_facts_apart,
)
from edgewise.neuralogic.core.constructs.function.function import NamedFunction
from edgewise.neuralogic.core.constructs.function.function_container import FContainer
from edgewise.neuralogic.core.constructs.metadata import Metadata
from edgewise.neuralogic.core.constructs.predicate import PredicateMetadata
from edgewise.neuralogic.core.constructs.relation import BaseRelation, WeightedRelation
from edgewise.neuralogic.core.constructs.rule import TemplateRule
from edgewise.neuralogic.core.constructs.term import NamedConstant, NamedVariable
from edgewise.neuralogic.errors import BadTemplate
from edgewise.neuralogic.values import WeightForm, weight_form

COMPUTED = ("add", "sub", "mul", "div", "mod", "next")  # over the natural numbers


@dataclass(frozen=True)
class TemplateWeight:
    """A weight of a template: its number in `state_dict`, its names here and there, its form."""

    index: int
    name: str
    label: str
    form: WeightForm
    is_fixed: bool


class TemplateTranslator:
    """Collects the statements and the weights of a template."""

    def __init__(self, entries: Iterable[Any], settings: Any) -> None:
        self.settings = settings
        self.weights: dict[str, TemplateWeight] = {}
        self.arities: dict[str, set[int]] = defaultdict(set)
        self.compares = False  # whether a condition compares or computes numbers
        self.computes = False  # whether one computes numbers
        self._next_index = 0
        self._place: Place | None = None  # of the rule that is translated
        self._lifted: list[nodes.Rule] = []
        listed = list(entries)
        for entry in listed:
            self._count(entry)
        self.rules: list[nodes.Statement] = []
        for entry in listed:
            self._add(entry)
        self._add_defaults()

    def _count(self, entry: Any) -> None:
        match entry:
            case TemplateRule():
                for relation in (entry.head, *entry.body):
                    self._count(relation)
            case PredicateMetadata():
                self.arities[entry.predicate.name].add(entry.predicate.arity)
            case BaseRelation() if not entry.predicate.special:
                self.arities[entry.predicate.name].add(len(entry.terms))

    def name(self, relation: Relation) -> str:
        """The relation of a name and an arity: `h`, or `h/2` where `h` has several arities."""
        name, arity = relation
        others = self.arities.get(name, {arity})
        return name if others == {arity} else f"{name}/{arity}"

    def _add(self, entry: Any) -> None:
        match entry:
            case TemplateRule():
                self.rules.append(self._rule(entry))
            case PredicateMetadata():
                self._line(entry)
            case BaseRelation():
                self._fact(entry)
            case _:
                raise BadTemplate(
                    f"`{safe_repr(entry)}` is not a rule, a fact or a module",
                    caller(),
                    "a template has rules, facts, `R.h/1 | [...]` and modules",
                )

    def _line(self, entry: PredicateMetadata) -> None:
        name = self.name((entry.predicate.name, entry.predicate.arity))
        functions = self._functions(entry.metadata)
        found = nodes.Line(name, entry.predicate.arity, functions)
        self.rules = [s for s in self.rules if not _is_line(s, name)] + [found]

    def _fact(self, entry: BaseRelation) -> None:
        self._place = None
        atom, types = self.atom(entry)
        free = [term for term in atom.terms if isinstance(term, nodes.Variable)]
        if free:
            body = (*(_any(variable) for variable in dict.fromkeys(_names(free))), *types)
            self._lifted.append(nodes.Rule(atom, tuple(body)))
            return
        known = {(s.atom.relation, s.atom.terms) for s in self.rules if isinstance(s, nodes.Fact)}
        if (atom.relation, atom.terms) not in known:  # the first one counts
            self.rules.append(statements.fact(atom))
        self.rules += [statements.fact(replace(one, hidden=False)) for one in types]

    def _add_defaults(self) -> None:
        """The relations' default functions, where a template has others than the usual ones."""
        if not self.rules:
            return
        functions = (self.settings.relation_combination, self.settings.relation_transformation)
        listed = [f for f in functions if f.name not in ("sum", "identity")]
        if not listed:
            return
        rules = [s for s in self.rules if isinstance(s, nodes.Rule)]
        heads = {(rule.head.relation, len(rule.head.terms)) for rule in rules}
        for name, arity in sorted(heads):
            if not any(_is_line(s, name) for s in self.rules):
                self.rules.append(nodes.Line(name, arity, tuple(map(_function, listed))))

    def extended(self, rules: Iterable[nodes.Rule]) -> TemplateTranslator:
        """The template with other rules beside its own."""
        found = copy(self)
        found.rules = [*self.rules, *rules]
        return found

    def derived(self) -> set[str]:
        """The relations that have rules."""
        rules = [s for s in self.rules if isinstance(s, nodes.Rule)]
        return {rule.head.relation for rule in (*rules, *self._lifted)}

    def statements(self, with_facts: Iterable[Relation] = ()) -> list[nodes.Statement]:
        """The program, for data that have facts of these relations.

        Where an atom has a fact and a rule derives it, the rule counts.
        """
        own = [
            (s.atom.relation, len(s.atom.terms)) for s in self.rules if isinstance(s, nodes.Fact)
        ]
        lifted = [(rule.head.relation, len(rule.head.terms)) for rule in self._lifted]
        apart = dict.fromkeys((*with_facts, *own, *lifted))
        program = with_facts_apart(self.rules, apart)
        program = program if program is not self.rules else list(program)
        names = {s.head.relation for s in program if isinstance(s, nodes.Rule)}
        heads = {relation for relation, _ in apart if relation + DERIVED in names}

        def moved(atom: nodes.Atom) -> nodes.Atom:
            return replace(atom, relation=atom.relation + FACTS) if atom.relation in heads else atom

        program = [nodes.Fact(moved(s.atom)) if isinstance(s, nodes.Fact) else s for s in program]
        program += [replace(rule, head=moved(rule.head)) for rule in self._lifted]
        constants = {t for s in program for t in _constants(s)}
        if any(a.relation == NAMED for s in program if _is_rule(s) for a in _atoms(s)):
            program += [nodes.Fact(nodes.Atom(NAMED, (c,))) for c in sorted(constants, key=str)]
        return program

    def _rule(self, rule: TemplateRule) -> nodes.Rule:
        self._place = rule.place
        metadata = rule.metadata or Metadata()
        head, types = self.atom(rule.head)
        body: list[nodes.Expression] = []
        conditions: list[nodes.Expression] = list(types)
        variables = _rule_variables(rule)
        items = [rule.body] if isinstance(rule.body, FContainer) else rule.body
        for item in items:
            found = self._item(item, conditions, variables)
            body += [] if found is None else [found]
        if isinstance(rule.body, FContainer):
            metadata = replace(metadata, combination=None)
        if metadata.duplicate_grounding:
            conditions = self._counted(conditions, metadata, body)
        conditions += [_any(variable) for variable in _open(head, body, conditions)]
        if metadata.learnable is False and head.weight is not None:
            head = replace(head, weight=head.weight.fixed())
        functions = self._functions(metadata, is_rule=True)
        return nodes.Rule(head, (*body, *conditions), functions, rule.place)

    def _counted(
        self, conditions: list[nodes.Expression], metadata: Metadata, body: list[nodes.Expression]
    ) -> list[nodes.Expression]:
        """Equal groundings count again: a hidden atom takes part, and adds nothing."""
        name = getattr(metadata.combination, "name", "")
        is_product = name in ("product", "elproduct")
        rest: list[nodes.Expression] = []
        for item in conditions:
            if isinstance(item, nodes.Atom) and item.hidden and not item.negated:
                one = replace(item, relation=f"{item.relation}.one", hidden=False)
                derived = replace(item, terms=tuple(_fresh(len(item.terms))))
                head = replace(derived, relation=one.relation, hidden=False)
                self.rules.append(nodes.Rule(head, (derived,)))
                weight = None if is_product else nodes.Weight(value=0.0, is_fixed=True)
                body.append(replace(one, weight=weight))
            else:
                rest.append(item)
        return rest

    def _functions(self, metadata: Metadata, is_rule: bool = False) -> tuple[nodes.Function, ...]:
        written = [metadata.combination, metadata.transformation, metadata.aggregation]
        if is_rule:
            defaults = (self.settings.rule_combination, self.settings.rule_transformation, None)
            written = [a or b for a, b in zip(written, defaults, strict=True)]
        found = [f for f in written if f is not None]
        usual = ("identity",) if is_rule else ("identity", "sum")
        return tuple(
            _function(f) for f in found if f.name not in usual and not _is_default(f, is_rule)
        )

    def _item(
        self, item: Any, conditions: list[nodes.Expression], variables: list[str]
    ) -> nodes.Expression | None:
        """A part of a body that carries a value; what carries none joins the conditions."""
        if isinstance(item, FContainer):
            parts = [self._item(node, conditions, variables) for node in item.nodes]
            operands = tuple(part for part in parts if part is not None)
            return nodes.Apply(_function(item.function), operands) if operands else None
        if item.predicate.special:
            return self._special(item, conditions, variables)
        atom, types = self.atom(item)
        conditions += types
        if not atom.carries_value:
            conditions.append(atom)
            return None
        if item.function is None:
            return atom
        plain, weight = replace(atom, weight=None), atom.weight
        return nodes.Apply(_function(item.function), (plain,), weight)

    def _special(
        self, item: BaseRelation, conditions: list[nodes.Expression], variables: list[str]
    ) -> nodes.Expression | None:
        name = item.predicate.name
        if name not in SPECIALS or name == "fn":
            if name in ("anypred", "truepred", "true"):
                return None
            known = [n for n in SPECIALS if n != "fn"]
            raise BadTemplate(
                f"there is no special predicate `{name}`", caller(), f"one of {', '.join(known)}"
            )
        items = item.terms
        if name == "alldiff" and any(term is ... for term in items):
            items = list(dict.fromkeys([*map(str, [t for t in items if t is not ...]), *variables]))
        terms = tuple(self.term(term)[0] for term in items)
        self.computes = self.computes or name in COMPUTED
        self.compares = self.compares or name not in ("eq", "neq", "alldiff", "in", "maxcard")
        atom = nodes.SpecialAtom(name, terms, negated=item.negated)
        if atom.carries_value and not item.predicate.hidden:
            return atom
        conditions.append(atom)
        return None

    def atom(self, relation: BaseRelation) -> tuple[nodes.Atom, list[nodes.Atom]]:
        """An atom, and the conditions that the types of its terms are."""
        found = [self.term(term) for term in relation.terms]
        terms = tuple(term for term, _ in found)
        types = [of_type(kind, term) for term, kind in found if kind is not None]
        name = self.name((relation.predicate.name, len(terms)))
        weight = self._weight(relation) if isinstance(relation, WeightedRelation) else None
        is_hidden = relation.predicate.hidden
        return nodes.Atom(name, terms, weight, is_hidden, relation.negated, self._place), types

    def _weight(self, relation: WeightedRelation) -> nodes.Weight:
        form = weight_form(relation.weight)
        label = relation.weight_name
        known = next((w for w in self.weights.values() if label and w.label == label), None)
        if known is None:
            index, self._next_index = self._next_index, self._next_index + 1
            known = TemplateWeight(
                index, f"w{index}", label or f"w{index}", form, relation.is_fixed
            )
            self.weights[known.name] = known
        elif form.shape != known.form.shape:
            raise BadTemplate(
                f"the weight `{label}` has the shapes {known.form.shape} and {form.shape}",
                caller(),
                "give weights of other shapes other names",
            )
        return nodes.Weight(
            name=known.name,
            shape=known.form.shape or None,
            value=None if known.form.shape else 0.0,
        )

    def term(self, term: Any) -> tuple[nodes.Term, str | None]:
        """A term, and its type."""
        match term:
            case NamedVariable():
                return nodes.Variable(term.name), term.type
            case NamedConstant():
                return constant(term.name), term.type
            case bool():
                pass
            case int() | float():
                return constant(str(term)), None
            case str() if term[:1].isupper():
                return nodes.Variable(term), None
            case str() if term and (term[0].islower() or _is_integer(term)):
                return constant(term), None
        if hasattr(term, "item"):
            return self.term(term.item())
        raise BadTemplate(
            f"`{safe_repr(term)}` is not a term",
            caller(),
            "a term is a variable `V.X`, a constant `C.red`, a number or a string",
        )


def constant(text: str) -> nodes.Constant:
    """NeuraLogic's constants are texts: `1` and `"1"` are one."""
    return int(text) if _is_integer(text) else text


def _is_integer(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and text.isascii() and len(text) < 19


def _function(function: NamedFunction) -> nodes.Function:
    found: nodes.Function = call(named(function.ours), (), dict(function.arguments))
    return found


def _is_default(function: NamedFunction, is_rule: bool) -> bool:
    return is_rule and function.kind == "combination" and function.name == "sum"


def _is_line(statement: nodes.Statement, name: str) -> bool:
    return isinstance(statement, nodes.Line) and statement.relation == name


def _is_rule(statement: Any) -> bool:
    return isinstance(statement, nodes.Rule)


def _atoms(rule: Any) -> Iterator[nodes.Atom]:
    return (atom for atom in statements.atoms(rule) if isinstance(atom, nodes.Atom))


def _names(terms: Iterable[nodes.Term]) -> list[str]:
    return [term.name for term in terms if isinstance(term, nodes.Variable)]


def _any(variable: str) -> nodes.Atom:
    return nodes.Atom(NAMED, (nodes.Variable(variable),), hidden=True)


def _fresh(count: int) -> Iterator[nodes.Variable]:
    return (nodes.Variable(f"X{i}") for i in range(count))


def _open(
    head: nodes.Atom, body: Iterable[nodes.Expression], conditions: Iterable[nodes.Expression]
) -> list[str]:
    """The variables that no ordinary atom binds."""
    every = list(statements.atoms((*body, *conditions)))
    bound = {
        name
        for atom in every
        if isinstance(atom, nodes.Atom) and not atom.negated
        for name in _names(atom.terms)
    }
    used = [*_names(head.terms), *(name for atom in every for name in _names(atom.terms))]
    return [name for name in dict.fromkeys(used) if name not in bound]


def _rule_variables(rule: TemplateRule) -> list[str]:
    terms = [t for relation in (rule.head, *rule.body) for t in relation.terms if t is not ...]
    return [str(t) for t in dict.fromkeys(map(str, terms)) if t[:1].isupper()]


def _constants(statement: nodes.Statement) -> Iterator[nodes.Constant]:
    found: list[nodes.Term] = []
    if isinstance(statement, nodes.Rule):
        found = [*statement.head.terms, *(t for a in _atoms(statement) for t in a.terms)]
    elif isinstance(statement, nodes.Fact):
        found = list(statement.atom.terms)
    return (term for term in found if not isinstance(term, nodes.Variable))
