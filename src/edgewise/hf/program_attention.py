"""A rule program as the attention of a model."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.compile import compile
from edgewise.errors import EdgewiseError, caller
from edgewise.graphs import full
from edgewise.graphs.pattern import Pattern
from edgewise.hf.errors import BadProgram, UnsupportedArgument
from edgewise.hf.graph_attention import ScoreOptions, without_unfilled_cache
from edgewise.hf.masks import ModelMask, TokenRuns, attend_in_runs
from edgewise.hf.probe import Probe, output
from edgewise.hf.relations import BatchRelation, GroundedBatch
from edgewise.kernels.attention.contract import default_scale
from edgewise.language import F, R, nodes
from edgewise.language.program import Program
from edgewise.language.statements import applied_functions, mapped
from edgewise.module import Model

INPUTS = {"q", "k", "v", "bias"}
SOFTMAX = ("softmax", "softmax_agg")


def compile_attention(program: Program, model: nn.Module) -> ProgramAttention:
    """The program as a module, in the precision and on the device of the model."""
    return ProgramAttention(program, _compiled(program, next(model.parameters())))


def _compiled(program: Program, like: Tensor) -> Model:
    made = compile(program, R.out)
    if not INPUTS.issuperset(made.inputs):
        made = compile(program, R.out, fill=0.0)  # a token without pairs has an output of 0
    return made.to(like.device, like.dtype)


def check_relations(model: nn.Module, relations: frozenset[str]) -> None:
    """Refuse relations that cannot reach the attention as arguments of the model's call."""
    parameters = inspect.signature(model.forward).parameters
    accepts = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    for name in sorted(relations):
        if name in parameters or not accepts:
            why = "has an argument of that name" if accepts else "takes no other arguments"
            raise BadProgram(
                f"the program reads `{name}`, but `{type(model).__name__}` {why}",
                caller(),
                "read `q(H, I)`, `k(H, J)`, `v(H, J)`, and relations by other names",
            )


class ProgramAttention(nn.Module):
    """The compiled program of one layer; its weights are parameters of the model."""

    def __init__(self, source: Program, program: Model) -> None:
        super().__init__()
        self.source = source
        self.program = program
        self._dropout = 0.0
        self._checked: dict[Pattern | str, int] = {}  # the length up to which it was checked
        self._batch = GroundedBatch()

    @property
    def relations(self) -> tuple[str, ...]:
        """What it reads beside q, k, v and bias."""
        return tuple(name for name in self.program.inputs if name not in INPUTS)

    def copy(self) -> ProgramAttention:
        """For another layer, with weights of its own; its rules are checked and joined once."""
        other = copy.deepcopy(self)
        other._checked, other._batch = self._checked, self._batch
        return other

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: ModelMask,
        options: ScoreOptions,
        relations: Mapping[str, Any],
    ) -> Tensor:
        """q (batch, heads, n, d), k and v (batch, key heads, m, d) → (batch, heads, n, d)."""
        if options.softcap is not None or options.sinks is not None:
            raise _refused("a cap or sinks of scores", "its rules define the scores", "a rule")
        self._set_dropout(options.dropout)
        n = q.shape[-2]
        if mask.first_query or mask.first_key:
            q, k, v, mask, options = self._after_cache(q, k, v, mask, options)
        else:
            k, v, mask, options = without_unfilled_cache(q, k, v, mask, options)
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        q = q * (default_scale(q.shape[-1]) if options.scale is None else options.scale)
        batch = self._batch.read(relations, self.relations, self.source, q)
        self._check(Probe(self.program, q, v, batch), mask.allowed, cached=q.shape[-2] > n)
        if mask.runs is None:
            out = self._call(q, k, v, options.bias, None, batch)
        elif mask.runs.holes is not None:
            raise _refused("padding between tokens", "it attends to all", "a contiguous mask")
        else:
            out = attend_in_runs(
                q, k, v, options.bias, mask.runs.by_length(),
                lambda a, b, c, bias, runs: self._call(a, b, c, bias, runs, batch),
            )  # fmt: skip
        return out[..., q.shape[-2] - n :, :]

    def _after_cache(
        self, q: Tensor, k: Tensor, v: Tensor, mask: ModelMask, options: ScoreOptions
    ) -> tuple[Tensor, Tensor, Tensor, ModelMask, ScoreOptions]:
        """Queries of zeros for the cached tokens: a row of the output reads its own query alone.

        Evicted keys are zeros: the model masks them, and the program attends to none of those.
        """
        first, evicted, pad = mask.first_query, mask.first_key, nn.functional.pad
        if evicted and self.relations:  # too many pairs to check that none is masked
            why = "keys are evicted, and it reads relations"
            raise _refused("this cache", why, "use_cache=False")
        size = first + q.shape[-2]
        k, v = (pad(x[..., : size - evicted, :], (0, 0, evicted, 0)) for x in (k, v))
        if options.bias is not None:
            bias = options.bias.expand(*options.bias.shape[:-2], q.shape[-2], -1)
            options = replace(
                options, bias=pad(bias[..., : size - evicted], (evicted, 0, first, 0))
            )
        real = mask.real
        if real is not None:
            early = torch.arange(evicted, device=real.device).expand(len(real), -1)
            early = early >= (0 if mask.starts is None else mask.starts[:, None])
            real = torch.cat([early, real[:, : size - evicted]], 1)
            real = None if bool(real.all()) else real
        mask = replace(mask, first_query=0, first_key=0, real=real)
        return pad(q, (0, 0, first, 0)), k, v, mask, options

    def _set_dropout(self, p: float) -> None:
        """The model's dropout of attention weights, on what the program's softmaxes derive."""
        if not p or p == self._dropout:
            return
        source = with_dropout(self.source, p)
        if source is not None:
            made = _compiled(source, self.program._one).train(self.program.training)
            for path, weight in self.program.named_parameters():
                owner, _, leaf = path.rpartition(".")
                made.get_submodule(owner)._parameters[leaf] = weight
            self.program = made
            self._batch = GroundedBatch()
        self._dropout = p

    def _call(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        runs: TokenRuns | None,
        batch: Mapping[str, BatchRelation],
    ) -> Tensor:
        inputs: dict[str, Any] = {"q": q, "k": k, "v": v}
        if bias is not None:
            if "bias" not in self.program.inputs:
                raise _refused("a score bias", "it reads none", "R.bias(V.H, V.I, V.J)")
            pairs = bias.expand(*q.shape[:-1], k.shape[-2]).to(q.dtype)
            inputs["bias"] = pairs[..., None]  # batch, three keys and a value
        if not batch:
            return output(self.program, inputs)
        values, data = self._batch.inputs(self.program, runs)
        return output(self.program, inputs | {name: x.to(q) for name, x in values.items()}, data)

    def _check(self, probe: Probe, allowed: Pattern, *, cached: bool) -> None:
        """Refuse a program that attends to keys the model masks, or with a cache to other queries.

        Checked for the next power of two, so that a growing text is rarely checked again.
        """
        n = probe.q.shape[-2]
        if cached and "queries" not in self._checked:
            probe.check_queries()
            self._checked["queries"] = 1
        if allowed == full() or n <= self._checked.get(allowed, 0):
            return
        more = 1 << (n - 1).bit_length()
        try:
            probe.check_pairs(allowed, more)
        except BadProgram:
            raise
        except EdgewiseError:  # its weights may be for n positions only
            more = n
            probe.check_pairs(allowed, n)
        self._checked[allowed] = more


