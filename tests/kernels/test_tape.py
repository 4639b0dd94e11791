"""Tapes against torch: values, gradients, updates, and what is refused."""

import numpy as np
import pytest
import torch
from torch.nn import functional

import edgewise.kernels.tape.training
from edgewise.kernels.tape import NotRecordedError, TapeTraining

F64 = torch.float64
X = torch.randn(5, 3, dtype=F64, generator=torch.Generator().manual_seed(1))
AT, GROUPS = torch.tensor([0, 1, 1, 4, 3, 2]), torch.tensor([0, 0, 1, 2, 2, 2])
TARGET = torch.linspace(0.1, 0.9, 24, dtype=F64).reshape(8, 3)


def parameters(*shapes, dtype=F64):
    generator = torch.Generator().manual_seed(0)
    return [
        torch.nn.Parameter(torch.randn(s, dtype=F64, generator=generator).to(dtype)) for s in shapes
    ]


def written(w):
    found = torch.zeros(8, 3, dtype=w.dtype)
    found[:4] = w[:4] * 2
    found[2:6] += w[:4]
    return found


def grouped_largest(w):
    rows = (X.to(w) @ w.T)[AT]
    index = GROUPS[:, None].expand_as(rows)
    start = torch.full((4, 8), -torch.inf, dtype=w.dtype)
    return start.scatter_reduce(0, index, rows, "amax")[:3]


def one_of_two_is_changed(w):
    first, second = w.sin(), w.sin()
    first.mul_(2)
    return first + second


def a_view_is_changed(w):
    found = w * 1
    before = found + 0
    found[2:4].mul_(3)
    found[:, 1] += w[:, 0]
    return found * before


def sums_apart(w):
    found = torch.zeros(9, 3, dtype=w.dtype).index_add(0, torch.tensor([4, 0, 2]), w[:3])
    found.index_add_(0, torch.tensor([5, 6]), w[3:5])
    found.index_add_(0, torch.tensor([4, 8]), w[:2])
    return found * found.mul(2)


def sums_are_read_and_go_on(w):
    found = torch.zeros(9, 3, dtype=w.dtype).index_add(0, torch.tensor([0, 0, 1]), w[:3])
    before = found + 0
    found.index_add_(0, torch.tensor([1, 1]), w[3:5])
    moved = torch.cat([found[4:], found[:4]])
    found.index_add_(0, torch.tensor([2, 2]), w[3:5])
    return found * before + moved


def put_apart(w):
    found = w * 2
    before = found + 0
    found[torch.tensor([1, 3])] = w[:2]
    found.index_put_((torch.tensor([0, 0, 1]),), w[:3], accumulate=True)
    return found.index_copy(0, torch.tensor([7]), w[:1]) + before


def extremes_apart(w):
    start = torch.full((9, 3), torch.inf, dtype=w.dtype)
    index = torch.tensor([3, 1, 2])[:, None].expand(3, 3)
    some = start.scatter_reduce(0, index, w[:3], "amin")[1:4]
    rows = w.scatter_reduce(0, index, w[:3].exp(), "amax", include_self=False)
    return torch.cat([some, rows])


CASES = {
    "product": lambda w, b: X.to(w) @ w.T,
    "linear": lambda w, b: functional.linear(X.to(w), w, b),
    "tanh of a gather": lambda w, b: torch.tanh(X.to(w) @ w.T)[AT],
    "index_select": lambda w, b: (X.to(w) @ w.T).index_select(0, AT),
    "sums of groups": lambda w, b: torch.zeros(4, 8, dtype=w.dtype).index_add(
        0, GROUPS, (X.to(w) @ w.T)[AT]
    ),
    "extremes of groups": lambda w, b: grouped_largest(w),
    "softmax": lambda w, b: (X.to(w) @ w.T + b).softmax(-1),
    "log-softmax": lambda w, b: functional.log_softmax(w, 1),
    "log-sum-exp": lambda w, b: torch.logsumexp(w, 0),
    "binary cross-entropy": lambda w, b: functional.binary_cross_entropy_with_logits(
        w, TARGET.to(w)
    ),
    "layer norm": lambda w, b: functional.layer_norm(w, (3,)) * w,
    "standard deviation": lambda w, b: w.std(0) + w.var(1, keepdim=True, correction=0),
    "concatenation": lambda w, b: torch.cat([w[:4], w[4:].sigmoid()], 1).T,
    "ties of an extreme": lambda w, b: torch.cat([w, w]).amax(0),
    "functions": lambda w, b: functional.gelu(w) + functional.silu(w) + functional.leaky_relu(w),
    "quotients": lambda w, b: w / (1 + w.square()) - (w.square() + 1).rsqrt() + 2 / w,
    "batches of products": lambda w, b: torch.einsum("bij,bkj->bik", w[None], w[None] * 2),
    "a vector": lambda w, b: w.T @ b + b.dot(b),
    "choices": lambda w, b: torch.where(w > 0, w, w.exp()).clamp(-1, 2) + w.abs() ** 3,
    "written in place": lambda w, b: written(w),
    "changed in place": lambda w, b: w.clone().add_(w.square(), alpha=0.5).mul_(2),
    "neutral numbers": lambda w, b: (
        ((w * 1 + 0 - 0) / 1) ** 1 + 1 * w**2 + (0 + w.square().sum(1, True))
    ),
    "one of two is changed": lambda w, b: one_of_two_is_changed(w),
    "a view is changed": lambda w, b: a_view_is_changed(w),
    "sums that meet nothing": lambda w, b: sums_apart(w),
    "sums are read and go on": lambda w, b: sums_are_read_and_go_on(w),
    "put where others were": lambda w, b: put_apart(w),
    "extremes of one": lambda w, b: extremes_apart(w),
    "an empty index": lambda w, b: (w * 2).index_add(0, AT[:0], w[:0]),
    "the gradient of one is the other": lambda w, b: w[:, 0] * b + w[:, 0].sum() + b.sigmoid(),
    "nothing": lambda w, b: (w[:0] * 2).sum() + w.mean(),
    "one number": lambda w, b: w[0, 0] * b[3],
}


