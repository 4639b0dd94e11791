"""Functions on several processes with a gloo group; what hangs is ended."""

import multiprocessing
import os
import tempfile
import traceback
from datetime import timedelta

# numbers of ranks in tests; `RANKS=8 pytest tests/distributed` runs them on eight
RANKS = tuple(map(int, os.environ.get("RANKS", "2,4").split(",")))
PATIENCE = float(os.environ.get("RANK_PATIENCE", "150"))  # seconds; a hang is a failure


def started(function, rank, ranks, store, results, arguments, ended):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{store}",
            rank=rank,
            world_size=ranks,
            timeout=timedelta(seconds=PATIENCE),
        )
        results.put((rank, None, function(rank, ranks, *arguments)))
        if ended is None:
            dist.barrier()
    except BaseException:
        results.put((rank, traceback.format_exc(), None))
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def on_ranks(function, ranks, *arguments, ended=None):
    """What `function(rank, ranks, *arguments)` returns on every rank; where a rank fails alone,
    `ended` are those that return nothing."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch.distributed", "edgewise.distributed.attention"])
    with tempfile.TemporaryDirectory() as folder:
        results = context.Queue()
        processes = [
            context.Process(
                target=started,
                args=(function, rank, ranks, f"{folder}/store", results, arguments, ended),
            )
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        try:
            found = dict.fromkeys(range(ranks))
            for _ in range(ranks - len(ended or ())):
                rank, failure, value = results.get(timeout=PATIENCE)
                assert failure is None, f"rank {rank}:\n{failure}"
                found[rank] = value
            for process in processes:
                process.join(timeout=PATIENCE)
            return [found[rank] for rank in range(ranks) if rank not in (ended or ())]
        finally:
            for process in processes:
                if process.is_alive():
                    process.kill()
                process.join()
