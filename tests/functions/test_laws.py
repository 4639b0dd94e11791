"""Every function of the table: its laws, its shapes, and that engine and reference agree."""

import pytest
import torch

from edgewise.functions import (
    AGGREGATION,
    COMBINATION,
    DEFINITIONS,
    REQUIRED,
    TRANSFORMATION,
    Law,
)
from edgewise.functions.columns import canonical as canonical_column
from edgewise.functions.values import canonical
from edgewise.language import nodes
from edgewise.layouts.ragged import segments
from edgewise.physical.functions import Engine

SHAPES = ((), (3,), (1, 3), (2, 3))
OPERANDS = {  # of combinations that take others than values of one shape
    "product": (((), (4,)), ((2, 3), (3,)), ((3,), (1, 2)), ((2, 3), (3, 4)), ((1, 3), (3,))),
    "lookup": (((3, 2), ()), ((3,), ())),
    "rotate": (((4,), (2,), (2,)), ((2,), (), ())),
    "batch_norm": (((3,), (3,), (3,)), ((2, 3), (2, 3), (2, 3)), ((), (), ())),
    "softmax_comb": (((), (), ()),),
    "sparsemax_comb": (((), (), ()),),
    "greater": (((), ()),),
    "greater_equal": (((), ()),),
    "cossim": (((3,), (3,)), ((2, 3), (2, 3))),
    "concat": (((3,), (), (2, 2)), ((), ())),
    "crossum": (((3,), (2,)), ((), ())),
}
VALUES = {d.name: ((),) for d in DEFINITIONS.values() if Law.NORMALISES in d}  # of scalars


def of(kind, *laws):
    """The names of the definitions of a kind that have all of some laws."""
    found = [d.name for d in DEFINITIONS.values() if d.kind == kind and set(laws) <= d.laws]
    return pytest.mark.parametrize("name", found)


def options(name):
    written = {
        o.name: o.example if o.default is REQUIRED or o.example is not None else o.default
        for o in DEFINITIONS[name].options
    }
    if "module" in written:
        written["module"] = nodes.Opaque(torch.sin)
    if "shape" in written:
        written["shape"] = (1, 3)
    return written


def draw(shape, seed=0):
    """Positive numbers without ties, so that every function is defined and smooth."""
    drawn = torch.Generator().manual_seed(seed)
    return torch.rand(shape, generator=drawn, dtype=torch.float64) + 0.1


def takes(name, shape):
    """The shapes that a transformation is tried on."""
    if name == "reshape":
        return shape in ((3,), (1, 3))
    return name != "slice" or (len(shape) > 0 and shape[0] >= 2)


def engine(name):
    opaque = DEFINITIONS[name].laws & {Law.OPAQUE, Law.CHECKED}
    return {"engine": Engine} if opaque else {}


def gradients(result, inputs):
    weight = torch.arange(1, result.numel() + 1, dtype=result.dtype).reshape(result.shape)
    if not result.requires_grad:
        return [torch.zeros_like(x) for x in inputs]
    found = torch.autograd.grad((result * weight).sum(), inputs, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(found, inputs, strict=True)]


def assert_same(one, many, inputs):
    """A value, and the only row of a column of it; and their gradients."""
    torch.testing.assert_close(canonical_column(many)[0, 0], canonical(one))
    pairs = zip(gradients(one, inputs), gradients(many, inputs), strict=True)
    for a, b in pairs:
        torch.testing.assert_close(a, b)


def deterministic(found):
    return [name for name in found if Law.RANDOM not in DEFINITIONS[name]]


TRANSFORMATIONS = [d.name for d in DEFINITIONS.values() if d.kind == TRANSFORMATION]
COMBINATIONS = [d.name for d in DEFINITIONS.values() if d.kind == COMBINATION]
AGGREGATIONS = [d.name for d in DEFINITIONS.values() if d.kind == AGGREGATION]


# engine and reference


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", deterministic(TRANSFORMATIONS))
def test_a_transformation_of_a_column_is_that_of_each_value(name, shape):
    if not takes(name, shape):
        return
    found, x = DEFINITIONS[name], draw(shape).requires_grad_()
    one = found.value(x, **options(name))
    many = found.columns(x[None, None], **options(name), **engine(name))
    assert_same(one, many, [x])


def operands(name):
    """Lists of values that a combination takes."""
    found = OPERANDS.get(name) or (*((s,) * 3 for s in SHAPES), ((), (3,), ()))
    for n, shapes in enumerate(found):
        items = [draw(shape, seed=10 * n + m) for m, shape in enumerate(shapes)]
        if name == "lookup":
            items[1] = torch.tensor(1.0, dtype=torch.float64)
        yield [item.requires_grad_() for item in items]


