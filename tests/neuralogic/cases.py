"""Templates and samples that run in PyNeuraLogic and here, by one changed line.

Each case takes the package, `neuralogic` or `edgewise.neuralogic`, and gives the entries of a
template, its samples and its settings. `record.py` writes what PyNeuraLogic computes.
"""

from __future__ import annotations

import math


def numbers(count, seed):
    """Numbers between −1 and 1, the same everywhere."""
    return [round(math.sin(12.9898 * (i + 1) + 78.233 * seed), 6) for i in range(count)]


def xor_naive(nl):
    R, F = nl.core.R, nl.core.F
    rules = [(R.hidden_one <= (R.a["w1":1,], R.b["w2":1,])) | [F.tanh]]
    rules += [(R.hidden_two <= (R.a["w3":1,], R.b["w4":1,])) | [F.tanh]]
    rules += [
        (R.xor <= (R.hidden_one["w5":1,], R.hidden_two["w6":1,])) | [F.tanh],
        R.xor / 0 | [F.tanh],
    ]
    facts = [(a, b) for a in (0, 1) for b in (0, 1)]
    return rules, [(R.xor[float(a != b)], [R.a[a], R.b[b]]) for a, b in facts], {}


def xor_vectorised(nl):
    R, F = nl.core.R, nl.core.F
    rules = [(R.xor[1, 8] <= R.xy[8, 2]) | [F.tanh], R.xor / 0 | [F.tanh]]
    pairs = [(a, b) for a in (0, 1) for b in (0, 1)]
    return rules, [(R.xor[float(a != b)], [R.xy[[a, b]]]) for a, b in pairs], {}


def xor_generalised(nl):
    R, V, F = nl.core.R, nl.core.V, nl.core.F
    rules = [
        (R.xor_at(0) <= R.val_at(0)) | [F.tanh],
        (
            R.xor_at(V.Y)["a":1, 8]
            <= (R.val_at(V.Y)["b":8, 1], R.xor_at(V.X)["c":8, 1], R.special.next(V.X, V.Y))
        )
        | [F.tanh],
    ]
    words = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 0, 1), (1, 1, 0, 1)]
    samples = []
    for word in words:
        facts = [R.val_at(i)[float(bit)] for i, bit in enumerate(word)]
        samples.append((R.xor_at(len(word) - 1)[float(sum(word) % 2)], facts))
    return rules, samples, {}


