"""Layers of a compiled model are modules that are called, where something waits for that."""

import pytest
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from edgewise import F, Program, R, V, numbers
from edgewise.physical.weights import NotALayer
from edgewise.zoo import gpt2

SIZES = {"vocabulary": 50, "size": 8, "heads": 2, "hidden": 16, "layers": 3, "length": 32}


def compiled(dropout=0.0):
    program = gpt2.program(gpt2.Config(**SIZES, dropout=dropout))
    return program.compile(R.logits, seed=0, dtype=torch.float64)


def tokens():
    return numbers(torch.randint(50, (2, 9), generator=torch.manual_seed(0)))


def gradients(model, token):
    torch.manual_seed(1)
    model.zero_grad()
    out = model(token=token)
    out.square().sum().backward()
    return [out.detach(), *(p.grad for p in model.parameters())]


@pytest.mark.parametrize("called_before", [False, True])
def test_a_hook_of_a_layer_sees_its_input_and_output(called_before):
    model, token, seen = compiled(), tokens(), []
    expected = compiled()(token=token)
    for _ in range(3 if called_before else 0):
        model(token=token)
    layer = model.layer.get_submodule("1")
    handle = layer.register_forward_hook(lambda _, read, given: seen.append((read, given)))
    for _ in range(2):
        assert torch.equal(model(token=token), expected)
    assert len(seen) == 2
    (_, x), (out,) = seen[0]
    assert x.shape == out.shape == (2, 9, 8)
    handle.remove()
    assert torch.equal(model(token=token), expected)
    assert len(seen) == 2


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_checkpointed_layers_give_the_same_gradients(dropout):
    token, model = tokens(), compiled(dropout)
    expected = gradients(model, token)
    for name, layer in list(model.layer.named_children()):
        model.layer._modules[name] = checkpoint_wrapper(layer)
    for a, b in zip(gradients(model, token), expected, strict=True):
        assert torch.equal(a, b)


def test_layers_hold_no_activations_when_checkpointed():
    def saved(model):
        found = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda x: found.append(x.numel()) or x, lambda x: x
        ):
            model(token=tokens())
        return sum(found)

    plain, model = saved(compiled()), compiled()
    for name, layer in list(model.layer.named_children()):
        model.layer._modules[name] = checkpoint_wrapper(layer)
    assert saved(model) < plain / 3


class Tokens(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, token):
        return self.model(token=numbers(token))


@pytest.mark.filterwarnings("ignore")
def test_pipelining_splits_at_layers():
    from torch.distributed.pipelining import SplitPoint, pipeline

    token = tokens()
    expected = compiled()(token=token)
    spec = dict.fromkeys(("model.layer.1", "model.layer.2"), SplitPoint.BEGINNING)
    pipe = pipeline(Tokens(compiled()), (token.values,), split_spec=spec)
    assert pipe.num_stages == 3
    layers = [
        {name.split("layer.")[1][0] for name, _ in stage.named_parameters() if "layer." in name}
        for stage in map(pipe.get_stage_module, range(3))
    ]
    assert layers == [{"0"}, {"1"}, {"2"}]
    (found,) = pipe(token.values)
    assert (found - expected).abs().max() <= 1e-12


@pytest.mark.filterwarnings("ignore")
def test_a_split_at_what_is_no_layer_is_refused():
    from torch.distributed.pipelining import SplitPoint, pipeline

    for name in ("out", "layer", "layer.0.mlp"):
        with pytest.raises(NotALayer):
            pipeline(compiled(), (), {"token": tokens()}, {name: SplitPoint.BEGINNING})


def test_weights_that_two_layers_share_are_refused_by_name():
    rules = [
        R.a(V.I) <= R.x(V.I)["layer.0.w":4, 4],
        (R.b(V.I) <= R.a(V.I)["layer.1.w":4, 4]) | [F.tanh],
        R.out(V.I) <= R.b(V.I)["layer.0.w":4, 4],
    ]
    model, x = Program(rules).compile(R.out, seed=0), torch.ones(3, 4)
    model(x=x)
    model.layer.get_submodule("0").register_forward_hook(lambda *_: None)
    with pytest.raises(NotALayer, match="reads its weights too"):
        model(x=x)
