"""Programs on a partition of their nodes, beside one process: bodies of every kind."""

from copy import deepcopy

import torch
from torch.distributed.device_mesh import init_device_mesh

from edgewise import EdgewiseError, F, Program, R, V, W, numbers, rows
from edgewise.graphs import ring, window

NODES = 29


def graph(seed=0):
    """Edges without those of the last nodes, some of them loops."""
    generator = torch.Generator().manual_seed(seed)
    return torch.unique(torch.randint(NODES - 4, (2, 70), generator=generator), dim=1)


def relation(seed, size, sizes):
    """Keys below some sizes, with a value each."""
    generator = torch.Generator().manual_seed(seed)
    keys = torch.stack([torch.randint(n, (size,), generator=generator) for n in sizes])
    keys = torch.unique(keys, dim=1)
    values = torch.randn(keys.shape[1], generator=generator, dtype=torch.float64)
    return rows(keys, values)


def programs():
    """Name → rules, what is grounded, what comes with a call."""
    edge, x = graph(), torch.randn(NODES, 3, dtype=torch.float64, generator=torch.manual_seed(1))
    hop = (R.h(V.I) <= (R.x(V.J)["w":4, 3], R.edge(V.J, V.I))) | [F.tanh, F.avg_agg]
    kind = rows([(i, j, "ab"[(i + j) % 2]) for i, j in edge.T.tolist()])
    sparse = torch.tensor([[0, 3, 4], [3, 4, 25]])
    pair = (R.e(V.J, V.I) <= (R.x(V.J)["a":1, 3], R.x(V.I)["b":1, 3], R._edge(V.J, V.I))) | [F.tanh]
    softmax = (R.s(V.I, V.J) <= (R.e(V.J, V.I),)) | [F.softmax_agg(agg_terms=[V.J])]
    summed = (R.out(V.I) <= (R.s(V.I, V.J), R.x(V.J))) | [F.product]
    backwards = (R.s(V.J, V.I) <= R.e(V.J, V.I)) | [F.softmax_agg(agg_terms=[V.J])]
    summed_back = (R.out(V.I) <= (R.s(V.J, V.I), R.x(V.J))) | [F.product]
    return {
        "one hop": ([hop, R.out(V.I) <= R.h(V.I)], {"edge": edge}, {"x": x}),
        "against edges": (
            [hop, (R.out(V.I) <= (R.h(V.J), R._edge(V.I, V.J))) | [F.max_agg]],
            {"edge": edge},
            {"x": x},
        ),
        "two hops, apart": (
            [hop, (R.out(V.I) <= (R.h(V.K), R._edge(V.K, V.J), R._edge(V.J, V.I), V.K != V.I))],
            {"edge": edge},
            {"x": x},
        ),
        "negation": (
            [
                hop,
                (R.out(V.I) <= (R.h(V.J), R._edge(V.J, V.I), ~R.edge(V.I, V.J))) | [F.avg_agg],
                R.out(V.I) <= (R.x(V.I)["v":4, 3], ~R.edge(V.I, V.I)),
            ],
            {"edge": edge},
            {"x": x},
        ),
        "negation of what is derived": (
            [
                R.near(V.I, V.K) <= (R._edge(V.I, V.J), R._edge(V.J, V.K)),
                (R.out(V.I) <= (R.x(V.J), R._edge(V.J, V.I), ~R.near(V.J, V.I))),
            ],
            {"edge": edge},
            {"x": x},
        ),
        "derived pairs": (
            [
                R.near(V.I, V.K) <= (R._edge(V.I, V.J), R._edge(V.J, V.K), V.I < V.K),
                (R.out(V.K) <= (R.x(V.I)["w":2, 3], R._near(V.I, V.K))) | [F.avg_agg],
            ],
            {"edge": edge},
            {"x": x},
        ),
        "values of edges": (
            [(R.out(V.I) <= (R.x(V.J), R.edge(V.J, V.I))) | [F.product]],
            {"edge": relation(2, 80, (NODES, NODES))},
            {"x": x},
        ),
        "kinds of edges": (
            [
                (R.out(V.I) <= (R.x(V.J)["a":2, 3], R._edge(V.J, V.I, "a"))) | [F.avg_agg],
                (R.out(V.I) <= (R.x(V.J)["b":2, 3], R._edge(V.J, V.I, "b"))) | [F.avg_agg],
            ],
            {"edge": kind},
            {"x": x},
        ),
        "softmax": ([pair, softmax, summed], {"edge": edge}, {"x": x}),
        "softmax, other way": ([pair, backwards, summed_back], {"edge": edge}, {"x": x}),
        "pairs": ([pair], {"edge": edge}, {"x": x}),
        "numbers": (
            [
                (R.out(V.I) <= (F.lookup(W.word[7, 2], R.token(V.J)), R.edge(V.J, V.I)))
                | [F.avg_agg]
            ],
            {"edge": edge},
            {"token": numbers(torch.arange(NODES) % 7)},
        ),
        "window": (
            [(R.out(V.I) <= (R.x(V.J)["w":2, 3], R._x(V.I), window(2)(V.I, V.J))) | [F.avg_agg]],
            {},
            {"x": x},
        ),
        "ring": (
            [(R.out(V.I) <= (R.x(V.J)["w":2, 3], R._x(V.I), ring(1)(V.I, V.J))) | [F.avg_agg]],
            {},
            {"x": x},
        ),
        "positions": (
            [
                R.moved(V.P) <= (R.x(V.I)["w":2, 3], R.special.add(V.I, 20, V.P)),
                R.far(V.D) <= (R._x(V.I), R._x(V.J), R.special.sub(V.I, V.J, V.D)),
                R.half(V.Q) <= (R.x(V.I), R.special.div(V.I, 2, V.Q)),
                (
                    R.out(V.Q)
                    <= (
                        R.half(V.Q)["v":2, 3],
                        R.moved(V.P),
                        R.far(V.D),
                        R.special.sub(V.Q, V.D, V.P),
                    )
                )
                | [F.avg_agg],
            ],
            {},
            {"x": x},
        ),
        "one for all": (
            [
                (R.mean <= R.x(V.I)) | [F.avg_agg],
                R.out(V.I) <= (R.x(V.I)["w":2, 3], R.mean["v":2, 3]),
            ],
            {},
            {"x": x},
        ),
        "dense for all": (
            [R.out(V.I) <= (R.x(V.I), R.of(V.K)["w":3, 2], R._edge(V.K, V.I))],
            {"edge": edge, "of": x[:, :2].contiguous()},
            {"x": x},
        ),
        "all earlier": (
            [(R.out(V.I) <= (R.x(V.J), R._x(V.I), V.J <= V.I)) | [F.max_agg]],
            {},
            {"x": x},
        ),
        "two axes": (
            [(R.out(V.I, V.C) <= (R.z(V.J, V.C)["w":2, 2], R.edge(V.J, V.I))) | [F.avg_agg]],
            {"edge": edge},
            {"z": torch.randn(NODES, 3, 2, dtype=torch.float64, generator=torch.manual_seed(3))},
        ),
        "facts": (
            [
                R.bias["c":2],
                (R.out(V.I) <= (R.x(V.J)["w":2, 3], R.edge(V.J, V.I), R.bias)) | [F.avg_agg],
            ],
            {"edge": edge},
            {"x": x},
        ),
        "a constant": (
            [(R.out(V.I) <= (R.x(V.J), R.x(5), R._edge(V.J, V.I))) | [F.avg_agg]],
            {"edge": edge},
            {"x": x},
        ),
        "few edges": ([hop, R.out(V.I) <= R.h(V.I)], {"edge": sparse}, {"x": x}),
        "no edges": (
            [hop, R.out(V.I) <= R.h(V.I), R.out(V.I) <= R.x(V.I)["v":4, 3]],
            {"edge": torch.zeros(2, 0, dtype=torch.int64)},
            {"x": x},
        ),
    }


