"""What ranks run in tests: attention beside that of one process."""

from functools import partial

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh

from edgewise import EdgewiseError, attention
from edgewise.distributed import Shards, communication
from edgewise.distributed.attention import row_sizes
from edgewise.distributed.collectives import counting, ranks_of
from edgewise.distributed.rank_plan import plans_of
from edgewise.distributed.traffic import gather_traffic, heads_traffic, worst
from edgewise.graphs import (
    bigbird,
    causal,
    dilated,
    documents,
    full,
    global_tokens,
    per_head,
    per_sample,
    random_edges,
    strided,
    tree,
    window,
)
from edgewise.graphs import where as graph_where
from edgewise.scores import H, I, J, S, alibi, relative, softcap, where
from edgewise.scores import table as score_table

N = 41
GRAPHS = [
    *(window(2), causal(), full(), window(0), strided(3), dilated(2, 3), global_tokens((5, 20))),
    window(2) | global_tokens(2),
    causal() & strided(3),
    causal() & (window(3) | strided(4)),
    bigbird(2, 1, seed=1),
    documents([5, 7, 3, 26]),
    random_edges(3, seed=1),
    tree([-1, *range(10), 3, *range(11, 40)]),
]
FAMILIES = [per_head(window(1), causal(), window(1), full()), per_sample(window(2), causal())]
OPTIONS = [{}, {"dropout": 0.3}, {"lengths": torch.tensor([30, 41])}, {"scale": -0.5}]


def tensors(heads, shared, n=N):
    torch.manual_seed(0)
    shapes = [(heads, 5), (shared, 5), (shared, 3), (heads, 3)]
    return [torch.randn(2, h, n, d, dtype=torch.float64) for h, d in shapes]


def differences(rank, mesh, graph, shards, heads, options):
    """How far the output and the gradients of this rank are from those of one process."""
    *inputs, w = tensors(*heads, shards.n)
    alone = [x.clone().requires_grad_() for x in inputs]
    torch.manual_seed(7)
    expected = attention(*alone, graph, **options)
    (expected * w).sum().backward()
    mine = [shards.take(x, rank).clone().requires_grad_() for x in inputs]
    torch.manual_seed(7)
    with counting() as sent:
        out = attention(*mine, graph, mesh=mesh, shards=shards, **options)
    with counting() as back:
        (out * shards.take(w, rank)).sum().backward()
    pairs = [(out, expected), *((a.grad, b.grad) for a, b in zip(mine, alone, strict=True))]
    far = [(a - shards.take(b, rank)).abs().max().item() for a, b in pairs if a.numel()]
    return max(far, default=0.0), _only(sent), _only(back)


def _only(counter):
    return {kind: size for kind, size in counter.items() if size and kind != "plan"}


def every_graph(rank, ranks, heads, orders):
    """All graphs; bytes that arrive are those that the plan predicted."""
    mesh = init_device_mesh("cpu", (ranks,))
    plans = plans_of(ranks_of(mesh, torch.device("cpu")))
    ways = set()
    for graph in GRAPHS + FAMILIES:
        if isinstance(graph, per_head) and heads[0] != len(graph):
            continue
        for number, order in enumerate(orders):
            options = OPTIONS if not number else OPTIONS[:1]
            shards = Shards(N, ranks, **order)
            for one in options:
                far, sent, back = differences(rank, mesh, graph, shards, heads, one)
                assert far <= 1e-12, (graph, order, one, far)
                if not isinstance(graph, per_head | per_sample):
                    plan = next(reversed(plans.values()))
                    ways.add((plan.decision.way.kind, len(plan.decision.way.parts)))
                    check_bytes(rank, graph, shards, plan, sent, back)
    return ways


def check_bytes(rank, graph, shards, plan, sent, back):
    """Bytes that arrived are those of the plan, and those that are computed without ranks."""
    assert sent == plan.received, (graph, shards, plan.decision.way)
    assert back == plan.received_back, (graph, shards, plan.decision.way)
    computed = communication(graph, sizes=plan.sizes, shards=shards)
    for each, counted in ((computed.decision.received, sent), (computed.received_back, back)):
        assert {kind: int(x[rank]) for kind, x in each.items() if x[rank]} == counted