@pytest.mark.parametrize("name", COMBINATIONS)
def test_a_combination_of_columns_is_that_of_each_value(name):
    found = DEFINITIONS[name]
    for items in operands(name):
        one = found.value(items, **options(name))
        columns = [item[None, None] for item in items]
        assert_same(one, found.columns(columns, **options(name), **engine(name)), items)


@pytest.mark.parametrize("sizes", [(3,), (2, 2), (1, 3, 2), (1, 1)])
@pytest.mark.parametrize("name", AGGREGATIONS)
def test_an_aggregation_of_segments_is_that_of_each_head(name, sizes):
    found = DEFINITIONS[name]
    if len(set(sizes)) > 1 and Law.ORDER_FREE not in found:
        return  # heads of a compiled relation have values of one shape
    ids = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    for shape in VALUES.get(name, SHAPES):
        x = draw((len(ids), *shape)).requires_grad_()
        many = found.columns(x[None], segments(ids, len(sizes)), **options(name))[0]
        parts = x.split(sizes)
        alone = [canonical(found.value(list(part.unbind(0)), **options(name))) for part in parts]
        one = torch.stack(alone)
        torch.testing.assert_close(canonical_column(many, 1), one)
        (a,), (b,) = gradients(one, [x]), gradients(many, [x])
        torch.testing.assert_close(a, b)


@of(AGGREGATION, Law.NORMALISES)
def test_shares_of_a_group_sum_to_one(name):
    one, many = DEFINITIONS[name].shares
    for shape in ((), (3,)):
        x = draw((4, *shape)).requires_grad_()
        alone = torch.stack(one(list(x.unbind(0))))
        found = many(x[None], segments(torch.zeros(4, dtype=torch.int64), 1))[0]
        torch.testing.assert_close(found, alone)
        torch.testing.assert_close(alone.sum(0), torch.ones(shape, dtype=x.dtype))
        (a,), (b,) = gradients(alone, [x]), gradients(found, [x])
        torch.testing.assert_close(a, b)


# shapes


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_the_shape_rule_of_a_transformation(name):
    for shape in SHAPES:
        possible = DEFINITIONS[name].shape(shape, **options(name))
        assert bool(possible) == takes(name, shape)
        if possible:
            found = canonical(DEFINITIONS[name].value(draw(shape), **options(name)))
            assert _fits(found, possible)


@pytest.mark.parametrize("name", COMBINATIONS)
def test_the_shape_rule_of_a_combination(name):
    for items in operands(name):
        sets = [frozenset({tuple(item.shape)}) for item in items]
        found = canonical(DEFINITIONS[name].value(items, **options(name)))
        assert DEFINITIONS[name].shape(sets, **options(name)) == {tuple(found.shape)}


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_the_shape_rule_of_an_aggregation(name):
    for shape in VALUES.get(name, SHAPES):
        found = canonical(DEFINITIONS[name].value([draw(shape), draw(shape, 1)], **options(name)))
        assert _fits(found, DEFINITIONS[name].shape(frozenset({shape}), **options(name)))


def _fits(value, possible):
    """Whether a shape is one of several, where None is any size."""
    return any(
        len(shape) == value.ndim
        and all(a in (None, b) for a, b in zip(shape, value.shape, strict=True))
        for shape in possible
    )


# laws


def values(name, count=3, shape=(2,), seed=0):
    return [draw(shape, seed + n) for n in range(count)]


def applied(name, items):
    """A function of any kind, of a list of values."""
    found = DEFINITIONS[name]
    if found.kind == TRANSFORMATION:
        (x,) = items
        return found.value(x, **options(name))
    return found.value(items, **options(name))


def having(law):
    found = [d for d in DEFINITIONS.values() if law in d]
    return pytest.mark.parametrize("name", [d.name for d in found])


def of_its_own(name):
    """How many values, and of which shape, a law is tried on."""
    if DEFINITIONS[name].kind == TRANSFORMATION:
        return 1
    return DEFINITIONS[name].arity or 3


@having(Law.ELEMENTWISE)
def test_elementwise(name):
    items = values(name, of_its_own(name))
    each = torch.stack([applied(name, [x[i] for x in items]) for i in range(2)])
    torch.testing.assert_close(applied(name, items), each)


@having(Law.MONOTONE)
def test_monotone(name):
    items = values(name, of_its_own(name))
    larger = [x + draw(x.shape, 7) for x in items]
    assert (applied(name, larger) >= applied(name, items)).all()


