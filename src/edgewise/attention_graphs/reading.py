"""`attention_graph`: the attention of any model to a text or to inputs by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.attention_graphs.calls import AttentionCall, call_of_weights
from edgewise.attention_graphs.errors import NoAttention, NoSuchHead, NoTokens
from edgewise.attention_graphs.graph import AttentionGraph
from edgewise.attention_graphs.recording import calls_of_model, calls_of_modules
from edgewise.attention_graphs.torch_modules import calls_of_torch
from edgewise.errors import caller, iterates
from edgewise.graphs import from_edges
from edgewise.hf.architectures import POSITION_FIELDS
from edgewise.hf.errors import NotPluggable
from edgewise.hf.recording import evaluating
from edgewise.hf.sparse_weights import AttentionWeights
from edgewise.inputs.kinds import InputLike
from edgewise.module import Model
from edgewise.zoo.pretrained.model import Pretrained
from edgewise.zoo.pretrained.texts import TextTooLong

Tokenize = Callable[..., object]  # a tokenizer of transformers
Weights = Sequence[Tensor | AttentionWeights]
SUCH_AS = 'write `attention_graph(model, "a text")`, or give the inputs of the model by name'


def attention_graph(
    model: nn.Module | Pretrained | Weights,
    text: str | Tensor | None = None,
    *,
    tokenizer: Tokenize | None = None,
    tokens: Sequence[str] | None = None,
    sample: int = 0,
    truncate: bool = False,
    **inputs: InputLike,
) -> AttentionGraph:
    """The attention of a model to a text, as a weighted graph for each layer and head.

    `model` is a checkpoint of `zoo.from_pretrained` or a run, with a text; a compiled program with
    its inputs by name; a model of Hugging Face with a text and its `tokenizer`, or with
    `input_ids=...`; any other torch module that attends by `edgewise.attention`,
    `scaled_dot_product_attention` or `nn.MultiheadAttention`, with its input or inputs by name; or
    weights that are known already: of each layer (heads, n, n), or what `output_attentions=True`
    returns. Of a batch, `sample` is shown; `tokens` are labels.

    >>> from edgewise import F, Program, R, V
    >>> program = Program(
    ...     [
    ...         (R.w(V.I, V.J) <= (R.x(V.J).T, R.x(V.I)))
    ...         | [F.product, F.softmax_agg(agg_terms=[V.J])],
    ...         (R.y(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product],
    ...     ]
    ... )
    >>> graph = attention_graph(program.compile(R.y), x=torch.tensor([[0.0], [9.0]]))
    >>> graph.edges(threshold=0.9).records()
    [{'layer': 0, 'head': 0, 'query': 1, 'key': 1, 'weight': 1.0, 'from': '1', 'to': '1'}]
    >>> layer = torch.nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
    >>> attention_graph(layer, torch.randn(1, 5, 8))
    AttentionGraph(5 tokens, 1 layer, 2 heads)
    """
    model = getattr(model, "_orig_mod", model)  # of a compiled module, whose code makes no calls
    if not isinstance(model, Pretrained | nn.Module | Sequence) or isinstance(model, str):
        raise NoAttention(
            f"a model is expected, got {type(model).__name__}",
            caller(),
            "write `view(model, inputs)`"
            if isinstance(text, nn.Module)
            else "load one: `zoo.from_pretrained(path)`, or compile a program",
        )
    if isinstance(text, Tensor) and isinstance(model, nn.Module) and not isinstance(model, Model):
        inputs[_first_input(model)], text = text, None
    if text is not None and not isinstance(text, str):
        raise NoTokens(f"a text is a string, got {type(text).__name__}", caller(), SUCH_AS)
    if isinstance(model, Pretrained):
        calls, found = _of_pretrained(model, text, sample, truncate, inputs)
    elif isinstance(model, Model):
        calls, found = _of_program(model, text, sample, inputs), None
    elif isinstance(model, nn.Module):
        calls, found = _of_module(model, text, tokenizer, sample, truncate, inputs)
    else:
        calls, found = [_known(at, one, sample) for at, one in enumerate(model)], None
    if not calls:
        raise NoAttention("there is no self-attention", caller(), SUCH_AS)
    return AttentionGraph(_labels(calls, tokens if tokens is not None else found), tuple(calls))


def _of_pretrained(
    model: Pretrained, text: str | None, sample: int, truncate: bool, inputs: Mapping[str, Any]
) -> tuple[list[AttentionCall], list[str] | None]:
    if text is None:
        if not inputs:
            raise NoTokens("there is no text", caller(), SUCH_AS)
        return calls_of_model(model.model, inputs, sample), None
    compiled, found, words = read_text(model, text, truncate)
    return calls_of_model(compiled, {**found, **inputs}, 0), words


def read_text(
    model: Pretrained, text: str, truncate: bool
) -> tuple[Model, dict[str, InputLike], list[str]]:
    """The part of a checkpoint that a text determines, its inputs, and the tokens of the text."""
    numbers = model.tokens([text], truncate=truncate)
    (row,) = numbers.numbers[:, : int(numbers.mask[0].sum())].tolist()
    if not row:
        raise NoTokens("the text has no tokens", caller(), "write some words")
    relation = model.read_by_text
    words = [model.tokenizer.id_to_token(number) for number in row]
    return model.compile(relation), model.inputs(numbers, relation), words


def _of_program(
    model: Model, text: str | None, sample: int, inputs: Mapping[str, Any]
) -> list[AttentionCall]:
    if text is not None:
        raise NoTokens(
            "a program has no tokenizer",
            caller(),
            f"give its inputs by name: {', '.join(f'`{name}`' for name in model.inputs)}",
        )
    return calls_of_model(model, inputs, sample)


def _of_module(
    model: nn.Module,
    text: str | None,
    tokenizer: Tokenize | None,
    sample: int,
    truncate: bool,
    inputs: Mapping[str, Any],
) -> tuple[list[AttentionCall], list[str] | None]:
    words: list[str] | None = None
    read: dict[str, Any] = dict(inputs)
    if text is not None:
        if tokenizer is None:
            raise NoTokens(
                f"`{type(model).__name__}` reads numbers, not texts",
                caller(),
                "pass `tokenizer=AutoTokenizer.from_pretrained(name)`, or `input_ids=...`",
            )
        words = _encode(model, text, tokenizer, truncate, read)
    if not read:
        raise NoTokens("there is no text and no input", caller(), SUCH_AS)
    try:
        return calls_of_modules(model, read, sample), words
    except NotPluggable:
        is_theirs = hasattr(model, "config") and hasattr(model, "set_attn_implementation")
        return (_reported if is_theirs else calls_of_torch)(model, read, sample), words


def _first_input(model: nn.Module) -> str:
    """The name of what a module reads first."""
    first = next(iter(inspect.signature(model.forward).parameters.values()), None)
    if first is None or first.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
        raise NoTokens(f"`{type(model).__name__}` names no input", caller(), SUCH_AS)
    return first.name


def _reported(model: Any, read: Mapping[str, Any], sample: int) -> list[AttentionCall]:
    """Of a model that computes attention itself: the weights that it reports."""
    with evaluating(model), torch.no_grad():
        found = getattr(model(**read, output_attentions=True), "attentions", None)
    if not found or not all(a.ndim == 4 and a.shape[-1] == a.shape[-2] for a in found):
        raise NoAttention(
            f"`{type(model).__name__}` computes attention itself, and reports no weights of pairs",
            caller(),
            "read its checkpoint as rules: `zoo.from_pretrained(path)`",
        )
    return [_known(at, one, sample) for at, one in enumerate(found)]


def _encode(
    model: nn.Module, text: str, tokenizer: Any, truncate: bool, read: dict[str, Any]
) -> list[str]:
    """The numbers of a text, written into `read`, and its tokens."""
    found = dict(tokenizer(text, return_tensors="pt"))
    ids = found["input_ids"]
    config = getattr(model, "config", None)
    longest = next((getattr(config, f) for f in POSITION_FIELDS if hasattr(config, f)), None)
    if longest is not None and ids.shape[1] > longest:
        if not truncate:
            raise TextTooLong(
                f"the text has {ids.shape[1]} tokens, the model has {longest} positions",
                caller(),
                "split it, or pass `truncate=True`",
            )
        found = {name: x[:, :longest] for name, x in found.items()}
    device = next(model.parameters()).device
    read |= {name: x.to(device) for name, x in found.items()}
    return list(tokenizer.convert_ids_to_tokens(found["input_ids"][0].tolist()))


def _known(layer: int, weights: object, sample: int) -> AttentionCall:
    name = f"layer.{layer}"
    if isinstance(weights, AttentionWeights):
        batch, _, n, m = weights.shape
        _check_sample(sample, batch)
        own = weights.weights[sample].detach().cpu().double()
        pairs = torch.stack([weights.queries, weights.keys]).cpu()
        q, k = own.new_zeros(len(own), n, 1), own.new_zeros(len(own), m, 1)
        return AttentionCall(name, q, k, from_edges(pairs, shape=(n, m)), edge_bias=own.log())
    if not isinstance(weights, Tensor) or not weights.is_floating_point():
        raise NoAttention(
            f"layer {layer} is {type(weights).__name__}, not a tensor of weights",
            caller(),
            "give (heads, n, n) of each layer",
        )
    own = weights.detach().cpu()
    if own.ndim == 4:
        _check_sample(sample, len(own))
        own = own[sample]
    if bool(own.isnan().any()):
        raise NoAttention(
            f"layer {layer} has weights that are not numbers",
            caller(),
            "look at what the model computes: its output has them, too",
        )
    if own.ndim != 3 or not bool(((own >= 0) & (own <= 1 + 1e-3)).all()):
        raise NoAttention(
            f"layer {layer} has the shape {tuple(weights.shape)}; weights are (heads, n, n), from "
            "0 to 1",
            caller(),
            "give what `output_attentions=True` returns",
        )
    return call_of_weights(name, own)


def _check_sample(sample: int, batch: int) -> None:
    if not -batch <= sample < batch:
        raise NoSuchHead(
            f"there is no sample {sample} in a batch of {batch}", caller(), "samples count from 0"
        )


def _labels(calls: Sequence[AttentionCall], tokens: Sequence[str] | None) -> tuple[str, ...]:
    """A label for each position: tokens, or numbers."""
    count = max(_positions(call) for call in calls)
    if tokens is None:
        return tuple(map(str, range(count)))
    listed = iterates(tokens) and not isinstance(tokens, str)
    if not listed or not all(isinstance(token, str) for token in tokens):
        raise NoTokens("tokens are a list of texts", caller(), 'such as ["to", "be"]')
    if len(tokens) != count:
        raise NoTokens(
            f"there are {len(tokens)} labels, the model attends to {count} tokens",
            caller(),
            "give one for each token, with special ones such as [CLS]",
        )
    return tuple(tokens)


def _positions(call: AttentionCall) -> int:
    orders = [x for x in (call.query_order, call.key_order) if x is not None and x.numel()]
    last = max((int(x.max()) + 1 for x in orders), default=0)
    return last if orders else max(call.n, call.m)