def trains(nl):
    R, V, C, F = nl.core.R, nl.core.V, nl.core.C, nl.core.F
    tanh = [F.tanh]
    kinds = {"shape": [C.ellipse, C.bucket], "length": [C.short, C.long], "wheels": [2, 3]}
    rules = []
    for name, values in kinds.items():
        relation = R.get(name)
        rules += [(relation(V.X, V.Y) <= relation(V.X, V.Y, value)[1,]) | tanh for value in values]
        rules += [relation / 2 | tanh]
    rules += [
        (R.vagon(V.X, V.Y) <= (R.get(name)(V.X, V.Y)[1,] for name in kinds)) | tanh,
        *((R.train(V.X) <= R.vagon(V.X, i)[1,]) | tanh for i in (1, 2)),
        (R.direction(V.X) <= R.train(V.X)[1,]) | tanh,
        R.vagon / 2 | tanh,
        R.train / 1 | tanh,
    ]
    facts = []
    for train in range(1, 5):
        for vagon in (1, 2):
            at = (train * 3 + vagon) % 2
            facts += [R.shape(train, vagon, kinds["shape"][at])]
            facts += [R.length(train, vagon, kinds["length"][(at + train) % 2])]
            facts += [R.wheels(train, vagon, kinds["wheels"][(train // 2) % 2])]
    return rules, [(R.direction(i)[1.0 if i < 3 else -1.0], facts) for i in range(1, 5)], {}


GRAPH = [(1, 2), (2, 3), (3, 1), (1, 4), (4, 5), (4, 6)]


def _graph(R, extra=()):
    edges = [*GRAPH, *extra]
    both = edges + [(b, a) for a, b in edges]
    return [R.edge(a, b) for a, b in both] + [R.feature(i) for i in range(1, 7)]


def triangles(nl):
    R, V, F = nl.core.R, nl.core.V, nl.core.F
    rules = [
        R.triangle(V.X)[1,]
        <= (
            *(R.edge(V.X, V.Y), R.feature(V.Y)[1,], R.edge(V.Y, V.Z), R.feature(V.Z)[1,]),
            *(R.edge(V.Z, V.X), R.feature(V.X)[1,]),
        ),
        R.general(V.X)[1,] <= (R.edge(V.Y, V.X), R.feature(V.Y)[1,]),
        R.general(V.X)[1,] <= R.feature(V.Y)[1,],
        (R.predict(V.X) <= R.general(V.X)[1,]) | [F.sigmoid],
        (R.predict(V.X) <= R.triangle(V.X)[1,]) | [F.sigmoid],
    ]
    facts = _graph(R)
    return rules, [(R.predict(i)[float(i < 4)], facts) for i in range(1, 7)], {}


def cycles(nl):
    R, V, F = nl.core.R, nl.core.V, nl.core.F
    four = (V.A, V.B, V.C, V.D)
    pairs = zip(four, (*four[1:], four[0]), strict=True)
    body = [*(R.edge(a, b) for a, b in pairs), *(R.feature(x)["f":1,] for x in four)]
    rules = [
        (R.cycle(V.A)[1,] <= (*body, R.special.alldiff(*four))) | [F.max_agg],
        (R.predict <= R.cycle(V.X)[1,]) | [F.sum_agg, F.tanh],
    ]
    graphs = [_graph(R, [(2, 4)]), _graph(R, [(3, 5)])]
    return rules, [(R.predict[1.0], graphs[0]), (R.predict[0.0], graphs[1])], {}


def time_series(nl):
    R, V, F, LSTM = nl.core.R, nl.core.V, nl.core.F, nl.nn.module.LSTM
    size = 4
    rules = [
        *LSTM(1, size, "out1", "x", "h1", "c1", arity=0)(),
        *LSTM(size, size, "out2", "out1", "h2", "c1", arity=0)(),
        (R.predict <= R.out2(V.X)[1, size]) | [F.sigmoid],
        *(R.get(name)[numbers(size, at)] for at, name in enumerate(("h1", "c1", "h2"))),
    ]
    series = numbers(8, 9)
    samples = []
    for i in range(3):
        window = [R.x(j + 1)[series[i + j]] for j in range(4)]
        samples.append((R.predict[abs(series[i + 4])], window))
    return rules, samples, {"optimizer": nl.nn.optim.Adam(0.01)}


def molecules(nl):
    R, V, F = nl.core.R, nl.core.V, nl.core.F
    rules = [R.atom_embed(V.A)[3,] <= R.get(kind)(V.A) for kind in ("c", "o", "h")]
    rules += [R.bond_embed(V.B)[3,] <= R.get(kind)(V.B) for kind in ("b_1", "b_2")]
    for layer in range(2):
        x, y = (R.get(f"layer_{layer}" if layer else "atom_embed"), R.get(f"layer_{layer + 1}"))
        body = (x(V.X)[3, 3], x(V.Y)[3, 3], R.bond(V.X, V.Y, V.B), R.bond_embed(V.B))
        rules += [(y(V.X) <= body) | [F.tanh]]
    rules += [R.predict[1, 3] <= R.layer_2(V.X), R.predict / 0 | [F.sigmoid]]
    samples = []
    for at, atoms in enumerate((["c", "o", "h"], ["c", "h", "h", "o"], ["o", "o"])):
        facts = [R.get(kind)(f"a{i}") for i, kind in enumerate(atoms)]
        for i in range(len(atoms) - 1):
            name = f"d{i}"
            facts += [R.bond(f"a{i}", f"a{i + 1}", name), R.bond(f"a{i + 1}", f"a{i}", name)]
            facts += [R.get("b_1" if i % 2 else "b_2")(name)]
        samples.append((R.predict[float(at % 2)], facts))
    return rules, samples, {"optimizer": nl.nn.optim.SGD(0.1)}


def nations(nl):
    R, V, F = nl.core.R, nl.core.V, nl.core.F
    names, relations = ["usa", "china", "cuba"], ["aid", "tourism"]
    rules = [R.embed_nation(name)[3,] for name in names]
    rules += [R.embed_rel(name)[3,] for name in relations]
    rules += [
        (
            R.sends(V.X)
            <= (R.embed_rel(V.R)[3, 3], R.embed_nation(V.Y)[3, 3], R.hidden.r(V.X, V.R, V.Y))
        )
        | [F.tanh],
        (
            R.predict(V.X, V.R, V.Y)[1, 3]
            <= (R.sends(V.X)[3, 3], R.embed_nation(V.Y)[3, 3], R.embed_rel(V.R)[3, 3])
        )
        | [F.tanh],
        R.predict / 3 | [F.sigmoid],
    ]
    facts = [
        R.r("usa", "aid", "china"),
        R.r("china", "tourism", "cuba"),
        R.r("usa", "tourism", "cuba"),
    ]
    queries = [
        ("usa", "aid", "cuba", 1.0),
        ("china", "aid", "usa", 0.0),
        ("usa", "tourism", "china", 1.0),
    ]
    return rules, [(R.predict(a, b, c)[y], facts) for a, b, c, y in queries], {}


def relational_attention(nl):
    """The article's rules: attention along edges that have features."""
    R, V, F = nl.core.R, nl.core.V, nl.core.F
    d = 3
    rules = [
        *(R.get(f"w_{k}")[1 / math.sqrt(d)].fixed() for k in ("dk",)),
        R.q(V.I, V.J) <= (R.n(V.I)["qn":d, d], R.e(V.I, V.J)["qe":d, d]),
        R.k(V.I, V.J) <= (R.n(V.J)["kn":d, d], R.e(V.I, V.J)["ke":d, d]),
        R.v(V.I, V.J) <= (R.n(V.J)["vn":d, d], R.e(V.I, V.J)["ve":d, d]),
        (R.weights(V.I, V.J) <= (R.w_dk, R.k(V.I, V.J).T, R.q(V.I, V.J)))
        | [F.product, F.softmax_agg(agg_terms=["J"])],
        (R.attention(V.I) <= (R.weights(V.I, V.J), R.v(V.I, V.J))) | [F.product, F.sum_agg],
        (R.norm1(V.I) <= (R.attention(V.I), R.n(V.I))) | [F.norm],
        (R.mlp(V.I)[d, d] <= R.norm1(V.I)[d, d]) | [F.relu],
        (R.norm2(V.I) <= (R.mlp(V.I), R.norm1(V.I))) | [F.norm],
    ]
    facts = [R.n(i)[numbers(d, i)] for i in range(4)]
    facts += [
        R.e(i, j)[numbers(d, 10 + 4 * i + j)] for i in range(4) for j in range(4) if i != j + 1
    ]
    return rules, [(R.norm2(i)[[1.0, 0.0, -1.0]], facts) for i in range(4)], {}


def functions(nl):
    """Functions in bodies, soft and hard negation, one transformation of two, `&`."""
    R, V, F = nl.core.R, nl.core.V, nl.core.F
    rules = [
        R.h(V.X) <= (R.a(V.X), -R.b(V.X)),
        R.g(V.X) <= (R.a(V.X), ~R.b(V.X)),
        (R.two(V.X) <= R.a(V.X)) | [F.tanh, F.sigmoid],
        R.both <= R.a(1) & R.a(2),
        R.f <= F.tanh(R.a(1)) * F.sigmoid(R.a(3)) + R.a(2),
        (R.slow(V.X) <= R.c(V.X)) | [F.leaky_relu(0.3)],
        (R.every <= R.a(V.X)) | [F.count_agg],
        (R.top <= R.a(V.X)) | [F.max_agg],
    ]
    facts = [R.a(1)[2.0], R.a(2)[3.0], R.a(3)[-1.0], R.b(2)[0.3], R.c(1)[-2.0]]
    queries = [R.h(1), R.h(2), R.g(1), R.g(2), R.two(1), R.both, R.f, R.slow(1), R.every, R.top]
    return rules, [(query, facts) for query in queries], {}


def constants(nl):
    """Facts for all constants, free variables in heads, arities, terms as text, floats."""
    R, V, F = nl.core.R, nl.core.V, nl.core.F
    again = nl.core.Metadata(aggregation=F.sum_agg, duplicate_grounding=True)
    rules = [
        R.e(V.X, V.X)[3.0].fixed(),
        R.e(V.X, V.Y) <= R.d("X", "Y"),
        (R.g(V.X) <= (R.n(V.Y), R.e(V.X, V.Y))) | [F.sum_agg, F.product],
        (R.free(V.X, V.Y) <= R.n(V.X)) | [F.sum_agg],
        (R.n <= R.n(V.X)) | [F.sum_agg],
        R.shown(V.get("k")[1:3]) <= R.pair(V.get("k")[1:3]),
        R.real(V.X) <= R.reals(V.X),
        (R.twice <= (R.n(V.X), R.hidden.d(V.X, V.Y))) | [F.sum_agg],
        (R.thrice <= (R.n(V.X), R.hidden.d(V.X, V.Y))) | again,
    ]
    facts = [R.n(1)[1.0], R.n("2")[10.0], R.d(1, 1)[2.0], R.d(1, 2)[2.0], R.pair("a", "b")[4.0]]
    facts += [R.reals(1.5)[7.0]]
    queries = [R.g(1), R.g(2), R.n, R.shown("a", "b"), R.real(1.5), R.twice, R.thrice, R.free(2, 1)]
    return rules, [(query, facts) for query in queries], {}


def types(nl):
    R, V, C = nl.core.R, nl.core.V, nl.core.C
    rules = [R.woman(V.X) <= R.sibling(V.Y, V.X("woman")), R.one <= R.woman(V.X)]
    facts = [R.sibling("x", C.get("y", "woman"))[2.0], R.sibling("x", C.get("z", "man"))[9.0]]
    return rules, [(R.one, facts)], {}


def comparisons(nl):
    """Index arithmetic reaches the constants that occur: the difference 0 does not."""
    R, V, F = nl.core.R, nl.core.V, nl.core.F
    near = (R.special.sub(V.I, V.J, V.D), R.special.leq(V.D, 1))
    rules = [
        (R.late(V.I) <= (R.n(V.J), R.hidden.n(V.I), *near)) | [F.sum_agg],
        (R.less(V.I) <= (R.n(V.J), R.hidden.n(V.I), R.special.lt(V.J, V.I))) | [F.sum_agg],
        R.more(V.X) <= R.special.add_eval(V.X, 2),
        (R.evens <= (R.n(V.X), R.special.mod(V.X, 2, 1))) | [F.sum_agg],
    ]
    facts = [R.n(i)[10.0**i] for i in (1, 2, 3)]
    queries = [R.late(2), R.late(3), R.less(3), R.more(3), R.evens]
    return rules, [(query, facts) for query in queries], {}


def losses(kind):
    def case(nl):
        R, loss = nl.core.R, nl.nn.loss
        made = {
            "cross": loss.CrossEntropy(),
            "probability": loss.CrossEntropy(with_logits=False),
            "soft": loss.SoftEntropy(reduction="sum"),
            "decay": loss.MSE(),
        }
        optimizer = nl.nn.optim.SGD(0.1, weight_decay=0.01)
        if kind == "decay":
            optimizer = nl.nn.optim.Adam(0.1, lr_decay=nl.nn.optim.lr_scheduler.GeometricLR(0.5, 1))
        samples = [
            (R.h[[1.0, 0.0, 0.0]], [R.x[[1.0, 2.0]]]),
            (R.h[[0.0, 0.0, 1.0]], [R.x[[3.0, -1.0]]]),
        ]
        options = {"error_function": made[kind], "optimizer": optimizer}
        return (
            [R.h[3, 2] <= R.x],
            samples,
            options | ({"clip_grad_norm": 0.5} if kind == "soft" else {}),
        )

    return case


def _layer(name, *arguments, out="h", size=2, edge_values=None, **options):
    """A layer over a small graph with features of 3 numbers."""

    def case(nl):
        R = nl.core.R
        module = getattr(nl.nn.module, name)
        made = {
            k: getattr(nl.core.Aggregation, v) if k == "aggregation" else v
            for k, v in options.items()
        }
        edges = [(0, 1), (1, 0), (1, 2), (2, 1), (2, 0)]
        facts = [R.x(i)[numbers(3, i)] for i in range(3)]
        facts += [
            R.edge(a, b)[numbers(edge_values, 20 + 3 * a + b)] if edge_values else R.edge(a, b)
            for a, b in edges
        ]
        facts += [R.typed(a, "r" if a else "s", b) for a, b in edges]
        facts += [R.kind(i, "p" if i else "q") for i in range(3)]
        target = [0.5] * size if size > 1 else 0.5
        return module(*arguments, **made)(), [(R.get(out)(i)[target], facts) for i in range(3)], {}

    return case


def _sequence(name, *arguments, size=2, **options):
    def case(nl):
        R = nl.core.R
        facts = [R.x(i)[numbers(3, i)] for i in range(5)]
        facts += [R.h0[numbers(size, 30)], R.c0[numbers(size, 31)]]
        rules = getattr(nl.nn.module, name)(3, size, "h", "x", *arguments, arity=0, **options)()
        return rules, [(R.h(4)[[0.1] * size], facts), (R.h(2)[[0.2] * size], facts)], {}

    return case


def _rows(name, *arguments, size=4, queries=3, **options):
    """A module over rows of 4 numbers."""

    def case(nl):
        R = nl.core.R
        facts = [R.x(i)[numbers(4, i)] for i in range(3)] + [
            R.y(i)[numbers(4, 9 + i)] for i in range(3)
        ]
        facts += [R.mask(i, j) for i in range(3) for j in range(i + 1)]
        rules = getattr(nl.nn.module, name)(*arguments, **options)()
        out = [R.out(i) for i in range(queries)] if queries else [R.out]
        return rules, [(query[[0.5] * size], facts) for query in out], {}

    return case


def tree(nl):
    R = nl.core.R
    facts = [R.parent(0, 1, 2), R.parent(1, 3, 4), *(R.parent(i) for i in (2, 3, 4))]
    facts += [R.x(i)[numbers(3, i)] for i in (2, 3, 4)]
    return nl.nn.module.RvNN(3, "out", "x", "parent", arity=0)(), [(R.out(0)[[0.5] * 3], facts)], {}


CASES = {
    **{
        "XOR, naive": xor_naive,
        "XOR, vectorised": xor_vectorised,
        "XOR, generalised": xor_generalised,
    },
    **{"trains": trains, "triangles": triangles, "cycles": cycles, "time series": time_series},
    **{"molecules": molecules, "Nations": nations, "relational attention": relational_attention},
    **{"functions": functions, "constants": constants},
    **{"types": types, "comparisons": comparisons},
    **{f"loss: {kind}": losses(kind) for kind in ("cross", "probability", "soft", "decay")},
    "GCNConv": _layer("GCNConv", 3, 2, "h", "x", "edge"),
    "GCNConv, plain": _layer("GCNConv", 3, 2, "h", "x", "edge", normalize=False),
    "SAGEConv": _layer("SAGEConv", 3, 2, "h", "x", "edge"),
    "GINConv": _layer("GINConv", 3, 2, "h", "x", "edge"),
    "GINEConv": _layer("GINEConv", 3, "x", "edge", "h", eps=0.1, edge_dim=2, edge_values=2, size=3),
    "GENConv": _layer(
        "GENConv", 3, 2, "h", "x", "edge", aggregation="AVG", edge_dim=2, edge_values=2
    ),
    "RGCNConv": _layer("RGCNConv", 3, 2, "h", "x", "typed", ["r", "s"]),
    "TAGConv": _layer("TAGConv", 3, 2, "h", "x", "edge"),
    "GATv2Conv": _layer("GATv2Conv", 3, 2, "h", "x", "edge"),
    "SGConv": _layer("SGConv", 3, 2, "h", "x", "edge", k=2),
    "APPNPConv": _layer("APPNPConv", "h", "x", "edge", 2, 0.1, size=3),
    "ResGatedGraphConv": _layer("ResGatedGraphConv", 3, 2, "h", "x", "edge"),
    "MetaConv": _layer("MetaConv", 3, 2, "h", "x", "typed", ["r", "s"]),
    "MAGNNMean": _layer("MAGNNMean", "h", "x", "edge", "kind", ["q", "p"], size=3),
    "MAGNNLinear": _layer("MAGNNLinear", 3, 2, "h", "x", "edge", "kind", ["q", "p"]),
    "RNN": _sequence("RNN", "h0"),
    "GRU": _sequence("GRU", "h0"),
    "LSTM": _sequence("LSTM", "h0", "c0"),
    "RvNN": tree,
    "Linear": _rows("Linear", 4, 2, "out", "x", size=2),
    "MLP": _rows("MLP", [4, 3, 5, 2], "out", "x", size=2),
    "MaxPooling": _rows("MaxPooling", "out", "x", queries=0),
    "AvgPooling": _rows("AvgPooling", "out", "x", queries=0),
    "SumPooling": _rows("SumPooling", "out", "x", queries=0),
    "PositionalEncoding": _rows("PositionalEncoding", 4, 3, "out", "x"),
    "Attention": _rows("Attention", 4, "out", "x", "y", "y"),
    "MultiheadAttention": _rows("MultiheadAttention", 4, 2, "out", "x", "y", "y"),
    "TransformerEncoder": _rows("TransformerEncoder", 4, 1, 5, "out", "x", mask_name="mask"),
    "TransformerDecoder": _rows("TransformerDecoder", 4, 2, 5, "out", "x", "y"),
    "Transformer": _rows("Transformer", 4, 1, 5, "out", "x", "y"),
}


def filled(value, seed):
    """A value of the same shape, with the numbers of a seed."""
    if not isinstance(value, list):
        return numbers(1, seed)[0]
    if value and isinstance(value[0], list):
        return [numbers(len(row), seed + 0.1 * at) for at, row in enumerate(value)]
    return numbers(len(value), seed)


def computed(nl, case, epochs=2):
    """Outputs with numbered weights, then results and weights after some epochs."""
    rules, samples, options = case(nl)
    options = {"optimizer": nl.nn.optim.SGD(0.1), **options}
    model = nl.core.Model()
    model.add_rules(rules)
    model.build(nl.core.Settings(iso_value_compression=False, chain_pruning=False, **options))
    state = model.state_dict()
    state["weights"] = {index: filled(value, index) for index, value in state["weights"].items()}
    model.load_state_dict(state)
    data = model.build_dataset(nl.dataset.Dataset([nl.dataset.Sample(q, f) for q, f in samples]))
    outputs = list(model(data))
    try:
        results = [list(result) for result in model.train(data, epochs=epochs)]
    except Exception as problem:  # some of PyNeuraLogic's gradients fail
        return {"outputs": outputs, "untrained": type(problem).__name__}
    weights = {str(index): value for index, value in model.state_dict()["weights"].items()}
    return {"outputs": outputs, "results": results, "weights": dict(sorted(weights.items()))}
