"""Mistakes people make, and what they are told: a code, and words that say what to do next."""

from typing import NamedTuple


class Mistake(NamedTuple):
    title: str
    source: str
    code: str
    says: tuple[str, ...]


TYPOS = [
    Mistake(
        "a misspelt function",
        "(R.h(V.X) <= R.a(V.X)) | [F.sigmiod]",
        "unknown-function",
        ("`sigmiod`", "`F.sigmoid`"),
    ),
    Mistake(
        "a function in capitals, as torch.nn has it",
        "(R.h(V.X) <= R.a(V.X)) | [F.ReLU]",
        "unknown-function",
        ("`ReLU`", "`F.relu`"),
    ),
    Mistake(
        "another library's word for an aggregation",
        "(R.h(V.X) <= R.a(V.X, V.Y)) | [F.mean_agg]",
        "unknown-function",
        ("`mean_agg`", "did you mean `F.avg_agg`?"),
    ),
    Mistake(
        "a misspelt special predicate",
        "R.h(V.I) <= (R.a(V.I), R.special.lesseq(V.I, 3))",
        "unknown-special",
        ("`lesseq`", "`R.special.leq`"),
    ),
    Mistake(
        "a misspelt variable in the head",
        "Program([R.out(V.item) <= (R.a(V.itme), R.b(V.itme))]).check()",
        "unbound-variable",
        ("`item`", "rule head `out`", "did you mean `itme`?"),
    ),
    Mistake(
        "a variable with another capital",
        "Program([R.h(V.X) <= R.a(V.x)]).check()",
        "unbound-variable",
        ("`X`", "did you mean `x`?"),
    ),
    Mistake(
        "a misspelt variable in a body",
        "Program([R.h(V.Node) <= (R.a(V.Node), R._e(V.Node, V.Ndoe))]).check()",
        "singleton-variable",
        ("`Ndoe` occurs once", "did you mean `Node`?"),
    ),
    Mistake(
        "a misspelt relation",
        "Program([R.h(V.X) <= R.feature(V.X)]).check([R.features(1)[0.5]])",
        "unknown-relation",
        ("`feature` has no facts and no rules", "did you mean `features`?"),
    ),
    Mistake(
        "a misspelt relation in the facts",
        "Program([R.h(V.X) <= R.a(V.X)]).check([R.a(1)[1.0], R.b(1)[2.0]])",
        "unused-relation",
        ("no rule reads `b`", "leave its facts out"),
    ),
    Mistake(
        "a line for a misspelt relation",
        "Program([R.hidden1(V.X) <= R.a(V.X), R.hiden1/1 | [F.tanh]]).check()",
        "unknown-relation",
        ("`hiden1` applies to no rule", "did you mean `hidden1`?"),
    ),
    Mistake(
        "a misspelt weight",
        "Program([R.h(V.X) <= R.a(V.X)[W.first[4, 4]], R.g(V.X) <= R.h(V.X)[W.frist]]).check()",
        "undefined-weight",
        ("`frist`", "did you mean `first`?"),
    ),
    Mistake(
        "a misspelt weight in solve",
        'Program([R.h <= R.a["scale": 2.0]]).solve([R.a[1.0]], weights={"scael": 3.0})',
        "unknown-weight",
        ("`scael`", "did you mean `scale`?"),
    ),
    Mistake(
        "an unknown keyword",
        "(R.h(V.X) <= R.a(V.X)) | [F.leaky_relu(alpha=0.2)]",
        "bad-function",
        ("'slope'", "not 'alpha'", "`F.leaky_relu(0.2)`"),
    ),
]

