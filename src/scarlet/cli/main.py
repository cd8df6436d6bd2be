"""`scarlet COMMAND ...`: finds the command, and turns a user's mistake into one line and exit code 2."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from scarlet.errors import ScarletError, unknown

# Each is the `main` of a module of that name, with what the list of commands says about it.
COMMANDS = {
    "run": "run one method: scarlet run METHOD [--rounds 60 ...]",
    "compare": "run several methods on the same data: scarlet compare METHOD... --seeds 0,1",
    "sweep": "run a grid of options side by side: scarlet sweep FILE.toml --out DIR",
    "paper": "the paper's tables and figures, and whether its claims hold: scarlet paper list",
    "resume": "continue an interrupted run, comparison or sweep: scarlet resume DIR",
    "presets": "list the presets, or all option values of one: scarlet presets [NAME]",
    "costs": "megabytes per round of every method, without training",
    "simulate-cache": "cache hit ratio for several cache durations, without training",
    "report": "write report.html about runs: scarlet report DIR... --out FILE",
    "predict": "class of images or arrays, by a run's model: scarlet predict RUN FILE...",
    "export": "write a run's model in the ONNX format: scarlet export RUN --onnx FILE",
    "data": "list, download or pack datasets: scarlet data list | get NAME | pack NAME",
    "flower": "federations across machines: scarlet flower new | keys | site-key | serve | join",
    "doctor": "what is installed, what this machine has, and whether a run could start",
    "completion": "print a script that completes commands in bash: scarlet completion bash",
}

HELP = """usage: scarlet COMMAND [options]

Federated distillation with synchronised soft-label caches.

{commands}

'scarlet COMMAND --help' lists the options of a command; 'scarlet --version' names the version."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0, 2 for a mistake in what was asked, or 130 after Ctrl-C."""
    arguments = ["--help" if word == "-h" else word for word in (sys.argv[1:] if argv is None else argv)]
    try:
        if not arguments or arguments[0] == "--help":
            width = max(map(len, COMMANDS))
            print(HELP.format(commands="\n".join(f"  {name:<{width}}  {what}" for name, what in COMMANDS.items())))
            return 0
        if arguments[0] == "--version":
            from importlib.metadata import version  # slow to load

            print(f"scarlet {version('scarlet-fl')}")
            return 0
        command, *rest = arguments
        if command not in COMMANDS:
            raise unknown("command", command, COMMANDS)
        code: int = import_module(module_of(command)).main(rest)
        return code
    except KeyboardInterrupt:
        print("scarlet: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, such as `head`, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ScarletError as error:
        print(f"scarlet: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # a full disk, a directory that may not be written
        named = f"cannot use {error.filename} ({error.strerror})" if error.filename else str(error)
        print(f"scarlet: {named}; check its permissions and the room on the disk", file=sys.stderr)
        return 2


def module_of(command: str) -> str:
    """The module of a command."""
    return f"scarlet.cli.{command.replace('-', '_')}"