def rare_functions(w):
    """Those that no other case has, also where they are infinite or not a number."""
    found = w.sin() + w.cos() + w.log1p() + w.erf() + w.sign() * w.log() + w.square().sqrt()
    found = found + torch.maximum(w, w.T[:1].T) + torch.minimum(w, w * w) + w.abs() ** w.abs()
    both = (w > 0) & (w != 0.5) | ~(w <= 1) | (w == w[0])
    return torch.where(both, found, w / (w - w)) + torch.where(w >= w, w, found)


@pytest.mark.parametrize("dtype", [F64, torch.float32])
@pytest.mark.parametrize("name", [*CASES, "rare functions"])
def test_machine_code(name, dtype, monkeypatch):
    """What compiled samples compute is what their instructions do."""
    w, b = parameters((8, 3), (8,), dtype=dtype)
    near = {"rtol": 1e-10, "atol": 1e-12} if dtype == F64 else {"rtol": 1e-4, "atol": 1e-5}

    def sample():
        found = {**CASES, "rare functions": lambda w, b: rare_functions(w)}[name](w, b)
        return found.square().sum(), [found]

    training = TapeTraining([w, b], [sample, sample])
    found = []
    for worth in (np.inf, 0):
        monkeypatch.setattr(edgewise.kernels.tape.training, "WORTH", worth)
        training.updates(None)
        found.append([*training.values(1), *training.gradients(1).values()])
    assert training._machine is not None
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, equal_nan=True, **near)


def test_long_training_is_compiled_and_goes_on(monkeypatch):
    """Weights after many epochs are those of the instructions, by every optimiser."""
    monkeypatch.setattr(edgewise.kernels.tape.training, "EPOCHS", 4)
    for kind in (torch.optim.SGD, torch.optim.Adam):
        found = []
        for worth in (np.inf, 30):
            monkeypatch.setattr(edgewise.kernels.tape.training, "WORTH", worth)
            w, b = parameters((8, 3), (8,))

            def sample(w=w, b=b):
                found = (X @ w.T + b).tanh()
                return found.square().sum(), [found]

            training = TapeTraining([w, b], [sample])
            training.updates(kind([w, b], 0.01), [0.01] * 40)
            assert (training._machine is None) == (worth == np.inf)
            found.append([w.detach(), b.detach(), *training.values(0)])
        for mine, theirs in zip(*found, strict=True):
            torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("dtype", [F64, torch.float32])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name, dtype):
    w, b = parameters((8, 3), (8,), dtype=dtype)
    near = {"rtol": 1e-10, "atol": 1e-12} if dtype == F64 else {"rtol": 1e-4, "atol": 1e-5}

    def sample():
        found = CASES[name](w, b)
        return found.square().sum(), [found]

    training = TapeTraining([w, b], [sample])  # compares at other weights
    loss, shown = sample()
    training.load()
    training.run(0)
    torch.testing.assert_close(training.values(0)[0], shown[0].detach(), **near)
    gradients = torch.autograd.grad(loss, [w, b], allow_unused=True)
    for _, n, start, number in training.parts.tolist():
        mine = torch.tensor(training.work[start : start + n])
        wanted = gradients[number].reshape(-1)
        torch.testing.assert_close(mine, wanted, **near)


OPTIMISERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.05, weight_decay=0.01),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.02, betas=(0.8, 0.99), weight_decay=0.1),
}


