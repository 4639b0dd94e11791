"""The graph networks of the zoo by name: each module has a `Network` and `network(config)`.

>>> from edgewise import zoo
>>> sorted(zoo.graph_models.GRAPH_MODELS)[:3]
['appnp', 'basic_gnn', 'edge_transformer']
"""

from types import ModuleType

from edgewise.zoo import (
    appnp,
    basic_gnn,
    edge_transformer,
    exphormer,
    gat,
    gated_gcn,
    gatv2,
    gcn,
    gin,
    gine,
    gps,
    graph_nets,
    graph_transformer,
    graphormer,
    graphsage,
    lrnn,
    monet,
    relational_attention,
    rgcn,
)

GRAPH_MODELS: dict[str, ModuleType] = {
    "basic_gnn": basic_gnn,
    "graph_nets": graph_nets,
    "gcn": gcn,
    "graphsage": graphsage,
    "gin": gin,
    "gine": gine,
    "gat": gat,
    "gatv2": gatv2,
    "monet": monet,
    "rgcn": rgcn,
    "gated_gcn": gated_gcn,
    "appnp": appnp,
    "graph_transformer": graph_transformer,
    "gps": gps,
    "exphormer": exphormer,
    "graphormer": graphormer,
    "relational_attention": relational_attention,
    "edge_transformer": edge_transformer,
    "lrnn": lrnn,
}
