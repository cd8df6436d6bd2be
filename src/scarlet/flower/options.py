"""The options of a federation on Flower: the flat kebab-case table of an app, and what a node is started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from typing_extensions import Doc

from scarlet.config import Config, build
from scarlet.errors import ConfigError, unknown
from scarlet.experiment.config_json import from_file
from scarlet.methods.registry import entry

SITES = "sites"  # the private dataset of a deployment: every site has its own

# Options of a local run that say nothing here: each client has a machine of its own.
NOT_HERE = ("workers", "clients_in_memory", "save_clients", "checkpoint_every", "dropout", "wipe")


@dataclass(frozen=True, slots=True)
class FlowerOptions:
    """Options that only a federation on Flower has."""

    out: Annotated[
        Path, Doc("run directory on the server; where it holds an unfinished run, that run is continued")
    ] = Path("runs/flower")
    test: Annotated[
        str | None,
        Doc(
            "what the server's model is tested on, npz:FILE with x and y on the server (default: nothing, or with a "
            "named private dataset its test split)"
        ),
    ] = None
    classes: Annotated[int | None, Doc("number of classes; with private = 'sites' it or class-names is needed")] = None
    class_names: Annotated[
        str | None, Doc("names of the classes in the order of their numbers, with commas between; needed for folders")
    ] = None
    min_nodes: Annotated[
        int | None, Doc("nodes that the first round waits for; later ones start with those online (default: clients)")
    ] = None
    wait_seconds: Annotated[float, Doc("seconds to wait for nodes before a run goes on with fewer, or gives up")] = (
        600.0
    )

    def __post_init__(self) -> None:
        if self.min_nodes is not None and self.min_nodes < 1:
            raise ConfigError(f"min_nodes must be 1 or more, got {self.min_nodes}")
        if not self.wait_seconds > 0:
            raise ConfigError(f"wait_seconds must be more than 0, got {self.wait_seconds}")
        if self.classes is not None and self.names is not None and len(self.names) != self.classes:
            raise ConfigError(f"class_names must name the {self.classes} classes, got {len(self.names)} names")

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the classes, if they have any."""
        return None if not self.class_names else tuple(name.strip() for name in self.class_names.split(","))

    @property
    def class_count(self) -> int | None:
        """The number of classes, if it is said."""
        return self.classes if self.names is None else len(self.names)


@dataclass(frozen=True, slots=True)
class AppOptions:
    """All options of a run, as every process of it reads them from the same table."""

    method: object
    config: Config
    flower: FlowerOptions

    @property
    def remote(self) -> bool:
        """Whether the sites have data of their own; otherwise every process loads a dataset and takes its share."""
        return self.config.private == SITES


def read_options(run_config: Mapping[str, object]) -> AppOptions:
    """The options in the run config of an app; an empty text leaves an option at its default."""
    given = {name.replace("-", "_"): value for name, value in run_config.items() if value != ""}
    method = entry(str(given.pop("method", "scarlet")))
    kinds = {"flower": FlowerOptions, "config": Config, "method": method.config}
    hints: dict[str, Any] = {}
    for kind in kinds.values():
        hints |= get_type_hints(kind, include_extras=True)
    for name in given:
        if name not in hints:
            raise unknown(f"option of {method.name} in the app's config", name.replace("_", "-"), map(_dashed, hints))
        if name in NOT_HERE:
            raise ConfigError(f"{name} is an option of a local run, and says nothing on Flower; leave it out")
    values = {name: from_file(name, hints[name], value) for name, value in given.items()}
    return AppOptions(
        *(build(kinds[part], values) for part in ("method", "config", "flower")),
    )


def _dashed(name: str) -> str:
    return name.replace("_", "-")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node finds what it needs: its client's number, its data, and the directory that keeps its state."""

    client: int
    data: str | None  # npz:FILE or folder:PATH; None in a simulation, where a node takes its share of a dataset
    state: Path
    public: str | None = None  # the node's copy of the public dataset; None: as the run config names it
    policy: Path | None = None
    device: str | None = None

    @staticmethod
    def read(node_config: Mapping[str, object], options: AppOptions) -> Place:
        """What a node was started with; `partition-id` means a simulation."""
        given = {name.replace("-", "_"): value for name, value in node_config.items()}
        simulated = "partition_id" in given and "data_path" not in given
        number = given.get("partition_id" if simulated else "client")
        if not isinstance(number, int):
            raise ConfigError("client must be the number of this site's client; start the node with client=N")
        if simulated:
            return Place(number, None, options.flower.out.absolute() / "nodes" / str(number))
        if not given.get("data_path") or not given.get("state_dir"):
            raise ConfigError("data-path and state-dir must be given to a node; use 'scarlet flower join'")
        known = {field: given[field] for field in ("public_path", "policy", "device") if given.get(field)}
        return Place(
            number,
            with_prefix(str(given["data_path"])),
            Path(str(given["state_dir"])),
            with_prefix(str(known["public_path"])) if "public_path" in known else None,
            Path(str(known["policy"])) if "policy" in known else None,
            str(known["device"]) if "device" in known else None,
        )


def with_prefix(path: str) -> str:
    """A dataset as --private names it: a path alone means an npz file, or a folder of images."""
    if path.startswith(("npz:", "folder:")):
        return path
    return f"npz:{path}" if path.endswith(".npz") else f"folder:{path}"
