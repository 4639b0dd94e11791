"""Random programs that are valid syntax: every construct, nothing that need be evaluable.

`programs()` draws them; `statements()`, `expressions()` and the rest draw their parts.
"""

from dataclasses import replace

from hypothesis import strategies as st

from edgewise import graphs
from edgewise.language import Program, blocks, functions, nodes, operators
from edgewise.language.specials import SPECIALS
from edgewise.language.statements import flatten

PLAIN_NAMES = ["a", "b", "edge", "q", "x", "h_1", "b-c", "layer.0.q", "max", "exp", "true", "t"]
ODD_NAMES = ["special", "hidden", "class", "in", "T", "Upper", "a.T", "x_", "two words"]
HARD_NAMES = ['quo"te', "quo'te", "back\\slash", "per % cent", "new\nline", "ß é", "😀", "/*", "1"]
VARIABLES = ["X", "Y", "I", "J", "H", "_", "_x", "Long_Name", "item", "0", "x.y", "lambda", "an é"]
PARAMETERS = ["x", "y", "State", "_p", "é"]
PATTERNS = [
    graphs.window(3),
    ~graphs.causal(),
    graphs.window(2) | graphs.global_tokens(1),
    (graphs.causal() & graphs.strided(4)).T,
]
NUMBERS = st.floats(allow_nan=False, width=64)
SIZES = st.integers(1, 99)

names = st.sampled_from(PLAIN_NAMES + ODD_NAMES + HARD_NAMES) | st.text(
    min_size=1, max_size=4
).filter(lambda text: not text.startswith("^"))
names = names.filter(lambda name: not name.startswith("_"))  # which hides an atom in Python
plain_names = st.sampled_from(PLAIN_NAMES)
variables = st.sampled_from(VARIABLES).map(nodes.Variable)
constants = st.integers() | names | st.just("")
terms = st.lists(variables | constants, max_size=3).map(tuple)
keys = st.lists(constants, max_size=3).map(tuple)


@st.composite
def weights(draw: st.DrawFn) -> nodes.Weight:
    """A weight of any form: a value or a shape, named, of a family, filled, fixed, or a name."""
    name = draw(st.none() | names)
    made = nodes.Weight(name=name, keys=draw(terms) if name is not None else ())
    row = st.lists(NUMBERS, min_size=1, max_size=3).map(tuple)
    match draw(st.integers(0 if name is None else -1, 4)):
        case 0:
            made = replace(made, value=draw(NUMBERS))
        case 1:
            made = replace(made, value=draw(row))
        case 2:
            first = draw(row)
            rest = st.tuples(*[NUMBERS] * len(first))
            made = replace(made, value=(first, *draw(st.lists(rest, max_size=2))))
        case 3:
            made = replace(made, shape=draw(st.tuples(SIZES) | st.tuples(SIZES, SIZES)))
        case 4:
            shape = draw(st.tuples(SIZES) | st.tuples(SIZES, SIZES))
            made = replace(made, shape=shape, fill=draw(NUMBERS))
    return made.fixed() if draw(st.booleans()) else made


@st.composite
def any_function(draw: st.DrawFn, *kinds: str) -> nodes.Function:
    """A function of one of the kinds, sometimes with its arguments."""
    found = [name for name, signature in functions.DEFINITIONS.items() if signature.kind in kinds]
    name = draw(st.sampled_from([name for name in found if name != "call"]))
    numbers = st.floats(-9, 9)
    interval = st.integers(0, 4).map(lambda low: (low, low + 2))
    arguments = {
        "leaky_relu": {"slope": numbers},
        "norm": {"eps": st.floats(0, 9)},
        "rms_norm": {"eps": st.floats(0, 9)},
        "clamp": {"low": numbers, "high": numbers},
        "slice": {"rows": st.none() | interval, "cols": st.none() | interval},
        "reshape": {"shape": st.tuples(SIZES) | st.tuples(SIZES, SIZES)},
        "dropout": {"p": st.floats(0, 0.9)},
        "concat": {"axis": st.sampled_from([0, -1])},
        "topk_agg": {"k": SIZES},
        "softmax_agg": {"agg_terms": st.none() | st.lists(variables, max_size=2)},
        "sparsemax_agg": {"agg_terms": st.none() | st.lists(variables, max_size=2)},
    }
    given = {key: draw(value) for key, value in arguments.get(name, {}).items()}
    return functions.named(name)(**given)


@st.composite
def atoms(draw: st.DrawFn, parameters: tuple[str, ...] = ()) -> nodes.Atom:
    """An atom that carries a value; in a block also of its parameters."""
    inner = st.sampled_from([f"^{p}" for p in parameters]) if parameters else names
    relation = draw(plain_names | names | inner)
    weight = draw(st.none() | weights())
    return nodes.Atom(relation, draw(terms), weight)


@st.composite
def special_values(draw: st.DrawFn) -> nodes.SpecialAtom:
    name = draw(st.sampled_from([name for name in SPECIALS if name.endswith("_eval")]))
    return nodes.SpecialAtom(name, draw(terms), draw(st.none() | weights()))


