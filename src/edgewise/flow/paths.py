"""The conditions under which information flows from one relation to all that rules derive from it.

Relation by relation, each after those that it needs: what reaches an atom of a body reaches the
rule head, under the condition of the body. Conditions that imply another one are dropped, so that
many layers have no more than one does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from edgewise.flow.bodies import body_cases, key, term_name
from edgewise.flow.conditions import NEVER, Condition, projected, reduced, renamed, together, widest
from edgewise.language import nodes
from edgewise.language.dependencies import components, needs
from edgewise.language.program import Program
from edgewise.language.statements import atoms

MOST = 128  # conditions of one relation; above, one that all of them imply takes their place
ROUNDS = 5  # of a recursion, before bounds that still grow are left open


def source(position: int) -> str:
    """The name of a key of the atom that information comes from."""
    return f"s{position}"


@dataclass
class Flows:
    """For each relation when its atoms may hold, and when information of `start` reaches them."""

    start: str
    domains: dict[str, list[Condition]] = field(default_factory=dict)
    reached: dict[str, list[Condition]] = field(default_factory=dict)
    exact: bool = True

    def add(self, relation: str, conditions: Sequence[Condition]) -> bool:
        """Whether there is something new."""
        before = self.reached.get(relation, [])
        after = reduced([*before, *conditions])
        if len(after) > MOST:
            after, self.exact = [widest(after)], False
        self.reached[relation] = after
        return set(after) != set(before)


def flows(program: Program, start: str) -> Flows:
    """What information of a relation reaches."""
    found = Flows(start)
    graph = needs(program.rules)
    for part in components(graph):
        rules = [rule for rule in program.rules if rule.head.relation in part]
        if any(part & graph[name] for name in part):
            found.domains |= {name: [Condition()] for name in part}
            _recursive(found, rules)
            continue
        (name,) = part
        for rule in rules:
            found.add(name, _step(found, rule))
        found.domains[name] = reduced(one for rule in rules for one in _domain(found, rule))
        if len(found.domains[name]) > MOST:
            found.domains[name], found.exact = [widest(found.domains[name])], False
        stated = {fact.atom.relation for fact in program.facts}
        if name in stated:
            found.domains[name] = [Condition()]
    return found


def _domain(found: Flows, rule: nodes.Rule) -> list[Condition]:
    """When a rule may derive its head."""
    cases, _ = body_cases(rule, found.domains)
    return [_at_head(one, rule.head, frozenset()) for one in cases]


def _at_head(one: Condition, head: nodes.Atom, free: frozenset[str]) -> Condition:
    """A condition of a body on the keys of the rule head; those of `free` variables are any."""
    links = {
        (a, b): 0.0
        for p, term in enumerate(head.terms)
        if not (isinstance(term, nodes.Variable) and term.name in free)
        for a, b in ((key(p), term_name(term)), (term_name(term), key(p)))
    }
    linked = Condition(frozenset((a, b, c) for (a, b), c in links.items()))
    both = together([one, linked])
    if both is None:
        return NEVER
    used = {name for a, b, _ in both.bounds for name in (a, b)}
    used |= {term for literal in both.literals for term in literal.terms}
    return projected(both, {name for name in used if name[0] in "ks"})


def _step(found: Flows, rule: nodes.Rule) -> list[Condition]:
    """What reaches the rule head through one atom of the body."""
    cases, exact = body_cases(rule, found.domains)
    found.exact &= exact
    normalised = (dict(f.arguments).get("agg_terms") for f in rule.functions)
    free = frozenset(next((named for named in normalised if named), ()))  # of a softmax: all of it
    made = []
    for atom in atoms(rule.body):
        if not isinstance(atom, nodes.Atom):
            continue
        names = list(map(term_name, atom.terms))
        reaching: list[Condition] = []
        if atom.relation == found.start:
            pairs = [(source(p), name) for p, name in enumerate(names)]
            equal = {(a, b, 0.0) for x, y in pairs for a, b in ((x, y), (y, x))}
            reaching.append(Condition(frozenset(equal)))
        for one in found.reached.get(atom.relation, ()):
            table = {key(p): name for p, name in enumerate(names)}
            reaching.append(renamed(one, lambda n, table=table: _below(n, table)))  # type: ignore[misc]
        for case in cases:
            for one in reaching:
                both = together([case, one])
                if both is not None:
                    made.append(_at_head(both, rule.head, free))
    return made


def _below(name: str, table: dict[str, str]) -> str:
    return table.get(name, f"?below.{name}" if name.startswith("?") else name)


def _recursive(found: Flows, rules: Sequence[nodes.Rule]) -> None:
    """Until nothing is new; what then still grows is left open, which holds in more cases."""
    for _ in range(ROUNDS):
        if not any([found.add(rule.head.relation, _step(found, rule)) for rule in rules]):
            return
    found.exact = False
    names = {rule.head.relation for rule in rules}
    for name in names & found.reached.keys():
        if found.reached[name]:
            found.reached[name] = [widest(found.reached[name])]
    changed = True
    while changed:
        changed = False
        for rule in rules:
            name = rule.head.relation
            more = reduced(_step(found, rule))
            if not more:
                continue
            now = found.reached.get(name) or [widest(more)]
            (old,) = now
            if not all(one.implies(old) for one in more) or name not in found.reached:
                found.reached[name] = [_widened(old, more)]
                changed = True


def _widened(old: Condition, more: Sequence[Condition]) -> Condition:
    """Without the bounds and literals that new conditions do not have."""
    bounds = {
        (a, b, c)
        for a, b, c in old.bounds
        if all(one.table.get((a, b), float("inf")) <= c for one in more)
    }
    literals = {x for x in old.literals if all(x in one.literals for one in more)}
    return Condition(frozenset(bounds), frozenset(literals))
