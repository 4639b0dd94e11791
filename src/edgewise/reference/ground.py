"""The relational part: which atoms hold, stratum by stratum, and all groundings of all rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from edgewise.checks.evaluation import LIMIT, ROUNDS, endless
from edgewise.language import nodes
from edgewise.language.dependencies import components, needs
from edgewise.reference.join import Assignment, Database, Key, KeySet, Matcher, ground

BITS = 62  # of a key; arithmetic that outgrows them does not end


def ground_rules(
    matchers: Sequence[Matcher],
    facts: Iterable[nodes.Atom],
    unreached: frozenset[tuple[str, Key]] = frozenset(),
) -> list[RuleGroundings]:
    """All ground rules, stratum by stratum.

    `unreached` are atoms that the rounds of a cycle do not reach: their own stratum may still
    count on them in a later round, for all others they are absent.
    """
    database: Database = defaultdict(KeySet)
    for atom in facts:
        database[atom.relation].add(atom.terms)  # type: ignore[arg-type]
    made: dict[int, RuleGroundings] = {}
    for stratum in components(needs([matcher.rule for matcher in matchers])):
        here = [matcher for matcher in matchers if matcher.rule.head.relation in stratum]
        _close(here, database)
        made |= {id(m): RuleGroundings(m.rule, m.groundings(database)) for m in here}
        for relation, key in unreached:
            if relation in stratum:
                database[relation].remove(key)
    return [made[id(matcher)] for matcher in matchers]


def _close(matchers: Sequence[Matcher], database: Database) -> None:
    """Derive until nothing is new; each round looks only at what the last one found."""
    new: dict[str, list[Key]] = defaultdict(list)
    for matcher in matchers:
        _derive(matcher, matcher.matches(database), database, new)
    for _ in range(ROUNDS):
        if not any(new.values()):
            return
        last, new = new, defaultdict(list)
        for matcher in matchers:
            for place in matcher.recursive_places:
                keys = last.get(matcher.literals[place].relation, ())  # type: ignore[union-attr]
                if keys:
                    _derive(matcher, matcher.matches(database, place, keys), database, new)
    raise endless(matchers[0].rule)


def _derive(
    matcher: Matcher, matches: Iterable[Assignment], database: Database, new: dict[str, list[Key]]
) -> None:
    head = matcher.rule.head
    found = {ground(head.terms, match) for match in matches}
    if any(isinstance(k, int) and k.bit_length() > BITS for key in found for k in key):
        raise endless(matcher.rule)
    for key in found:
        if database[head.relation].add(key):
            new[head.relation].append(key)
    if len(database[head.relation]) > LIMIT:
        raise endless(matcher.rule)


class RuleGroundings:
    """One rule with its groundings, by rule head; those of one softmax group belong together.

    `witnesses` say for each grounding how its conditions hold: variables that only those mention.
    """

    def __init__(
        self, rule: nodes.Rule, groundings: Iterable[tuple[Assignment, Assignment]]
    ) -> None:
        self.rule = rule
        self.heads: dict[Key, list[Assignment]] = defaultdict(list)
        self.witnesses: dict[Key, Assignment] = {}
        for assignment, witness in groundings:
            self.heads[ground(rule.head.terms, assignment)].append(assignment)
            self.witnesses[tuple(assignment.values())] = witness
        self.groups = self._grouped()

    def _grouped(self) -> dict[Key, list[Key]]:
        """Rule head → all that its softmax normalises over, itself included."""
        named = next((f for f in self.rule.functions if dict(f.arguments).get("agg_terms")), None)
        if named is None:
            return {key: [key] for key in self.heads}
        over = set(named["agg_terms"])
        fixed = [
            p
            for p, t in enumerate(self.rule.head.terms)
            if not (isinstance(t, nodes.Variable) and t.name in over)
        ]
        groups: dict[Key, list[Key]] = defaultdict(list)
        for key in self.heads:
            groups[tuple(key[p] for p in fixed)].append(key)
        return {key: groups[tuple(key[p] for p in fixed)] for key in self.heads}
