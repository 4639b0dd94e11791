"""Every Transformer of the zoo on the tokens of ranks, beside one process."""

import torch
from torch.distributed.device_mesh import init_device_mesh

from edgewise import EdgewiseError, R, numbers, zoo
from edgewise.distributed import Shards, on_mesh

N = 21
SIZES = {
    "vocabulary": 20, "size": 8, "heads": 2, "hidden": 12, "layers": 2, "decoder_layers": 2,
    "length": 32, "dropout": 0.0, "d": 4, "groups": 2, "reach": 4, "span": 6, "ramp": 2, "k": 2,
    "clip": 2, "radius": 2, "block": 2, "random": 1, "step": 4, "directions": 4, "rounds": 2,
    "far": 20,
}  # fmt: skip
MORE = {
    "albert": [{"groups": 1}],
    "bert": [{}, {"buckets": 4}],
    "gpt2": [{}]
    + [{"positions": p} for p in ("rotary", "alibi", "relative", "sinusoidal")]
    + [{"graph": "window(3) | global_tokens(1)"}],
    "llama": [{}, {"window": 3}, {"groups": 1, "cap": 0.5}],
    "phi": [{"rotated": 2}],
    "encoder": [{}, {"graph": "dilated(2, 3)"}],
}


# read images, sounds, a memory of other tokens, or edges as well: not the tokens of ranks alone
OTHERS = (zoo.vit, zoo.whisper, zoo.transformer_xl, zoo.compressive, zoo.bp_transformer)


def cases():
    """Programs by name."""
    for module in (*(one for one in zoo.TRANSFORMERS if one not in OTHERS), zoo.encoder):
        name = module.__name__.rpartition(".")[2]
        fields = module.Config.__dataclass_fields__
        known = {key: size for key, size in SIZES.items() if key in fields}
        for more in MORE.get(name, ({},)):
            yield f"{name} {more}" if more else name, module.program(module.Config(**known | more))


def inputs_of(model):
    """What a model reads, for N tokens of two samples."""
    torch.manual_seed(0)
    token = torch.randint(1, 20, (2, N))
    mask = torch.ones(2, N, 1, dtype=torch.float64)
    mask[1, 3:] = 0
    known = {
        "token": numbers(token), "source": numbers(token), "target": numbers(token.flip(1)),
        "segment": numbers(token * 0), "mask": mask,
        "x": torch.randn(2, N, 8, dtype=torch.float64),
    }  # fmt: skip
    return {name: known[name] for name in model.inputs if name in known}


def taken(shards, item, rank):
    if isinstance(item, numbers):
        return numbers(shards.take(item.values, rank, 1))
    return shards.take(item, rank, 1)


def differences(model, mesh, rank, ranks):
    """Of the output and of the gradients of all weights, added up."""
    import torch.distributed as dist

    shards, inputs = Shards(N, ranks), inputs_of(model)
    expected = model(**inputs)
    w = torch.randn_like(expected)
    (expected * w).sum().backward()
    alone = {one: p.grad for one, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    out = on_mesh(model, mesh, shards=shards)(
        **{name: taken(shards, item, rank) for name, item in inputs.items()}
    )
    (out * shards.take(w, rank, 1)).sum().backward()
    far = [(out - shards.take(expected, rank, 1)).abs().max().item()]
    for name, p in model.named_parameters():
        if name in alone:
            grad = torch.zeros_like(p) if p.grad is None else p.grad
            dist.all_reduce(grad)
            scale = 1 + alone[name].abs().max().item()
            far.append((grad - alone[name]).abs().max().item() / scale)
    return max(far)


def joined_transformers(rank, ranks, names):
    """Those in which tokens meet outside of attention: their rules are shared, one text at a time.

    Gives how far outputs are from those of one process."""
    mesh, found = init_device_mesh("cpu", (ranks,)), {}
    for name, program in cases():
        if name not in names:
            continue
        heads = {rule.head.relation for rule in program.rules}
        model = program.compile(R["logits" if "logits" in heads else "out"], seed=0).double()
        text = {
            one: numbers(item.values[0]) if isinstance(item, numbers) else item[0]
            for one, item in inputs_of(model).items()
        }
        expected = model(**text)
        data = model.ground(mesh=mesh, nodes=N, partition="contiguous")
        mine = {
            one: numbers(item.values[data.nodes]) if isinstance(item, numbers) else item[data.nodes]
            for one, item in text.items()
        }
        found[name] = (model(data, **mine) - expected[data.nodes]).abs().max().item()
    return found


def every_transformer(rank, ranks):
    """How far each is from one process, or the code of its refusal."""
    mesh, found = init_device_mesh("cpu", (ranks,)), {}
    for name, program in cases():
        heads = {rule.head.relation for rule in program.rules}
        output = next(one for one in ("logits", "out") if one in heads)
        model = program.compile(R[output], seed=0, dtype=torch.float64)
        try:
            found[name] = differences(model, mesh, rank, ranks)
        except EdgewiseError as error:
            found[name] = error.code
    return found
