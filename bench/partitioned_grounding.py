"""Three rules grounded and run on 1, 2, 4 and 8 ranks: CPU seconds, memory of the rank with most.

PYTHONPATH=src:bench python bench/partitioned_grounding.py
"""

import multiprocessing
import tempfile
import time
from pathlib import Path

import torch
from measure import write
from partitions import communities

from edgewise import F, Program, R, V
from edgewise.distributed import partition_of

NODES, DEGREE, SIZE = 200_000, 10, 32


def peak(again=False):
    """MB of memory that this process has held at most, or holds, from where it counts `again`."""
    if again:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e6


def model():
    """Two layers along edges, and one over pairs two hops apart."""
    return Program(
        [
            (R.h(V.I) <= (R.x(V.J)["w":SIZE, SIZE], R.edge(V.J, V.I))) | [F.relu, F.avg_agg],
            (R.g(V.I) <= (R.h(V.J)["u":SIZE, SIZE], R.edge(V.J, V.I))) | [F.relu, F.avg_agg],
            (R.out(V.I) <= (R.g(V.K), R._edge(V.K, V.J), R._edge(V.J, V.I))) | [F.avg_agg],
        ]
    ).compile(R.out, seed=0)


def grounded(rank, ranks, folder, results):
    """Ground and run the rules on one of the ranks: CPU seconds, MB, rows received."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=ranks)
    mesh, one = init_device_mesh("cpu", (ranks,)), model()
    made = torch.load(f"{folder}/graph.pt", weights_only=True)
    edge, partition = made["edge"], made[f"partition{ranks}"]
    small = one.ground(edge=edge[:, :1000], mesh=mesh, partition=partition)
    one.rows(
        small, x=torch.ones(len(small.nodes), SIZE)
    ).data.sum().backward()  # what is loaded once
    dist.barrier()
    before, start = peak(again=True), time.process_time()
    if ranks == 1:
        data, nodes = one.ground(edge=edge), torch.arange(NODES)
    else:
        data = one.ground(edge=edge, mesh=mesh, partition=partition)
        nodes = data.nodes
    x = torch.ones(len(nodes), SIZE)
    one.rows(data, x=x)
    ground = time.process_time() - start
    held = peak() - before
    start = time.process_time()
    one.rows(data, x=x).data.sum().backward()
    step = time.process_time() - start
    received = 0 if ranks == 1 else sum(data.received.values())
    results.put((ground, held, step, peak() - before, received))
    dist.barrier()
    dist.destroy_process_group()


def groundings():
    torch.manual_seed(0)
    context, rows = multiprocessing.get_context("spawn"), []
    edge, _ = communities(groups=NODES // 200, size=200, degree=DEGREE)
    edge = torch.unique(edge, dim=1)
    for ranks in (1, 2, 4, 8):
        with tempfile.TemporaryDirectory() as folder:
            partition = partition_of("metis", NODES, ranks, edge)
            torch.save({"edge": edge, f"partition{ranks}": partition}, f"{folder}/graph.pt")
            results = context.Queue()
            started = [
                context.Process(target=grounded, args=(rank, ranks, folder, results))
                for rank in range(ranks)
            ]
            for process in started:
                process.start()
            found = [results.get() for _ in started]
            for process in started:
                process.join()
        most = [max(column) for column in zip(*found, strict=True)]
        row = {"nodes": NODES, "edges": edge.shape[1], "ranks": ranks}
        row |= {"ground_and_first_call_cpu_s": round(most[0], 2), "ground_mb": round(most[1])}
        row |= {"step_cpu_s": round(most[2], 3), "peak_mb": round(most[3]), "received": most[4]}
        rows.append(row)
        print(row)
    write("partitioned_grounding", rows)


if __name__ == "__main__":
    groundings()
