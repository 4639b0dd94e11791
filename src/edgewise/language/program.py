"""A program: rules, facts and relation lines, with its defaults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from edgewise.errors import (
    EdgewiseWarning,
    caller,
    checks_options,
    named,
    safe_repr,
)
from edgewise.language import (
    blocks,
    defaults,
    nodes,
    operators,
    printer,
    selections,
)
from edgewise.language.blocks import merged
from edgewise.language.defaults import BadDefault, Domain
from edgewise.language.statements import BadStatement, flatten
from edgewise.language.text_form.html import to_html
from edgewise.language.text_form.parser import parse
from edgewise.language.text_form.printer import to_text
from edgewise.language.text_form.samples import refuse_targets
from edgewise.language.text_form.tokens import BadSyntax

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from edgewise.flow import Counterexample, Reach
    from edgewise.module import Model
    from edgewise.reference.solution import Solution
    from edgewise.viz import Picture

DomainLike: TypeAlias = int | Sequence[nodes.Constant]
FactLike: TypeAlias = nodes.Atom | nodes.Fact
RuleLike: TypeAlias = "nodes.Statement | nodes.Atom | Program | Iterable[RuleLike]"


TENSORS = (
    "facts are a list of atoms, `solve([R.x(i)[row] for i, row in enumerate(x)])`; tensors by name "
    "are inputs of `compile(R.out)`"
)
TRACED = "a model is a module: `torch.compile(program.compile(R.out), {})`"
INSTEAD = {
    **{name: TRACED.format(f"{name}=...") for name in ("mode", "backend", "dynamic", "fullgraph")},
    "device": "move the model: `program.compile(R.out).to(device)`",
    "requires_grad": "freeze the model: `program.compile(R.out).requires_grad_(False)`",
    "outputs": "name the output first: `program.compile([R.out, R.memory])`",
}


def _stage(name: str) -> Any:
    """A later stage, imported when it is used: the language itself needs no torch."""
    return import_module(f"edgewise.{name}")


@dataclass(frozen=True, init=False, repr=False)
class Program:
    """Weighted rules about relations.

    >>> from edgewise import R, V, F, Program
    >>> Program([(R.h(V.X) <= (R.a(V.Y), R._edge(V.X, V.Y))) | [F.relu]])
    Program([
        (R.h(V.X) <= (R.a(V.Y), R._edge(V.X, V.Y))) | [F.relu],
    ])

    `aggregation` is the default for every rule; `domains` says which values the variables of
    weight families take; `rounds` is how often recursion on a cycle is applied.
    """

    statements: tuple[nodes.Statement, ...]
    aggregation: nodes.Function
    domains: tuple[tuple[str, Domain], ...]
    rounds: int | None

    @checks_options("rules are one list: `Program([a, b])`")
    def __init__(
        self,
        rules: RuleLike = (),
        *,
        aggregation: nodes.Function | None = None,
        domains: Mapping[nodes.Variable, DomainLike] | Mapping[str, DomainLike] | None = None,
        rounds: int | None = None,
    ) -> None:
        own = defaults.domains_of({} if domains is None else domains)
        items = rules if isinstance(rules, list | tuple) else [rules]
        items, every = merged(items, dict(own))
        object.__setattr__(self, "statements", flatten(items))
        object.__setattr__(self, "aggregation", defaults.aggregation_of(aggregation))
        object.__setattr__(self, "domains", tuple(sorted(every.items())))
        object.__setattr__(self, "rounds", defaults.rounds_of(rounds))

    def __bool__(self) -> bool:
        raise operators.no_truth_value(self)

    @property
    def rules(self) -> tuple[nodes.Rule, ...]:
        """The rules, with every stack written out.

        >>> from edgewise import R, V
        >>> Program([R.h(V.I) <= R.x(V.I)]).rules
        (R.h(V.I) <= R.x(V.I),)
        """
        return tuple(s for s in self.flat if isinstance(s, nodes.Rule))

    @property
    def facts(self) -> tuple[nodes.Fact, ...]:
        """The facts, with every stack written out.

        >>> from edgewise import R
        >>> Program([R.x(1)[2.0]]).facts
        (R.x(1)[2.0],)
        """
        return tuple(s for s in self.flat if isinstance(s, nodes.Fact))

    @property
    def lines(self) -> tuple[nodes.Line, ...]:
        """The relation lines `R.h/1 | [...]`, with every stack written out.

        >>> from edgewise import F, R, V
        >>> Program([R.h(V.I) <= R.x(V.I), R.h / 1 | [F.relu]]).lines
        (R.h/1 | [F.relu],)
        """
        return tuple(s for s in self.flat if isinstance(s, nodes.Line))

    @cached_property
    def flat(self) -> tuple[nodes.Statement, ...]:
        """The statements with every stack written out, copy by copy, and selections as rules."""
        return selections.expand(blocks.expand(self.statements))

    @cached_property
    def aliases(self) -> dict[str, str]:
        """The names of stack outputs, and the relations of the last copies they stand for."""
        return blocks.output_names(self.statements)

    def __add__(self, other: Program) -> Program:
        """Both programs' statements, each with its domains; other defaults must agree."""
        if not isinstance(other, Program):
            raise BadStatement(
                f"a program and {safe_repr(other)} are not joined",
                caller(),
                "write `Program([program, rule])`, or add another program",
            )
        if self.aggregation != other.aggregation or _differ(self.rounds, other.rounds):
            raise BadDefault(
                "the programs disagree on the default aggregation or rounds",
                caller(),
                "give both the same defaults",
            )
        rounds = self.rounds or other.rounds
        return Program([self, other], aggregation=self.aggregation, rounds=rounds)

    @classmethod
    def parse(cls, source: str, *, file: str = "<text>") -> Program:
        """Read the text form.

        >>> Program.parse("{8,2} h(X) :- a(X), *edge(X, Y). [activation=tanh]").text()
        '{8,2} h(X) :- a(X), *edge(X, Y). [tanh]\\n'
        """
        return parse(source, file)

    @classmethod
    def load(cls, path: str | Path) -> Program:
        """Read a file in the text form; `edgewise.data.neuralogic` reads samples.

        >>> import tempfile
        >>> from pathlib import Path
        >>> path = Path(tempfile.mkdtemp()) / "rules.txt"
        >>> _ = path.write_text("h(I) :- {2,2} x(I).")
        >>> Program.load(path)
        Program([
            R.h(V.I) <= R.x(V.I)[2, 2],
        ])
        """
        try:
            source = Path(path).read_text(encoding="utf-8")
        except (OSError, TypeError, ValueError) as problem:  # UnicodeDecodeError is a ValueError
            why = problem.strerror if isinstance(problem, OSError) else problem
            raise BadSyntax(
                f"cannot read `{named(path)}`: {why}",
                caller(),
                "give the path of a text file in UTF-8",
            ) from None
        found = parse(source, str(path))
        refuse_targets(found.statements)
        return found

    def text(self) -> str:
        """The program in the text form; `Program.parse` reads it back.

        >>> from edgewise import R, V
        >>> print(Program([R.h(V.I) <= (R.x(V.J), R._edge(V.J, V.I))]).text(), end="")
        h(I) :- x(J), *edge(J, I).
        """
        return to_text(self)

    def check(self, facts: Iterable[FactLike] = ()) -> list[EdgewiseWarning]:
        """Raise all errors that can be found before evaluation; return the warnings.

        >>> from edgewise import R, V
        >>> [warning.code for warning in Program([R.h(V.X) <= (R.a(V.X), R.b(V.Y))]).check()]
        ['cartesian-product']
        """
        return _stage("checks").check(self, facts)

    @checks_options("facts are one list: `solve([R.a(1), R.b(2)])`", TENSORS)
    def solve(
        self,
        facts: Iterable[FactLike] = (),
        *,
        dtype: torch.dtype | None = None,
        weights: Mapping[str, Tensor] | None = None,
        seed: int | None = None,
        training: bool = False,
    ) -> Solution:
        """Evaluate with the reference evaluator: every derived atom with its value.

        `dtype` is float64 by default. `weights` gives weights by name, such as those of
        `program.weights(seed=0)`; the others have their initial values, drawn with `seed` where a
        rule gives only a shape. `training` enables dropout.

        >>> from edgewise import R, V
        >>> solution = Program([R.h(V.I) <= (R.x(V.J), R._edge(V.J, V.I))]).solve(
        ...     [R.x(0)[1.0], R.x(1)[2.0], R.edge(0, 2), R.edge(1, 2)]
        ... )
        >>> solution[R.h(2)].item()
        3.0
        """
        options: dict[str, Any] = {"weights": weights, "seed": seed, "training": training}
        options |= {} if dtype is None else {"dtype": dtype}
        return _stage("reference").solve(self, facts, **options)

    @checks_options("several outputs are a list: `compile([R.out, R.memory])`", **INSTEAD)
    def compile(
        self,
        output: nodes.Atom | Sequence[nodes.Atom],
        *,
        fill: float | None = None,
        limit: int | None = None,
        without: Iterable[str] = (),
        seed: int | None = None,
        dtype: torch.dtype | None = None,
        check: bool = False,
        weights: Model | Mapping[str, Tensor] | None = None,
        dense: bool | None = None,
    ) -> Model:
        """A `torch.nn.Module` that computes one relation, or a list of them.

        - output: `R.out`; `R.g(3, V.X)` for the rows that have a constant; of a list, such as
          `[R.out, R.memory]`, the model returns a dictionary by name.
        - fill: the value of absent atoms in a dense output.
        - limit: the most bytes that the groundings of a rule may take, 8 GiB by default.
        - without: passes to switch off, by name.
        - seed: draws the initial weights, each by its name, as `solve` does; 0 to 2^63 - 1.
        - dtype: of the weights; torch's default if None.
        - check: check the tensors of every call for NaN too, which synchronises a GPU.
        - weights: another model, whose parameters are shared by name, or parameters by name;
          a tensor that is not a parameter is the initial value of one.
        - dense: True for outputs that are tensors whatever the inputs, with an axis for each term
          and `fill` where there is no atom; False for outputs that are `Relation`s of rows.

        >>> import torch
        >>> from edgewise import R, V
        >>> model = Program([R.h(V.I) <= R.x(V.I)["w":2, 3]]).compile(R.h, seed=0)
        >>> model(x=torch.randn(5, 3)).shape, list(model.state_dict())
        (torch.Size([5, 2]), ['w'])
        """
        options: dict[str, Any] = {"fill": fill, "without": without, "seed": seed}
        options |= {"dtype": dtype, "check": check, "weights": weights, "dense": dense}
        options |= {} if limit is None else {"limit": limit}
        return _stage("compile").compile(self, output, **options)

    def reaches(self, end: nodes.Atom, start: nodes.Atom) -> Reach:
        """The condition under which information of `start` can reach `end`, over all paths.

        It holds for all data: elsewhere the value of `end` does not depend on `start`.

        >>> from edgewise.language import R, V
        >>> rule = R.h(V.I) <= (R.x(V.J), R._x(V.I), R.special.leq(V.J, V.I))
        >>> Program([rule, R.out(V.I) <= R.h(V.I)]).reaches(R.out(V.I), R.x(V.J))
        R.x(V.J) reaches R.out(V.I) where J <= I, x(I)
        """
        return _stage("flow").reaches(self, end, start)

    def is_causal(self, end: nodes.Atom | None = None, start: nodes.Atom | None = None) -> bool:
        """Whether the last key of `start` is at most that of `end` wherever information flows.

        Without atoms, those of the one output and the one input that the program has.

        >>> from edgewise import R, V
        >>> Program([R.h(V.I) <= (R.x(V.J), V.J <= V.I)]).is_causal()
        True
        """
        return _stage("flow").is_causal(self, end, start)

    def equals(self, other: Program) -> bool:
        """Whether two programs are equal but for names and order.

        Variables, weights and relations between input and output may have other names.

        >>> from edgewise.language import R, V, W
        >>> one = Program([R.h(V.X) <= R.a(V.X)[W.w[2, 2]], R.out(V.X) <= R.h(V.X)])
        >>> one.equals(Program([R.out(V.I) <= R.g(V.I), R.g(V.J) <= R.a(V.J)[2, 2]]))
        True
        """
        return _stage("flow").equals(self, other)

    def counterexample(
        self,
        other: Program,
        *,
        trials: int = 20,
        seed: int = 0,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
    ) -> Counterexample | None:
        """Facts for which two programs differ, from random data; None if `trials` found none.

        Outputs and weights are compared by name. A value that a matrix is applied to is a vector,
        others are numbers unless `shapes` has them by relation.

        >>> from edgewise.language import R, V
        >>> one = Program([R.h(V.X) <= (R.a(V.X), R.b(V.X))])
        >>> one.counterexample(Program([R.h(V.X) <= (R.b(V.X), R.a(V.X))]))
        """
        options: dict[str, Any] = {"trials": trials, "seed": seed, "shapes": shapes or {}}
        return _stage("flow").counterexample(self, other, **options)

    def weights(
        self, *, seed: int | None = None, dtype: torch.dtype | None = None
    ) -> dict[str, Tensor]:
        """Initial learnable weights by name, for `solve(weights=...)`.

        >>> from edgewise import R, V
        >>> {
        ...     n: tuple(w.shape)
        ...     for n, w in Program([R.h(V.I) <= R.x(V.I)["w":2, 3]]).weights(seed=0).items()
        ... }
        {'w': (2, 3)}
        """
        options = {"seed": seed} | ({} if dtype is None else {"dtype": dtype})
        return _stage("weights").initial_weights(self, **options)

    def draw(self) -> Picture:
        """The rules as an SVG picture: relations joined by the rules that derive them.

        >>> from edgewise import R, V
        >>> Program([R.h(V.I) <= R.x(V.I)]).draw().save("rules.svg")  # doctest: +SKIP
        """
        return _stage("viz").draw_program(self)

    def __repr__(self) -> str:
        return printer.program(self)

    def _repr_html_(self) -> str:
        return to_html(self)


def _differ(a: Any, b: Any) -> bool:
    return a is not None and b is not None and a != b