PYTHON = [
    Mistake(
        "no parentheses around a rule with a list",
        "R.h(V.X) <= R.a(V.X) | [F.relu]",
        "missing-parentheses",
        ("`|` applies to a rule", "`(head <= body) | [...]`"),
    ),
    Mistake(
        "no parentheses around a rule with one function",
        "R.h(V.X) <= (R.a(V.X), R.b(V.X)) | F.product",
        "missing-parentheses",
        ("`|` applies to a rule", "`(head <= (a, b)) | [...]`"),
    ),
    Mistake(
        "no parentheses around a body of several atoms",
        "Program([R.h(V.X) <= R.a(V.Y), R._e(V.X, V.Y)])",
        "missing-parentheses",
        ("stands by itself", "`head <= (a, b)`"),
    ),
    Mistake(
        "no parentheses around a body without variables",
        "Program([R.h <= R.a, R.b])",
        "missing-parentheses",
        ("stands by itself", "`head <= (a, b)`"),
    ),
    Mistake(
        "`and` between atoms",
        "R.h(V.X) <= (R.a(V.X) and R.b(V.X))",
        "no-truth-value",
        ("no truth value", "tuple `(a, b)`"),
    ),
    Mistake(
        "`not` before an atom",
        "R.h(V.X) <= (R.a(V.X), not R.b(V.X))",
        "no-truth-value",
        ("negation as `~b`",),
    ),
    Mistake(
        "`if` on an atom",
        "R.a(V.X) if R.b(V.X) else R.c(V.X)",
        "no-truth-value",
        ("`R.b(V.X)` has no truth value",),
    ),
    Mistake(
        "two arrows in one rule",
        "Program([R.h(V.X) <= R.a(V.X) <= R.b(V.X)])",
        "chained-rule",
        ("two `<=` in one expression", "one `<=` per rule"),
    ),
    Mistake(
        "a rule in a rule",
        "R.h(V.X) <= (R.a(V.X), R.b(V.X) <= R.c(V.X))",
        "chained-rule",
        ("a rule inside the body of a rule", "into a list"),
    ),
    Mistake(
        "a rule that points the wrong way",
        "Program([R.h(V.X) >= R.a(V.X)])",
        "bad-head",
        ("compares values", "`head <= body`"),
    ),
    Mistake(
        "conditions joined by &",
        "R.h(V.X) <= R.a(V.X) & R._b(V.X)",
        "bad-operator",
        ("side by side", "`(a, b)`"),
    ),
    Mistake(
        "a chain of comparisons",
        "R.h(V.X) <= (R.a(V.X), 0 <= V.X <= 5)",
        "no-truth-value",
        ("two conditions",),
    ),
    Mistake(
        "a division",
        "R.h(V.X) <= R.a(V.X) / R.b(V.X)",
        "bad-operator",
        ("`F.inverse(b)`",),
    ),
    Mistake("a power", "R.h(V.X) <= R.a(V.X) ** 2", "bad-operator", ("`F.square(a)`",)),
    Mistake(
        "a negated head",
        "~R.h(V.X) <= R.a(V.X)",
        "bad-head",
        ("cannot be a rule head", "`R.name(terms)`"),
    ),
    Mistake(
        "a string as a rule",
        'Program(["h(X) :- a(X)."])',
        "bad-statement",
        ("a str is not a rule", "`Program.parse(text)`"),
    ),
    Mistake(
        "a string as a body",
        'R.h(V.X) <= "a(X)"',
        "bad-body",
        ("not an atom", "`R.a(V.X)`"),
    ),
    Mistake(
        "a number that is meant as a fact",
        "Program([R.h(V.X) <= R.a(V.X), 3.0])",
        "bad-statement",
        ("`3.0` is not a rule or a fact", "rules `head <= body`"),
    ),
    Mistake(
        "terms in two pairs of parentheses",
        "R.edge(V.X)(V.Y)",
        "terms-twice",
        ("already has its terms", "one pair of parentheses"),
    ),
    Mistake(
        "terms after the weight",
        "R.a[2.0](V.X)",
        "terms-twice",
        ("before the weight",),
    ),
    Mistake(
        "a function that is no function of F",
        "(R.h(V.X) <= R.a(V.X)) | [abs]",
        "bad-function",
        ("is not a function", "`| [F.abs]`"),
    ),
    Mistake(
        "an aggregation of one atom",
        "R.h(V.X) <= F.max_agg(R.a(V.X, V.Y))",
        "bad-function",
        ("`F.max_agg` aggregates groundings", "`(head <= body) | [F.max_agg]`"),
    ),
    Mistake(
        "a block that is no function",
        "repeat([R.h(V.I) <= R.x(V.I)], 12)(R.x)",
        "bad-block",
        ("cannot repeat", "a function from relations to rules"),
    ),
]

