"""What can be wrong with a call of `attention`; tensors sharded over devices are refused here."""

from torch import Tensor
from torch.nn import functional

from edgewise.errors import EdgewiseError, EdgewiseWarning, caller


class AttentionShape(EdgewiseError):
    """Queries, keys, values and biases must fit together: the same batch, heads and features."""

    code = "attention-shape"
    example = "attention(torch.zeros(2, 8, 4), torch.zeros(2, 8, 5), torch.zeros(2, 8, 4))"
    instead = "attention(torch.zeros(2, 8, 4), torch.zeros(2, 8, 4), torch.zeros(2, 8, 5))"


class GraphLength(EdgewiseError):
    """A graph made for one number of tokens is used with another number of queries or keys."""

    code = "graph-length"
    example = "attention(q, k, v, documents([3, 4]))  # q has 8 queries"
    instead = "attention(q, k, v, documents([3, 5]))"


class UnsupportedDtype(EdgewiseError):
    """Attention is computed on floating point numbers, all three inputs in the same precision."""

    code = "unsupported-dtype"
    example = "attention(q.long(), k.long(), v.long())"
    instead = "attention(q.float(), k.float(), v.float())"


class UnsupportedDevice(EdgewiseError):
    """Queries, keys, values and biases must be on one device, a CPU or a CUDA GPU."""

    code = "unsupported-device"
    example = 'attention(q.to("cuda"), k, v)'
    instead = 'attention(q.to("cuda"), k.to("cuda"), v.to("cuda"))'


class UnknownKernel(EdgewiseError):
    """`kernel=` names one of the kernels; leave it out to have one chosen."""

    code = "unknown-kernel"
    example = 'attention(q, k, v, kernel="flash")'
    instead = 'attention(q, k, v, kernel="dense")'


class KernelRefuses(EdgewiseError):
    """A kernel requested by name never falls back to another one."""

    code = "kernel-refuses"
    example = 'attention(q, k, v, window(3), kernel="dense")'
    instead = "attention(q, k, v, window(3))"


class NoKernel(EdgewiseError):
    """Every kernel refused the case; each says why."""

    code = "no-kernel"
    example = (
        "x = torch.zeros(1, 8, 1 << 20, 64).cuda()\nattention(x, x, x, window(256), dropout=0.1)"
    )
    instead = "x = torch.zeros(1, 8, 1 << 20, 64).cuda()\nattention(x, x, x, window(256))"


class BadOption(EdgewiseError):
    """An option of `attention` has a value outside its range."""

    code = "bad-option"
    example = "attention(q, k, v, dropout=1.5)"
    instead = "attention(q, k, v, dropout=0.15)"


class SecondDerivative(EdgewiseError):
    """Fast kernels compute gradients by hand, and those have none; the reference has them all."""

    code = "no-second-derivative"
    example = (
        "q.requires_grad_()\n"
        'y = attention(q, k, v, window(1), kernel="blocks")\n'
        "torch.autograd.grad(y.sum(), q, create_graph=True)"
    )
    instead = (
        "q.requires_grad_()\n"
        'y = attention(q, k, v, window(1), kernel="reference")\n'
        "torch.autograd.grad(y.sum(), q, create_graph=True)"
    )


class NoTransform(EdgewiseError):
    """Fast kernels are not made of operations that `torch.func`, forward mode and `torch.jit` can
    transform; the reference is."""

    code = "no-transform"
    example = "torch.func.grad(lambda x: attention(x, k, v, window(1)).sum())(q)"
    instead = (
        'torch.func.grad(lambda x: attention(x, k, v, window(1), kernel="reference").sum())(q)'
    )


class TooLarge(EdgewiseError):
    """The call needs more memory than is left, by an estimate made beforehand."""

    code = "too-large"
    example = (
        "x = torch.zeros(1, 1, 1, 4).expand(1, 1, 1 << 18, 4)\n"
        "attention(x, x, x, window(1 << 17), return_weights=True)"
    )
    instead = (
        "x = torch.zeros(1, 1, 1 << 10, 4)\nattention(x, x, x, window(1 << 6), return_weights=True)"
    )


class PairsCountedOnce(EdgewiseWarning):
    """A graph is a set, so each of its pairs counts once in a softmax.

    BigBird's published code reads some blocks twice, and checkpoints trained with it expect that:
    `log_bias` has the logarithm of how often each pair counts.
    """

    code = "pairs-counted-once"
    example = """\
graph = bigbird(1, 1, variant="hf_eval")
attention(q, k, v, graph)"""
    instead = """\
graph = bigbird(1, 1, variant="hf_eval")
attention(q, k, v, graph, edge_bias=graph.log_bias(8))"""


SDPA = functional.scaled_dot_product_attention
PARALLEL = "torch.distributed.tensor"


def refuse_context_parallel() -> None:
    """Inside `context_parallel` every process holds a part of the sequence, and torch replaces its
    own attention by one that passes keys around; another one would attend to its own part alone."""
    now = functional.scaled_dot_product_attention
    if now is not SDPA and getattr(now, "__module__", "").startswith(PARALLEL):
        raise UnsupportedDevice(
            "attention inside `context_parallel` would attend to the keys of its own process alone",
            caller(),
            "leave out `context_parallel`: tokens are shared by `attention(..., mesh=mesh)` and "
            "`distributed.on_mesh(model, mesh)`",
        )


def is_dtensor(x: object) -> bool:
    """A `DTensor` is told by its type: torch.distributed need not be loaded for it."""
    kinds = [(kind.__name__, kind.__module__) for kind in type(x).__mro__]
    return any(kind == "DTensor" and module.startswith(PARALLEL) for kind, module in kinds)


def refuse_dtensor(x: Tensor, name: str) -> None:
    """Kernels run on one device."""
    if is_dtensor(x):
        raise UnsupportedDevice(
            f"`{name}` is a DTensor, and attention runs on one device",
            caller(),
            f"give `{name}.to_local()` where each process has complete sequences, or "
            f"`{name}.full_tensor()`",
        )


def refuse_second(kernel: str) -> None:
    """An error where the gradient is to be differentiated itself."""
    raise SecondDerivative(
        f"the gradient of the kernel `{kernel}` cannot be differentiated",
        caller(),
        'use `kernel="reference"`, in a model `compile(..., without=["fuse attention"])`, or '
        "`create_graph=False` if this was not meant",
    )