def graphs_of_heads(rank, ranks):
    """Heads with graphs of their own: how far off, and what the worst rank receives as a share of
    gathering all keys and of Ulysses."""
    import torch.distributed as dist

    mesh, shards, found = init_device_mesh("cpu", (ranks,)), Shards(N, ranks), {}
    plans = plans_of(ranks_of(mesh, torch.device("cpu")))
    options = ({}, {"lengths": torch.tensor([30, 41])}, {"dropout": 0.3, "score": softcap(2.0)})
    for heads in ((ranks, ranks), (2 * ranks, ranks), (4, 2), (4, 1)):
        families = {
            "dense": [full() - window(2 * head) if head else causal() for head in range(heads[0])],
            "halves": [causal() if 2 * head < heads[0] else full() for head in range(heads[0])],
            "mixed": [window(1) if head % 2 else causal() for head in range(heads[0])],
        }
        for name, graphs in families.items():
            for number, more in enumerate(options):
                family = per_head(*graphs)
                far, sent, back = differences(rank, mesh, family, shards, heads, more)
                key, plan = next(reversed(plans.items()))
                together = isinstance(key[1], per_head)
                if together:
                    assert (sent, back) == (plan.received, plan.received_back)
                received = torch.tensor(sum(sent.values()))
                dist.all_reduce(received, dist.ReduceOp.MAX)
                *inputs, _ = tensors(*heads)
                sizes = row_sizes(*inputs, "lengths" in more, by_heads=True)
                bounds = [gather_traffic(shards, sizes)]
                if heads[1] % ranks == 0 and "dropout" not in more:
                    bounds.append(heads_traffic(shards, sizes))
                share = int(received) / min(map(worst, bounds))
                found[heads, name, number] = far, share, together
    return found


LONG = 96
MOVED = [  # of which some queries are computed on other ranks
    causal() & strided(3),
    strided(4),
    causal() & (window(3) | strided(4)),
    dilated(5, 2),
    documents([15, 17, 3, 11, 22, 28]),
    causal() & documents([15, 17, 3, 11, 22, 28]),
    documents([20, 2, 70, 0, 4]) & (window(7) | strided(4)),
]