VALUES = [
    Mistake(
        "a tuple of values instead of a list",
        "R.a(1)[0.5, 1.5]",
        "bad-weight",
        ("`(0.5, 1.5)` is not a shape", "values go into a list"),
    ),
    Mistake(
        "a shape of zero",
        "R.h(V.X) <= R.a(V.X)[0, 4]",
        "bad-weight",
        ("`(0, 4)` is a shape of size zero", "positive integers (out, in)"),
    ),
    Mistake(
        "a shape of three dimensions",
        "R.h(V.X) <= R.a(V.X)[2, 3, 4]",
        "bad-weight",
        ("not a shape", "one or two"),
    ),
    Mistake(
        "rows of different lengths",
        "R.a[[[1.0, 2.0], [3.0]]]",
        "bad-weight",
        ("differ in length", "[1, 2]"),
    ),
    Mistake(
        "a string as a value",
        'R.a(1)[["red"]]',
        "bad-weight",
        ("`'red'` is not a number",),
    ),
    Mistake(
        "two weights on one atom",
        "R.h(V.X) <= R.a(V.X)[2.0][3.0]",
        "two-weights",
        ("already has a weight", "a rule in between"),
    ),
    Mistake(
        "a fraction as a key",
        "R.a(0.5)",
        "bad-term",
        ("is a float", "a value goes into brackets"),
    ),
    Mistake("a truth value as a key", "R.a(True)", "bad-term", ("is a bool",)),
    Mistake("an atom as a key", "R.a(R.b(1))", "bad-term", ("`R.b(1)` is an atom",)),
    Mistake(
        "fixed without a value",
        "R.a.fixed()",
        "bad-weight",
        ("has no weight to fix", "`R.a[2.0].fixed()`"),
    ),
    Mistake(
        "a weight on a hidden atom",
        "R.h(V.X) <= (R.a(V.Y), R._e(V.X, V.Y)[2.0])",
        "condition-in-expression",
        ("its weight would change nothing", "without `hidden`"),
    ),
    Mistake(
        "a hidden atom in an expression",
        "R.h(V.X) <= R.a(V.X) + R.hidden.b(V.X)",
        "condition-in-expression",
        ("carries no value", "`(expression, condition)`"),
    ),
    Mistake(
        "a dropout of more than everything",
        "(R.h(V.X) <= R.a(V.X)) | [F.dropout(1.5)]",
        "bad-function",
        ("p=1.5", "0 ≤ p < 1"),
    ),
    Mistake(
        "a function without its argument",
        "R.h(V.X) <= F.reshape(R.a(V.X))",
        "bad-function",
        ("needs `shape`", "`F.reshape((2, 3))`"),
    ),
]

