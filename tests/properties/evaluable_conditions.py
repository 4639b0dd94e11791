"""Random conditions over the variables that a rule binds."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from edgewise import R, V
from edgewise.graphs import causal, dilated, strided, window
from edgewise.language import nodes
from tests.properties.evaluable_shapes import Shape


class Relation(NamedTuple):
    """What is known about a relation before data.

    `shape` is None if it differs from atom to atom; `small` says for each term whether its keys
    are surely among 0..4; `is_input` relations are facts, whose values are not zero.
    """

    name: str
    shape: Shape | None
    small: tuple[bool, ...]
    is_input: bool = False


def half(x: int | str) -> int | None:
    """An integer function for `special.fn`; strings have no half."""
    return None if isinstance(x, str) else x // 2


class Choices(Protocol):
    """Where random decisions come from: `random.Random`, or hypothesis, which makes them small."""

    def choice(self, options: Sequence[Any], /) -> Any: ...
    def randint(self, least: int, most: int, /) -> int: ...


@dataclass
class Conditions:
    """Draws conditions; without `arithmetic` a key is only ever compared for being equal."""

    choices: Choices
    relations: list[Relation]
    arithmetic: bool = True
    bound: dict[str, bool] = field(default_factory=dict)  # variable → small

    def pick(self, options: Sequence[Any]) -> Any:
        return self.choices.choice(options)

    def chance(self, tenths: int) -> bool:
        return self.choices.randint(0, 9) >= 10 - tenths

    def number(self) -> float:
        return self.pick([1, -1]) * self.choices.randint(1, 40) / 16

    def some(self) -> Any:
        """A variable that atoms of the rule bind, or a constant if there is none."""
        names = [name for name in self.bound if name != "H"]
        return V[self.pick(names)] if names else 1

    def conditions(self) -> list[nodes.Expression]:
        kinds = [self.hidden, self.hidden, self.negated, self.equated, self.compared]
        kinds += [self.compared, self.computed, self.computed, self.patterned, self.functioned]
        kinds = [*(kinds if self.arithmetic else kinds[:4]), self.valued]
        return [c for _ in range(self.pick([0, 0, 1, 1, 2])) for c in self.pick(kinds)()]

    def hidden(self) -> list[nodes.Expression]:
        relation = self.pick(self.relations)
        terms = [self.pick([self.some(), self.some(), V.E, 1]) for _ in relation.small]
        return [R.hidden[relation.name](*terms)]

    def negated(self) -> list[nodes.Expression]:
        relation = self.pick(self.relations)
        return [~R[relation.name](*[self.pick([self.some(), 1]) for _ in relation.small])]

    def valued(self) -> list[nodes.Expression]:
        """Comparisons of scalars: of inputs, and of what earlier rules derive."""
        known = [r for r in self.relations if r.shape == ()]
        left, right = (self.pick(known) for _ in range(2))
        first = R[left.name](*[self.pick([self.some(), self.some(), V.E]) for _ in left.small])
        second = R[right.name](*[self.some() for _ in right.small])
        other = self.pick([self.number(), self.number(), 2.0 * second, second - 0.25])
        found = [first > other, first >= other, first < other, first - 0.5 <= 0.25]
        one = self.pick(found)
        return [~one if self.chance(2) and V.E not in first.terms else one]

    def equated(self) -> list[nodes.Expression]:
        x, y, s = self.some(), self.pick([self.some(), 2]), R.special
        options = [s.neq(x, y), s.eq(x, y), s._in(x, 0, 2, "a", y), s.alldiff(x, y, 1)]
        atom = self.pick(options)
        return [~atom if self.chance(2) else atom]

    def compared(self) -> list[nodes.Expression]:
        x, y, s = self.some(), self.pick([self.some(), 2]), R.special
        options = [s.leq(x, y), s.lt(x, y), s.geq(x, y), s.gt(x, y), s.maxcard(2, x, y, 0)]
        options += [x - y <= 1, abs(x - y) > 1, x + 2 * y != 3, (x - y) % 2 == 0, x // 2 >= y - 1]
        options += [y - x < 2, x % y == 0, x - y == 1, x // 2 == y // 2] if y is not x else []
        atom = self.pick([o for o in options if not isinstance(o, bool)])
        return [~atom if self.chance(2) else atom]

    def computed(self) -> list[nodes.Expression]:
        x, y, s = self.some(), self.pick([self.some(), 2]), R.special
        options = [s.sub(x, y, V.D), s.sub(x, V.D, 1), s.sub(V.D, x, y), s.add(x, y, V.D)]
        options += [s.add(V.D, 1, x), s.mul(x, 2, V.D), s.mul(V.D, 2, x), s.mod(x, y, V.D)]
        options += [s.div(x, y, V.D), s.next(x, V.D), s.next(V.D, x), s.eq(V.D, x)]
        options += [x - y + 1 == V.D, x - V.D == 2 * y] if isinstance(x, nodes.Variable) else []
        tests = [[], [s.leq(V.D, 1)], [s.mod(V.D, 2, 0)], [s.neq(V.D, y)]]
        made = [self.pick(options), *self.pick(tests)]
        if "D" not in self.bound and self.chance(3):
            self.bound["D"] = False
        return made

    def patterned(self) -> list[nodes.Expression]:
        pattern = self.pick([window(1), causal(), strided(2), dilated(2, 2), causal() & window(2)])
        atom = pattern(self.some(), self.some())
        return [~atom if self.chance(2) else atom]

    def functioned(self) -> list[nodes.Expression]:
        x, y, s = self.some(), self.pick([self.some(), 2]), R.special
        options = [s.fn(half)(x, V.D), s.fn(half)(x, 1)]
        options += [s.bucket(x, y, 8, 16, V.D), s.bucket_before(x, y, 6, 4, V.D)]
        return [self.pick(options)]
