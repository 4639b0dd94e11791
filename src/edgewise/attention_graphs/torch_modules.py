"""The attention calls of any torch module while it runs: `edgewise.attention`, torch's
`scaled_dot_product_attention`, and `nn.MultiheadAttention`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import multi_head_attention_forward, scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from edgewise.attention_graphs.calls import AttentionCall, call_of_weights
from edgewise.attention_graphs.errors import NoAttention
from edgewise.attention_graphs.recording import call_along, described, of_sample
from edgewise.errors import caller
from edgewise.graphs import causal, full, per_sample
from edgewise.hf.recording import evaluating
from edgewise.kernels.attention import attention
from edgewise.kernels.attention.calls.term_arguments import scores_of
from edgewise.kernels.attention.contract import default_scale

READ = "`edgewise.attention`, `scaled_dot_product_attention` or `nn.MultiheadAttention`"


def calls_of_torch(
    model: nn.Module, inputs: Mapping[str, Any], sample: int = 0
) -> list[AttentionCall]:
    """The calls of self-attention that a module makes, named by the module that makes them."""
    recorder = _CallRecorder(sample)
    with evaluating(model), torch.no_grad(), _named_modules(model, recorder.names), recorder:
        model(**inputs)
    if not recorder.calls:
        raise NoAttention(
            f"`{type(model).__name__}` makes no call of self-attention that can be read",
            caller(),
            f"call {READ}; or give its weights, (heads, n, n) of each layer",
        )
    return recorder.calls


@contextmanager
def _named_modules(model: nn.Module, names: list[str]) -> Iterator[None]:
    """Inside, the last of `names` is the module that runs."""
    hooks = []
    for name, module in model.named_modules():
        hooks.append(module.register_forward_pre_hook(lambda *_, name=name: names.append(name)))
        hooks.append(module.register_forward_hook(lambda *_: _leave(names), always_call=True))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _leave(names: list[str]) -> None:  # a hook that returns something replaces the output
    names.pop()


class _CallRecorder(TorchFunctionMode):
    """Keeps what functions of attention read."""

    def __init__(self, sample: int) -> None:
        super().__init__()
        self.sample = sample
        self.names: list[str] = []
        self.calls: list[AttentionCall] = []

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        name = (self.names[-1] if self.names else "") or "attention"
        if func is attention:
            self._add(_of_ours, name, args, named)
        elif func is scaled_dot_product_attention:
            self._add(_of_sdpa, name, args, named)
        elif func is multi_head_attention_forward:
            return self._of_module(name, args, named)
        return func(*args, **named)

    def _add(self, read: Any, name: str, args: Any, named: Mapping[str, Any]) -> None:
        call = read(name, self.sample, *args, **named)
        if call is not None:
            self.calls.append(call)

    def _of_module(self, name: str, args: Any, named: dict[str, Any]) -> Any:
        """The same output, with the weights of every head."""
        bound = inspect.signature(multi_head_attention_forward).bind(*args, **named)
        bound.apply_defaults()
        options = dict(bound.arguments)
        if not _same(options["query"], options["key"]):  # of a decoder to its encoder
            return multi_head_attention_forward(*args, **named)
        changed = options | {"need_weights": True, "average_attn_weights": False}
        out, weights = multi_head_attention_forward(**changed)
        assert weights is not None
        own = of_sample(weights if weights.ndim == 4 else weights[None], self.sample)
        if own.shape[-1] == own.shape[-2]:
            self.calls.append(call_of_weights(name, own))
        if not options["need_weights"]:
            return out, None
        return out, weights.mean(-3) if options["average_attn_weights"] else weights


def _same(query: Tensor, key: Tensor) -> bool:
    """Whether queries and keys are of one sequence, also where each is computed anew."""
    return query is key or (query.shape == key.shape and torch.equal(query, key))


def _of_ours(
    name: str,
    sample: int,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    graph: Any = None,
    **options: Any,
) -> AttentionCall | None:
    """A call of `edgewise.attention`; None if its keys are other tokens than its queries."""
    if q.shape[-2] != k.shape[-2] or options.get("offset"):
        return None
    for term in ("edge_key", "mesh"):
        if options.get(term) is not None:
            raise NoAttention(f"`{name}` attends with `{term}`", caller(), "leave it out")
    q, k = (x if x.ndim > 3 else x[(None,) * (4 - x.ndim)] for x in (q, k))
    pairs: Any = full() if graph is None else graph
    edges = {term: options.get(term) for term in ("edge_bias", "edge_scale")}
    if isinstance(pairs, per_sample):
        pairs = tuple(pairs)[sample]
        edges = {term: None if x is None else x[sample] for term, x in edges.items()}
    bias, score = scores_of(options.get("bias"), options.get("score"))
    if options.get("lengths") is not None:
        bias = _without_keys(options["lengths"], k, bias)
    scale = options.get("scale")
    how = (default_scale(q.shape[-1]) if scale is None else scale), score.node
    terms = edges["edge_bias"], edges["edge_scale"]
    return described(call_along(name, sample, q, k, pairs, how, bias, terms, score.tables))


def _without_keys(lengths: Tensor, k: Tensor, bias: Tensor | None) -> Tensor:
    """The bias that hides keys from lengths[b] on."""
    ends = lengths.to(k.device).reshape(*(lengths.shape or (1,)), 1, 1, 1)
    there = torch.arange(k.shape[-2], device=k.device) < ends
    low = torch.zeros_like(there, dtype=k.dtype).masked_fill(~there, -torch.inf)
    return low if bias is None else bias + low


def _of_sdpa(
    name: str,
    sample: int,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> AttentionCall | None:
    if query.shape[-2] != key.shape[-2]:
        return None
    bias = attn_mask
    if bias is not None and bias.dtype == torch.bool:
        bias = torch.zeros_like(bias, dtype=query.dtype).masked_fill(~bias, -torch.inf)
    pairs = causal() if is_causal else full()
    return _of_ours(name, sample, query, key, value, pairs, scale=scale, bias=bias)
