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
    module.__name__.rpartition(".")[2]: module
    for module in (
        *(basic_gnn, graph_nets, gcn, graphsage, gin, gine, gat, gatv2, monet, rgcn, gated_gcn),
        *(appnp, graph_transformer, gps, exphormer, graphormer, relational_attention),
        *(edge_transformer, lrnn),
    )
}
