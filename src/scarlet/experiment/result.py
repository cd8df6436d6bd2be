"""What `run` returns: the numbers of a run, its models, and a page about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from torch import nn

from scarlet.errors import ConfigError
from scarlet.experiment.pages import page_about, shared_library, write_page
from scarlet.models.registry import ModelFactory, Weights
from scarlet.records import RunResult


@dataclass(frozen=True, slots=True)
class Trained:
    """A model's weights, and what makes a model for them."""

    name: str  # of its architecture
    factory: ModelFactory
    weights: Weights

    def model(self) -> nn.Module:
        """A new model with these weights, for prediction."""
        model = self.factory()
        model.load_state_dict(self.weights)
        return model.eval()


@dataclass(frozen=True, slots=True)
class Page:
    """A report: a notebook shows it inline."""

    html: str
    path: Path | None  # where it was written

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self.html)}" width="100%" height="900" style="border: 0"></iframe>'


@dataclass(frozen=True, slots=True)
class Result(RunResult):
    """A run that has ended, or as much of it as there is, with its models."""

    names: Sequence[str] = ()  # of the clients, in the order of their numbers
    server: Trained | None = field(default=None, repr=False)
    clients: Mapping[int, Trained] = field(default_factory=dict, repr=False)  # those whose models were kept

    @property
    def server_model(self) -> nn.Module:
        """The server's model, on the CPU."""
        if self.server is None:
            raise ConfigError(f"server_model is not there: {self.title} has no model on the server; see client_model")
        return self.server.model()

    def client_model(self, client: int | str) -> nn.Module:
        """The model of a client, by its number or its name, on the CPU."""
        number = number_of(client, self.names)
        if number not in self.clients:
            raise ConfigError(
                f"client_model({client!r}) was not kept: the run was interrupted, or is part of a comparison, or all "
                "models together take more than 2 GB; save_clients=True writes them to the run's directory"
            )
        return self.clients[number].model()

    def report(self) -> Page:
        """The page about the run: report.html in its directory, if it has one."""
        if self.directory is None:
            return Page(page_about([self]), None)
        path = self.directory / "report.html"
        if not path.exists():
            write_page([self], self.directory)
        # Within a notebook, a page would not find the library that it shares with others.
        shared = shared_library(self.directory) is not None
        return Page(page_about([self]) if shared else path.read_text(encoding="utf-8"), path)


def number_of(client: int | str, names: Sequence[str]) -> int:
    """A client's number, from that or from its name."""
    if str(client) in names:
        return list(names).index(str(client))
    if isinstance(client, str) and not client.isdecimal():
        known = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        raise ConfigError(f"client must be the name or the number of a client, got {client!r}; there are {known}")
    number = int(client)
    if not 0 <= number < len(names):
        raise ConfigError(f"client must be from 0 to {len(names) - 1}, or a name, got {client!r}")
    return number
