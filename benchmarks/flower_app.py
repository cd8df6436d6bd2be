"""DS-FL as a minimal app of Flower's simulation, imported only in the environment that `flower.py` makes."""

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

from scarlet.arrays import Labels
from scarlet.config import Config
from scarlet.experiment.federation import Federation, prepare
from scarlet.methods.dsfl import DsflConfig, dsfl
from scarlet.rng import draw, stream
from scarlet.training.server_model import ServerModel
from scarlet.training.tensors import samples
from scarlet.training.train import distil, evaluate, fit, predict

_JOB = "SCARLET_BENCHMARK_JOB"  # the worker processes of the simulation inherit it

client_app, server_app = ClientApp(), ServerApp()


def job() -> dict[str, Any]:
    """A config to run, and the file that the timings are written to."""
    found: dict[str, Any] = json.loads(os.environ[_JOB])
    return found


@cache
def federation() -> Federation:
    """The federation, loaded once in each process."""
    torch.set_num_threads(1)
    return prepare(Config(**job()["config"]))


@cache
def public() -> torch.Tensor:
    """The public images."""
    return torch.from_numpy(federation().data.public)


@client_app.train()
def client(message: Message, context: Context) -> Message:
    """A client's part of a round; its model is kept in the context's state."""
    known = federation()
    number, round = int(context.node_config["partition-id"]), int(message.content["round"]["number"])
    arrays, training, name = message.content["labels"], known.training(dsfl(DsflConfig())), known.data.names[number]
    own, test = known.data.train[number], known.data.test[number]
    assert test is not None
    model = known.architectures[known.server].factory()
    optimisers = training.optimisers(model)  # plain SGD, which remembers nothing
    train_samples, test_samples = (samples(part.arrays(), model, "cpu") for part in (own, test))
    if "model" in context.state:
        model.load_state_dict(context.state["model"].to_torch_state_dict())
    else:
        model.load_state_dict(known.weights[known.server])

    taught, value = arrays["taught"].numpy(), arrays["value"].numpy()
    request, images = arrays["request"].numpy(), public()
    started = time.thread_time()
    if len(taught):
        rng = stream(training.seed, "client", client=name, round=round, purpose="distil")
        distil(optimisers, images, Labels(taught, value), training, rng)
    rng = stream(training.seed, "client", client=name, round=round, purpose="fit")
    fit(optimisers, train_samples, training, rng)
    accuracy, _ = evaluate(model, test_samples)
    labels = predict(model, images, request)
    compute = time.thread_time() - started

    context.state["model"] = ArrayRecord(model.state_dict())
    metrics = MetricRecord({"client": number, "accuracy": accuracy, "compute": compute})
    return Message(RecordDict({"labels": ArrayRecord({"value": Array(labels)}), "metrics": metrics}), reply_to=message)


@server_app.main()
def server(grid: Grid, context: Context) -> None:
    """Rounds of DS-FL, each timed."""
    known, method = federation(), dsfl(DsflConfig())
    agreement, held_out = known.agreement, known.data.held_out
    assert held_out is not None
    model = known.architectures[known.server].factory()
    model.load_state_dict(known.weights[known.server])
    test = samples(held_out.arrays(), model, "cpu")
    learner = ServerModel(model, public(), test, known.training(method))
    taught = Labels(np.empty(0, np.int64), np.empty((0, agreement.classes), np.float32))
    nodes = _nodes(grid, agreement.clients)
    rounds = []
    for round in range(1, known.config.rounds + 1):
        started = time.perf_counter()
        rng = stream(agreement.seed, "server", round=round, purpose="select")
        request = draw(rng, agreement.public_size, agreement.public_per_round)
        content = {
            "labels": ArrayRecord(
                {"taught": Array(taught.index), "value": Array(taught.value), "request": Array(request)}
            ),
            "round": ConfigRecord({"number": round}),
        }
        asked = [Message(RecordDict(dict(content)), dst_node_id=node, message_type="train") for node in nodes]
        replies = list(grid.send_and_receive(asked))
        aggregation = method.aggregate(request, agreement.classes)
        compute = 0.0
        for reply in replies:
            if reply.has_error():
                raise RuntimeError(f"a client failed: {reply.error.reason}")
            metrics = reply.content["metrics"]
            aggregation.add(int(metrics["client"]), Labels(request, reply.content["labels"]["value"].numpy()))
            compute += float(metrics["compute"])
        taught = aggregation.finish()
        before = time.thread_time()
        learner.learn(taught, round)
        accuracy, _ = evaluate(model, test)
        compute += time.thread_time() - before
        rounds.append(
            {
                "seconds": time.perf_counter() - started,
                "compute": compute,
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
        num_supernodes=federation().agreement.clients,
        backend_config={
            "client_resources": {"num_cpus": 1},
            "init_args": {"num_cpus": 2, "include_dashboard": False},
        },
    )
