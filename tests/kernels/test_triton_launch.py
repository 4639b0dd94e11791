"""A launch that is repeated gives Triton's launcher what Triton itself would give it."""

from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")

from triton import knobs
from triton.backends.nvidia.driver import wrap_handle_tensordesc

from edgewise.kernels.attention.triton import launch as triton_launch
from edgewise.kernels.attention.triton.launch import (
    Launch,
    Launches,
    described,
    launcher,
    readable,
)

NAMES = ["Q", "Out", "Items", "n", "scale", "BLOCK"]
KINDS = ["tensordesc<fp32[1, 1, 16, 16]>", "*fp32", "*i32", "i32", "fp32", "constexpr"]


class Kernel:
    """As Triton's: it binds arguments, launches, and gives the compiled kernel back."""

    arg_names = NAMES

    def __init__(self, scratch=0):
        self.started, self.bound = [], 0
        signature = dict(zip(NAMES, KINDS, strict=True))
        start = wrap_handle_tensordesc(lambda *x: self.started.append(x), signature, None)
        self.run = SimpleNamespace(
            launch=start, global_scratch_size=scratch, profile_scratch_size=0,
            launch_cooperative_grid=False, launch_pdl=False,
        )  # fmt: skip
        metadata = SimpleNamespace(tensordesc_meta=None)
        self.compiled = SimpleNamespace(
            run=self.run, function=7, packed_metadata=(4, 1, 0), metadata=metadata
        )

    def __getitem__(self, grid):
        def launch(*arguments, BLOCK):
            self.bound += 1
            given = (*grid, 1, 1)[:3], 0, 7, False, False, None, None, (4, 1, 0), None, None, None
            self.run.launch(*given[0], *given[1:], *arguments, BLOCK)
            return self.compiled

        return launch


def made(kernel, fixed=40):
    items = torch.arange(4, dtype=torch.int32)
    return Launch(kernel, (3, 2), {"BLOCK": 16}, (items, fixed), (0.5,), tiles=1)


def repeated(launch):
    return Launches(lambda *tensors: [(launch, tensors)], tiles=1)


def addresses(arguments):
    """Tensors by where they are; the last is a constant, which the launcher does not read."""
    return [x.data_ptr() if isinstance(x, torch.Tensor) else x for x in arguments[:-1]]


def test_bound_and_plain_launches_are_the_same():
    kernel, x = Kernel(), torch.randn(1, 40, 2, 16).transpose(1, 2)
    launch, out = made(kernel), torch.empty(8)
    run = repeated(launch)
    for _ in range(3):
        run(x, out)
    assert kernel.bound == 1
    plain, *bound = map(addresses, kernel.started)
    assert bound == [plain, plain]
    for moved in ((x.clone(), out), (x, out.clone()), (x.contiguous(), out)):
        for _ in range(2):  # made for these addresses, then looked up
            run(*moved)
        *_, first, second = map(addresses, kernel.started)
        kernel[launch.grid](described(moved[0], 16), moved[1], *launch.fixed, 0.5, BLOCK=16)
        assert first == second == addresses(kernel.started[-1]) != plain
    assert kernel.bound == 4  # those for comparison
    assert len(run.ready) == 4


def test_several_launches_go_one_after_another():
    kernels = Kernel(), Kernel()
    first, second = map(made, kernels)
    run = Launches(lambda x, out: [(first, (x, out)), (second, (x, out))], tiles=1)
    x, out = torch.randn(1, 2, 40, 16), torch.empty(8)
    for _ in range(3):
        run(x, out)
    assert [(kernel.bound, len(kernel.started)) for kernel in kernels] == [(1, 3), (1, 3)]


def test_what_is_not_aligned_is_looked_at_by_triton_every_time():
    """It compiles another kernel for such addresses, and that one is not bound either."""
    kernel, x, odd = Kernel(), torch.randn(1, 2, 40, 16), torch.empty(9)[1:]
    run = repeated(made(kernel))
    for _ in range(2):
        run(x, odd)
    assert kernel.bound == 2
    for _ in range(2):
        run(x, torch.empty(8))
    assert kernel.bound == 3
    run(x, odd)
    assert kernel.bound == 4


def test_the_arguments_of_so_many_calls_are_cached(monkeypatch):
    monkeypatch.setattr(triton_launch, "MOST", 3)
    kernel, x = Kernel(), torch.zeros(1, 1, 20, 16)
    run, outs = repeated(made(kernel)), [torch.empty(8) for _ in range(5)]
    for out in outs:
        run(x, out)
    assert len(run.ready) == 2
    assert kernel.bound == 1


def test_another_version_or_a_need_of_memory_launches_plainly(monkeypatch):
    kernel, x = Kernel(), torch.zeros(1, 1, 20, 16)
    monkeypatch.setattr(triton_launch, "KNOWN", ("0.0.",))
    run = repeated(made(kernel))
    for _ in range(3):
        run(x, x)
    assert kernel.bound == 3
    assert launcher(kernel.compiled) is None
    monkeypatch.undo()
    assert launcher(Kernel(scratch=64).compiled) is None
    assert launcher(None) is None  # of the interpreter


def test_who_watches_launches_sees_them():
    kernel, x = Kernel(), torch.zeros(1, 1, 20, 16)
    run = repeated(made(kernel))
    run(x, x)
    hook = print
    knobs.runtime.launch_enter_hook.add(hook)
    try:
        run(x, x)
    finally:
        knobs.runtime.launch_enter_hook.remove(hook)
    run(x, x)
    assert kernel.bound == 2
    assert len(kernel.started) == 3


def test_terms_are_bound_every_time():
    kernel, x = Kernel(), torch.zeros(1, 1, 20, 16)
    launch = made(kernel)
    for scale in (0.5, 0.25):
        launch(x, x, terms=(scale,))
        assert kernel.started[-1][-2] == scale
    assert kernel.bound == 2


def test_what_cannot_be_read_in_blocks_is_copied():
    x = torch.randn(2, 3, 20, 16)
    assert readable(x) is x
    assert readable(x.transpose(1, 2)) is not None
    for odd in (
        x.transpose(2, 3),
        x[:, :1].expand(2, 3, 20, 16),
        torch.randn(1921)[1:].view(x.shape),
    ):
        found = readable(odd)
        assert found.is_contiguous()
        assert torch.equal(found, odd)
        assert found.data_ptr() % 16 == 0
    beside = torch.randn(2, 20, 3, 16).transpose(1, 2)
    assert readable(beside) is beside
    narrow = torch.randn(2, 3, 20, 13)
    assert torch.equal(readable(narrow), narrow)
    assert readable(narrow).stride() == (960, 320, 16, 1)


@pytest.mark.parametrize("ragged", [False, True])
def test_a_launch_of_decoding_has_all_arguments(ragged):
    """Triton's launcher takes them in order: tensors, what stays the same, terms, constants."""
    from edgewise.kernels.attention import case_of
    from edgewise.kernels.attention.triton.decoding import Decoding

    q, k = torch.zeros(2, 4, 1, 8), torch.zeros(2, 2, 300, 8)
    split = Decoding(case_of(q, k, k), "cpu", ragged)
    made = split.launches(q, k, k)
    assert split.launches(q, k, k) is made
    steps = made.steps(q, k, k, *made.results(lambda *x: torch.empty_strided(*x[:2], dtype=x[2])))
    for launch, tensors in steps:
        given = [*tensors, *launch.fixed, *launch.none]
        names = launch.kernel.arg_names
        constants = [x for x in names if x.isupper() and x in launch.options]
        assert len(given) + len(constants) == len(names)
        assert names[len(given) :] == constants