@pytest.mark.parametrize("bounds", [(None, None), (0.1, None), (None, 0.5)])
@pytest.mark.parametrize("kind", OPTIMISERS)
def test_updates_are_those_of_torch(kind, bounds):
    most, norm = bounds
    w, b, idle = weights = parameters((8, 3), (8,), (2,))
    losses = [lambda: (X @ w.T + b).tanh().square().mean(), lambda: (X @ w.T).square().mean()]
    training = TapeTraining(weights, [lambda loss=loss: (loss(), []) for loss in losses])
    start = [weight.detach().clone() for weight in weights]
    optimiser = OPTIMISERS[kind](weights)
    for _ in range(6):
        for loss in losses:
            optimiser.zero_grad()
            loss().backward()
            if most is not None:
                torch.nn.utils.clip_grad_value_(weights, most)
            if norm is not None:
                torch.nn.utils.clip_grad_norm_(weights, norm)
            optimiser.step()
    wanted = [weight.detach().clone() for weight in weights]
    with torch.no_grad():
        for weight, value in zip(weights, start, strict=True):
            weight.copy_(value)
    again = OPTIMISERS[kind](weights)
    rate = again.param_groups[0]["lr"]
    training.updates(again, [rate] * 2, most, norm)
    training.updates(again, [rate] * 4, most, norm)  # moments go on
    for weight, value in zip(weights, wanted, strict=True):
        torch.testing.assert_close(weight.detach(), value, rtol=1e-9, atol=1e-11)
    assert (idle == start[2]).all()


def test_moments_that_others_change_are_read():
    (w,) = parameters((3,))
    training = TapeTraining([w], [lambda: ((w - 1).square().sum(), [])])
    for change in (
        lambda o: o.state[w]["exp_avg"].zero_(),
        lambda o: o.load_state_dict(o.state_dict() | {"state": {}}),
        lambda o: o.state[w].update(exp_avg=torch.ones_like(w)),
        lambda o: o.state[w]["step"].fill_(7.0),
        lambda o: training.updates(torch.optim.SGD([w], lr=0.0), [0.0] * 3),
    ):
        found = []
        for taped in (True, False):
            with torch.no_grad():
                w.copy_(torch.tensor([0.0, 3.0, 5.0]))
            optimiser = torch.optim.Adam([w], lr=0.1)
            for step in range(6):
                if step == 3:
                    change(optimiser)
                if taped:
                    training.updates(optimiser, [0.1])
                    continue
                optimiser.zero_grad()
                (w - 1).square().sum().backward()
                optimiser.step()
            held = optimiser.state[w]
            found.append([w.detach().clone(), *(held[n].clone() for n in sorted(held))])
        torch.testing.assert_close(*found)


def test_gradients_that_are_values_are_clipped_apart():
    w, v = weights = parameters((3,), (3,))
    loss = lambda: (w * v).sum() + (w + v).sum()  # noqa: E731
    training = TapeTraining(weights, [lambda: (loss(), [w * v])])
    optimiser = torch.optim.SGD(weights, lr=0.1)
    wanted = [weight.detach().clone().requires_grad_() for weight in weights]
    other = torch.optim.SGD(wanted, lr=0.1)
    for _ in range(3):
        other.zero_grad()
        ((wanted[0] * wanted[1]).sum() + (wanted[0] + wanted[1]).sum()).backward()
        torch.nn.utils.clip_grad_norm_(wanted, 0.3)
        shown = (wanted[0] * wanted[1]).detach()
        other.step()
    training.updates(optimiser, [0.1] * 3, None, 0.3)
    torch.testing.assert_close(training.values(0)[0], shown)
    for weight, value in zip(weights, wanted, strict=True):
        torch.testing.assert_close(weight.detach(), value.detach())


def test_what_is_known_costs_nothing():
    (w,) = parameters((4,))
    plain = TapeTraining([w], [lambda: (w.tanh().square().sum(), [])])
    same = TapeTraining([w], [lambda: ((w * 1).tanh().add(0).div(1).pow(2).sum(), [w.tanh()])])
    assert len(same.tape[1]) == len(plain.tape[1])


def opaque(w):
    return torch.from_numpy(np.square(w.detach().numpy())).sum() + w.sum()


BUFFER, COUNT = torch.zeros(2, dtype=F64), torch.zeros(1, dtype=F64)
REFUSED = {
    "sort": lambda w: w.sort(0).values.sum(),
    "has no instructions": lambda w: torch.linalg.cholesky(w.T @ w).sum(),
    "draws random numbers": lambda w: torch.dropout(w, 0.01, True).sum(),
    "made before the recording is written": lambda w: BUFFER.add_(w.detach().sum()).sum() * w.sum(),
    "before the recording is written": lambda w: COUNT.add_(1) * w.sum(),
    "torch does not show": opaque,
    "worth a call": lambda w: (w[0, 0] * torch.ones(300, 300, dtype=F64)).sum(),
    "precision": lambda w: w.float().sum().double(),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_a_tape_cannot_say_is_refused(reason):
    (w,) = parameters((8, 3))
    before = w.detach().clone()

    def sample():
        loss = REFUSED[reason](w)
        return loss, [loss]

    with pytest.raises(NotRecordedError, match=reason):
        TapeTraining([w], [sample])
    assert (w == before).all()


def test_other_optimisers_and_precisions_are_refused():
    (w,) = parameters((2, 2))
    training = TapeTraining([w], [lambda: (w.square().sum(), [])])
    for other in (torch.optim.Adam([w], amsgrad=True), torch.optim.RMSprop([w])):
        with pytest.raises(NotRecordedError, match="a tape has"):
            training.updates(other, [0.1])
    half = torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    with pytest.raises(NotRecordedError, match="64 bits"):
        TapeTraining([half], [lambda: (half.sum(), [])])