NAMES = [
    Mistake(
        "an edge with one end",
        "Program([R.h(V.X) <= (R.a(V.Y), R._e(V.X, V.Y))]).check([R.a(1)[1.0], R.e(1)])",
        "arity-mismatch",
        ("`e` has 1 term here and 2 terms before", "use two names"),
    ),
    Mistake(
        "a line with the wrong arity",
        "Program([R.h(V.X) <= R.a(V.X), R.h/2 | [F.tanh]]).check()",
        "arity-mismatch",
        ("`h` has 2 terms here and 1 term before",),
    ),
    Mistake(
        "a comparison of one thing",
        "Program([R.h(V.X) <= (R.a(V.X), R.special.leq(V.X))]).check()",
        "arity-mismatch",
        ("`special.leq` takes 2 terms, got 1",),
    ),
    Mistake(
        "a query with the wrong arity",
        "Program([R.h(V.X) <= R.a(V.X)]).solve([R.a(1)[2.0]])[R.h(1, 2)]",
        "arity-mismatch",
        ("`h`", "1", "2"),
    ),
    Mistake(
        "one name for two weights",
        'Program([R.h(V.X) <= R.a(V.X)["w": 4, 8], R.g(V.X) <= R.h(V.X)["w": 4, 4]]).check()',
        "shape-mismatch",
        ("`w` is a 4×4 matrix here and a 4×8 matrix before", "use another name"),
    ),
    Mistake(
        "a family without a domain",
        "Program([R.q(V.H, V.I) <= R.x(V.I)[W.q(V.H)[4, 8]]]).check()",
        "undeclared-domain",
        ("has the key `H`, which has no domain", "`Program(..., domains={V.H: 8})`"),
    ),
    Mistake(
        "a key outside the domain of a family",
        "Program([R.h(V.T) <= R.a(V.T)[W.e(V.T)[2,]]], domains={V.T: 3}).solve([R.a(5)[1.0]])",
        "out-of-domain",
        ("`T` = 5", "domains"),
    ),
    Mistake(
        "two combinations",
        "Program([(R.h(V.X) <= (R.a(V.X), R.b(V.X, V.Y))) | [F.product, F.sum]]).check()",
        "two-combinations",
        ("`product` and `sum`", "`sum_agg`"),
    ),
    Mistake(
        "an aggregation in a line",
        "Program([R.h(V.X) <= R.a(V.X, V.Y), R.h/1 | [F.max_agg]]).check()",
        "bad-function",
        ("the line of `h` combines the rules", "write `F.max` here"),
    ),
    Mistake(
        "a combination where the aggregation is meant",
        "Program([(R.h(V.X) <= R.a(V.X, V.Y)) | [F.avg]]).check()",
        "idle-combination",
        ("combines one value", "did you mean `F.avg_agg`?"),
    ),
    Mistake(
        "a softmax over a variable that is not in the head",
        "Program([(R.w(V.I) <= R.s(V.I, V.J)) | [F.softmax_agg(agg_terms=[V.J])]]).check()",
        "bad-agg-terms",
        ("not a variable of the rule head `w`", "add `J` to the rule head"),
    ),
    Mistake(
        "a combination as the default aggregation",
        "Program([R.h(V.X) <= R.a(V.X, V.Y)], aggregation=F.max)",
        "bad-default",
        ("cannot be the default aggregation", "ends in `_agg`"),
    ),
]

FACTS = [
    Mistake(
        "the same edge twice",
        "Program([R.h(V.X) <= (R.a(V.Y), R._e(V.X, V.Y))])"
        ".solve([R.a(2)[1.0], R.e(1, 2), R._e(1, 2)])",
        "duplicate-fact",
        ("`e(1, 2)` is stated twice", "keep one"),
    ),
    Mistake(
        "a fact with a variable",
        "Program([R.h(V.X) <= R.a(V.X)]).solve([R.a(V.X)[1.0]])",
        "bad-fact",
        ("holds the variable `X`", "write a constant"),
    ),
    Mistake(
        "a rule among the facts",
        "Program([R.h(V.X) <= R.a(V.X)]).solve([R.a(V.X) <= R.b(V.X)])",
        "bad-fact",
        ("is a rule", "rules go into the program"),
    ),
    Mistake(
        "a list in the list of facts",
        "Program([R.h(V.X) <= R.a(V.X)]).solve([[R.a(1)[1.0], R.a(2)[2.0]]])",
        "bad-fact",
        ("a list among the facts", "unpack it with `*`"),
    ),
    Mistake(
        "facts as a dictionary",
        'Program([R.h(V.X) <= R.a(V.X)]).solve({"a": 1.0})',
        "bad-fact",
        ("got dict", "`[R.a(1)[0.5], R.e(1, 2)]`"),
    ),
    Mistake(
        "a shape where data needs a value",
        "Program([R.h(V.X) <= R.a(V.X)]).solve([R.a(1)[3, 3]])",
        "bad-fact",
        ("has a weight instead of a value", "give numbers or a tensor"),
    ),
    Mistake(
        "an atom that is a fact and derived",
        "Program([R.h(V.X) <= R.a(V.X)]).solve([R.a(1)[2.0], R.h(1)[3.0]])",
        "fact-and-rule",
        ("`R.h(1)`", "remove one of them"),
    ),
    Mistake(
        "an edge without a value in a sum",
        "Program([R.h(V.X) <= (R.a(V.Y), R.edge(V.X, V.Y))]).check([R.a(1)[2.0], R.edge(0, 1)])",
        "counts-as-one",
        ("`edge` has no values, so it adds 1", "`R._edge(V.X, V.Y)`"),
    ),
    Mistake(
        "a query for what nothing derives",
        "Program([R.h(V.X) <= R.a(V.X)]).solve([R.a(1)[2.0]])[R.h(7)]",
        "not-derivable",
        ("`R.h(7)`",),
    ),
    Mistake(
        "a query by name",
        'Program([R.h <= R.a]).solve([R.a[1.0]])["h"]',
        "bad-query",
        ("not a query", "`solution[R.h(1)]`"),
    ),
]

