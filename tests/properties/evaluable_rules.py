"""Random rules over relations whose keys and shapes are known, so that they make sense."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from evaluable_shapes import Shape, aggregations, coerced, combinations, product, transformations
from hypothesis import strategies as st

from edgewise import F, R, V, W
from edgewise.graphs import causal, dilated, strided, window
from edgewise.language import nodes

VARIABLES = ("X", "Y", "Z")
SMALL = 5  # keys 0..4, so that a family over them has a weight for each


class Relation(NamedTuple):
    """What is known about a relation before data.

    `shape` is None if it differs from atom to atom; `small` says for each term whether its keys
    are surely among 0..4; `given` relations are facts, whose values are not zero.
    """

    name: str
    shape: Shape | None
    small: tuple[bool, ...]
    given: bool = False


class Item(NamedTuple):
    """Something in a body that carries a value."""

    expression: nodes.Expression
    shape: Shape
    plain: bool = False


def half(x: int | str) -> int | None:
    """An integer function for `special.fn`; strings have no half."""
    return None if isinstance(x, str) else x // 2


@dataclass
class Rules:
    """Makes random rules, each over the relations known so far."""

    draw: Callable[[st.SearchStrategy[Any]], Any]
    relations: list[Relation]
    bound: dict[str, bool] = field(default_factory=dict)  # variable → small, in the rule being made

    def pick(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(options))

    def chance(self, tenths: int) -> bool:
        return self.draw(st.integers(0, 9)) >= 10 - tenths

    def number(self) -> float:
        return self.pick([1, -1]) * self.draw(st.integers(1, 40)) / 16

    # what carries values

    def atom(self, relation: Relation) -> nodes.Atom:
        """An atom over variables, sometimes a constant; what it binds is noted."""
        terms: list[Any] = []
        for small in relation.small:
            if self.chance(1):
                terms.append(self.pick([0, 1, 2]))
                continue
            name = self.pick(VARIABLES)
            terms.append(V[name])
            self.bound[name] = self.bound.get(name, False) or small
        return R[relation.name](*terms)

    def valued_atom(self) -> Item:
        relation = self.pick([r for r in self.relations if r.shape is not None])
        return Item(self.atom(relation), relation.shape, relation.given)

    def item(self, later: bool) -> Item:
        kinds = [self.valued_atom] * 5 + [self.weighted] * 3 + [self.applied, self.summed] * 2
        return self.pick([*kinds, self.family, *[self.evaluated, self.bias] * later])()

    def weighted(self) -> Item:
        item = self.valued_atom()
        if len(item.shape) == 2 or self.chance(3):
            return Item(item.expression[self.number()], item.shape, item.plain)
        shape = (self.pick([2, 3]), *item.shape)
        match self.pick(["shape", "named", "value", "fixed"]):
            case "shape":
                weight: Any = item.expression[shape]
            case "named":
                weight = item.expression[W["_".join(["w", *map(str, shape)])][shape]]
            case kind:
                rows = [[self.number() for _ in range(shape[-1])] for _ in range(shape[0])]
                weight = item.expression[rows if len(shape) == 2 else rows[0][:1] * shape[0]]
                weight = weight.fixed() if kind == "fixed" else weight
        return Item(weight, shape[:1])

    def family(self) -> Item:
        """A weight for each value of a variable: of H, which only families have, or of a key."""
        item = self.valued_atom()
        if len(item.shape) == 2:
            return item
        keys = [name for name, small in self.bound.items() if small and name != "H"]
        name = self.pick([*keys, "H", "H"])
        self.bound.setdefault(name, False)
        shape = (2, *item.shape)
        weight = W["_".join([f"f{name}", *map(str, shape)])](V[name])[shape]
        return Item(item.expression[weight], (2,))

    def applied(self) -> Item:
        item = self.valued_atom()
        functions, shape = self.pick(transformations(item.shape))
        expression = item.expression
        for function in functions:
            expression = function(expression)
        return Item(expression, shape)

    def summed(self) -> Item:
        """An expression of two atoms, if their shapes fit, else one of them."""
        left, known = self.valued_atom(), dict(self.bound)
        right = self.valued_atom()
        options = []
        if not (left.shape and right.shape and left.shape != right.shape):
            shape = left.shape or right.shape
            options += [(lambda a, b: a + b, shape), (lambda a, b: a * b, shape)]
            options += [(lambda a, b: F.max(a, b, 0.5), shape), (lambda a, b: 2.0 * a + b, shape)]
        times = product(left.shape, right.shape)
        if times is not None:
            options.append((lambda a, b: a @ b, times))
        if len(left.shape) == len(right.shape) == 1 and left.shape == right.shape:
            options.append((lambda a, b: a.T @ b, ()))
        if not options:
            self.bound = known
            return left
        operator, shape = self.pick(options)
        made = operator(left.expression, right.expression)
        return Item(made[self.number()] if self.chance(3) else made, shape)

    def evaluated(self) -> Item:
        name = self.pick(["add", "sub", "mul", "div", "mod", "max", "min"])
        special = getattr(R.special, f"{name}_eval")
        return Item(special(self.some(), self.pick([self.some(), 3])), ())

    def bias(self) -> Item:
        return Item(W.bias[2,], (2,)) if self.chance(5) else Item(W["offset"][0.5], ())

    # conditions

    def some(self) -> Any:
        """A variable that atoms of the rule bind, or a constant if there is none."""
        names = [name for name in self.bound if name != "H"]
        return V[self.pick(names)] if names else 1

    def conditions(self) -> list[nodes.Expression]:
        kinds = [self.hidden, self.hidden, self.negated, self.compared, self.compared]
        kinds += [self.computed, self.computed, self.patterned, self.functioned]
        return [c for _ in range(self.pick([0, 0, 1, 1, 2])) for c in self.pick(kinds)()]

    def hidden(self) -> list[nodes.Expression]:
        relation = self.pick(self.relations)
        terms = [self.pick([self.some(), self.some(), V.E, 1]) for _ in relation.small]
        return [R.hidden[relation.name](*terms)]

    def negated(self) -> list[nodes.Expression]:
        relation = self.pick(self.relations)
        return [~R[relation.name](*[self.pick([self.some(), 1]) for _ in relation.small])]

    def compared(self) -> list[nodes.Expression]:
        x, y, s = self.some(), self.pick([self.some(), 2]), R.special
        options = [s.leq(x, y), s.lt(x, y), s.geq(x, y), s.gt(x, y), s.neq(x, y), s.eq(x, y)]
        options += [s._in(x, 0, 2, "a", y), s.alldiff(x, y, 1), s.maxcard(2, x, y, 0)]
        atom = self.pick(options)
        return [~atom if self.chance(2) else atom]

    def computed(self) -> list[nodes.Expression]:
        x, y, s = self.some(), self.pick([self.some(), 2]), R.special
        options = [s.sub(x, y, V.D), s.sub(x, V.D, 1), s.sub(V.D, x, y), s.add(x, y, V.D)]
        options += [s.add(V.D, 1, x), s.mul(x, 2, V.D), s.mul(V.D, 2, x), s.mod(x, y, V.D)]
        options += [s.div(x, y, V.D), s.next(x, V.D), s.next(V.D, x), s.eq(V.D, x)]
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
        return [R.special.fn(half)(self.some(), self.pick([V.D, 1]))]

    # the rule

    def head(self, name: str, arity: int) -> nodes.Atom:
        options = [V[name] for name in self.bound] * 4 + [0]
        return R[name](*[self.pick(options) for _ in range(arity)])

    def rule(self, name: str, arity: int, target: Shape | None) -> tuple[nodes.Rule, Shape | None]:
        """A rule for `name` of the target's shape, and that shape; without a target, any shape."""
        self.bound = {}
        items = [self.item(at > 0) for at in range(self.pick([1, 1, 2, 2, 3]))]
        if self.chance(1):
            items = []
            self.atom(self.pick(self.relations))
        carriers = [R.hidden.n(V[name]) for name in self.bound if name != "H"] if not items else []
        self.bound = {n: s for n, s in self.bound.items() if items or n != "H"}
        body = [i.expression for i in items] + carriers + self.conditions() or [R.hidden.n(0)]
        listed, shape = self.functions(items)
        return self.finished(self.head(name, arity), body, listed, shape, target)

    def functions(self, items: list[Item]) -> tuple[list[nodes.Function], Shape]:
        listed: list[nodes.Function] = []
        shape: Shape = ()
        if items:
            plain = all(item.plain for item in items)
            combination, shape = self.pick(combinations([item.shape for item in items], plain))
            listed.append(combination)
        for _ in range(self.pick([0, 0, 1, 1, 2])):
            functions, shape = self.pick(transformations(shape))
            listed += functions
        return listed, shape

    def finished(
        self,
        head: nodes.Atom,
        body: list[nodes.Expression],
        listed: list[nodes.Function],
        shape: Shape,
        target: Shape | None,
    ) -> tuple[nodes.Rule, Shape | None]:
        names = [t.name for t in head.terms if isinstance(t, nodes.Variable)]
        given: Shape | None = shape
        if names and self.chance(2):
            over = [V[self.pick(names)]]
            listed.append(self.pick([F.softmax_agg, F.sparsemax_agg])(agg_terms=over))
        elif self.chance(5):
            options = aggregations(shape)
            aggregation, given = self.pick([o for o in options if target is None or o[1] == shape])
            listed.append(aggregation)
        if target is not None:
            reshaping, weight = coerced(shape, target)
            listed = [*listed, *reshaping]
            head = head if weight is None else head[weight]
            given = target
        elif given == () and self.chance(3):
            head = head[self.number()]
        return (head <= tuple(body)) | listed, given