def every_program(rank, ranks):
    """Name → how far rows and gradients are from those of one process."""
    import torch.distributed as dist

    mesh, found = init_device_mesh("cpu", (ranks,)), {}
    given = torch.arange(NODES) * 7 % ranks
    given[given == ranks - 1] = 0  # the last rank has no nodes
    for name, (rules, keyed, called) in programs().items():
        query = rules[-1].head
        model = Program(rules).compile(getattr(R, query.relation), seed=0, dtype=torch.float64)
        called = {n: _trained(item) for n, item in called.items()}
        whole = model.rows(model.ground(**keyed), **called)
        weigh = torch.randn(whole.data.shape, dtype=torch.float64, generator=torch.manual_seed(4))
        (whole.data * weigh).sum().backward()
        alone = {n: p.grad for n, p in model.named_parameters()}
        for kind in ("contiguous", "metis", given) if len(keyed) else ("contiguous", given):
            model.zero_grad()
            data = model.ground(**keyed, mesh=mesh, partition=kind, nodes=NODES)
            mine = {n: _trained(_at(item, data.nodes)) for n, item in called.items()}
            part = model.rows(data, **mine)
            at = _rows_of(whole.index, part.index)
            (part.data * weigh[at]).sum().backward()
            count = torch.tensor(len(at))
            dist.all_reduce(count)
            assert int(count) == len(whole.data), name
            pairs = [(part.data, whole.data[at])]
            for one, item in mine.items():
                if isinstance(item, torch.Tensor):
                    pairs.append((item.grad, called[one].grad[data.nodes]))
            for one, p in model.named_parameters():
                if alone[one] is not None:
                    grad = torch.zeros_like(p) if p.grad is None else p.grad
                    dist.all_reduce(grad)
                    pairs.append((grad, alone[one]))
            far = [(a - b).abs().max().item() for a, b in pairs if a.numel()]
            found[name, str(kind)[:6]] = max(far, default=0.0)
    return found


