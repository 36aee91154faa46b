"""Gradient boosting by LightGBM, each rank on its part of made rows, over Rondo or over LightGBM's own sockets:

    rondo-run -n 2 examples/trainers/boosting.py [--network sockets] [--tree-learner voting] [--rows 1000000] [--model FILE]
"""

import argparse
import contextlib
import os
import time

import lightgbm
import numpy as np

FEATURES = 28


def made(rows, seed=7):
    """The rows and labels of the whole job, the same on every rank."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((rows, FEATURES), dtype=np.float32)
    return x, (x[:, 0] * x[:, 1] + x[:, 2] + random.standard_normal(rows, dtype=np.float32) > 0).astype(np.int8)


def sockets(rank, world, port):
    """LightGBM's own network on one host: a list of machines, and ports that must be free."""
    machines = ",".join(f"127.0.0.1:{port + i}" for i in range(world))
    return {"num_machines": world, "machines": machines, "local_listen_port": port + rank}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=("rondo", "sockets"), default="rondo")
    parser.add_argument("--port", type=int, default=22400, help="of rank 0, for sockets")
    parser.add_argument("--tree-learner", choices=("data", "voting"), default="data")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--model", help="rank 0 writes the model here")
    given = parser.parse_args()

    with contextlib.ExitStack() as stack:
        if given.network == "rondo":
            import rondo.lightgbm

            group = stack.enter_context(rondo.init())
            rank, world = group.rank, group.size
            network = stack.enter_context(rondo.lightgbm.network(group))
        else:
            rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
            network = sockets(rank, world, given.port)
        parameters = {
            **network, "tree_learner": given.tree_learner, "objective": "binary", "num_threads": 1, "verbose": -1,
            "force_col_wise": True, "deterministic": True,
        }  # fmt: skip
        x, y = made(given.rows)
        booster = lightgbm.Booster(parameters, lightgbm.Dataset(x[rank::world], y[rank::world], params=parameters))
        begin = time.perf_counter()
        for _ in range(given.iterations):
            booster.update()
        seconds = (time.perf_counter() - begin) / given.iterations
        if rank == 0:
            print(f"{given.network}, {given.tree_learner}, {world} ranks, {given.rows} rows: {seconds * 1e3:.1f} ms an iteration")
        if given.model and rank == 0:
            # Without the parameters, which name the network.
            with open(given.model, "w") as file:
                file.write(booster.model_to_string().partition("\nparameters:")[0])


main()
