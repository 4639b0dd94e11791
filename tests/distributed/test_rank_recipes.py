"""Recipes on several ranks are the runs of one process, and any ranks continue them."""

import pytest
from rank_harness import on_ranks
from recipe_cases import MORE, continued, differences, put, refused, runs, trained

pytest.importorskip("pymetis", reason="pymetis is not installed")

EPS = ("training.eps=1e-5",)  # Adam's: where the gradient is zero, rounding would be a direction
CONTIGUOUS = ("distributed.partition=contiguous", *EPS)
CASES = {
    2: [
        *(("generate", shard, MORE) for shard in ("ddp", "fsdp2", "context")),
        *(("embed", "context", EPS), ("translate", "ddp", EPS), ("rules", "fsdp2", EPS)),
        *(("samples", "ddp", EPS), ("hints", "ddp", EPS), ("values", "ddp", EPS)),
        *(("nodes", "graph", EPS), ("attention", "graph", CONTIGUOUS)),
    ],
    4: [
        *(("generate", shard, MORE) for shard in ("fsdp2", "context")),
        *(("values", "ddp", EPS), ("nodes", "graph", EPS), ("nodes", "fsdp2", EPS)),
    ],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Recipes, their data, and the runs of one process."""
    found = tmp_path_factory.mktemp("recipes")
    put(found)
    for name, _, more in CASES[2]:
        if not (found / f"{name}-alone").exists():
            trained(found / f"{name}.toml", found / f"{name}-alone", *more)
    return found


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_run_on_ranks_is_that_of_one_process(folder, ranks):
    on_ranks(runs, ranks, str(folder), CASES[ranks])
    for name, shard, _ in CASES[ranks]:
        found = differences(folder / f"{name}-{shard}-{ranks}", folder / f"{name}-alone")
        assert found <= 1e-12, (name, shard, found)


def test_other_numbers_of_ranks_continue_a_run(folder):
    for ranks, steps in ((2, 1), (1, 2), (4, 3)):
        how = (str(folder), "fsdp2", "changing", steps)
        ends = on_ranks(continued, ranks, *how) if ranks > 1 else [continued(0, 1, *how)]
        assert set(ends) == {("interrupted", steps)}
    assert continued(0, 1, folder, "fsdp2", "changing", 99) == ("end", 4)
    assert differences(folder / "changing", folder / "generate-alone") <= 1e-12


def test_what_is_wrong_on_one_rank_ends_all(folder):
    first, second = on_ranks(refused, 2, str(folder))
    assert {name: code for name, (code, _) in first.items()} == {
        **{"recipes": "ranks-differ", "data": "ranks-differ", "no data": "rank-failed"},
        **{"ranks": "bad-mesh", "tokens": "bad-mesh", "graphs": "not-distributed"},
        **{"statistics": "not-distributed", "not writable": "not-writable"},
    }
    assert "`training.rate` is 0.01 there, 0.02 here" in first["recipes"][1]
    assert "there is no" in first["no data"][1] or "cannot" in first["no data"][1]
    assert second.keys() == first.keys()
    for name in ("no data", "ranks", "not writable"):
        assert second[name][0] == "rank-failed"
