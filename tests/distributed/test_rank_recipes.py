"""Recipes on several ranks are the runs of one process, and any ranks continue them."""

import pytest
from rank_harness import RANKS, on_ranks
from recipe_cases import MORE, continued, differences, gathered_layers, put, refused, runs, trained

pytest.importorskip("pymetis", reason="pymetis is not installed")

KINDS = [
    *("generate", "subwords", "embed", "classify", "pairs", "pretrained", "translate", "recurrent"),
    *("parser", "complex", "samples", "rules", "paths", "hints"),
    *("nodes", "attention", "values", "graphs", "links"),
]
SOME = ("generate", "parser", "paths", "hints", "nodes", "links", "values")
# Adam's eps: where the gradient is zero, rounding would be a direction
EPS = ("training.eps=1e-5",)
# GIN in `values` has weights of one number
MORE_OF = dict.fromkeys(KINDS, EPS) | {"generate": MORE, "values": (*MORE, *EPS)}
# `hints` and `samples` are several passes
CASES = {
    "ddp": KINDS,
    "fsdp2": [name for name in KINDS if name not in ("hints", "samples")],
    "context": ["generate", "subwords", "embed"],
    "graph": ["nodes", "attention"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Recipes, their data, and the runs of one process."""
    found = tmp_path_factory.mktemp("recipes")
    assert set(put(found)) == set(KINDS)
    for name in KINDS:
        trained(found / f"{name}.toml", found / f"{name}-alone", *MORE_OF[name])
    return found


@pytest.mark.parametrize("shard", CASES)
@pytest.mark.parametrize("ranks", RANKS)
def test_a_run_on_ranks_is_that_of_one_process(folder, ranks, shard):
    """Of every kind on the first number of ranks, on others of some: `RANKS=4 pytest ...`."""
    names = [name for name in CASES[shard] if ranks == RANKS[0] or name in SOME]
    cut = ("distributed.partition=contiguous",) if ranks == 2 else ()
    on_ranks(runs, ranks, str(folder), [(name, shard, (*MORE_OF[name], *cut)) for name in names])
    for name in names:
        found = differences(folder / f"{name}-{shard}-{ranks}", folder / f"{name}-alone")
        assert found <= 1e-12, (name, found)


def test_fsdp2_gathers_few_layers_at_once(folder):
    """One; in a backward pass FSDP2 may have the next as well."""
    for found in on_ranks(gathered_layers, 2, str(folder), 6):
        assert found["forward"] == (1, 1)
        assert 1 <= found["backward"][0] <= found["backward"][1] <= 2
        assert found["after"] == (0, 0)


@pytest.mark.parametrize("name", ["generate", "values"])
def test_other_numbers_of_ranks_continue_a_run(folder, name):
    for ranks, steps in ((2, 1), (1, 2), (4, 3)):
        how = (str(folder), name, MORE_OF[name], steps)
        ends = on_ranks(continued, ranks, *how) if ranks > 1 else [continued(0, 1, *how)]
        assert set(ends) == {("interrupted", steps)}
    assert continued(0, 1, folder, name, MORE_OF[name], 99) == ("end", 4)
    assert differences(folder / f"{name}-changing", folder / f"{name}-alone") <= 1e-12


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
