"""The relational part: which atoms hold, stratum by stratum, and all groundings of all rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from edgewise.errors import EdgewiseError
from edgewise.language import nodes
from edgewise.language.dependencies import components, needs
from edgewise.reference.join import Assignment, Body
from edgewise.reference.relations import Database, Key, Relation

LIMIT = 1_000_000  # atoms; the reference is for samples that a person can look at
ROUNDS = 100_000
BITS = 62  # of a key; arithmetic that outgrows them does not end


class TooManyGroundings(EdgewiseError):
    """Arithmetic can count for ever and joins multiply: evaluation stops before memory does."""

    code = "too-many-groundings"
    example = "Program([R.h(V.T) <= (R.h(V.S), R.special.next(V.S, V.T))]).solve([R.h(0)[1.0]])"
    instead = (
        "Program([R.h(V.T) <= (R.x(V.T), R.h(V.S), R.special.next(V.S, V.T))])"
        ".solve([R.h(0)[1.0], R.x(1)[2.0]])"
    )


def ground_rules(
    bodies: Sequence[Body],
    facts: Iterable[nodes.Atom],
    unreached: frozenset[tuple[str, Key]] = frozenset(),
) -> list[GroundRule]:
    """All ground rules, stratum by stratum.

    `unreached` are atoms that the rounds of a cycle do not reach: their own stratum may still
    count on them in a later round, for all others they are absent.
    """
    database: Database = defaultdict(Relation)
    for atom in facts:
        database[atom.relation].add(atom.terms)  # type: ignore[arg-type]
    made: dict[int, GroundRule] = {}
    for stratum in components(needs([body.rule for body in bodies])):
        here = [body for body in bodies if body.rule.head.relation in stratum]
        _close(here, database)
        made |= {id(body): GroundRule(body, database) for body in here}
        for relation, key in unreached:
            if relation in stratum:
                database[relation].remove(key)
    return [made[id(body)] for body in bodies]


def _close(bodies: Sequence[Body], database: Database) -> None:
    """Derive until nothing is new; each round looks only at what the last one found."""
    new: dict[str, list[Key]] = defaultdict(list)
    for body in bodies:
        _derive(body, body.matches(database), database, new)
    for _ in range(ROUNDS):
        if not any(new.values()):
            return
        last, new = new, defaultdict(list)
        for body in bodies:
            for place in body.recursive_places:
                keys = last.get(body.literals[place].relation, ())  # type: ignore[union-attr]
                if keys:
                    _derive(body, body.matches(database, place, keys), database, new)
    raise endless(bodies[0].rule)


def _derive(
    body: Body,
    matches: Iterable[Assignment],
    database: Database,
    new: dict[str, list[Key]],
) -> None:
    head = body.rule.head
    found = {
        tuple(match[t.name] if isinstance(t, nodes.Variable) else t for t in head.terms)
        for match in matches
    }
    if any(isinstance(k, int) and k.bit_length() > BITS for key in found for k in key):
        raise endless(body.rule)
    for key in found:
        if database[head.relation].add(key):
            new[head.relation].append(key)
    if len(database[head.relation]) > LIMIT:
        raise endless(body.rule)


def endless(rule: nodes.Rule) -> TooManyGroundings:
    return TooManyGroundings(
        f"the rule for `{rule.head.relation}` derives more than {ROUNDS:,} rounds or {LIMIT:,} "
        "atoms can hold",
        rule.place,
        "bind the variable that grows by an atom with finitely many facts",
    )


class GroundRule:
    """One rule with its groundings, by head; heads of one softmax group belong together."""

    def __init__(self, body: Body, database: Database) -> None:
        self.rule = body.rule
        self.heads: dict[Key, list[Assignment]] = defaultdict(list)
        for assignment in body.groundings(database):
            terms = body.rule.head.terms
            key = tuple(assignment[t.name] if isinstance(t, nodes.Variable) else t for t in terms)
            self.heads[key].append(assignment)
        self.groups = self._grouped()

    def _grouped(self) -> dict[Key, list[Key]]:
        """Head → all heads that its softmax normalises over, itself included."""
        named = next((f for f in self.rule.functions if dict(f.arguments).get("agg_terms")), None)
        if named is None:
            return {key: [key] for key in self.heads}
        over = set(named["agg_terms"])
        kept = [
            p
            for p, t in enumerate(self.rule.head.terms)
            if not (isinstance(t, nodes.Variable) and t.name in over)
        ]
        groups: dict[Key, list[Key]] = defaultdict(list)
        for key in self.heads:
            groups[tuple(key[p] for p in kept)].append(key)
        return {key: groups[tuple(key[p] for p in kept)] for key in self.heads}
