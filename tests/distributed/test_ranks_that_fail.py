"""A rank that never starts, and a disk that is full: an error on every rank, and no hang."""

import multiprocessing
import os
import resource
import socket
from pathlib import Path

import pytest
from rank_harness import on_ranks
from recipe_cases import differences, put, trained

from edgewise import EdgewiseError
from edgewise.training.ranks import group

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
