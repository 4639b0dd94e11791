"""A second evaluator of programs, which shares no code with the package.

It reads the syntax tree and follows the eight points of the language literally: every assignment
of a body is searched for, every value is a small tensor in float64, autograd gives gradients.
Nothing is planned, indexed or fused, and no module that evaluates programs is imported.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import product as pairs
from typing import Any

import torch
from torch import Tensor

from edgewise.language import nodes
from edgewise.language.program import Program
from edgewise.language.statements import name_weights

Key = tuple[Any, ...]
Bound = dict[str, Any]
Values = dict[tuple[str, Key], Tensor]
NEAR = 1e-7


class Refused(Exception):
    """The program has no value here: shapes differ, a key has no weight, a cycle has no end."""


def order(key: Key) -> tuple[Any, ...]:
    """Integers by size, then strings."""
    return tuple((isinstance(k, str), k) for k in key)


def canonical(x: Tensor) -> Tensor:
    if x.numel() == 1:
        return x.reshape(())
    return x[:, 0] if x.ndim == 2 and x.shape[1] == 1 else x


def times(a: Tensor, b: Tensor) -> Tensor:
    if a.ndim == 0 or b.ndim == 0:
        return a * b
    a, b = (x if x.ndim == 2 else x[:, None] for x in (a, b))
    if a.shape[1] != b.shape[0]:
        raise Refused("shapes")
    return canonical((a[:, :, None] * b[None]).sum(1))


def spread(values: Sequence[Tensor]) -> list[Tensor]:
    shapes = {v.shape for v in values if v.ndim}
    if len(shapes) > 1:
        raise Refused("shapes")
    return [v.expand(next(iter(shapes))) if shapes else v for v in values]


class Functions:
    """What the functions of values compute; `fragile` once a value sits on an edge of one."""

    def __init__(self) -> None:
        self.fragile = False

    def edge(self, distance: Tensor) -> None:
        if distance.numel() and bool((distance.detach().abs() < NEAR).any()):
            self.fragile = True

    def transform(self, function: nodes.Function, x: Tensor) -> Tensor:
        given = dict(function.arguments)
        if function.name in ("relu", "leaky_relu", "abs", "signum", "elu"):
            self.edge(x)
        match function.name:
            case "relu":
                out = torch.where(x > 0, x, 0 * x)
            case "leaky_relu":
                out = torch.where(x > 0, x, given.get("slope", 0.01) * x)
            case "sigmoid":
                out = 1 / (1 + (-x).exp())
            case "tanh":
                out = 2 / (1 + (-2 * x).exp()) - 1
            case "gelu":
                out = x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))
            case "gelu_tanh":
                inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
                out = 0.5 * x * (2 - 2 / (1 + (2 * inner).exp()))
            case "silu":
                out = x / (1 + (-x).exp())
            case "elu":
                out = torch.where(x > 0, x, x.clamp(max=0).exp() - 1)
            case "softplus":
                out = torch.where(x > 20, x, (1 + x.clamp(max=20).exp()).log())
            case "softmax":
                out = self.softmax(x.reshape(-1)).reshape(x.shape)
            case "sparsemax":
                out = self.sparsemax(x.reshape(-1)).reshape(x.shape)
            case "norm" | "rms_norm":
                x = x - x.sum() / x.numel() if function.name == "norm" else x
                out = x / ((x * x).sum() / x.numel() + given.get("eps", 1e-10)) ** 0.5
            case "exp":
                out = x.exp()
            case "log":
                out = x.log()
            case "sqrt":
                out = x**0.5
            case "square":
                out = x * x
            case "abs":
                out = torch.where(x > 0, x, -x)
            case "sin":
                out = x.sin()
            case "cos":
                out = x.cos()
            case "clamp":
                self.edge(x - given["low"])
                self.edge(x - given["high"])
                out = torch.where(x < given["low"], 0 * x + given["low"], x)
                out = torch.where(x > given["high"], 0 * x + given["high"], out)
            case "inverse":
                out = 1 / x
            case "reverse":
                out = 1 - x
            case "signum":
                out = (x > 0).double()
            case "lukasiewicz":
                out = 1 / (1 + (-6 * x - 0.5).exp())
            case "transp":
                out = x[None] if x.ndim == 1 else x.T if x.ndim else x
            case "identity" | "dropout":
                out = x
            case "slice":
                if given.get("rows"):
                    x = x[given["rows"][0] : given["rows"][1]]
                out = x[:, given["cols"][0] : given["cols"][1]] if given.get("cols") else x
            case "reshape":
                out = x.reshape(given["shape"])
            case "call":
                out = given["module"].thing(x)
            case name:
                raise NotImplementedError(name)
        return canonical(out)

    def combine(self, function: nodes.Function, values: Sequence[Tensor]) -> Tensor:
        match function.name:
            case "sum":
                out = reduce(torch.add, spread(values))
            case "avg":
                out = reduce(torch.add, spread(values)) / len(values)
            case "elproduct":
                out = reduce(torch.mul, spread(values))
            case "max" | "min" as name:
                out = self.extreme(values, name)
            case "product":
                out = reduce(times, values)
            case "count":
                out = torch.tensor(float(len(values)), dtype=torch.float64)
            case "concat" if dict(function.arguments).get("axis", -1) == 0:
                out = torch.cat([v.reshape(1, 1) if v.ndim == 0 else v.reshape(len(v), -1)
                                 for v in values])  # fmt: skip
            case "concat":
                out = torch.cat([v.reshape(-1) for v in values])
            case "crossum":
                flat = [v.reshape(-1) for v in values]
                out = torch.stack([sum(some) for some in pairs(*flat)])  # type: ignore[misc]
            case "cossim":
                a, b = (v.reshape(-1) for v in values)
                out = (a * b).sum() / ((a * a).sum() ** 0.5 * (b * b).sum() ** 0.5)
            case "greater" | "greater_equal" as name:
                a, b = values
                self.edge(a - b)
                out = (a > b if name == "greater" else a >= b).double()
            case "softmax_comb":
                out = self.softmax(torch.stack(list(values)))
            case "sparsemax_comb":
                out = self.sparsemax(torch.stack(list(values)))
            case name:
                raise NotImplementedError(name)
        return canonical(out)

    def aggregate(self, function: nodes.Function, values: Sequence[Tensor]) -> Tensor:
        n = len(values)
        match function.name:
            case "sum_agg":
                out = reduce(torch.add, spread(values))
            case "avg_agg":
                out = reduce(torch.add, spread(values)) / n
            case "max_agg" | "min_agg" as name:
                out = self.extreme(values, name[:3])
            case "count_agg":
                out = torch.tensor(float(n), dtype=torch.float64)
            case "concat_agg":
                out = torch.cat([v.reshape(-1) for v in values])
            case "std_agg":
                out = self.deviation(values)
            case "median_agg":
                out = self.ordered(values)[(n - 1) // 2]
            case "topk_agg":
                out = self.ordered(values).flip(0)[: function["k"]].sum(0)
            case "lse_agg":
                some = torch.stack(spread(values))
                most = some.detach().amax(0)
                out = (some - most).exp().sum(0).log() + most
            case "softmax_agg":
                out = self.softmax(self.scalars(values))
            case "sparsemax_agg":
                out = self.sparsemax(self.scalars(values))
            case name:
                raise NotImplementedError(name)
        return canonical(out)

    def scalars(self, values: Sequence[Tensor]) -> Tensor:
        if any(v.ndim for v in values):
            raise Refused("shapes")
        return torch.stack(list(values))

    def extreme(self, values: Sequence[Tensor], name: str) -> Tensor:
        """Ties share: the mean of those that win."""
        some = torch.stack(spread(values))
        best = some.detach().amax(0) if name == "max" else some.detach().amin(0)
        wins = some.detach() == best
        close = (some.detach() - best).abs()
        if bool(((close < NEAR) & ~wins).any()):
            self.fragile = True
        return (some * wins).sum(0) / wins.sum(0)

    def ordered(self, values: Sequence[Tensor]) -> Tensor:
        some = torch.stack(spread(values)).sort(0).values
        self.edge(some[1:] - some[:-1])
        return some

    def deviation(self, values: Sequence[Tensor]) -> Tensor:
        some = torch.stack(spread(values))
        off = some - some.sum(0) / len(values)
        variance = (off * off).sum(0) / len(values)
        if len(values) > 1 and bool((variance.detach() < 1e-10).any()):
            self.fragile = True
        flat = variance.detach() <= 0
        return torch.where(flat, 0 * variance, torch.where(flat, 1.0, variance) ** 0.5)

    def softmax(self, x: Tensor) -> Tensor:
        top = x.detach().max()
        if bool(top == -torch.inf):
            return x.masked_fill(x == -torch.inf, 0) * 0
        raised = (x - top).exp()
        return raised / raised.sum()

    def best(self, x: Tensor) -> Tensor:
        """1 for the first of the largest."""
        first = max(range(len(x)), key=lambda k: (x[k].item(), -k))
        self.edge(torch.stack([x[first] - y for k, y in enumerate(x) if k != first] or [x[0] + 1]))
        return torch.tensor([float(k == first) for k in range(len(x))], dtype=torch.float64)

    def sparsemax(self, x: Tensor) -> Tensor:
        """max(x − τ, 0) that sums to 1, τ by trying every size of the support."""
        ordered = x.sort(descending=True).values
        for size in range(len(x), 0, -1):
            tau = (ordered[:size].sum() - 1) / size
            if bool(ordered[size - 1] > tau) or size == 1:
                break
        self.edge(x - tau)
        return torch.where(x > tau, x - tau, 0 * x)


# which conditions hold


def bucket(distance: int, buckets: int, far: int, both: bool) -> int:
    """T5's bucket of a relative position."""
    first = 0
    if both:
        buckets //= 2
        first = buckets if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    steps = math.log(distance / exact) / math.log(far / exact) * (buckets - exact)
    return first + min(exact + int(steps + 1e-9), buckets - 1)