@st.composite
def conditions(draw: st.DrawFn, parameters: tuple[str, ...] = ()) -> nodes.Expression:
    """Hidden, negated, special and pattern atoms."""
    negated = draw(st.booleans())
    match draw(st.integers(0, 2)):
        case 0:
            atom = replace(draw(atoms(parameters)), weight=None)
            return replace(atom, negated=negated, hidden=draw(st.booleans()) or not negated)
        case 1:
            plain = [name for name in SPECIALS if not name.endswith("_eval") and name != "fn"]
            return nodes.SpecialAtom(draw(st.sampled_from(plain)), draw(terms), negated=negated)
    pair = draw(st.tuples(variables | constants, variables | constants))
    return nodes.PatternAtom(draw(st.sampled_from(PATTERNS)), pair, negated=negated)


def expressions(parameters: tuple[str, ...] = ()) -> st.SearchStrategy[nodes.Expression]:
    """Anything that carries a value: atoms, weights, functions and operators of those."""

    @st.composite
    def applied(draw: st.DrawFn, inner: st.SearchStrategy) -> nodes.Expression:
        match draw(st.integers(0, 2)):
            case 0:
                name = draw(st.sampled_from(["sum", "elproduct", "product"]))
                made = operators.apply(name, draw(inner), draw(inner))
            case 1:
                function = draw(any_function(functions.COMBINATION))
                made = operators.apply(function, *draw(st.lists(inner, min_size=1, max_size=3)))
            case _:
                made = operators.apply(draw(any_function(functions.TRANSFORMATION)), draw(inner))
        weight = draw(st.none() | weights()) if made.weight is None else made.weight
        return replace(made, weight=weight)

    return st.recursive(atoms(parameters) | special_values() | weights(), applied, max_leaves=5)


@st.composite
def rules(draw: st.DrawFn, parameters: tuple[str, ...] = ()) -> nodes.Rule:
    head = draw(atoms())
    items = expressions(parameters) | conditions(parameters)
    listed = any_function(functions.TRANSFORMATION, functions.COMBINATION, functions.AGGREGATION)
    rule = operators.rule(head, tuple(draw(st.lists(items, max_size=3))))
    return rule | draw(st.lists(listed, max_size=3))


@st.composite
def facts(draw: st.DrawFn) -> nodes.Fact:
    return nodes.Fact(nodes.Atom(draw(names), draw(keys), draw(st.none() | weights())))


@st.composite
def lines(draw: st.DrawFn) -> nodes.Line:
    listed = any_function(functions.TRANSFORMATION, functions.COMBINATION)
    chosen = draw(st.lists(listed, max_size=2))
    return nodes.Line(draw(names), draw(st.integers(0, 4)), tuple(chosen))


def with_distinct_stacks(made: list[nodes.Statement]) -> list[nodes.Statement]:
    """The statements without a second stack of the same name, which is an error."""
    names: set[str] = set()
    kept: list[nodes.Statement] = []
    for statement in made:
        if not isinstance(statement, nodes.Stack) or statement.name not in names:
            kept.append(statement)
        if isinstance(statement, nodes.Stack):
            names.add(statement.name)
    return kept


@st.composite
def stacks(draw: st.DrawFn, outer: tuple[str, ...] = (), depth: int = 1) -> nodes.Stack:
    """A repeated block; its parameters may be called like relations in it."""
    free = [p for p in PARAMETERS if p not in outer]
    own = tuple(draw(st.lists(st.sampled_from(free), min_size=1, max_size=2, unique=True)))
    seen = (*outer, *own)
    made = draw(st.lists(rules(seen), min_size=1, max_size=2))
    made += draw(st.lists(statements(seen, depth - 1), max_size=2))
    inside = flatten(with_distinct_stacks(made))
    known = sorted(blocks.defined(inside))
    reads = names | st.sampled_from([f"^{p}" for p in outer]) if outer else names
    return nodes.Stack(
        draw(st.sampled_from(["layer", "block", "deep.block", "odd name"])),
        draw(st.integers(0, 12)),
        own,
        tuple(draw(reads) for _ in own),
        tuple(draw(st.sampled_from(known)) for _ in own),
        inside,
    )


def statements(
    parameters: tuple[str, ...] = (), depth: int = 2
) -> st.SearchStrategy[nodes.Statement]:
    simple = rules(parameters) | facts() | lines()
    return simple | stacks(parameters, depth) if depth > 0 else simple


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """A program with any statements and options."""
    aggregation = draw(
        st.none()
        | any_function(functions.AGGREGATION).filter(
            lambda f: f.name[:3] != "arg" and "max_agg" not in f.name
        )
    )
    values = SIZES | st.lists(constants, min_size=1, max_size=3)
    return Program(
        with_distinct_stacks(draw(st.lists(statements(), max_size=4))),
        aggregation=aggregation,
        domains=draw(st.dictionaries(st.sampled_from(VARIABLES), values, max_size=2)),
        rounds=draw(st.none() | st.integers(1, 9)),
    )
