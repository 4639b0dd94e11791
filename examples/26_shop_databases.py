"""A shop in SQLite, DuckDB and PostgreSQL: one schema, one model, the same predictions to the bit.

PostgreSQL where `SHOP_SERVER` names a server, such as postgresql://user@localhost/shop.
"""

import os
import random
import sqlite3

import duckdb
import torch

from edgewise import F, Program, R, V, data

choose = random.Random(0)
CUSTOMERS = [(f"c{k}", choose.uniform(18, 80), choose.randint(0, 1)) for k in range(40)]
ORDERS = [
    (name, choose.choice(["tea", "cup"] if left else ["tea", "pot", "cake"]), 1.0 + k)
    for name, _, left in CUSTOMERS
    for k in range(choose.randint(1, 4))
]
PEOPLE = "CREATE TABLE customers (id VARCHAR(9), age DOUBLE PRECISION, churned INTEGER)"
SALES = "CREATE TABLE orders (customer VARCHAR(9), product VARCHAR(9), amount DOUBLE PRECISION)"


def filled(connection, mark):
    """The same rows in any of them, in another order."""
    for statement in (PEOPLE, SALES):
        connection.execute(statement)
    for table, listed in (("customers", CUSTOMERS), ("orders", ORDERS)):
        for row in choose.sample(listed, len(listed)):
            connection.execute(f"INSERT INTO {table} VALUES ({mark}, {mark}, {mark})", list(row))
    return connection


keys = {"customer": "customer", "product": "product"}
schema = data.Schema(
    customer=data.table("customers", keys=["id"], values=["age"], label="churned"),
    bought=data.table("orders", keys=keys, values=["amount"], duplicates="sum"),
)
program = Program(
    [
        (R.kind(V.P) <= (R.bought(V.C, V.P), R.age(V.C)["kind":4, 1])) | [F.product, F.avg_agg],
        R.age(V.C) <= R.customer(V.C)[0.01].fixed(),
        R.churn(V.C) <= (R.age(V.C)["age":1, 1], R.kind(V.P)["out":1, 4], R._bought(V.C, V.P)),
    ]
)


def predictions(source):
    found = data.read(source, schema)
    model = program.compile(R.churn, seed=0, dense=True)
    grounded = model.ground(**found.inputs)
    truth = found.labels["customer"].values.float()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(20):
        logits = model(grounded)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, truth)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return logits.detach()


sources = {
    "SQLite": filled(sqlite3.connect(":memory:"), "?"),
    "DuckDB": filled(duckdb.connect(), "?"),
}
if address := os.environ.get("SHOP_SERVER"):
    import psycopg

    filled(psycopg.connect(address, autocommit=True), "%s")
    sources["PostgreSQL"] = address
found = {name: predictions(source) for name, source in sources.items()}
for name, logits in found.items():
    print(f"{name:<10} {len(logits)} customers, the first {logits[0].item():.9f}")
assert all(torch.equal(logits, found["SQLite"]) for logits in found.values())