def holds(atom: nodes.SpecialAtom, keys: Key) -> bool:
    """A special predicate on constants, over the natural numbers."""
    if atom.formula is not None:
        if any(isinstance(k, str) for k in keys):
            return False
        try:  # as Python computes what is printed
            return bool(eval(atom.formula.shown([f"({k})" for k in keys])))
        except ZeroDivisionError:
            return False
    match atom.name:
        case "eq":
            return keys[0] == keys[1]
        case "neq":
            return keys[0] != keys[1]
        case "in":
            return keys[0] in keys[1:]
        case "alldiff":
            return len(set(keys)) == len(keys)
        case "maxcard":
            return len(set(keys[1:])) <= keys[0]
        case "fn":
            return atom.function is not None and atom.function.thing(*keys[:-1]) == keys[-1]
    if any(isinstance(k, str) for k in keys):
        return False
    if atom.name in ("leq", "lt", "geq", "gt"):
        a, b = keys
        return {"leq": a <= b, "lt": a < b, "geq": a >= b, "gt": a > b}[atom.name]
    if min(keys) < 0:
        return False
    match atom.name, keys:
        case "next", (a, b):
            return a + 1 == b
        case "add", (a, b, c):
            return a + b == c
        case "sub", (a, b, c):
            return a - b == c
        case "mul", (a, b, c):
            return a * b == c
        case "div", (a, b, c):
            return b != 0 and a // b == c
        case "mod", (a, b, c):
            return b != 0 and a % b == c
        case ("bucket" | "bucket_before") as name, (i, j, count, far, c):
            return bucket(j - i, count, far, name == "bucket") == c
    raise NotImplementedError(atom.name)


