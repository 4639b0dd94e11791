"""Random rules over relations whose keys and shapes are known, so that they make sense."""

from typing import Any, NamedTuple

from edgewise import F, R, V, W
from edgewise.language import nodes
from tests.properties.evaluable_conditions import Conditions, Relation
from tests.properties.evaluable_shapes import (
    Shape,
    aggregations,
    canonical,
    coerced,
    combinations,
    product,
    transformations,
)

VARIABLES = ("X", "Y", "Z")
SMALL = 5  # keys 0..4, so that a family over them has a weight for each


class Item(NamedTuple):
    """Something in a body that carries a value."""

    expression: nodes.Expression
    shape: Shape
    plain: bool = False


class Rules(Conditions):
    """Makes random rules, each over the relations known so far."""

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
        return Item(self.atom(relation), relation.shape, relation.is_input)

    def item(self, later: bool) -> Item:
        kinds = [self.valued_atom] * 5 + [self.weighted] * 3 + [self.applied, self.summed] * 2
        kinds.append(self.turned)
        late = [self.bias, *[self.evaluated] * 3 * self.arithmetic] * later
        return self.pick([*kinds, self.family, self.similar, *late])()

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
        name = self.pick([*keys * self.arithmetic, "H", "H"])
        names = ["H", name] if name != "H" and self.chance(3) else [name]
        self.bound = {n: False for n in names} | self.bound
        shape = (2, *item.shape)
        title = "_".join(["f", *names, *map(str, shape)])
        return Item(item.expression[W[title](*(V[n] for n in names))[shape]], (2,))

    def applied(self) -> Item:
        item = self.valued_atom()
        functions, shape = self.pick(transformations(item.shape))
        expression = item.expression
        for function in functions:
            expression = function(expression)
        return Item(expression, shape)

    def turned(self) -> Item:
        """1 − x or the transpose of x, and then a weight."""
        item = self.valued_atom()
        shape, expression = item.shape, -item.expression
        if shape and self.chance(5):
            shape, expression = canonical((*shape, 1)[1::-1]), item.expression.T
        if not shape:
            return Item(expression[self.number()], ())
        return Item(expression[2, shape[0]], product((2, shape[0]), shape))

    def summed(self) -> Item:
        """An expression of two atoms, if their shapes fit, else one of them."""
        left, known = self.valued_atom(), dict(self.bound)
        right = self.valued_atom()
        options = []
        if not (left.shape and right.shape and left.shape != right.shape):
            shape = left.shape or right.shape
            options += [(lambda a, b: a + b, shape), (lambda a, b: a * b, shape)]
            options += [(lambda a, b: 0.5 * (a & -b), shape)]
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

    def similar(self) -> Item:
        """The angle between two vectors that are not 0."""
        relation = self.pick([r for r in self.relations if r.is_input and r.shape in ((2,), (3,))])
        return Item(F.cossim(self.atom(relation), self.atom(relation)), ())

    def evaluated(self) -> Item:
        name = self.pick(["add", "sub", "mul", "div", "mod", "max", "min"])
        special = getattr(R.special, f"{name}_eval")
        return Item(special(self.some(), self.pick([self.some(), 3])), ())

    def bias(self) -> Item:
        return Item(W.bias[2,], (2,)) if self.chance(5) else Item(W["offset"][0.5], ())

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
            best = [F.argmax_agg, F.argmin_agg] if shape == () else []
            listed.append(self.pick([F.softmax_agg, F.sparsemax_agg, *best])(agg_terms=over))
        elif self.chance(5):
            options = aggregations(shape)
            aggregation, given = self.pick([o for o in options if target is None or o[1] == shape])
            listed.append(aggregation)
        if target is not None:
            reshaping, weight = coerced(shape, target)
            listed = [*listed, *reshaping]
            head = head if weight is None else head[weight]
            given = target
        elif given == () and "H" in names:
            head, given = head[W.top(V.H)[2,]], (2,)
        elif given == () and self.chance(3):
            head = head[self.number()]
        return (head <= tuple(body)) | listed, given