VARIABLES = [
    Mistake(
        "a head variable that nothing binds",
        "Program([R.h(V.X, V.Y) <= R.a(V.X)]).check()",
        "unbound-variable",
        ("`Y` is in the rule head `h`", "such as `R._node(V.Y)`"),
    ),
    Mistake(
        "a variable in a negated atom only",
        "Program([R.h(V.X) <= (R.a(V.X), ~R.e(V.X, V.Y))]).check()",
        "unbound-variable",
        ("`Y` is in the negated atom `e`", "add an atom that binds `Y`"),
    ),
    Mistake(
        "a comparison with an unbound variable",
        "Program([R.h(V.I) <= (R.a(V.I), R.special.leq(V.K, V.I))]).check()",
        "unbound-variable",
        ("`K` is in `special.leq`", "binds `K`"),
    ),
    Mistake(
        "arithmetic with two unknowns",
        "Program([R.h(V.I) <= (R.a(V.I), R.special.add(V.I, V.B, V.C))]).check()",
        "unbound-variable",
        ("`B`", "cannot compute `B` without `C`"),
    ),
    Mistake(
        "a pattern that should bind",
        "Program([R.h(V.I) <= (R.a(V.J), window(2)(V.I, V.J))]).check()",
        "unbound-variable",
        ("`I` is in the rule head `h`", "`R._node(V.I)`"),
    ),
    Mistake(
        "two atoms that nothing joins",
        "Program([R.h(V.X) <= (R.a(V.X), R.b(V.Y))]).check()",
        "cartesian-product",
        ("pairs every `Y` with every `X`", "`R._edge(V.X, V.Y)`"),
    ),
    Mistake(
        "a value that is counted once for every neighbour",
        "Program([R.h(V.X) <= (R.a(V.X), R.e(V.X, V.Y))]).check()",
        "singleton-variable",
        ("counted again for every `Y`", "call it `_Y`"),
    ),
    Mistake(
        "negation on a cycle",
        "Program([R.p(V.X) <= (R.n(V.X), ~R.q(V.X)), R.q(V.X) <= (R.n(V.X), ~R.p(V.X))]).check()",
        "not-stratified",
        ("`p` negates `q`, which negates `p`", "soft negation `-b`"),
    ),
    Mistake(
        "recursion on a cycle of the data",
        "Program([R.p(V.X) <= R.s(V.X), R.p(V.Y) <= (R.p(V.X), R._e(V.X, V.Y))])"
        ".solve([R.s(1)[1.0], R.e(1, 2), R.e(2, 1)])",
        "cyclic-recursion",
        ("`p`", "`Program(..., rounds=3)`"),
    ),
    Mistake(
        "counting without an end",
        "Program([R.h(V.T) <= (R.h(V.S), R.special.next(V.S, V.T))]).solve([R.h(0)[1.0]])",
        "too-many-groundings",
        ("`h`", "finitely many facts"),
    ),
]