def no_program_weights() -> UnsupportedArgument:
    why, instead = "its relations are its own", "program.compile(R.score)(q=q, k=k, v=v)"
    return _refused("`output_attentions`", why, instead)


def _refused(what: str, why: str, instead: str) -> UnsupportedArgument:
    return UnsupportedArgument(
        f"a program does not support {what}: {why}", caller(), f"write `{instead}`"
    )


def with_dropout(program: Program, p: float) -> Program | None:
    """The program with dropout wherever a rule reads the result of a softmax.

    None if its rules have dropout of their own, which is then all there is.

    >>> from edgewise import F, R, V
    >>> weights = (R.w(V.I, V.J) <= R.s(V.I, V.J)) | [F.softmax_agg(agg_terms=[V.J])]
    >>> total = (R.out(V.I) <= (R.w(V.I, V.J), R.v(V.J))) | [F.product]
    >>> with_dropout(Program([weights, total]), 0.1).rules[1]
    (R.out(V.I) <= (F.dropout(0.1)(R.w(V.I, V.J)), R.v(V.J))) | [F.product]
    """
    used = [f for rule in program.rules for f in (*rule.functions, *applied_functions(rule.body))]
    if any(function.name == "dropout" for function in used):
        return None
    softmaxes = {
        rule.head.relation
        for rule in program.rules
        if any(function.name in SOFTMAX for function in rule.functions)
    }
    if not softmaxes:
        raise UnsupportedArgument(
            f"the model's attention has dropout {p}, but no rule of the program has a softmax",
            caller(),
            "write `F.dropout(p)` where it belongs, or set the model's attention dropout to 0",
        )
    drop = F.dropout(p)

    def change(node: Any) -> Any:
        if isinstance(node, nodes.Atom) and node.relation in softmaxes and node.carries_value:
            return drop(node)
        return mapped(node, change)

    rules = [
        nodes.Rule(one.head, change(one.body), one.functions, one.place)
        if isinstance(one, nodes.Rule)
        else one
        for one in program.flat
    ]
    return Program(
        rules,
        aggregation=program.aggregation,
        domains=dict(program.domains),
        rounds=program.rounds,
    )
