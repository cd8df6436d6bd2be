"""DS-FL as a minimal app on Flower's simulation. It is imported only in the environment that `flower.py` makes."""

from __future__ import annotations

import json
import os
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from scarlet.config import Config
from scarlet.experiment.problem import Problem, prepare
from scarlet.methods.dsfl import DsflConfig, dsfl
from scarlet.models.registry import initial_weights
from scarlet.protocol.types import Labels
from scarlet.rng import draw, stream
from scarlet.training.server_model import ServerModel
from scarlet.training.train import clock, distil, evaluate, fit, predict
from scarlet.transport.client_runner import samples

_JOB = "SCARLET_BENCH_JOB"  # workers of the simulation are processes, and inherit it

client_app, server_app = ClientApp(), ServerApp()


def job() -> dict[str, Any]:
    """What to run: a config, and where to write the times."""
    found: dict[str, Any] = json.loads(os.environ[_JOB])
    return found


@cache
def problem() -> Problem:
    """The data, loaded once in each process."""
    torch.set_num_threads(1)
    return prepare(Config(**job()["config"]))


@cache
def public() -> torch.Tensor:
    """The public images."""
    return torch.from_numpy(problem().data.public)


@client_app.train()
def client(message: Message, context: Context) -> Message:
    """A client's part of a round; its model lives in the context's state."""
    known, before = problem(), clock.seconds
    number, round = int(context.node_config["partition-id"]), int(message.content["round"]["number"])
    arrays, how, private = message.content["labels"], known.training, known.data.private
    model = known.factory()
    if "model" in context.state:
        model.load_state_dict(context.state["model"].to_torch_state_dict())
    else:
        model.load_state_dict(initial_weights(known.factory, how.seed))

    taught, value = arrays["taught"].numpy(), arrays["value"].numpy()
    if len(taught):
        rng = stream(how.seed, "client", client=number, round=round, purpose="distil")
        distil(model, public(), Labels(taught, value), how, rng)
    own, test = known.private[number], known.test[number]
    rng = stream(how.seed, "client", client=number, round=round, purpose="fit")
    fit(model, samples(private.train_images[own], private.train_labels[own], model, "cpu"), how, rng)
    accuracy, _ = evaluate(model, samples(private.test_images[test], private.test_labels[test], model, "cpu"))
    labels = predict(model, public(), arrays["request"].numpy())

    context.state["model"] = ArrayRecord(model.state_dict())
    metrics = MetricRecord({"client": number, "accuracy": accuracy, "compute": clock.seconds - before})
    return Message(RecordDict({"labels": ArrayRecord({"value": Array(labels)}), "metrics": metrics}), reply_to=message)


@server_app.main()
def server(grid: Grid, context: Context) -> None:
    """Rounds of DS-FL, each timed."""
    known = problem()
    federation, private = known.federation, known.data.private
    model = known.factory()
    model.load_state_dict(initial_weights(known.factory, federation.seed))
    test = samples(private.test_images, private.test_labels, model, "cpu")
    learner = ServerModel(model, public(), test, known.training)
    method = dsfl(DsflConfig())
    taught = Labels(np.empty(0, np.int64), np.empty((0, federation.classes), np.float32))
    nodes = _nodes(grid, federation.clients)
    rounds = []
    for round in range(1, known.config.rounds + 1):
        started, before = time.perf_counter(), clock.seconds
        rng = stream(federation.seed, "server", round=round, purpose="select")
        request = draw(rng, federation.public_size, federation.public_per_round)
        content = {
            "labels": ArrayRecord(
                {"taught": Array(taught.index), "value": Array(taught.value), "request": Array(request)}
            ),
            "round": ConfigRecord({"number": round}),
        }
        asked = [Message(RecordDict(dict(content)), dst_node_id=node, message_type="train") for node in nodes]
        replies = list(grid.send_and_receive(asked))
        fold = method.aggregate(request, federation.classes)
        compute = 0.0
        for reply in replies:
            if reply.has_error():
                raise RuntimeError(f"a client failed: {reply.error.reason}")
            metrics = reply.content["metrics"]
            fold.add(int(metrics["client"]), Labels(request, reply.content["labels"]["value"].numpy()))
            compute += float(metrics["compute"])
        taught = fold.finish()
        learner.learn(taught, round)
        accuracy, _ = learner.evaluate()
        rounds.append(
            {
                "seconds": time.perf_counter() - started,
                "compute": compute + clock.seconds - before,
                "accuracy": accuracy,
                "answers": len(replies),
            }
        )
    Path(job()["out"]).write_text(json.dumps(rounds))


def _nodes(grid: Grid, count: int) -> list[int]:
    while len(nodes := sorted(grid.get_node_ids())) < count:
        time.sleep(0.1)
    return nodes


def main(path: str) -> None:
    """Run the job in a file."""
    os.environ[_JOB] = Path(path).read_text()
    run_simulation(
        server_app=server_app,
        client_app=client_app,
        num_supernodes=problem().federation.clients,
        backend_config={
            "client_resources": {"num_cpus": 1},
            "init_args": {"num_cpus": 2, "include_dashboard": False},
        },
    )
