"""Tapes against torch: values, gradients, updates, and what is refused."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from edgewise.kernels.tape import NotRecordedError, TapeTraining

F64 = torch.float64
X = torch.randn(5, 3, dtype=F64, generator=torch.Generator().manual_seed(1))
AT, GROUPS = torch.tensor([0, 1, 1, 4, 3, 2]), torch.tensor([0, 0, 1, 2, 2, 2])
TARGET = torch.linspace(0.1, 0.9, 24, dtype=F64).reshape(8, 3)


def parameters(*shapes):
    generator = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(s, dtype=F64, generator=generator)) for s in shapes]


def written(w):
    found = torch.zeros(8, 3, dtype=F64)
    found[:4] = w[:4] * 2
    found[2:6] += w[:4]
    return found


def grouped_largest(w):
    rows = (X @ w.T)[AT]
    index = GROUPS[:, None].expand_as(rows)
    start = torch.full((4, 8), -torch.inf, dtype=F64)
    return start.scatter_reduce(0, index, rows, "amax")[:3]


CASES = {
    "product": lambda w, b: X @ w.T,
    "linear": lambda w, b: functional.linear(X, w, b),
    "tanh of a gather": lambda w, b: torch.tanh(X @ w.T)[AT],
    "index_select": lambda w, b: (X @ w.T).index_select(0, AT),
    "sums of groups": lambda w, b: torch.zeros(4, 8, dtype=F64).index_add(0, GROUPS, (X @ w.T)[AT]),
    "extremes of groups": lambda w, b: grouped_largest(w),
    "softmax": lambda w, b: (X @ w.T + b).softmax(-1),
    "log-softmax": lambda w, b: functional.log_softmax(w, 1),
    "log-sum-exp": lambda w, b: torch.logsumexp(w, 0),
    "binary cross-entropy": lambda w, b: functional.binary_cross_entropy_with_logits(w, TARGET),
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
    "nothing": lambda w, b: (w[:0] * 2).sum() + w.mean(),
    "one number": lambda w, b: w[0, 0] * b[3],
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name):
    w, b = parameters((8, 3), (8,))

    def sample():
        found = CASES[name](w, b)
        return found.square().sum(), [found]

    training = TapeTraining([w, b], [sample])  # compares at other weights
    loss, shown = sample()
    training.load()
    training.run(0)
    torch.testing.assert_close(training.values(0)[0], shown[0].detach(), rtol=1e-10, atol=1e-12)
    gradients = torch.autograd.grad(loss, [w, b], allow_unused=True)
    for _, n, start, number in training.parts.tolist():
        mine = torch.tensor(training.work[start : start + n])
        wanted = gradients[number].reshape(-1)
        torch.testing.assert_close(mine, wanted, rtol=1e-10, atol=1e-12)


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


def opaque(w):
    return torch.from_numpy(np.square(w.detach().numpy())).sum() + w.sum()


BUFFER, COUNT = torch.zeros(2, dtype=F64), torch.zeros(1, dtype=F64)
REFUSED = {
    "sort": lambda w: w.sort(0).values.sum(),
    "has no instructions": lambda w: torch.linalg.cholesky(w.T @ w).sum(),
    "draws random numbers": lambda w: torch.dropout(w, 0.01, True).sum(),
    "was there before": lambda w: BUFFER.add_(w.detach().sum()).sum() * w.sum(),
    "there before is written": lambda w: COUNT.add_(1) * w.sum(),
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
