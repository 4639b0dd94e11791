"""The syntax tree: frozen, hashable pieces of a program.

Two nodes are equal if they say the same; where they were written (`place`) does not count.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, overload

from edgewise.errors import Place, caller
from edgewise.language import brackets, functions, operators, printer, terms
from edgewise.language.term_expressions import Comparable, Equality, Formula, TermExpression

Constant = int | str
Number = float | int
Literal = Number | tuple[Number, ...] | tuple[tuple[Number, ...], ...]


@dataclass(frozen=True, eq=False)
class Variable(Comparable):
    """A variable of a rule, such as `V.I`; comparisons of variables are conditions."""

    name: str
    place: Place | None = field(default=None, compare=False, repr=False)

    def __eq__(self, other: object) -> Any:
        return NotImplemented if isinstance(other, TermExpression) else Equality(self, "==", other)

    def __ne__(self, other: object) -> Any:
        return NotImplemented if isinstance(other, TermExpression) else Equality(self, "!=", other)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"V.{self.name}"


Term = Variable | Constant


@dataclass(frozen=True, eq=False)
class Opaque:
    """An object that the tree refers to without looking inside: a tensor, a module, a function.

    It is equal to itself only.
    """

    thing: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and other.thing is self.thing

    def __hash__(self) -> int:
        return id(self.thing)

    def __repr__(self) -> str:
        return repr(self.thing)


@dataclass(frozen=True)
class Function:
    """A named function of values: a transformation, a combination or an aggregation."""

    name: str
    arguments: tuple[tuple[str, Any], ...] = ()
    place: Place | None = field(default=None, compare=False, repr=False)

    def __call__(self, *operands: Any, **arguments: Any) -> Any:
        return functions.call(self, operands, arguments)

    def __ror__(self, body: Any) -> Any:
        raise operators.MissingParentheses(
            f"`|` applies to a rule, here it applies to a {type(body).__name__}",
            caller(),
            "put the rule into parentheses: `(head <= (a, b)) | [...]`",
        )

    def __bool__(self) -> bool:
        raise operators.no_truth_value(self)

    def __getitem__(self, name: str) -> Any:
        return dict(self.arguments)[name]

    def __repr__(self) -> str:
        return printer.python(self)


class Expression:
    """Anything that can stand in a body."""

    place: Place | None
    weight: Any = None
    depth: int = 0  # of functions and operators

    if not TYPE_CHECKING:  # what is no field is a mistake of ours there

        def __getattr__(self, name: str) -> Any:
            raise operators.unknown_method(self, name)

    @property
    def carries_value(self) -> bool:
        return True

    @overload
    def __le__(self, body: float) -> ValueComparison: ...  # type: ignore[overload-overlap]
    @overload
    def __le__(self, body: object) -> Rule: ...
    def __le__(self, body: object) -> Rule | ValueComparison:
        return operators.rule_or_comparison(self, body)

    def __lt__(self, other: Any) -> ValueComparison:
        return operators.comparison(self, "<", other)

    def __ge__(self, other: Any) -> ValueComparison:
        return operators.comparison(self, ">=", other)

    def __gt__(self, other: Any) -> ValueComparison:
        return operators.comparison(self, ">", other)

    def __or__(self, items: Any) -> Any:
        operators.refuse_joined(items)
        raise operators.missing_parentheses(self)

    def __bool__(self) -> bool:
        raise operators.no_truth_value(self)

    __iter__ = None  # brackets hold a weight: without this, `list(R.a)` would never end

    def __getitem__(self, item: Any) -> Any:
        return brackets.weighted(self, item)

    def fixed(self) -> Any:
        """The same with a weight that is not learned."""
        return brackets.fix(self)

    def __invert__(self) -> Expression:
        return operators.negate(self)

    def __neg__(self) -> Apply:
        return operators.apply("reverse", self)

    @property
    def T(self) -> Apply:
        """The transpose."""
        return operators.apply("transp", self)

    def __add__(self, other: Any) -> Apply:
        return operators.apply("sum", self, other)

    def __radd__(self, other: Any) -> Apply:
        return operators.apply("sum", other, self)

    def __and__(self, other: Any) -> Apply:
        return operators.joined(self, other)

    def __rand__(self, other: Any) -> Apply:
        return self & other

    def __mul__(self, other: Any) -> Apply:
        return operators.apply("elproduct", self, other)

    def __rmul__(self, other: Any) -> Apply:
        return operators.apply("elproduct", other, self)

    def __matmul__(self, other: Any) -> Apply:
        return operators.apply("product", self, other)

    def __rmatmul__(self, other: Any) -> Apply:
        return operators.apply("product", other, self)

    def __sub__(self, other: Any) -> Apply:
        return operators.difference(self, other)

    def __rsub__(self, other: Any) -> Apply:
        return operators.difference(other, self)

    def __abs__(self) -> Apply:
        return operators.apply("abs", self)

    def __pow__(self, other: Any) -> Any:
        raise operators.BadOperator(
            "there is no power operator", caller(), "write `a * a`, or `F.square(a)`"
        )

    def __truediv__(self, arity: Any) -> Line:
        return operators.line(self, arity)

    def __mod__(self, other: Any) -> Any:
        raise operators.no_operator()

    __rmod__ = __floordiv__ = __rfloordiv__ = __rtruediv__ = __rpow__ = __mod__
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __xor__ = __rxor__ = __mod__
    __array_ufunc__ = None  # `array * R.a` is `R.a * array`, not an array of atoms

    @classmethod
    def __torch_function__(cls, function: Any, *_: Any) -> Any:
        raise operators.tensor_function(function)

    def __repr__(self) -> str:
        return printer.python(self)


@dataclass(frozen=True, repr=False)
class Weight(Expression):
    """A weight, in brackets after an atom or alone in a body.

    `keys` make it a family: one weight for each value of the keys' variables. A weight has a
    `value` (numbers, or a tensor), or a `shape`, with `fill` as the initial value of
    every element if given; with neither it refers to a weight of that name written elsewhere.
    """

    name: str | None = None
    keys: tuple[Term, ...] = ()
    shape: tuple[int, ...] | None = None
    value: Literal | Opaque | None = None
    fill: float | None = None
    is_fixed: bool = False
    place: Place | None = field(default=None, compare=False, repr=False)

    def __call__(self, *keys: Any) -> Weight:
        return replace(self, keys=terms.checked(keys, caller()))

    def __getitem__(self, item: Any) -> Weight:
        return brackets.shaped(self, item)

    def fixed(self) -> Weight:
        return replace(self, is_fixed=True)

    def filled(self, number: float) -> Weight:
        """The same learnable weight with every element `number` at first."""
        return brackets.filled(self, number)

    @property
    def is_declared(self) -> bool:
        return self.shape is not None or self.value is not None


@dataclass(frozen=True, repr=False)
class Atom(Expression):
    """`relation(terms)`, with what an occurrence may add: a weight, hidden, negated."""

    relation: str
    terms: tuple[Term, ...] = ()
    weight: Weight | None = None
    hidden: bool = False
    negated: bool = False
    place: Place | None = field(default=None, compare=False, repr=False)

    def __call__(self, *items: Any, **named: Any) -> Atom:
        return terms.with_terms(self, items, named)

    @property
    def carries_value(self) -> bool:
        return not (self.hidden or self.negated)


@dataclass(frozen=True, repr=False)
class SpecialAtom(Expression):
    """A predicate on constants that is computed, such as `R.special.leq(V.J, V.I)`.

    One that is called `formula` compares integer expressions over its terms.
    """

    name: str
    terms: tuple[Term, ...] = ()
    weight: Weight | None = None
    negated: bool = False
    function: Opaque | None = None
    formula: Formula | None = None
    place: Place | None = field(default=None, compare=False, repr=False)

    def __call__(self, *items: Any, **named: Any) -> SpecialAtom:
        return terms.with_terms(self, items, named)

    @property
    def carries_value(self) -> bool:
        return self.name.endswith("_eval")


@dataclass(frozen=True, repr=False)
class PatternAtom(Expression):
    """A graph of `edgewise.graphs` as a condition on two integers."""

    pattern: Any
    terms: tuple[Term, ...]
    place: Place | None = field(default=None, compare=False, repr=False)
    negated: bool = False
    weight: None = None

    @property
    def carries_value(self) -> bool:
        return False


@dataclass(frozen=True, repr=False)
class Apply(Expression):
    """A function of expressions, `weight · function(operands)`."""

    function: Function
    operands: tuple[Expression, ...]
    weight: Weight | None = None
    place: Place | None = field(default=None, compare=False, repr=False)
    joined: bool = field(default=False, compare=False, repr=False)  # written with `&`

    def __post_init__(self) -> None:
        operators.refuse_depth(self)


@dataclass(frozen=True, repr=False)
class ValueComparison(Expression):
    """`R.x(V.I) > 0.5`: a condition on values, which holds where both are and compare so."""

    sign: str  # of > >= < <=
    left: Expression
    right: Expression
    negated: bool = False
    place: Place | None = field(default=None, compare=False, repr=False)
    weight: None = None

    @property
    def carries_value(self) -> bool:
        return False


@dataclass(frozen=True)
class Rule:
    """`head <= body`, and how it computes."""

    head: Atom
    body: tuple[Expression, ...]
    functions: tuple[Function, ...] = ()
    place: Place | None = field(default=None, compare=False, repr=False)

    def __hash__(self) -> int:
        # worked out once: a rule is the key of many tables, and holds many terms
        found: int | None = vars(self).get("_hash")
        if found is None:
            found = vars(self)["_hash"] = hash((self.head, self.body, self.functions))
        return found

    def __getstate__(self) -> dict[str, Any]:
        # strings have other hashes in another process
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def __or__(self, items: Any) -> Rule:
        found = functions.listed(items)
        operators.refuse_joined_body(self, found)
        return replace(self, functions=self.functions + found)

    def __bool__(self) -> bool:
        raise operators.ChainedRule(
            "a rule has no truth value; two `<=` in one expression, or `and` between rules?",
            self.place,
            "write one `<=` per rule, and put the rules into a list; a body is a tuple, "
            "`head <= (a, b)`",
        )

    def __repr__(self) -> str:
        return printer.python(self)


@dataclass(frozen=True)
class Fact:
    """An atom that holds; its weight is its value."""

    atom: Atom

    @property
    def place(self) -> Place | None:
        return self.atom.place

    def __repr__(self) -> str:
        return repr(self.atom)


@dataclass(frozen=True)
class Line:
    """`R.name/arity | [...]`: how the rules of one relation are combined and transformed."""

    relation: str
    arity: int
    functions: tuple[Function, ...] = ()
    place: Place | None = field(default=None, compare=False, repr=False)

    def __or__(self, items: Any) -> Line:
        return replace(self, functions=self.functions + functions.listed(items))

    def __bool__(self) -> bool:
        raise operators.no_truth_value(self)

    def __repr__(self) -> str:
        return printer.python(self)


@dataclass(frozen=True)
class Stack:
    """A block of statements repeated `count` times, each copy reading the one before.

    Copy `i` lives in the scope `name.i`. In the block the relation `^p` stands for parameter `p`:
    the first copy reads `inputs`, each other one the `outputs` of the copy before it. Outside,
    `name.output` is the output of the last copy.
    """

    name: str
    count: int
    parameters: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    statements: tuple[Statement, ...]
    place: Place | None = field(default=None, compare=False, repr=False)

    @property
    def out(self) -> Atom:
        return Atom(f"{self.name}.{self.outputs[0]}", place=self.place)

    def __repr__(self) -> str:
        return printer.python(self)


Statement = Rule | Fact | Line | Stack