def is_equation(atom: nodes.SpecialAtom) -> bool:
    return atom.formula is not None and atom.formula.sign == "=="


def number(name: str, keys: Key) -> float | None:
    """What `*_eval` gives; None where it does not hold."""
    if any(isinstance(k, str) for k in keys):
        return None
    a, b = keys
    if name in ("div_eval", "mod_eval") and b == 0:
        return None
    found: dict[str, Callable[[], float]] = {
        "add_eval": lambda: a + b,
        "sub_eval": lambda: a - b,
        "mul_eval": lambda: a * b,
        "div_eval": lambda: a / b,
        "mod_eval": lambda: a % b,
        "max_eval": lambda: max(a, b),
        "min_eval": lambda: min(a, b),
    }
    return float(found[name]())


PATTERNS: dict[str, Callable[[int, int], bool]] = {  # those that random programs use
    "window(1)": lambda i, j: abs(i - j) <= 1,
    "window(2)": lambda i, j: abs(i - j) <= 2,
    "causal()": lambda i, j: j <= i,
    "strided(2)": lambda i, j: (i - j) % 2 == 0,
    "dilated(2, 2)": lambda i, j: abs(i - j) <= 4 and (i - j) % 2 == 0,
    "causal() & window(2)": lambda i, j: i - 2 <= j <= i,
}