def moved_queries(rank, ranks):
    """Queries that other ranks compute: on equal shards, and on some that are cut elsewhere."""
    mesh, found = init_device_mesh("cpu", (ranks,)), {}
    plans = plans_of(ranks_of(mesh, torch.device("cpu")))
    cuts = tuple(LONG * r // ranks + (5 if r % 2 else -3) for r in range(1, ranks))
    for graph in MOVED:
        for shards in (Shards(LONG, ranks), Shards(LONG, ranks, cuts=cuts)):
            for options in ({}, {"dropout": 0.3, "score": softcap(2.0) + 0.01 * I * J}):
                far, sent, back = differences(rank, mesh, graph, shards, (1, 1), options)
                plan = next(reversed(plans.values()))
                check_bytes(rank, graph, shards, plan, sent, back)
                found[str(graph), bool(shards.cuts), len(options)] = (far, "other order" in sent)
    return found


def in_blocks(rank, ranks):
    """Blocks of queries and keys, which are cheaper from about sixteen ranks on, on these."""
    from edgewise.distributed import rank_plan, simulate, ways

    mesh, found = init_device_mesh("cpu", (ranks,)), {}
    plans = plans_of(ranks_of(mesh, torch.device("cpu")))

    def blocks_alone(graph, home, sizes):
        groups = 2 if sizes.by_heads and sizes.shared == 2 and home.ranks > 2 else 1
        part = ways.SharedPart(graph, home, groups, home.ranks // groups // (home.ranks // 4 or 1))
        return [ways.Way(ways.BLOCKS, (part,))]

    scored = {"dropout": 0.3, "score": softcap(2.0) + 0.01 * I * J}
    lengths = {"lengths": torch.tensor([30, 41])}
    with pytest.MonkeyPatch.context() as patch:
        for module in (rank_plan, simulate):
            patch.setattr(module, "ways_of", blocks_alone)
        for number, graph in enumerate([*GRAPHS, FAMILIES[1]]):
            order = ({}, {"step": 3}, {"paired": True}, {"cuts": (1,) * (ranks - 1)})[number % 4]
            shards = Shards(N, ranks, **order)
            heads = ((1, 1), (4, 2))[number % 2]
            for options in ({}, (scored, lengths)[number % 2]):
                far, sent, back = differences(rank, mesh, graph, shards, heads, options)
                found[str(graph), len(options)] = far
                if not isinstance(graph, per_sample):
                    plan = next(reversed(plans.values()))
                    assert plan.decision.way.kind == "blocks"
                    check_bytes(rank, graph, shards, plan, sent, back)
                    computed = communication(graph, sizes=plan.sizes, shards=shards)
                    assert computed.pairs.sum() == graph.count(N)
    return found


def order_of_events(rank, ranks):
    """What a call does: sends ("keys", ...), waits for them and computes, in order."""
    from edgewise.distributed import collectives, local_attention

    events, exchange = [], collectives.Ranks.exchange

    def sends(self, rows, sent, received, kind):
        wait = exchange(self, rows, sent, received, kind)
        events.append(f"send {kind}")

        def waits():
            events.append(f"wait {kind}")
            return wait()

        return waits

    def noted(name):
        computes = getattr(local_attention.LocalAttention, name)

        def run(self, *arguments):
            events.append(name)
            return computes(self, *arguments)

        return run

    mesh, shards = init_device_mesh("cpu", (ranks,)), Shards(LONG, ranks)
    *inputs, _ = tensors(1, 1, LONG)
    mine = [shards.take(x, rank).clone().requires_grad_() for x in inputs]
    found = {}
    for graph in (window(2) | global_tokens(2), causal() & (window(3) | strided(4))):
        attention(*mine, graph, mesh=mesh, shards=shards)  # the plan
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(collectives.Ranks, "exchange", sends)
            for name in ("forward", "backward"):
                patch.setattr(local_attention.LocalAttention, name, noted(name))
            out = attention(*mine, graph, mesh=mesh, shards=shards)
            events.append("|")
            out.sum().backward()
        found[str(graph)], events[:] = list(events), []
    return found


def terms_of(heads):
    """Options of `attention` that change scores, and the tensors of them that are learned."""
    generator = torch.Generator().manual_seed(3)
    kind = {"dtype": torch.float64, "generator": generator}
    table = torch.randn(heads, 2 * 6 + 1, **kind).requires_grad_()
    slopes = torch.rand(heads, **kind).requires_grad_()
    position = torch.randn(N, **kind).requires_grad_()
    bias = torch.randn(2, heads, N, N, **kind).masked_fill(
        torch.rand(N, N, generator=generator) < 0.2, -torch.inf
    )
    lengths = torch.tensor([30, 41])
    return {
        "softcap": ({"score": softcap(2.0)}, []),
        "alibi": ({"bias": alibi(slopes)}, [slopes]),
        "relative": ({"bias": relative(table), "dropout": 0.3}, [table]),
        "positions": ({"score": S * 0.5 + score_table(position, J) - 0.01 * I * H}, [position]),
        "parity": ({"score": where((I % 2).equals(J % 3), S, 0.1 * S)}, []),
        "lengths": ({"score": softcap(2.0), "bias": relative(table), "lengths": lengths}, [table]),
        "bias": ({"bias": bias.requires_grad_(), "scale": -0.7}, []),
        "mask": ({"bias": (bias > 0).double(), "lengths": lengths, "score": softcap(3.0)}, []),
        "shared bias": ({"bias": bias[0, :1].detach()}, []),
    }


def every_term(rank, ranks, heads, every=3):
    """Biases and scores on some of the graphs, with the gradients of what is learned in them."""
    import torch.distributed as dist

    mesh, found = init_device_mesh("cpu", (ranks,)), {}
    graphs = [*GRAPHS[:8], *GRAPHS[9:12], *FAMILIES]
    for first, name in enumerate(terms_of(heads[0])):
        for number, graph in enumerate(graphs):
            if (first + number) % every:
                continue
            if isinstance(graph, per_head) and heads[0] != len(graph):
                continue
            order = ({}, {"step": 3}, {"paired": True})[number % 3]
            shards, far = Shards(N, ranks, **order), []
            alone, learned = terms_of(heads[0])[name]
            *inputs, w = tensors(*heads)
            leaves = [x.clone().requires_grad_() for x in inputs]
            torch.manual_seed(7)
            expected = attention(*leaves, graph, **alone)
            (expected * w).sum().backward()
            options, again = terms_of(heads[0])[name]
            if isinstance(bias := options.get("bias"), torch.Tensor):
                options["bias"] = shards.take(bias.detach(), rank).clone()
                options["bias"].requires_grad_(bias.requires_grad)
                if bias.requires_grad:
                    again, learned = [options["bias"]], [alone["bias"]]
            mine = [shards.take(x, rank).clone().requires_grad_() for x in inputs]
            torch.manual_seed(7)
            out = attention(*mine, graph, mesh=mesh, shards=shards, **options)
            (out * shards.take(w, rank)).sum().backward()
            pairs = [
                (out, expected),
                *((a.grad, b.grad) for a, b in zip(mine, leaves, strict=True)),
            ]
            far = [(a - shards.take(b, rank)).abs().max().item() for a, b in pairs if a.numel()]
            for a, b in zip(again, learned, strict=True):
                if name == "bias":
                    far.append((a.grad - shards.take(b.grad, rank)).abs().max().item())
                else:
                    dist.all_reduce(a.grad)
                    far.append((a.grad - b.grad).abs().max().item())
            found[name, str(graph)] = max(far, default=0.0)
    return found


def one_rank_needs_no_gradient(rank, ranks):
    mesh = init_device_mesh("cpu", (ranks,))
    *inputs, _ = tensors(2, 2)
    shards = Shards(N, ranks)
    mine = [shards.take(x, rank).clone() for x in inputs]
    if rank == 0:
        mine[1].requires_grad_()
    out = attention(*mine, window(2), mesh=mesh, shards=shards)
    out.sum().backward()
    with torch.no_grad():
        again = attention(*mine, window(2), mesh=mesh, shards=shards)
    assert torch.equal(again, out)
    return None if mine[1].grad is None else mine[1].grad.abs().sum().item()


def same_rest(step):
    """A graph by a function that reads a tensor."""
    rest = torch.arange(64) % step
    return graph_where(lambda i, j: rest[i] == rest[j])


def mistakes(rank, ranks):
    """The codes of what is wrong on one rank or on all: an error on every one of them."""
    mesh = init_device_mesh("cpu", (ranks,))
    x = torch.zeros(1, 2, 8, 4)
    calls = {
        "graphs": lambda: attention(x, x, x, window(1 + rank), mesh=mesh),
        "dtypes": lambda: attention(*[x.double() if rank else x] * 3, window(1), mesh=mesh),
        "a rank's tensors": lambda: attention(x, x[..., :3] if rank else x, x, mesh=mesh),
        "tokens": lambda: attention(x, x, x, mesh=mesh, shards=Shards(9, ranks)),
        "ranks": lambda: attention(x, x, x, mesh=mesh, shards=Shards(8, ranks + 1)),
        "lengths": lambda: attention(x, x, x, mesh=mesh, lengths=torch.tensor([99])),
        "other lengths": lambda: attention(x, x, x, mesh=mesh, lengths=torch.tensor([5 + rank])),
        "functions": lambda: attention(x, x, x, same_rest(2 + rank), mesh=mesh),
        "the same function": lambda: attention(x, x, x, same_rest(3), mesh=mesh),
        "gradient mode": lambda: torch.set_grad_enabled(rank == 0)(attention)(x, x, x, mesh=mesh),
        "no tensor": lambda: attention("q" if rank else x, x, x, mesh=mesh),
        "another device": lambda: attention(*[x.to("meta") if rank else x] * 3, mesh=mesh),
        "no shards": lambda: attention(x, x, x, mesh=mesh, shards=8 if rank else None),
        "one": lambda: attention(x, x, x, mesh=mesh, return_lse=rank == 1),
    }
    refused = {"offset": 2, "return_lse": True, "kernel": "csr", "edge_bias": torch.zeros(22)}
    for name, value in refused.items():
        calls[name] = lambda name=name, value=value: attention(x, x, x, mesh=mesh, **{name: value})
    found = {}
    for name, call in calls.items():
        try:
            call()
        except EdgewiseError as error:
            found[name] = (error.code, bool(error.help))
    return found


def half_precision(rank, ranks):
    """Of bfloat16, as near to float64 as one process is."""
    mesh, shards = init_device_mesh("cpu", (ranks,)), Shards(N, ranks)
    *inputs, _ = tensors(2, 2)
    graph = window(2) | global_tokens(2)
    exact = shards.take(attention(*inputs, graph), rank)
    small = [x.bfloat16() for x in inputs]
    alone = shards.take(attention(*small, graph), rank)
    out = attention(*(shards.take(x, rank) for x in small), graph, mesh=mesh, shards=shards)
    assert out.dtype == torch.bfloat16
    far, near = ((y.double() - exact).abs().max().item() for y in (out, alone))
    return far, near


def model_cases():
    """Models of the zoo and their input of numbers, by name."""
    from edgewise import R
    from edgewise.zoo import bert, gpt2, llama

    small = {"vocabulary": 50, "size": 8, "heads": 2, "hidden": 16, "layers": 2}
    gpt = small | {"length": 64, "dropout": 0.0}
    return {
        "learned positions": gpt2.program(gpt2.Config(**gpt)).compile(R.logits, seed=0),
        "rotary, sparse": gpt2.program(
            gpt2.Config(**gpt, positions="rotary", graph="window(3) | global_tokens(1)")
        ).compile(R.logits, seed=0),
        "llama": llama.program(llama.Config(**small, groups=1)).compile(R.logits, seed=0),
        "capped": llama.program(llama.Config(**small | {"heads": 4}, groups=2, cap=0.5)).compile(
            R.logits, seed=0
        ),
        "bert": bert.program(bert.Config(**gpt)).compile(R.out, seed=0),
    }


def every_model(rank, ranks):
    """Outputs and gradients of models on ranks, beside those of one process."""
    import torch.distributed as dist

    from edgewise import numbers
    from edgewise.distributed import on_mesh

    mesh, shards = init_device_mesh("cpu", (ranks,)), Shards(N, ranks)
    found = {}
    for name, model in model_cases().items():
        model = model.double()
        torch.manual_seed(0)
        inputs = {one: torch.randint(1, 2, (2, N)) for one in model.inputs}
        inputs["token"] = torch.randint(50, (2, N))
        expected = model(**{one: numbers(x) for one, x in inputs.items()})
        w = torch.randn_like(expected)
        (expected * w).sum().backward()
        alone = {one: p.grad for one, p in model.named_parameters() if p.grad is not None}
        model.zero_grad()
        ranked = on_mesh(model, mesh, shards=shards)
        mine = {one: numbers(shards.take(x, rank, 1)) for one, x in inputs.items()}
        with counting() as sent:
            out = ranked(**mine)
        with counting() as back:
            (out * shards.take(w, rank, 1)).sum().backward()
        plan = ranked.explain(**mine)
        of_one = model.explain(mesh=shards, json=True, **{n: numbers(x) for n, x in inputs.items()})
        assert of_one["ranks"] == plan.to_json()
        predicted = [
            sum(
                n * sum(int(size[rank]) for size in each(plan).values())
                for _, n, plan in plan.attentions
            )
            for each in (lambda one: one.received, lambda one: one.received_back)
        ]
        assert predicted == [sum(_only(x).values()) for x in (sent, back)], (name, predicted)
        far = [(out - shards.take(expected, rank, 1)).abs().max().item()]
        for one, p in model.named_parameters():
            if one in alone:
                grad = torch.zeros_like(p) if p.grad is None else p.grad
                dist.all_reduce(grad)
                far.append(
                    (grad - alone[one]).abs().max().item() / (1 + alone[one].abs().max().item())
                )
        found[name] = max(far)
    return found


def refused_models(rank, ranks):
    """What rules that join tokens of different ranks raise, on every rank."""
    from edgewise import F, Program, R, V
    from edgewise.distributed import on_mesh

    mesh, x = init_device_mesh("cpu", (ranks,)), torch.ones(4, 2)
    hop = Program([R.h(V.I) <= (R.x(V.J), R.special.next(V.J, V.I))]).compile(R.h)
    mean = Program([(R.h <= R.x(V.I)) | [F.avg_agg]]).compile(R.h)
    same = Program([R.h(V.I) <= R.x(V.I)["w" : 2 + rank, 2]]).compile(R.h, seed=0)
    found = []
    for model in (hop, mean, same):
        try:
            on_mesh(model, mesh)(x=x)
            found.append(None)
        except EdgewiseError as error:
            found.append(error.code)
    try:
        on_mesh(same, mesh, shards=Shards(99, ranks))(x=x)
    except EdgewiseError as error:
        found.append(error.code)
    shards = Shards(1, ranks)  # a rank without tokens
    try:
        on_mesh(hop, mesh, shards=shards)(x=shards.take(x[:1], rank))
    except EdgewiseError as error:
        found.append(error.code)
    return found


NODES, EDGES = 23, 80


def graph_models():
    from edgewise import R
    from edgewise.zoo import gat, gcn, gin, graphsage

    small = {"features": 5, "inputs": 5, "size": 6, "hidden": 6, "outputs": 3, "dropout": 0.0}
    for module in (gcn, gat, gin, graphsage):
        names = module.Config.__dataclass_fields__
        config = module.Config(**{n: v for n, v in small.items() if n in names})
        yield module.__name__, module.program(config).compile(R.out, seed=0).double()
    yield "two hops", two_hops()


def two_hops():
    """Three rules, the second of which joins pairs that are not edges."""
    from edgewise import F, Program, R, V

    return (
        Program(
            [
                (R.h(V.I) <= (R.x(V.J)["w":4, 5], R.edge(V.J, V.I))) | [F.tanh, F.avg_agg],
                (R.g(V.I) <= (R.h(V.K), R._edge(V.K, V.J), R._edge(V.J, V.I))) | [F.max_agg],
                R.out(V.I) <= R.x(V.I)["u":4, 5],
                R.out(V.I) <= R.g(V.I)["v":4, 4],
            ]
        )
        .compile(R.out, seed=0, fill=0.0)
        .double()
    )


def every_graph_model(rank, ranks):
    """Outputs and gradients of graph networks on a partition, beside those of one process."""
    import torch.distributed as dist

    mesh = init_device_mesh("cpu", (ranks,))
    torch.manual_seed(0)
    edge = torch.unique(torch.randint(NODES, (2, EDGES)), dim=1)
    some = torch.randint(ranks, (NODES,))
    some[some == 1] = 0  # a rank without nodes
    found = {}
    for name, model in graph_models():
        x = torch.randn(NODES, 5, dtype=torch.float64, requires_grad=True)
        expected = model(x=x, edge=edge)
        w = torch.randn_like(expected)
        (expected * w).sum().backward()
        alone = {one: p.grad for one, p in model.named_parameters() if p.grad is not None}
        for partition in ("metis", "contiguous", some):
            model.zero_grad()
            one = model.ground(edge=edge, mesh=mesh, partition=partition, nodes=NODES)
            mine = x.detach()[one.nodes].requires_grad_()
            model(one, x=mine)  # grounded once
            with counting() as sent:
                out = model(one, x=mine)
            (out * w[one.nodes]).sum().backward()
            pairs = [(out, expected[one.nodes]), (mine.grad, x.grad[one.nodes])]
            for weight, p in model.named_parameters():
                if weight in alone:
                    grad = torch.zeros_like(p) if p.grad is None else p.grad
                    dist.all_reduce(grad)
                    pairs.append((grad, alone[weight]))
            far = [(a - b).abs().max().item() for a, b in pairs if a.numel()]
            rows = sum(one.received.values())
            assert bool(rows) == bool(_only(sent))
            found[name, str(partition)] = max(far)
    return found


def refused_partitions(rank, ranks):
    from edgewise import F, Program, R, V

    mesh, x = init_device_mesh("cpu", (ranks,)), torch.ones(4, 5)
    edge = torch.tensor([[0, 1], [1, 2]])
    far = Program(
        [(R.h(V.I) <= (R.h(V.J), R.edge(V.J, V.I))) | [F.min_agg], R.h(V.I) <= R.x(V.I)]
    ).compile(R.h)
    found = []
    for model, options in (
        (far, {"edge": edge}),
        (two_hops().float(), {"edge": edge, "partition": "metes"}),
        (two_hops().float(), {"edge": edge, "partition": torch.tensor([0, 1, 2, 9])}),
        (two_hops().float(), {"edge": edge, "x": x}),
    ):
        try:
            data = model.ground(mesh=mesh, nodes=4, **{"partition": "contiguous", **options})
            model(data, x=x[data.nodes])
            found.append(None)
        except EdgewiseError as error:
            found.append(error.code)
    return found


def note_sharded(model, seen, *_):
    """Of each layer, whether its weights are sharded now."""
    layers = model.layer.children()
    seen.append([type(next(one.parameters())).__name__ == "DTensor" for one in layers])


def sharded_models(rank, ranks, folder):
    """A model under FSDP2, as one module and by layer, beside DDP's mean of gradients."""
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    from edgewise import R, load, numbers
    from edgewise.zoo import gpt2

    mesh = init_device_mesh("cpu", (ranks,))
    sizes = {"vocabulary": 50, "size": 8, "heads": 2, "hidden": 16, "layers": 2, "length": 32}
    program = gpt2.program(gpt2.Config(**sizes, dropout=0.0))

    def compiled():
        return program.compile(R.logits, seed=0, dtype=torch.float64)

    token = numbers(torch.randint(50, (2, 9), generator=torch.manual_seed(rank)))
    alone = compiled()
    expected = alone(token=token)
    expected.square().sum().backward()
    for p in alone.parameters():
        dist.all_reduce(p.grad)
        p.grad /= ranks
    found = {}
    for name in ("one module", "by layer", "by layer, called before", "meta"):
        with torch.device("meta" if name == "meta" else "cpu"):
            model = compiled()
        if "before" in name:
            for _ in range(3):
                model(token=token)
        seen = []
        if "layer" in name:
            for one in model.layer.children():
                fully_shard(one, mesh=mesh)
                one.register_forward_pre_hook(partial(note_sharded, model, seen))
        fully_shard(model, mesh=mesh)
        if name == "meta":
            model = model.to_empty(device="cpu")
            model.reset_parameters()
        outputs = [model(token=token) for _ in range(3)]
        assert seen == ([[False, True], [True, False]] * 3 if "layer" in name else [])
        outputs[-1].square().sum().backward()
        pairs = [(out, expected) for out in outputs]
        pairs += [
            (a.grad.full_tensor(), b.grad)
            for a, b in zip(model.parameters(), alone.parameters(), strict=True)
        ]
        pairs.append((model.growing(16)(token=token), expected))
        pairs.append((model.rows(token=token).data.reshape(expected.shape), expected))
        assert "attention" in str(model.explain(token=token))
        model.save(f"{folder}/model.edgewise")
        dist.barrier()
        pairs.append((load(f"{folder}/model.edgewise")(token=token), expected))
        dist.barrier()
        found[name] = max((a - b).abs().max().item() for a, b in pairs)
    return found


def hugging_face_model(rank, ranks):
    """A Llama of transformers on the tokens of a rank, beside that of one process."""
    import torch.distributed as dist
    from transformers import LlamaConfig, LlamaForCausalLM

    from edgewise import hf

    mesh, shards = init_device_mesh("cpu", (ranks,)), Shards(N, ranks)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": 50}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "use_cache": False}
    model = LlamaForCausalLM(LlamaConfig(**sizes, **heads)).double()
    token = torch.randint(50, (2, N))
    graph = window(5) | global_tokens(1)
    expected = hf.use(model, graph)(token).logits
    w = torch.randn_like(expected)
    (expected * w).sum().backward()
    alone = [p.grad for p in model.parameters()]
    model.zero_grad()
    hf.use(model, graph, mesh=mesh, shards=shards)
    place = shards.take(torch.arange(N), rank, 0)[None]
    out = model(shards.take(token, rank, 1), position_ids=place).logits
    (out * shards.take(w, rank, 1)).sum().backward()
    far = [(out - shards.take(expected, rank, 1)).abs().max().item()]
    for p, grad in zip(model.parameters(), alone, strict=True):
        dist.all_reduce(p.grad)
        far.append((p.grad - grad).abs().max().item() / (1 + grad.abs().max().item()))
    refused = None
    try:
        model(token[:, : len(place[0])], attention_mask=(token[:, : len(place[0])] > 25).long())
    except EdgewiseError as error:
        refused = error.code
    return max(far), refused


def dtensor_cases():
    torch.manual_seed(0)
    q, w = torch.randn(2, 3, 4, 9, 5, dtype=torch.float64)
    k, v = torch.randn(2, 3, 2, 9, 5, dtype=torch.float64)
    return q, k, v, w


def every_placement(rank, ranks):
    """DTensors sharded by samples, by heads or not at all, beside plain tensors."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh, (*inputs, w) = init_device_mesh("cpu", (ranks,)), dtensor_cases()
    of_heads = per_head(window(1), causal(), window(2), full())
    graphs = [window(2), of_heads, per_sample(window(1), causal(), of_heads)]
    lengths = torch.tensor([3, 9, 5])
    options = {
        "bias": {"bias": torch.randn(3, 4, 9, 9, dtype=torch.float64), "lengths": lengths},
        "score": {"bias": alibi(4), "score": softcap(2.0) + 0.1 * H},
    }
    found = {}
    for place in (Shard(0), Shard(1), Shard(-3), Replicate()):
        for number, graph in enumerate(graphs):
            for name, more in options.items():
                alone = [x.clone().requires_grad_() for x in inputs]
                expected = attention(*alone, graph, **more)
                (expected * w).sum().backward()
                spread = [distribute_tensor(x.clone(), mesh, [place]) for x in inputs]
                spread = [x.requires_grad_() for x in spread]
                out, lse = attention(*spread, graph, **more, return_lse=True)
                assert lse.shape == w.shape[:-1]
                (out * distribute_tensor(w, mesh, [place])).sum().backward()
                pairs = [
                    (out, expected),
                    *((a.grad, b.grad) for a, b in zip(spread, alone, strict=True)),
                ]
                far = [(a.full_tensor() - b).abs().max().item() for a, b in pairs]
                found[str(place), number, name] = max(far)
    return found


def learned_terms(rank, ranks):
    """Biases and tables of scores as DTensors that all ranks have: results and gradients."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh, (*inputs, w) = init_device_mesh("cpu", (ranks,)), dtensor_cases()
    bias = torch.randn(3, 4, 9, 9, dtype=torch.float64)
    of_heads, table = bias[0], torch.randn(4, 17, dtype=torch.float64)
    calls = {
        "bias": lambda *x: attention(*x[:3], window(2), bias=x[3]),
        "table": lambda *x: attention(*x[:3], window(2), score=relative(x[3])),
        "both": lambda *x: attention(*x[:3], bias=x[3], score=relative(x[4])),
    }
    found = {}
    for place in (Shard(0), Shard(1), Replicate()):
        for name, terms in {"bias": [bias], "table": [table], "both": [of_heads, table]}.items():
            alone = [x.clone().requires_grad_() for x in (*inputs, *terms)]
            expected = calls[name](*alone)
            (expected * w).sum().backward()
            places = [place] * 3 + [Replicate()] * len(terms)
            spread = [
                distribute_tensor(x.clone(), mesh, [p]).requires_grad_()
                for x, p in zip((*inputs, *terms), places, strict=True)
            ]
            out = calls[name](*spread)
            (out * distribute_tensor(w, mesh, [place])).sum().backward()
            pairs = [
                (out, expected),
                *((a.grad, b.grad) for a, b in zip(spread, alone, strict=True)),
            ]
            far = [(a.full_tensor() - b).abs().max().item() for a, b in pairs]
            found[str(place), name] = max(far)
            assert all(x.grad.placements == (Replicate(),) for x in spread[3:])
    return found


def refused_placements(rank, ranks):
    from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor

    mesh, (q, k, v, _) = init_device_mesh("cpu", (ranks,)), dtensor_cases()

    def spread(place, *tensors):
        return [distribute_tensor(x, mesh, [place]) for x in tensors or (q, k, v)]

    learned = torch.zeros(9, 9, dtype=torch.float64, requires_grad=True)
    one_head = [x[:, :1] for x in (k, v)]
    calls = {
        "tokens": lambda: attention(*spread(Shard(2)), window(1)),
        "features": lambda: attention(*spread(Shard(-1)), window(1)),
        "partial": lambda: attention(
            *[DTensor.from_local(x, mesh, [Partial()]) for x in (q, k, v)]
        ),
        "one of three": lambda: attention(spread(Shard(0))[0], k, v),
        "different": lambda: attention(*spread(Shard(0), q), *spread(Shard(1), k, v)),
        "too few heads": lambda: attention(*spread(Shard(1), q, *one_head)),
        "dropout": lambda: attention(*spread(Shard(0)), dropout=0.5),
        "bias": lambda: attention(*spread(Shard(0)), bias=spread(Shard(0), q[..., :1])[0]),
        "learned": lambda: attention(*spread(Shard(0)), bias=learned),
    }
    found = {}
    for name, call in calls.items():
        try:
            call()
        except EdgewiseError as error:
            found[name] = error.code
    return found
