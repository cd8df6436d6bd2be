"""A new app for Flower: three files of a few lines, and for a trial the data of some sites."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
from typing_extensions import Doc

from scarlet.config import Config
from scarlet.data.federated import FederatedData
from scarlet.errors import ConfigError
from scarlet.flower.options import NOT_HERE, SITES, FlowerOptions
from scarlet.methods.registry import entry

_SERVER = '''"""The server of the federation."""

from flwr.serverapp import ServerApp

from scarlet.flower import server

app = ServerApp()
server(app)  # a model of your own: server(app, model=make_model), and the same in client_app.py
'''
_CLIENT = '''"""A client of the federation, on the machine that has its data."""

from flwr.clientapp import ClientApp

from scarlet.flower import client

app = ClientApp()
client(app)  # a model of your own: client(app, model=make_model)
'''
_PROJECT = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "1.0.0"
description = "A federation of scarlet on Flower"
license = "Apache-2.0"
dependencies = []  # every machine has scarlet-fl[flower] installed

[tool.hatch.build.targets.wheel]
packages = ["federation"]

[tool.flwr.app]
publisher = "scarlet"
fab-include = ["federation/**/*.py"]  # what goes to every site: code, and no data or results that lie beside it

[tool.flwr.app.components]
serverapp = "federation.server_app:app"
clientapp = "federation.client_app:app"

# Every option of a run; "" leaves it at its default. `flwr run . NAME --run-config "rounds=100"` changes some of them.
[tool.flwr.app.config]
{options}"""


_DEADLINE = 600.0  # seconds; without a deadline a node that hangs would hold up the federation


def new_trial(directory: Path, method: str, sites: int) -> None:
    """Write an app, and the embedded data as so many sites would have it."""
    if sites < 1:
        raise ConfigError(f"--trial must be 1 or more sites, got {sites}")
    new_app(
        directory,
        method,
        {
            "private": SITES,
            "public": f"npz:{(directory / 'data' / 'public.npz').absolute()}",
            "test": f"npz:{(directory / 'data' / 'test.npz').absolute()}",
            "classes": 10,
            "model": "cnn",
            "clients": sites,
        },
    )
    from scarlet.experiment.federation import prepare  # loads torch

    trial_data(directory / "data", prepare(Config(clients=sites)).data)


def new_app(directory: Path, method: str = "scarlet", values: Mapping[str, object] | None = None) -> None:
    """Write an app for a method into a new directory, with these values of options."""
    values = {"deadline": _DEADLINE, "out": (directory / "run").absolute(), **(values or {})}
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConfigError(f"DIR must be new or empty, and {directory} is not; choose another name")
    table = "\n".join(_options(method, values)) + "\n"
    package = directory / "federation"
    package.mkdir(parents=True)
    name = "".join(letter if letter.isalnum() else "-" for letter in directory.resolve().name.lower()).strip("-")
    (directory / "pyproject.toml").write_text(_PROJECT.format(name=name or "federation", options=table))
    (package / "__init__.py").write_text("")
    (package / "server_app.py").write_text(_SERVER)
    (package / "client_app.py").write_text(_CLIENT)


def _options(method: str, values: Mapping[str, object]) -> Iterator[str]:
    known = entry(method)
    yield f'method = "{known.name}"'
    written = set(NOT_HERE)
    for kind in (known.config, FlowerOptions, Config):
        hints = get_type_hints(kind, include_extras=True)
        for field in fields(kind):
            if field.name in written:  # of a method's own option and a shared one of the same name, the method's counts
                continue
            written.add(field.name)
            value = values.get(field.name, None if field.default is MISSING else field.default)
            yield f"{field.name.replace('_', '-')} = {_toml(value)}  # {_documentation(hints[field.name])}"


def _documentation(hint: Any) -> str:
    return next((str(each.documentation) for each in get_args(hint) if isinstance(each, Doc)), "")


def _toml(value: object) -> str:
    """A value as TOML has it; what Flower's configs cannot hold is text, and nothing is empty text."""
    if value is None:
        return '""'
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return json.dumps(",".join(map(str, value)) if isinstance(value, tuple) else str(value))


def trial_data(directory: Path, data: FederatedData) -> None:
    """Write a federation as sites have it: one file for each client, the public dataset, and the server's test set."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, (train, test) in enumerate(zip(data.train, data.test, strict=True)):
        arrays: dict[str, Any] = dict(zip(("train_x", "train_y"), train.arrays(), strict=True))
        if test is not None:
            arrays |= dict(zip(("test_x", "test_y"), test.arrays(), strict=True))
        np.savez(directory / f"{number}.npz", **arrays)
    np.savez(directory / "public.npz", x=data.public)
    if data.held_out is not None:
        held_out = data.held_out.arrays()
        np.savez(directory / "test.npz", x=held_out.inputs, y=held_out.labels)