def keys_beyond(rank, ranks):
    """Rows of keys that are no nodes: the same on all ranks."""
    model = Program([(R.h(V.J) <= R.e(V.I, V.J)) | [F.sum_agg]]).compile(R.h)
    given = {"e": rows([(0, 1), (1, 7), (2, 1)], torch.tensor([1.0, 2.0, 3.0]))}
    cut = {"mesh": init_device_mesh("cpu", (ranks,)), "nodes": 4, "partition": "contiguous"}
    found = model.rows(model.ground(**given, **cut))
    return found.index.tolist(), found.data.tolist()


def mistakes(rank, ranks):
    """Name → the code of what is wrong on one rank, which is an error on every one."""
    mesh = init_device_mesh("cpu", (ranks,))
    model = Program([(R.h(V.I) <= (R.e(V.J, V.I), R.x(V.J))) | [F.product]]).compile(R.h)
    keys = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    cut = {"mesh": mesh, "partition": "contiguous"}
    data, other = model.ground(e=rows(keys, torch.ones(4)), **cut), rows(keys, torch.ones(4) + rank)
    x = torch.ones(len(data.nodes), 2)
    more = torch.ones(len(x) + rank, 2)
    calls = {
        "rows": lambda: model(data, x=more),
        "values": lambda: model.ground(e=other, **cut),
        "gradient mode": lambda: torch.set_grad_enabled(rank == 0)(model)(data, x=x),
        "none": lambda: model(data, x=x),
        "rows, later": lambda: model(data, x=more),
    }
    found = {}
    for name, call in calls.items():
        try:
            call()
        except EdgewiseError as error:
            found[name] = error.code
    return found


def ranks_that_differ(rank, ranks):
    """The codes of errors where one rank has other rules, edges, values or another model; then how
    far outputs are from those of one process."""
    mesh, codes, edge = init_device_mesh("cpu", (ranks,)), [], torch.tensor([[0, 1, 2], [1, 2, 3]])
    last = rank == ranks - 1

    def noted(call):
        try:
            return call()
        except EdgewiseError as error:
            codes.append(error.code)

    def network(width=1):
        near = R.out(V.I) <= (R.x(V.J)["w":width, 2], R._edge(V.J, V.I))
        return Program([near, R.out(V.I) <= R.x(V.I)["w":width, 2]]).compile(R.out, seed=0)

    def ground(model, **options):
        given = {"edge": edge, "nodes": 4, "partition": "contiguous", "mesh": mesh} | options
        return model.ground(**given)

    model, x = network(), torch.arange(8.0).view(4, 2)
    noted(lambda: ground(network(1 + last)))
    noted(lambda: ground(model, edge=edge[:, : 3 - last]))
    noted(lambda: ground(model, partition="metis" if last else "contiguous"))
    noted(lambda: ground(model, **{"edges" if last else "edge": edge}))
    data = ground(model)
    own = x[data.nodes]
    first = model(data, x=own)
    noted(lambda: model(data, x=own.double() if last else own))
    noted(lambda: model(data, x=own[1:] if last else own))
    noted(lambda: network()(data, x=own))
    other = deepcopy(model)
    with torch.no_grad():
        next(other.parameters()).mul_(2)
    whole = model(edge=edge, x=x)[data.nodes]
    far = [first - whole, model(data, x=own) - whole, other(data, x=own) - 2 * whole]
    return codes, max(one.abs().max().item() for one in far)


def _trained(item):
    return item if isinstance(item, numbers) else item.detach().requires_grad_()


def _at(item, nodes):
    return numbers(item.values[nodes]) if isinstance(item, numbers) else item[nodes]


def _rows_of(every, some):
    """The place of each key (a column) among all."""
    known = {tuple(key): at for at, key in enumerate(every.T.tolist())}
    return torch.tensor([known[tuple(key)] for key in some.T.tolist()], dtype=torch.int64)