SHAPES = [
    Mistake(
        "swapped dimensions of a weight",
        "Program([R.h(V.X) <= R.a(V.X)[64, 32], R.g(V.X) <= R.h(V.X)[64, 10]]).check()",
        "shape-mismatch",
        ("(out, in) = (64, 10)", "`h` has 64 rows", "did you mean `[10, 64]`?"),
    ),
    Mistake(
        "swapped dimensions, seen in the data",
        "Program([R.h(V.X) <= R.a(V.X)[3, 2]]).solve([R.a(1)[[1.0, 2.0, 3.0]]])",
        "shape-mismatch",
        ("(out, in) = (3, 2)", "`a` is a column of 3", "did you mean `[2, 3]`?"),
    ),
    Mistake(
        "a weight of the wrong width",
        "Program([R.h(V.X) <= R.a(V.X)[8, 5]]).check([R.a(1)[[1.0, 2.0, 3.0]]])",
        "shape-mismatch",
        ("`a` is a column of 3", "give the weight 3 columns: `[8, 3]`"),
    ),
    Mistake(
        "a vector plus a matrix",
        "Program([R.h <= (R.a, R.m)]).solve([R.a[[1.0, 2.0]], R.m[[[1.0, 2.0], [3.0, 4.0]]]])",
        "shape-mismatch",
        ("`a` is a column of 2 and `m` is a 2×2 matrix", "`F.product`"),
    ),
    Mistake(
        "a column plus a row",
        "Program([R.h <= R.a + R.b.T]).check([R.a[[1.0, 2.0]], R.b[[1.0, 2.0]]])",
        "shape-mismatch",
        ("`b` transposed is a row of 2", "transpose one of them with `.T`"),
    ),
    Mistake(
        "a dot product without the transpose",
        "Program([(R.h <= (R.a, R.b)) | [F.product]]).check([R.a[[1.0, 2.0]], R.b[[3.0, 4.0]]])",
        "shape-mismatch",
        ("`a` is a column of 2 and `b` is a column of 2", "transpose the left one with `.T`"),
    ),
    Mistake(
        "a residual connection of another width",
        "Program([R.q(V.I) <= R.x(V.I)[64, 32], R.k(V.I) <= R.x(V.I)[48, 32], "
        "R.h(V.I) <= (R.q(V.I), R.k(V.I))]).check()",
        "shape-mismatch",
        ("`q` has 64 rows and `k` has 48 rows", "the same number of rows"),
    ),
    Mistake(
        "vectors of different lengths in one sum",
        "Program([R.h <= R.a(V.X)]).solve([R.a(1)[[1.0, 2.0]], R.a(2)[[1.0, 2.0, 3.0]]])",
        "shape-mismatch",
        ("a column of 2 and a column of 3", "equal shapes"),
    ),
    Mistake(
        "a slice beyond the end",
        "Program([(R.h <= R.a) | [F.slice(rows=(1, 5))]]).check([R.a[[1.0, 2.0]]])",
        "shape-mismatch",
        ("rows 1 to 5", "is a column of 2", "half-open"),
    ),
    Mistake(
        "a reshape to another size",
        "Program([(R.h <= R.a) | [F.reshape((2, 3))]]).check([R.a[[1.0, 2.0, 3.0, 4.0]]])",
        "shape-mismatch",
        ("(2, 3)", "is a column of 4", "product is the number of elements"),
    ),
]

TEXT = [
    Mistake(
        "no dot at the end of a rule",
        'Program.parse("h(X) :- a(X)\\ng(X) :- h(X).")',
        "syntax-error",
        ("`.`",),
    ),
    Mistake(
        "half an arrow",
        'Program.parse("h(X) : a(X).")',
        "syntax-error",
        ("`:`", "`head :- body.`"),
    ),
    Mistake(
        "an open parenthesis",
        'Program.parse("h(X :- a(X).")',
        "syntax-error",
        ("`)`",),
    ),
    Mistake(
        "a Python rule in a text",
        'Program.parse("R.h(V.X) <= R.a(V.X)")',
        "syntax-error",
        ("`",),
    ),
    Mistake(
        "a misspelt function in a text",
        'Program.parse("h(X) :- a(X). [transformation=sigmiod]")',
        "unknown-function",
        ("`sigmiod`", "sigmoid"),
    ),
    Mistake(
        "an unbound variable in a text",
        'Program.parse("out(Src2) :- edge(Src, Dst), w(Src).").check()',
        "unbound-variable",
        ("`Src2` is in the rule head `out`", "did you mean `Src`?"),
    ),
]

MISTAKES = [*TYPOS, *PYTHON, *VALUES, *NAMES, *FACTS, *VARIABLES, *SHAPES, *TEXT]
