"""Ranks beside one process: the largest difference of outputs, gradients and runs, in float64.

    PYTHONPATH=src:bench python bench/equal_ranks.py 8 [SECTION ...]

The cases are those of `tests/distributed`, on as many ranks as are named. A model or recipe that
is refused has its error in the place of a difference.
"""

import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("RANK_PATIENCE", "3000")
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "distributed"))

import partition_cases
import rank_cases
import recipe_cases
import test_rank_recipes as recipes
import zoo_cases
import zoo_on_nodes
from measure import commit, write, written
from rank_harness import on_ranks
from torch.distributed.device_mesh import init_device_mesh

NAME = "equal_ranks"


def graphs(rank, ranks):
    """Every graph and option, with a head for each rank and with one head."""
    mesh, found = init_device_mesh("cpu", (ranks,)), {}
    for heads in ((ranks, ranks), (1, 1)):
        shards = rank_cases.Shards(rank_cases.N, ranks)
        for graph in rank_cases.GRAPHS:
            for number, options in enumerate(rank_cases.OPTIONS):
                far, *_ = rank_cases.differences(rank, mesh, graph, shards, heads, options)
                found[f"{graph}, {heads[0]} heads, {number}"] = far
    return found


def trained(ranks):
    """Recipes: losses, weights and the state of the optimiser."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recipe_cases.put(folder)
        for kind in recipes.KINDS:
            alone = folder / f"{kind}-alone"
            recipe_cases.trained(folder / f"{kind}.toml", alone, *recipes.MORE_OF[kind])
        for shard, kinds in recipes.CASES.items():
            cases = [(kind, shard, recipes.MORE_OF[kind]) for kind in kinds]
            on_ranks(recipe_cases.runs, ranks, name, cases)
            for kind in kinds:
                out = folder / f"{kind}-{shard}-{ranks}"
                found[f"{kind}, {shard}"] = recipe_cases.differences(out, folder / f"{kind}-alone")
    return found


def terms(rank, ranks):
    return rank_cases.every_term(rank, ranks, (ranks, ranks), 7)


SECTIONS = {
    "graphs": graphs,
    "heads with graphs of their own": rank_cases.graphs_of_heads,
    "queries on other ranks": rank_cases.moved_queries,
    "blocks of queries and keys": rank_cases.in_blocks,
    "biases and scores": terms,
    "Transformers, tokens on ranks": zoo_cases.every_transformer,
    "the zoo, rows on ranks": zoo_on_nodes.every_model,
    "models, bytes as predicted": rank_cases.every_model,
    "graph networks, partitioned": rank_cases.every_graph_model,
    "bodies of every kind, partitioned": partition_cases.every_program,
}


def section(function, ranks):
    """Case → the largest difference on any rank, or the error of a refusal."""
    every = on_ranks(function, ranks)
    found = {}
    for case in every[0]:
        each = [one[case] for one in every]
        each = [one[0] if isinstance(one, tuple) else one for one in each]
        found[str(case)] = each[0] if isinstance(each[0], str) else max(each)
    return found


def main():
    ranks, *chosen = sys.argv[1:]
    for name in chosen or [*SECTIONS, "recipes"]:
        count = int(ranks)
        cases = trained(count) if name == "recipes" else section(SECTIONS[name], count)
        far = [one for one in cases.values() if not isinstance(one, str)]
        refused = {case: one for case, one in cases.items() if isinstance(one, str)}
        row = {"cases": len(far), "largest": max(far), "refused": refused, "commit": commit()}
        print(ranks, name, row, flush=True)
        assert max(far) <= 1e-12, cases
        results = written(NAME)
        results.setdefault(ranks, {})[name] = row
        write(NAME, results)


if __name__ == "__main__":
    main()
