"""`scarlet COMMAND ...`: finds the command, and turns a user's mistake into one line and exit code 2."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from scarlet.errors import ConfigError, ScarletError, unknown

# name: (module that has main(argv), what it does)
COMMANDS = {
    "run": ("scarlet.cli.run", "run one method: scarlet run METHOD [--rounds 60 ...]"),
    "compare": (
        "scarlet.cli.compare",
        "run several methods on the same data: scarlet compare METHOD... --seeds 0,1",
    ),
    "resume": ("scarlet.cli.resume", "continue an interrupted run or comparison: scarlet resume DIR"),
    "presets": ("scarlet.cli.presets", "list the presets, or all option values of one: scarlet presets [NAME]"),
    "costs": ("scarlet.cli.costs", "megabytes per round of every method, without training"),
    "simulate-cache": ("scarlet.cli.simulate", "cache hit ratio for several cache durations, without training"),
    "report": ("scarlet.cli.report", "write report.html about runs: scarlet report DIR... --out FILE"),
    "data": ("scarlet.cli.data", "list the datasets, or download one: scarlet data list | get NAME"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0, 2 for a mistake in what was asked, or 130 after Ctrl-C."""
    arguments = ["--help" if word == "-h" else word for word in (sys.argv[1:] if argv is None else argv)]
    try:
        if not arguments or arguments[0] == "--help":
            print(_help())
            return 0
        if arguments[0] == "--version":
            from importlib.metadata import version

            print(f"scarlet {version('scarlet-fl')}")
            return 0
        command, *rest = arguments
        if command not in COMMANDS:
            raise unknown("command", command, COMMANDS)
        code: int = import_module(COMMANDS[command][0]).main(rest)
        return code
    except ScarletError as error:
        print(f"scarlet: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("scarlet: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, such as `head`, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a full disk, a directory that may not be written
        print(f"scarlet: {error}", file=sys.stderr)
        return 2


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {what}" for name, (_, what) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: scarlet COMMAND [options]",
            "",
            "Federated distillation with synchronised soft-label caches.",
            "",
            *lines,
            "",
            "'scarlet COMMAND --help' lists the options of a command; 'scarlet --version' names the version.",
        ]
    )


def no_positionals(command: str, arguments: Sequence[str]) -> None:
    """Raise ConfigError for words that a command has no use for."""
    if arguments:
        raise ConfigError(f"scarlet {command} takes options only, got {arguments[0]!r}; see scarlet {command} --help")
