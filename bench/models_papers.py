"""The models that no checkpoint layout is for, beside `transformers` or the plain torch of tests.

A case gives ours, theirs on the same weights and input, and the code that theirs is.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgewise import R, V, numbers, zoo
from edgewise.graphs import window

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS / "zoo"), str(TESTS)]

import test_bp_transformer as bp  # noqa: E402
import test_deberta as deberta  # noqa: E402
import test_memory as memory  # noqa: E402
import test_reformer as reformer  # noqa: E402
import test_rnn as rnn  # noqa: E402
import test_sparse as sparse  # noqa: E402
import test_transformer as transformer  # noqa: E402
import test_without_attention as without  # noqa: E402
import test_xlnet as xlnet  # noqa: E402

Case = tuple[Any, Any, Callable[[], Tensor], Callable[[], Tensor], list[Any]]
SMALL = {"vocabulary": 50, "size": 24, "heads": 4, "hidden": 40, "layers": 2}
LARGE = {"vocabulary": 5000, "size": 384, "heads": 6, "hidden": 1536, "layers": 4}


def sizes(large: bool, **more: Any) -> dict[str, Any]:
    return {**(LARGE if large else SMALL), "dropout": 0.0, **more}


def shape(large: bool, texts: int = 4) -> tuple[int, int]:
    return (texts, 256) if large else (2, 37)


def tokens(large: bool, texts: int = 4) -> Tensor:
    return torch.randint(1, 50, shape(large, texts), generator=torch.manual_seed(1))


def rows(large: bool, size: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape(large), size, dtype=dtype, generator=torch.manual_seed(1))


def compiled(module: Any, config: Any, output: str, dtype: torch.dtype) -> Any:
    return module.program(config).compile(R[output], seed=0, dtype=dtype).eval()


def with_their_weights(model: Any, peer: Any, table: dict[str, Any]) -> None:
    state = dict(peer.named_parameters())
    with torch.no_grad():
        for name, where in table.items():
            weight = model.weight(name)
            weight.copy_(where(state) if callable(where) else state[where].reshape(weight.shape))


def of_deberta(large: bool, dtype: torch.dtype) -> Case:
    more = {} if large else {"size": 12}  # √(3d) is a whole number: theirs is a float32
    config = zoo.deberta.Config(**sizes(large, reach=64, **more))
    peer = deberta.theirs(config, 512).to(dtype)
    model = compiled(zoo.deberta, config, "out", dtype)
    with_their_weights(model, peer, deberta.names(config))
    token = tokens(large)
    mask = torch.ones_like(token).to(dtype)
    inputs = {"token": numbers(token), "mask": mask[..., None]}
    run = lambda: peer(token, attention_mask=mask).last_hidden_state  # noqa: E731
    return zoo.deberta, config, lambda: model(**inputs), run, [type(peer)]


def of_xlnet(large: bool, dtype: torch.dtype) -> Case:
    config = zoo.xlnet.Config(**sizes(large))
    peer = xlnet.theirs(config).to(dtype)
    model = compiled(zoo.xlnet, config, "out", dtype)
    table = xlnet.names(config)
    with_their_weights(model, peer, {n: table[n] for n in xlnet.learnable(model)})
    token = tokens(large)
    segment, mask = torch.zeros_like(token), torch.ones_like(token).to(dtype)
    inputs = {"token": numbers(token), "mask": mask[..., None], "segment": numbers(segment)}
    run = lambda: peer(token, attention_mask=mask, token_type_ids=segment).last_hidden_state  # noqa: E731
    return zoo.xlnet, config, lambda: model(**inputs), run, [type(peer)]


def of_reformer(large: bool, dtype: torch.dtype) -> Case:
    config = zoo.reformer.Config(**sizes(large, length=256, rounds=0))
    peer = reformer.theirs(config).to(dtype)
    model = compiled(zoo.reformer, config, "out", dtype)
    with_their_weights(model, peer, reformer.names(config))
    token = tokens(large)
    run = lambda: peer(token).last_hidden_state  # noqa: E731
    return zoo.reformer, config, lambda: model(token=numbers(token)), run, [type(peer)]


def of_transformer(large: bool, dtype: torch.dtype) -> Case:
    kept = sizes(large, positions="learned", length=256, decoder_layers=4 if large else 2)
    config = zoo.transformer.Config(**kept)
    torch.manual_seed(0)
    peer = transformer.Written(config).to(dtype)
    for parameter in peer.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    model = compiled(zoo.transformer, config, "logits", dtype)
    with torch.no_grad():
        for name, value in transformer.named(peer).items():
            model.weight(name).copy_(value)
    source, target = tokens(large), tokens(large).flip(1)
    mask = torch.ones_like(source).to(dtype)
    inputs = {"source": numbers(source), "mask": mask[..., None], "target": numbers(target)}
    code = [transformer.Attention, transformer.Layer, transformer.Written]
    return (
        zoo.transformer, config, lambda: model(**inputs), lambda: peer(source, mask, target), code
    )  # fmt: skip


def of_sparse(large: bool, dtype: torch.dtype) -> Case:
    config = zoo.sparse.Config(**sizes(large, length=256, step=16))
    model = compiled(zoo.sparse, config, "logits", dtype)
    weights = {name: model.weight(name) for name in zoo.sparse.program(config).weights()}
    token = tokens(large)
    return (
        zoo.sparse, config, lambda: model(token=numbers(token)),
        lambda: sparse.written(config, weights, token), [sparse.mask_of, sparse.written],
    )  # fmt: skip


XL = [memory.normed, memory.affine, memory.by_head, memory.places, memory.relative_scores]
XL += [memory.after, memory.xl]


def of_transformer_xl(large: bool, dtype: torch.dtype) -> Case:
    config = zoo.transformer_xl.Config(**sizes(large, memory=64))
    model = compiled(zoo.transformer_xl, config, "logits", dtype)
    token = tokens(large)
    past = torch.randn(len(token), config.layers + 1, 64, config.size, dtype=dtype)
    inputs = {"token": numbers(token), "memory": past}
    return (
        zoo.transformer_xl, config, lambda: model(**inputs),
        lambda: memory.xl(model.weight, config, token, past)[0], XL,
    )  # fmt: skip


def of_compressive(large: bool, dtype: torch.dtype) -> Case:
    config = zoo.compressive.Config(**sizes(large, memory=64, compressed=32, rate=2))
    model = compiled(zoo.compressive, config, "logits", dtype)
    token = tokens(large)
    short, past = (
        torch.randn(len(token), config.layers, n, config.size, dtype=dtype) for n in (32, 64)
    )
    inputs = {"token": numbers(token), "memory": past, "compressed": short}
    every = torch.cat([short, past], 2)
    return (
        zoo.compressive, config, lambda: model(**inputs),
        lambda: memory.xl(model.weight, config, token, every)[0], XL,
    )  # fmt: skip


def of_adaptive_span(large: bool, dtype: torch.dtype) -> Case:
    config = zoo.adaptive_span.Config(**sizes(large, span=64, ramp=16))
    model = compiled(zoo.adaptive_span, config, "logits", dtype)
    token = tokens(large)
    code = [memory.normed, memory.affine, memory.by_head, memory.spanned]
    return (
        zoo.adaptive_span, config, lambda: model(token=numbers(token)),
        lambda: memory.spanned(model.weight, config, token), code,
    )  # fmt: skip


def of_bp_transformer(large: bool, dtype: torch.dtype) -> Case:
    config = zoo.bp_transformer.Config(**sizes(large, k=4, clip=3))
    model = compiled(zoo.bp_transformer, config, "logits", dtype)
    token = tokens(large, texts=1)  # theirs holds a key for every pair: 4 texts do not fit
    n = token.shape[1]
    data = model.ground(edge=config.edges(n), token=numbers(token))

    def run() -> Tensor:
        return bp.written(model.weight, config, token)[:, :n] @ model.weight("word").T

    return zoo.bp_transformer, config, lambda: model(data), run, [bp.affine, bp.normed, bp.written]


def of_rnn(large: bool, dtype: torch.dtype) -> Case:
    words = 5000 if large else 50
    config = zoo.rnn.Config(words, words, 384 if large else 24, "dot", 0.0)
    model = compiled(zoo.rnn, config, "logits", dtype)
    source, target = tokens(large)[:, :64], tokens(large).flip(1)[:, :64]
    lengths = torch.full((len(source),), source.shape[1])
    inputs = {
        "source": numbers(source), "target": numbers(target),
        "end": (torch.arange(source.shape[1]) == lengths[:, None] - 1).to(dtype)[..., None],
        "mask": torch.ones_like(source).to(dtype)[..., None],
    }  # fmt: skip
    return (
        zoo.rnn, config, lambda: model(**inputs),
        lambda: rnn.plain(model, config, source, lengths, target), [rnn.unit, rnn.plain],
    )  # fmt: skip


def of_rows(module: Any, plain: Callable[..., Tensor], *code: Any, **kept: Any) -> Any:
    def case(large: bool, dtype: torch.dtype) -> Case:
        known = {field.name for field in fields(module.Config)}
        found = sizes(large, **kept)
        config = module.Config(**{name: found[name] for name in found if name in known})
        model = compiled(module, config, "out", dtype)
        x = rows(large, config.size, dtype)
        return module, config, lambda: model(x=x), lambda: plain(model.weight, config, x), [*code]

    return case


def near(w: Any, config: Any, x: Tensor) -> Tensor:
    places = torch.arange(x.shape[1])
    return without.mixed(w, config, x, (places[:, None] - places).abs() <= 8)


SHARED = (without.normed, without.affine, without.after)
CASES: dict[str, Callable[[bool, torch.dtype], Case]] = {
    "encoder–decoder": of_transformer,
    "DeBERTa": of_deberta,
    "XLNet": of_xlnet,
    "Reformer within a chunk": of_reformer,
    "Sparse Transformer": of_sparse,
    "Transformer-XL": of_transformer_xl,
    "Compressive Transformer": of_compressive,
    "adaptive span": of_adaptive_span,
    "BP-Transformer": of_bp_transformer,
    "RNN with Luong's attention": of_rnn,
    "lightweight convolution": of_rows(
        zoo.convolution, without.convolved, *SHARED, without.convolved
    ),
    "dynamic convolution": of_rows(
        zoo.convolution, without.convolved, *SHARED, without.convolved, dynamic=True
    ),
    "ConvS2S": of_rows(zoo.convs2s, without.gated, without.gated),
    "mean in place of attention": of_rows(
        zoo.mixing, near, *SHARED, without.mixed, where=(window(8)(V.I, V.J),)
    ),
}


def lines(code: list[Any]) -> tuple[str, int]:
    """Where theirs is written, and how many lines of it are not blank."""
    if len(code) == 1 and isinstance(code[0], type):  # a class of `transformers`: its file
        file = Path(inspect.getfile(code[0]))
        return file.name, sum(bool(line.strip()) for line in file.read_text().splitlines())
    text = "\n".join(inspect.getsource(part) for part in code)
    name = Path(inspect.getfile(code[-1])).name
    return f"tests/zoo/{name}", sum(bool(line.strip()) for line in text.splitlines())