def in_pattern(atom: nodes.PatternAtom, keys: Key) -> bool:
    whole = all(isinstance(k, int) and k >= 0 for k in keys)
    return whole and PATTERNS[repr(atom.pattern)](*keys)


# programs


def variables(terms: Sequence[Any]) -> list[str]:
    return [t.name for t in terms if isinstance(t, nodes.Variable)]


def ground(terms: Sequence[Any], bound: Bound) -> Key:
    return tuple(bound[t.name] if isinstance(t, nodes.Variable) else t for t in terms)


class Rule:
    """One rule with its literals sorted by what they do."""

    def __init__(self, rule: nodes.Rule, default: nodes.Function) -> None:
        self.rule, self.head = rule, rule.head
        self.atoms: list[nodes.Atom] = []
        self.denied: list[nodes.Atom] = []
        self.specials: list[nodes.SpecialAtom | nodes.PatternAtom] = []
        self.families: list[nodes.Weight] = []
        self.terms: list[nodes.Term] = [*rule.head.terms]  # of what carries values, as written
        self._collect(rule.head.weight)
        for item in rule.body:
            self._collect(item)
        kinds = {f.name.endswith("_agg"): f for f in rule.functions}
        self.aggregation = kinds.get(True, default)
        self.over = dict(self.aggregation.arguments).get("agg_terms")
        self.visible = list(dict.fromkeys(variables(self.terms)))

    def _collect(self, item: Any) -> None:
        match item:
            case nodes.Weight():
                self.families += [item] if item.keys else []
                self.terms += item.keys
            case nodes.Atom():
                self.terms += item.terms if item.carries_value else ()
                self._collect(item.weight)
                (self.denied if item.negated else self.atoms).append(item)
            case nodes.SpecialAtom() | nodes.PatternAtom():
                self.terms += item.terms if item.carries_value else ()
                self._collect(item.weight)
                self.specials.append(item)
            case nodes.Apply():
                for operand in item.operands:
                    self._collect(operand)
                self._collect(item.weight)

    def uses(self, bound: Bound) -> list[tuple[str, Key]]:
        return [(a.relation, ground(a.terms, bound)) for a in self.atoms if not a.hidden]

    def group(self, head: Key) -> Key:
        """What heads share that a softmax normalises together."""
        if self.over is None:
            return head
        names = [t.name if isinstance(t, nodes.Variable) else None for t in self.head.terms]
        return tuple(k for k, name in zip(head, names, strict=True) if name not in self.over)


def initial(program: Program, seed: int) -> tuple[dict[str, Tensor], list[str]]:
    """Every weight by its name, and which of them are learnable; drawn here, not by the package."""
    domains = {n: d if isinstance(d, int) else len(d) for n, d in program.domains}
    draw = torch.Generator().manual_seed(seed)
    found: dict[str, Tensor] = {}
    learnable = []

    def visit(item: Any) -> None:
        match item:
            case nodes.Weight() if item.is_declared and item.name not in found:
                sizes = [domains[name] for name in variables(item.keys)]
                if item.value is not None:
                    start = torch.tensor(item.value, dtype=torch.float64)
                    start = start.expand((*sizes, *start.shape)).clone()
                else:
                    shape = (*sizes, *(item.shape or ()))
                    start = torch.rand(shape, generator=draw, dtype=torch.float64) * 2 - 1
                if not item.is_fixed:
                    learnable.append(str(item.name))
                found[str(item.name)] = start.requires_grad_(not item.is_fixed)
            case nodes.Atom() | nodes.SpecialAtom():
                visit(item.weight)
            case nodes.Apply():
                visit(item.weight)
                visit(item.operands)
            case nodes.Rule():
                visit(item.head)
                visit(item.body)
            case nodes.Fact():
                visit(item.atom)
            case tuple():
                for one in item:
                    visit(one)

    visit(name_weights(program))
    return found, learnable


