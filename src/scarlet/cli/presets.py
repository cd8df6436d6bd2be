"""`scarlet presets` and `scarlet presets NAME`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from scarlet.cli.options import AsJson, Command, flag, options_of
from scarlet.errors import ConfigError
from scarlet.presets import PRESETS, Preset, find

# What the list shows of the shared options.
_SHARED = ("private", "alpha", "rounds", "clients", "samples_per_client")

# What it shows of a method's own options: the heading, the method and the options.
_OWN = (
    ("SCARLET\nbeta, D", "scarlet", ("beta", "cache_duration")),
    ("DS-FL\nT", "dsfl", ("temperature",)),
    ("CFD\nbits", "cfd", ("uplink_bits", "downlink_bits")),
    ("COMET\nC, lambda", "comet", ("clusters", "distil_weight")),
    ("Selective-FD\ntaus", "selective-fd", ("tau_client", "tau_server")),
)


def main(argv: Sequence[str]) -> int:
    """List the presets, or show one."""
    about = (
        "List the presets of 'scarlet run' and 'scarlet compare', or show all option values of one. "
        "The command line overrides --config, --config overrides the preset, and the preset overrides the defaults."
    )
    words, given = Command("scarlet presets [NAME]", about, options_of(AsJson)).parse(argv)
    if len(words) > 1:
        raise ConfigError(f"scarlet presets takes one NAME or none, got {len(words)}: {' '.join(words)}")
    shown = find(words[0]) if words else None
    if given.get("json"):
        print(json.dumps(asdict(shown) if shown else [asdict(each) for each in PRESETS.values()], indent=2))
    elif shown:
        _show(shown)
    else:
        _list()
    return 0


def _list() -> None:
    """Two tables, because one would be too wide for most terminals."""
    from scarlet.cli.tables import console, table

    data = table(None, ("name", "private", "alpha", "rounds", "clients", "images\neach"), left=("private",))
    methods = table(None, ("name", *(heading for heading, _, _ in _OWN)))
    for name, preset in PRESETS.items():
        data.add_row(name, *(_value(preset.shared.get(option)) for option in _SHARED))
        own = [_values(preset, method, options) for _, method, options in _OWN]
        if set(own) != {"-"}:
            methods.add_row(name, *own)
    lines = [f"{name}: {each.about}" for name, each in PRESETS.items() if "private" not in each.shared]
    lines.append("bits: uplink, downlink; taus: client, server; -: not changed by the preset")
    lines.append("'scarlet presets NAME' shows all values of one; 'scarlet run METHOD --preset NAME' uses it")
    screen = console()
    screen.print(data, methods)
    screen.print("\n".join(lines), highlight=False)


def _values(preset: Preset, method: str, options: Iterable[str]) -> str:
    own = preset.methods.get(method, {})
    found = [_value(own.get(option)) for option in options]
    return "-" if set(found) == {"-"} else ", ".join(found)


def _show(preset: Preset) -> None:
    from scarlet.cli.tables import console, table
    from scarlet.data.datasets import info

    drawn = table(None, ("option", "value", "of"), left=("value", "of"))
    for name, value in preset.shared.items():
        drawn.add_row(flag(name), _value(value), "all methods")
    for method, own in preset.methods.items():
        drawn.add_section()
        for name, value in own.items():
            drawn.add_row(flag(name), _value(value), method)
    screen = console()
    screen.print(f"{preset.name}: {preset.about}", highlight=False)
    screen.print(drawn)
    if "private" in preset.shared:
        its = info(preset.shared["private"])
        screen.print(f"public dataset and model of the private dataset: {its.public}, {its.model}", highlight=False)


def _value(value: object) -> str:
    """A value as one would type it; a switch, which takes none, is yes or no."""
    if value is None:
        return "-"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
