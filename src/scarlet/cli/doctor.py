"""`scarlet doctor`: what is installed, what this machine has, and whether a run could start.

What it imports at the top needs no other package, so that it can name a package that is missing.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scarlet.errors import ConfigError, ScarletError, short

if TYPE_CHECKING:
    from scarlet.data.fetch import Present

PACKAGE = "scarlet-fl"
EXTRAS = ("flower", "onnx", "tensorboard", "mlflow", "wandb")
NO_GPU = "this version was never run on a GPU"
NOT_NEEDED = (
    "A run needs no Chromium (for tests), no g++ (for --engine compiled) and no nginx (for scarlet flower serve)."
)


@dataclass(frozen=True, slots=True)
class Extra:
    """A part of the package that is installed on demand."""

    name: str
    packages: Mapping[str, str | None]  # name -> installed version, None: missing
    command: str  # what installs it
    problem: str | None  # why it cannot be used

    @property
    def found(self) -> str:
        """The installed versions, or 'missing'."""
        if None in self.packages.values():
            return "missing"
        return ", ".join(f"{name} {installed}" for name, installed in self.packages.items())


@dataclass(frozen=True, slots=True)
class Devices:
    """What can compute, and with how many threads."""

    cores: int  # that this process may use
    cuda: bool
    mps: bool
    torch_threads: int
    omp_num_threads: str | None  # the environment variable


def main(argv: Sequence[str]) -> int:
    """Print what was found; the exit code is 0 if a run with default options could start, and else 2."""
    check_packages()
    from scarlet.cli.options import AsJson, Command, options_of
    from scarlet.config import Config
    from scarlet.data.datasets import default_data_dir
    from scarlet.data.fetch import present

    about = "What is installed, what this machine has, and whether a run with default options could start here."
    options = {"data_dir": options_of(Config)["data_dir"], **options_of(AsJson)}
    _, given = Command("scarlet doctor", about, options).parse(argv)
    versions = {"scarlet": version(PACKAGE), "python": platform.python_version()}
    versions |= {name: version(name) for name in ("torch", "numpy")}
    found, devices = extras(), devices_here()
    data = present(given.get("data_dir") or default_data_dir())
    problems = list(_problems(data))
    if given.get("json"):
        content = {
            "ready": not problems,
            "problems": problems,
            "versions": versions,
            "extras": [asdict(each) for each in found],
            "devices": asdict(devices),
            "data": [asdict(row) | {"where": str(row.where)} for row in data],
        }
        print(json.dumps(content, indent=2))
    else:
        _print(versions, found, devices, data)
        if not problems:
            print("A run with default options can start here.")
    for problem in problems:
        print(f"scarlet: {problem}", file=sys.stderr)
    return 2 if problems else 0


def check_packages() -> None:
    """Raise ConfigError unless the package and all that it requires are installed."""
    try:
        missing = [name for name in required() if installed(name) is None]
    except PackageNotFoundError:
        raise ConfigError(f"{PACKAGE} is not installed in this Python; run pip install in its directory") from None
    if missing:
        raise ConfigError(f"{' and '.join(missing)} not installed; run pip install {' '.join(missing)}")


def required(extra: str | None = None) -> list[str]:
    """The packages that this one requires, or that an extra of it adds."""
    found = []
    for line in requires(PACKAGE) or ():
        requirement, _, condition = line.partition(";")
        of_extra = re.search(r"extra == ['\"]([\w-]+)", condition)
        name = re.match(r"[\w.-]+", requirement)
        if name and extra == (of_extra[1] if of_extra else None):
            found.append(name[0])
    return found


def installed(package: str) -> str | None:
    """The installed version of a package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def extras() -> list[Extra]:
    """The extras that a user may want."""
    return [
        Extra(
            name,
            packages := {package: installed(package) for package in required(name)},
            f"pip install '{PACKAGE}[{name}]'",
            _flower_problem() if name == "flower" and None not in packages.values() else None,
        )
        for name in EXTRAS
    ]


def devices_here() -> Devices:
    """What torch finds."""
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: a shared library of torch that cannot be loaded
        raise ConfigError(f"torch is installed and cannot be loaded ({short(error)}); install it again") from None

    from scarlet.transport.local import core_count

    mps = torch.backends.mps.is_available()
    threads = torch.get_num_threads()
    return Devices(core_count(), torch.cuda.is_available(), mps, threads, os.environ.get("OMP_NUM_THREADS"))


def _flower_problem() -> str | None:
    from scarlet.flower.version import check_flower

    try:
        check_flower()
    except ConfigError as error:
        return str(error)
    return None


def _problems(data: Sequence[Present]) -> Iterator[str]:
    """Why a run with default options could not start."""
    from scarlet.config import Config
    from scarlet.data.datasets import info
    from scarlet.experiment.federation import check_machine

    config = Config()
    for row in data:
        if row.name in (config.private, info(config.private).public) and not row.complete:
            yield row.error or f"{row.name} is not complete; reinstall {PACKAGE}"
    try:
        check_machine(config)
    except ScarletError as error:
        yield str(error)
    runs = Path("runs")
    if not os.access(runs if runs.exists() else Path.cwd(), os.W_OK | os.X_OK):
        yield f"results cannot be written to {runs.absolute()}; change the directory, or use --out DIR"


def _print(versions: Mapping[str, str], found: Sequence[Extra], devices: Devices, data: Sequence[Present]) -> None:
    from scarlet.cli.data import print_datasets
    from scarlet.cli.tables import console, table

    drawn = table(None, ("what", "found", "note"), left=("found", "note"))
    _rows(drawn, [(name, number, "") for name, number in versions.items()])
    _rows(drawn, [(each.name, each.found, _note(each)) for each in found])
    tried = {True: "found", False: "not found"}
    _rows(
        drawn,
        [
            ("CPU cores", str(devices.cores), "that this process may use"),
            ("CUDA", tried[devices.cuda], NO_GPU),
            ("MPS", tried[devices.mps], NO_GPU),
            ("torch threads", str(devices.torch_threads), "a worker process has one"),
            ("OMP_NUM_THREADS", devices.omp_num_threads or "not set", ""),
        ],
    )
    console().print(drawn)
    print_datasets(data)
    print(NOT_NEEDED)


def _rows(drawn: Any, rows: Sequence[tuple[str, str, str]]) -> None:
    from rich.text import Text

    for row in rows:
        drawn.add_row(*map(Text, row))
    drawn.add_section()


def _note(extra: Extra) -> str:
    if extra.found == "missing":
        return extra.command
    return extra.problem or ("a tested version" if extra.name == "flower" else "")