class Oracle(Functions):
    """A program with its weights: `values(facts)` gives every atom that holds and its value."""

    def __init__(self, program: Program, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        statements = name_weights(program)
        self.rounds = program.rounds
        self.default = program.aggregation
        self.domains = {
            name: list(range(d)) if isinstance(d, int) else list(d) for name, d in program.domains
        }
        self.weights = {n: w for n, w in weights.items()}
        self.rules = [Rule(s, self.default) for s in statements if isinstance(s, nodes.Rule)]
        self.lines = {s.relation: s for s in statements if isinstance(s, nodes.Line)}
        self.stated = [s.atom for s in statements if isinstance(s, nodes.Fact)]

    def values(self, facts: Sequence[tuple[str, Key, Tensor]]) -> Values:
        found: Values = {}
        for atom in self.stated:
            own = torch.ones((), dtype=torch.float64)
            found[atom.relation, atom.terms] = (  # type: ignore[index]
                own if atom.weight is None else self.weight(atom.weight, {})
            )
        found |= {(relation, key): value for relation, key, value in facts}
        every, self.absent = self.rules, set[tuple[str, Key]]()
        level = self._strata()
        chosen = {name for name in level if name.startswith("@")}  # they hold where they are not 0
        for stratum in sorted({level[name] for name in chosen}):
            self.rules = [r for r in every if level[r.head.relation] <= stratum]
            values = self._valued(dict(found))
            self.absent |= {a for a, v in values.items() if a[0] in chosen and not v}
        self.rules = every
        return {a: v for a, v in self._valued(found).items() if a[0] not in chosen}

    def _valued(self, found: Values) -> Values:
        self.groundings = self._ground(set(found))
        for relation, key in found:
            line = self.lines.get(relation)
            is_extreme = line is not None and any(f.name in ("min", "max") for f in line.functions)
            if not is_extreme and any(
                rule.head.relation == relation and key in heads for rule, heads in self.groundings
            ):
                raise Refused("a fact and a rule")
        self.facts = dict(found)
        for part in self._components():
            self._evaluate(part, found)
        return found

    # which atoms hold

    def _ground(self, known: set[tuple[str, Key]]) -> list[tuple[Rule, dict[Key, list[Bound]]]]:
        level = self._strata()
        for stratum in sorted(set(level.values())):
            here = [r for r in self.rules if level[r.head.relation] == stratum]
            while True:
                new = {
                    (r.head.relation, ground(r.head.terms, bound))
                    for r in here
                    for bound in self._assignments(r, known)
                }
                if new <= known:
                    break
                known |= new
            known -= self.absent
        found = []
        for rule in self.rules:
            each = {
                tuple(b[name] for name in rule.visible): {n: b[n] for n in rule.visible}
                for b in self._assignments(rule, known)
            }
            heads: dict[Key, list[Bound]] = {}
            for key in sorted(each, key=order):
                heads.setdefault(ground(rule.head.terms, each[key]), []).append(each[key])
            found.append((rule, dict(sorted(heads.items(), key=lambda pair: order(pair[0])))))
        return found

    def _strata(self) -> dict[str, int]:
        level = {r.head.relation: 0 for r in self.rules}
        for _ in range(len(level) + 1):
            for rule in self.rules:
                need = [level.get(a.relation, 0) for a in rule.atoms if a.relation[0] != "@"]
                need += [level.get(a.relation, -1) + 1 for a in rule.atoms if a.relation[0] == "@"]
                need += [level.get(a.relation, -1) + 1 for a in rule.denied]
                name = rule.head.relation
                level[name] = max([level[name], *need])
        return level

    def _assignments(self, rule: Rule, known: set[tuple[str, Key]]) -> Iterator[Bound]:
        tables: dict[str, list[Key]] = {}
        for relation, key in known:
            tables.setdefault(relation, []).append(key)

        def scan(at: int, bound: Bound) -> Iterator[Bound]:
            if at == len(rule.atoms):
                yield from self._completed(rule, bound)
                return
            atom = rule.atoms[at]
            for key in tables.get(atom.relation, ()):
                more = dict(bound)
                if all(
                    more.setdefault(t.name, k) == k if isinstance(t, nodes.Variable) else t == k
                    for t, k in zip(atom.terms, key, strict=True)
                ):
                    yield from scan(at + 1, more)

        for bound in scan(0, {}):
            if all((a.relation, ground(a.terms, bound)) not in known for a in rule.denied):
                self._check_domains(rule, bound)
                yield bound

    def _completed(self, rule: Rule, bound: Bound) -> Iterator[Bound]:
        """With what arithmetic computes and families range over, where all conditions hold."""
        for atom in rule.specials:
            if isinstance(atom, nodes.SpecialAtom) and not atom.negated and not atom.carries_value:
                free = {n for n in variables(atom.terms) if n not in bound}
                if len(free) == 1 and (atom.name in COMPUTES or is_equation(atom)):
                    (name,) = free
                    for value in self._candidates(atom, bound):
                        if holds(atom, ground(atom.terms, bound | {name: value})):
                            yield from self._completed(rule, bound | {name: value})
                    return
        keys = variables([t for w in rule.families for t in w.keys])
        name = next((n for n in keys if n not in bound), None)
        if name is not None:
            for value in self.domains[name]:
                yield from self._completed(rule, bound | {name: value})
        elif all(self._holds(atom, bound) for atom in rule.specials):
            yield bound

    def _holds(self, atom: nodes.SpecialAtom | nodes.PatternAtom, bound: Bound) -> bool:
        keys = ground(atom.terms, bound)
        if isinstance(atom, nodes.PatternAtom):
            return in_pattern(atom, keys) != atom.negated
        if atom.carries_value:
            return number(atom.name, keys) is not None
        return holds(atom, keys) != atom.negated

    def _candidates(self, atom: nodes.SpecialAtom, bound: Bound) -> list[Any]:
        """Every value that the one open term of arithmetic could have."""
        keys = [bound.get(t.name) if isinstance(t, nodes.Variable) else t for t in atom.terms]
        known = [k for k in keys if k is not None]
        most = max([abs(k) for k in known if isinstance(k, int)], default=0)
        if atom.formula is not None:
            return [*range(-10 * most - 10, 10 * most + 10)]
        text = {k for k in known if isinstance(k, str)}
        return [*range(-most - 1, most * max(most, 2) + 2), *text]

    def _check_domains(self, rule: Rule, bound: Bound) -> None:
        for family in rule.families:
            for name in variables(family.keys):
                if bound[name] not in self.domains[name]:
                    raise Refused("out of domain")

    # what they are worth

    def weight(self, weight: nodes.Weight, bound: Bound) -> Tensor:
        value = self.weights[str(weight.name)]
        for name in variables(weight.keys):
            value = value[self.domains[name].index(bound[name])]
        return canonical(value)

    def expression(self, item: Any, bound: Bound, values: Values) -> Tensor:
        match item:
            case nodes.Weight():
                return self.weight(item, bound)
            case nodes.Atom():
                value = values[item.relation, ground(item.terms, bound)]
            case nodes.SpecialAtom():
                value = torch.tensor(
                    number(item.name, ground(item.terms, bound)), dtype=torch.float64
                )
            case nodes.Apply():
                inside = [self.expression(o, bound, values) for o in item.operands]
                if item.function.name in COMBINATIONS:
                    value = self.combine(item.function, inside)
                else:
                    value = self.transform(item.function, inside[0])
        return value if item.weight is None else times(self.weight(item.weight, bound), value)

    def grounding(self, rule: nodes.Rule, bound: Bound, values: Values) -> Tensor:
        items = [self.expression(i, bound, values) for i in rule.body if i.carries_value]
        how = next((f for f in rule.functions if f.name in COMBINATIONS), SUM)
        value = self.combine(how, items) if items else torch.ones((), dtype=torch.float64)
        return self._transformed(rule.functions, value)

    def _transformed(self, functions: Sequence[nodes.Function], value: Tensor) -> Tensor:
        for f in functions:
            if f.name not in COMBINATIONS and not f.name.endswith("_agg"):
                value = self.transform(f, value)
        return value

    def _rule(self, rule: Rule, heads: dict[Key, list[Bound]], values: Values) -> dict[Key, Tensor]:
        """W_h · agg(...) for every head whose groundings have values."""
        inner = self.default if rule.over else rule.aggregation
        found: dict[Key, Tensor] = {}
        for head, bounds in heads.items():
            present = [b for b in bounds if all(u in values for u in rule.uses(b))]
            if present:
                each = [self.grounding(rule.rule, b, values) for b in present]
                found[head] = self.aggregate(inner, each)
        if rule.over:
            groups: dict[Key, list[Key]] = {}
            for head in found:
                groups.setdefault(rule.group(head), []).append(head)
            for members in groups.values():
                each = spread([found[m] for m in members])
                flat = torch.stack([e.reshape(-1) for e in each])
                how = {
                    "softmax_agg": self.softmax,
                    "sparsemax_agg": self.sparsemax,
                    "argmax_agg": self.best,
                    "argmin_agg": lambda x: self.best(-x),
                }[rule.aggregation.name]
                shares = torch.stack([how(flat[:, c]) for c in range(flat.shape[1])], 1)
                for m, share, e in zip(members, shares, each, strict=True):
                    found[m] = share.reshape(e.shape)
        if rule.head.weight is not None:
            found = {
                h: times(self.weight(rule.head.weight, heads[h][0]), v) for h, v in found.items()
            }
        return found

    def _round(self, part: set[str], values: Values) -> Values:
        """The atoms of some relations, from the values that are known."""
        parts: dict[tuple[str, Key], list[Tensor]] = {}
        for rule, heads in self.groundings:
            if rule.head.relation in part:
                for head, value in self._rule(rule, heads, values).items():
                    parts.setdefault((rule.head.relation, head), []).append(value)
        found: Values = {}
        for (relation, head), each in parts.items():
            atom = (relation, head)
            each = [self.facts[atom], *each] if atom in self.facts else each
            line = self.lines.get(relation)
            listed = line.functions if line is not None else ()
            how = next((f for f in listed if f.name in COMBINATIONS), SUM)
            found[atom] = self._transformed(listed, self.combine(how, each))
        return found

    def _components(self) -> list[set[str]]:
        """Relations whose values need each other, those that are needed first."""
        names = list(dict.fromkeys(r.head.relation for r in self.rules))
        needs = {n: {n} for n in names}
        direct = {
            n: {
                a.relation
                for r in self.rules
                if r.head.relation == n
                for a in r.atoms
                if not a.hidden and a.relation in needs
            }
            for n in names
        }
        for _ in names:
            for n in names:
                needs[n] = needs[n].union(*(needs[m] for m in direct[n]))
        parts = {frozenset(m for m in needs[n] if n in needs[m]) for n in names}
        self.direct = direct
        return [set(p) for p in sorted(parts, key=lambda p: len(needs[next(iter(p))]))]

    def _evaluate(self, part: set[str], values: Values) -> None:
        cyclic = any(m in part for n in part for m in self.direct[n])
        if not cyclic:
            values |= self._round(part, values)
            return
        if self._levels(part, values):
            return
        extreme = self.rounds is None and all(self._is_extreme(n, part) for n in part)
        if not extreme and self.rounds is None:
            raise Refused("a cycle")
        for _ in range(10_000 if extreme else self.rounds or 0):
            new = self._round(part, values)
            same = all(a in values and torch.equal(values[a], v) for a, v in new.items())
            values |= new
            if extreme and same:
                return

    def _levels(self, part: set[str], values: Values) -> bool:
        """Atom after atom where none needs itself; whether that was so."""
        needs: dict[tuple[str, Key], set[tuple[str, Key]]] = {}
        for rule, heads in self.groundings:
            if rule.head.relation in part:
                groups: dict[Key, set[tuple[str, Key]]] = {}
                for head, bounds in heads.items():
                    used = groups.setdefault(rule.group(head), set())
                    used |= {u for b in bounds for u in rule.uses(b) if u[0] in part}
                for head in heads:
                    needs.setdefault((rule.head.relation, head), set()).update(
                        groups[rule.group(head)]
                    )
        known, waiting = dict(values), dict(needs)
        done = {a for a in known if a not in needs}
        while waiting:
            ready = [a for a, used in waiting.items() if all(u in done for u in used)]
            if not ready:
                return False
            new = self._round(part, known)
            for atom in ready:
                known[atom] = new[atom]
                del waiting[atom]
            done |= set(ready)
        values |= known
        return True

    def _is_extreme(self, name: str, part: set[str]) -> bool:
        line = self.lines.get(name)
        if line is None or not any(f.name in ("min", "max") for f in line.functions):
            return False
        return all(
            rule.aggregation.name in ("min_agg", "max_agg")
            for rule in self.rules
            if rule.head.relation == name
            and any(a.relation in part and not a.hidden for a in rule.atoms)
        )


SUM = nodes.Function("sum")
COMBINATIONS = {
    *("sum", "product", "elproduct", "avg", "max", "min", "count", "concat", "crossum", "cossim"),
    *("softmax_comb", "sparsemax_comb", "greater", "greater_equal"),
}
COMPUTES = {
    *("eq", "add", "sub", "mul", "div", "mod", "next", "bucket", "bucket_before", "fn"),
}
