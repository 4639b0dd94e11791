"""A rank that never starts, and a disk that is full: an error on every rank, and no hang."""

import multiprocessing
import os
import resource
import socket
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from rank_harness import on_ranks
from recipe_cases import differences, put, trained
from torch.distributed.device_mesh import init_device_mesh

from edgewise import EdgewiseError, F, Program, R, V, W, attention, numbers
from edgewise.distributed import on_mesh
from edgewise.distributed.failures import failures_of
from edgewise.graphs import window
from edgewise.training.ranks import group
from edgewise.zoo import gpt2

SHORT = 3.0  # seconds, where a user waits for `group.START`


def joins(rank, ranks, port, results):
    """Start as torchrun would; the code of the error."""
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= address | {"RANK": str(rank), "WORLD_SIZE": str(ranks)}
    group.START = SHORT
    try:
        with group.joined():
            results.put((rank, None))
    except EdgewiseError as error:
        results.put((rank, error.code))


@pytest.mark.parametrize("missing", [0, 2])
def test_a_rank_that_never_starts_is_told_by_all_others(missing):
    assert group.START < 60
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("forkserver")
    results, there = context.Queue(), [rank for rank in range(3) if rank != missing]
    processes = [context.Process(target=joins, args=(rank, 3, port, results)) for rank in there]
    for process in processes:
        process.start()
    try:
        found = dict(results.get(timeout=60) for _ in there)
    finally:
        for process in processes:
            process.kill()
            process.join()
    assert found == dict.fromkeys(there, "rank-missing")


def on_full_disk(rank, ranks, folder, shard):
    """Train where the first rank cannot write large files, then with space again."""
    path, out = Path(folder) / "generate.toml", Path(folder) / f"full-{shard}"
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    most = max(f.stat().st_size for f in Path(folder, "alone").rglob("*.safetensors")) - 1
    if rank == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, limit[1]))
    try:
        trained(path, out, f"distributed.shard={shard}")
        found = None
    except EdgewiseError as error:
        found = error.code, "File too large" in error.message
    resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    return found, trained(path, out, f"distributed.shard={shard}")


@pytest.mark.parametrize("shard", ["ddp", "fsdp2"])
def test_a_full_disk_ends_all_ranks_and_with_space_they_go_on(shard, tmp_path):
    put(tmp_path)
    trained(tmp_path / "generate.toml", tmp_path / "alone")
    first, second = on_ranks(on_full_disk, 2, str(tmp_path), shard)
    assert first == (("not-writable", True), "end")
    assert second == (("rank-failed", True), "end")
    assert differences(tmp_path / f"full-{shard}", tmp_path / "alone") <= 1e-12


def failing_calls(mesh, ranks):
    """Models on ranks, as functions of the largest token, which may be beyond the vocabulary."""
    sizes = {"vocabulary": 9, "size": 8, "heads": 2, "hidden": 8, "layers": 2, "length": 16}
    config = gpt2.Config(**sizes, dropout=0.0, graph="window(3)")
    ranked = on_mesh(gpt2.program(config).compile(R.logits, seed=0), mesh)
    word = F.lookup(W.word[9, 2], R.token(V.I))
    near = R.x(V.J), R._x(V.I), window(2)(V.I, V.J)
    rules = [R.x(V.I) <= word, (R.h(V.I) <= near) | [F.avg_agg], R.out(V.I) <= (word, R.h(V.I))]
    model = Program(rules).compile(R.out, seed=0)
    data = model.ground(mesh=mesh, nodes=4 * ranks, partition="contiguous")
    return {
        "tokens": lambda largest: ranked(token=numbers(torch.arange(largest - 3, largest + 1))),
        "nodes": lambda largest: model(data, token=numbers(torch.arange(largest - 3, largest + 1))),
    }


def fails_in_the_middle(rank, ranks, kind):
    """What a rank raises where all give a wrong token, then where rank 1 alone does; how long it
    takes; what the next call raises."""
    call, found = failing_calls(init_device_mesh("cpu", (ranks,)), ranks)[kind], []
    call(8)
    for largest in (9, 8, 9 if rank == 1 else 8, 8):
        start = time.monotonic()
        try:
            call(largest).sum().backward()
            found.append(None)
        except EdgewiseError as error:
            found.append((error.code, error.message))
        assert time.monotonic() - start < 60
    return found


@pytest.mark.parametrize("kind", ["tokens", "nodes"])
def test_a_rank_that_raises_in_the_middle_of_a_model_is_named_by_the_others(kind):
    first, second, third = on_ranks(fails_in_the_middle, 3, kind, ended=())
    own = second[0]
    assert own[0] != "rank-failed"
    assert first[:2] == second[:2] == third[:2] == [own, None]
    told = ("rank-failed", f"rank 1 of 3 failed: {own[1]}")
    assert first[2:] == third[2:] == [told, told]
    assert second[2:] == [own, told]


def goes_on_elsewhere(rank, ranks):
    """One rank makes another call than the others; then the process group is destroyed."""
    mesh, found = init_device_mesh("cpu", (ranks,)), []
    x = torch.randn(1, 2, 8, 4, requires_grad=True)
    out = attention(x, x, x, window(2), mesh=mesh)

    def noted(call):
        start = time.monotonic()
        try:
            call()
        except EdgewiseError as error:
            found.append((error.code, error.message))
        assert time.monotonic() - start < 60

    if rank == 1:
        noted(lambda: attention(x, x, x, window(1), mesh=mesh))
    else:
        noted(lambda: out.sum().backward())
    noted(lambda: attention(x, x, x, window(2), mesh=mesh))
    dist.destroy_process_group()
    noted(lambda: attention(x, x, x, window(2), mesh=mesh))
    return found


def test_ranks_that_make_different_calls_do_not_wait_for_each_other():
    every = on_ranks(goes_on_elsewhere, 3, ended=())
    for first, second, third in every:
        assert first == second
        assert first[0] == "rank-failed"
        assert third == ("bad-mesh", "the process group of `mesh` was destroyed")
    said = {first[1] for first, _, _ in every}
    differ = "the calls of ranks differ: rank 1 of 3 waits for a plan, rank 0 for keys back"
    assert differ in said, said


def test_a_later_group_of_the_same_name_reads_no_words_of_the_first(tmp_path):
    keys = []
    for number in range(2):
        store = f"file://{tmp_path}/{number}"
        dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
        group = dist.group.WORLD
        keys.append((group.group_name, failures_of(group)._key("waits", 0)))
        assert failures_of(group)._key("waits", 0) == keys[-1][1]
        dist.destroy_process_group()
    (name, first), (again, second) = keys
    assert name == again
    assert first != second


def ends_in_the_middle(rank, ranks):
    """One rank ends without a word, as by a kill."""
    mesh = init_device_mesh("cpu", (ranks,))
    call = failing_calls(mesh, ranks)["tokens"]
    call(8)
    if rank == 1:
        os._exit(0)
    try:
        call(8)
    except EdgewiseError as error:
        return error.code, error.message


def test_a_rank_that_ends_is_an_error_of_ours_on_the_others():
    for code, message in on_ranks(ends_in_the_middle, 3, ended={1}):
        assert code == "rank-failed"
        assert "another rank ended" in message
