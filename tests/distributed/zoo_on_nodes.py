"""Every model of the zoo, as its docstring calls it, on a partition of its rows among ranks."""

import doctest

import torch
from torch.distributed.device_mesh import init_device_mesh

from edgewise import EdgewiseError, R, numbers, rows, zoo
from edgewise.module import Model

# nodes that are more than rows of dense inputs: patches, spans, remembered and own tokens
NODES = {"vit": 5, "bp_transformer": 23, "transformer_xl": 13, "compressive": 15}


class Called(Exception):
    """In the place of a call of a model."""


def example(module):
    """The model of a docstring and the inputs of its first call."""
    found, scope = {}, {}

    def call(self, **inputs):
        found.update(model=self, inputs=inputs)
        raise Called

    kept, Model.__call__ = Model.__call__, call
    try:
        torch.manual_seed(0)
        for line in doctest.DocTestParser().get_examples(module.__doc__):
            exec(line.source, scope)
    except Called:
        pass
    finally:
        Model.__call__ = kept
    return found["model"], {name: _double(item) for name, item in found["inputs"].items()}


def _double(item):
    if isinstance(item, rows) and item.values is not None:
        return rows.of(item.keys, item.values.double(), item.strings)
    is_float = isinstance(item, torch.Tensor) and item.is_floating_point()
    return item.double() if is_float else item


def _length(item):
    """Of the first axis of a dense input, None for keys."""
    values = torch.as_tensor(item.values) if isinstance(item, numbers) else item
    dense = isinstance(values, torch.Tensor) and (
        isinstance(item, numbers) or values.is_floating_point()
    )
    return len(values) if dense and values.ndim else None


def _some(item, nodes):
    if isinstance(item, numbers):
        return numbers(torch.as_tensor(item.values)[nodes])
    return item[nodes]


def _trained(item):
    return item if isinstance(item, numbers) else item.detach().requires_grad_()


def _gradient(x):
    return torch.zeros_like(x) if x.grad is None else x.grad


def case(module):
    """A model in float64, its number of nodes, what has a row for each of them, and the rest."""
    name = module.__name__.rpartition(".")[2]
    model, inputs = example(module)
    if name == "biaffine":  # of several outputs one, and one sentence
        model = model.program.compile(R.weights, seed=0)
        inputs = {one: item[0] for one, item in inputs.items() if one in model.inputs}
    lengths = {one: _length(item) for one, item in inputs.items()}
    count = NODES.get(name) or max(n for n in lengths.values() if n is not None)
    called = {one: item for one, item in inputs.items() if lengths[one] == count}
    rest = {one: item for one, item in inputs.items() if one not in called}
    return name, model.double().eval(), count, called, rest


def differences(model, mesh, count, called, rest):
    """Of rows and gradients from those of one process; and which share of the rows the ranks have
    together, 1 unless all have all."""
    import torch.distributed as dist

    data = model.ground(**rest, mesh=mesh, partition="contiguous", nodes=count)
    trained = {one for one in called if one != "mask"}  # attention takes one as a condition
    called = {one: _trained(item) if one in trained else item for one, item in called.items()}
    whole = model.rows(model.ground(**rest), **called)
    w = torch.randn(whole.data.shape, dtype=torch.float64, generator=torch.manual_seed(4))
    (whole.data * w).sum().backward()
    alone = {one: p.grad for one, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    mine = {one: _some(item, data.nodes) for one, item in called.items()}
    mine |= {one: _trained(mine[one]) for one in trained}
    part = model.rows(data, **mine)
    known = {tuple(key): at for at, key in enumerate(whole.index.T.tolist())}
    at = torch.tensor([known[tuple(key)] for key in part.index.T.tolist()], dtype=torch.int64)
    (part.data * w[at]).sum().backward()
    held = torch.tensor(len(at))
    dist.all_reduce(held)
    pairs = [(part.data, whole.data[at])]
    for one, item in mine.items():
        if isinstance(item, torch.Tensor) and called[one].grad is not None:
            pairs.append((_gradient(item), called[one].grad[data.nodes]))
    for one, p in model.named_parameters():
        if one in alone:
            grad = _gradient(p)
            dist.all_reduce(grad)
            scale = 1 + alone[one].abs().max()
            pairs.append((grad / scale, alone[one] / scale))
    far = max(((a - b).abs().max().item() for a, b in pairs if a.numel()), default=0.0)
    return far, int(held) / len(whole.data)


def every_model(rank, ranks):
    """Name → how far it is from one process and its share of rows, or its refusal."""
    mesh, found = init_device_mesh("cpu", (ranks,)), {}
    for module in zoo.MODELS:
        name, model, *inputs = case(module)
        try:
            found[name] = differences(model, mesh, *inputs)
        except EdgewiseError as error:
            found[name] = f"{error.code}: {error.message}"
    return found
