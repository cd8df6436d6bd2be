"""`scarlet costs`: megabytes per round of every method, without training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

from typing_extensions import Doc

from scarlet.cli.options import AsJson, Command, options_of
from scarlet.experiment.costs import Cost, CostsConfig, Spread, costs
from scarlet.methods.registry import METHODS


@dataclass(frozen=True, slots=True)
class Budget:
    """What turns the cost table into a proposal."""

    target_mb: Annotated[
        float | None,
        Doc("propose D and |P^t| with which SCARLET's whole run stays within so many megabytes (default: the table)"),
    ] = None


def main(argv: Sequence[str]) -> int:
    """Print the cost table."""
    about = (
        "Megabytes per round of every method, all clients together, without training. "
        "Means and maxima leave out the first round."
    )
    _, given = Command("scarlet costs", about, options_of(CostsConfig, Budget, AsJson)).parse(argv)
    as_json, target = given.pop("json", False), given.pop("target_mb", None)
    config = CostsConfig(**given)
    if target is not None:
        return _propose(config, target, as_json=as_json)
    found = costs(config)
    if as_json:
        print(json.dumps([asdict(cost) for cost in found], indent=2))
    else:
        _print(found, config)
    return 0


def _propose(config: CostsConfig, target: float, *, as_json: bool) -> int:
    from scarlet.experiment.budget import proposals

    found = proposals(config, target)
    if as_json:
        print(json.dumps([asdict(each) for each in found], indent=2))
        return 0

    from scarlet.cli.tables import console, table

    title = f"SCARLET within {target:g} MB: {config.clients} clients, {config.rounds} rounds, {config.codec} codec"
    drawn = table(title, ("cache duration D", "public samples a round", "MB in all", "advice"))
    for each in found:
        shown = f"{each.total_mb:,.2f}", "recommended" if each.recommended else ""
        drawn.add_row(str(each.cache_duration), str(each.public_per_round), *shown)
    console().print(drawn)
    return 0


def _print(costs: Sequence[Cost], config: CostsConfig) -> None:
    from scarlet.cli.tables import console, table

    samples = f"{config.public_per_round} of {config.public_size} samples a round"
    share = f", {config.participation:.2%} a round" if config.participation < 1 else ""
    title = f"{config.clients} clients{share}, {config.rounds} rounds, {samples}, {config.codec} codec"
    drawn = table(title, ("method", "on expiry", "MB up", "max", "MB down", "max", "of it catch-up", "GB in all"))
    for cost in costs:
        sent = *_spread(cost.uplink_mb), *_spread(cost.downlink_mb), f"{cost.catch_up_mb.mean:.2f}"
        drawn.add_row(METHODS[cost.method].title, cost.on_expiry or "-", *sent, f"{cost.total_gb:.2f}")
    console().print(drawn)


def _spread(spread: Spread) -> tuple[str, str]:
    return f"{spread.mean:.2f} ± {spread.std:.2f}", f"{spread.max:.2f}"
