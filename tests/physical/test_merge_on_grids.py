"""Parts of a relation inside of a grid are laid over it without sorting, as if they were sorted."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise import F, Program, R, V
from edgewise.ground.index import Grid, Keys, distinct_rows, index_of, rows_of
from edgewise.physical.merge import aligned


@st.composite
def parts(draw):
    sizes = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=2)))
    grid = Grid(sizes)
    low = draw(st.sampled_from([0, 0, -1]))
    found = [grid]
    for _ in range(draw(st.integers(1, 3))):
        one = st.tuples(*(st.integers(low, size - draw(st.integers(0, 1))) for size in sizes))
        listed = sorted(draw(st.sets(one, max_size=6)))
        rows = torch.tensor(listed, dtype=torch.int64).reshape(-1, len(sizes))
        found.append(index_of(rows))
    if draw(st.booleans()):
        found.append(Grid(tuple(draw(st.integers(1, size)) for size in sizes)))
    return draw(st.permutations(found))


@settings(max_examples=200, deadline=None)
@given(parts())
def test_parts_are_aligned_as_if_they_were_sorted(some):
    index, places = aligned(some)
    keys = distinct_rows(torch.cat([part.keys for part in some]))
    assert torch.equal(index.keys, keys)
    assert isinstance(index, type(index_of(keys)))
    for part, at in zip(some, places, strict=True):
        at = torch.arange(len(keys)) if at is None else at
        assert torch.equal(at, rows_of(part, keys))


def test_a_part_without_rows_lies_on_a_grid():
    index, places = aligned([Grid((3,)), Keys(torch.zeros(0, 1, dtype=torch.int64))])
    assert index == Grid((3,))
    assert [at.tolist() for at in places] == [[0, 1, 2], [-1, -1, -1]]


@pytest.mark.parametrize("sizes", [(5, 4), (7, 9), (6, 3)])
def test_graphs_of_several_sizes_in_one_model(sizes):
    """What is remembered of a plan does not depend on the graph that came before."""
    program = Program(
        [
            (R.mean(V.I) <= (R._edge(V.J, V.I), R.x(V.J)["w":2, 3])) | [F.avg_agg],
            R.h(V.I) <= R.x(V.I)["own":2, 3],
            R.h(V.I) <= R.mean(V.I),
        ]
    )
    model = program.compile(R.h, seed=0)
    for nodes, edges in (sizes, sizes[::-1], sizes):
        generator = torch.Generator().manual_seed(nodes)
        x = torch.randn(nodes, 3, generator=generator)
        edge = torch.randint(nodes, (2, edges), generator=generator).unique(dim=1)
        facts = [R.x(i)[row] for i, row in enumerate(x.double())]
        facts += [R.edge(*pair) for pair in edge.T.tolist()]
        weights = {name: weight.detach().double() for name, weight in model.named_parameters()}
        solved = program.solve(facts, weights=weights)[R.h(V.I)]
        wanted = torch.stack([solved[R.h(i)] for i in range(nodes)])
        assert torch.allclose(model(x=x, edge=edge).double(), wanted, atol=1e-5)