@having(Law.LINEAR)
def test_linear(name):
    shape = (3,) if name in ("reshape", "slice") else (2,)
    xs, ys = (values(name, of_its_own(name), shape, seed) for seed in (0, 5))
    mixed = applied(name, [2 * x - 3 * y for x, y in zip(xs, ys, strict=True)])
    torch.testing.assert_close(mixed, 2 * applied(name, xs) - 3 * applied(name, ys))


@having(Law.ORDER_FREE)
def test_order_free(name):
    items = values(name, of_its_own(name))
    torch.testing.assert_close(applied(name, items[::-1]), applied(name, items))


@having(Law.ASSOCIATIVE)
def test_associative(name):
    shape = (2, 2) if name == "product" else (2,)
    x, y, z = values(name, 3, shape)
    torch.testing.assert_close(applied(name, [applied(name, [x, y]), z]), applied(name, [x, y, z]))


@having(Law.DISTRIBUTES)
def test_distributes(name):
    x, y, z = values(name, 3, (2, 2))
    left = applied(name, [x, z]) + applied(name, [y, z])
    torch.testing.assert_close(applied(name, [x + y, z]), left)
    right = applied(name, [z, x]) + applied(name, [z, y])
    torch.testing.assert_close(applied(name, [z, x + y]), right)


@having(Law.IDEMPOTENT)
def test_idempotent(name):
    (x,) = values(name, 1)
    torch.testing.assert_close(applied(name, [x, x, x]), x)


@having(Law.KEEPS_ONE)
def test_one_value_is_itself(name):
    (x,) = values(name, 1, (2, 2))
    torch.testing.assert_close(applied(name, [x]), x)


@having(Law.RANDOM)
def test_random(name):
    x = torch.ones(1000)
    torch.manual_seed(0)
    first, second = applied(name, [x]), applied(name, [x])
    assert not torch.equal(first, second)
    assert first.mean().item() == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_only_those_that_say_so_need_a_table(name):
    if Law.ORDER_FREE not in DEFINITIONS[name]:
        assert Law.NEEDS_TABLE in DEFINITIONS[name]
        return
    ids = torch.tensor([0, 0, 1])
    parts = segments(ids, 2)
    DEFINITIONS[name].columns(draw((1, 3)), parts, **options(name))
    assert ("padded" in vars(parts)) == (Law.NEEDS_TABLE in DEFINITIONS[name])


def test_what_is_not_said_does_not_hold():
    """Laws that are missing from an entry fail for it: the table says all it can."""
    for law, test in (
        (Law.IDEMPOTENT, test_idempotent),
        (Law.KEEPS_ONE, test_one_value_is_itself),
        (Law.ORDER_FREE, test_order_free),
    ):
        for name in AGGREGATIONS:
            if law not in DEFINITIONS[name] and Law.NORMALISES not in DEFINITIONS[name]:
                with pytest.raises(AssertionError):
                    test(name)


@pytest.mark.parametrize("name", [d.name for d in DEFINITIONS.values() if d.score is not None])
def test_a_score_computes_the_same(name):
    from edgewise import scores
    from edgewise.scores.evaluate import PairScores
    from edgewise.scores.nodes import S
    from edgewise.scores.primitives import derivative

    found, count = DEFINITIONS[name], of_its_own(name)
    tree = found.score(scores, *([scores.S] * count), **options(name)).node
    x = draw((1, 5)).requires_grad_()
    place = torch.zeros(5, dtype=torch.int64)
    pairs = PairScores(x.detach(), place, place, torch.zeros(1, 1, dtype=torch.int64), ())
    one = torch.stack([applied(name, [x[0, n]] * count) for n in range(5)])
    torch.testing.assert_close(pairs[tree].expand(1, 5)[0], one)
    (grad,) = torch.autograd.grad(one.sum(), x) if one.requires_grad else (torch.zeros_like(x),)
    torch.testing.assert_close(pairs[derivative(tree, S)].expand(1, 5).to(grad), grad)


def test_every_name_is_one_and_says_what_it_is():
    assert all(d.summary and name == d.name for name, d in DEFINITIONS.items())
    others = [other for d in DEFINITIONS.values() for other in d.aliases]
    assert len(set(others)) == len(others)
    assert not set(others) & set(DEFINITIONS)
    counterparts = [d.counterpart for d in DEFINITIONS.values() if d.counterpart]
    assert all(DEFINITIONS[c].kind == AGGREGATION for c in counterparts)
