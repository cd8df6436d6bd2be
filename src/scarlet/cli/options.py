"""Options from dataclasses: parsed by tyro, with defaults from a file, and errors in one line."""

from __future__ import annotations

import io
import json
import re
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import MISSING, dataclass, field, fields, make_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, get_type_hints

from scarlet.errors import ConfigError, unknown

Whose = Callable[[str], str | None]  # the name of an option that is not known -> why it is not, if that can be said


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its type, with its documentation, and its default."""

    name: str
    hint: Any
    default: object


def options_of(*types: type) -> dict[str, Option]:
    """The fields of some dataclasses as options; of two of the same name the first counts."""
    found: dict[str, Option] = {}
    for each in types:
        hints = get_type_hints(each, include_extras=True)
        for item in fields(each):
            default = item.default if item.default is not MISSING else None
            found.setdefault(item.name, Option(item.name, hints[item.name], default))
    return found


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words before the first option, and the rest."""
    first = next((at for at, word in enumerate(arguments) if word.startswith("-")), len(arguments))
    return list(arguments[:first]), list(arguments[first:])


def parse(
    prog: str,
    about: str,
    options: Mapping[str, Option],
    arguments: Sequence[str],
    whose: Whose = lambda name: None,
) -> dict[str, Any]:
    """The options that were given, on the command line or in the file that --config names, and no others."""
    _check_names(arguments, options, whose)
    given = _parse(prog, about, options, arguments)
    path = given.get("config")
    if path is None:
        return given
    return _read(Path(path), options, whose) | given


def method_in(arguments: Sequence[str]) -> list[str]:
    """The method that the file after --config names, if it names one."""
    for word, following in pairwise([*arguments, ""]):
        if word.split("=")[0] == "--config":
            path = Path(word.partition("=")[2] or following)
            method = table_in(path).get("method")
            return [method] if isinstance(method, str) else []
    return []


def flag(name: str) -> str:
    """An option as the command line spells it."""
    return f"--{name.replace('_', '-')}"


def _check_names(arguments: Sequence[str], options: Mapping[str, Option], whose: Whose) -> None:
    known = {*map(flag, options), "--help"}
    for word in arguments:
        name = word.split("=")[0].replace("_", "-")
        if re.match(r"--[a-zA-Z]", word) and name not in known:
            if why := whose(name.removeprefix("--").replace("-", "_")):
                raise ConfigError(f"{name} {why}")
            raise unknown("option", name, known)


def _parse(prog: str, about: str, options: Mapping[str, Option], arguments: Sequence[str]) -> dict[str, Any]:
    import tyro

    table = make_dataclass(
        "Options", [(each.name, each.hint, field(default=each.default)) for each in options.values()]
    )
    text = io.StringIO()
    try:
        with redirect_stdout(text), redirect_stderr(text):
            parsed: object = tyro.cli(
                table,
                prog=prog,
                description=about,
                args=list(arguments),
                config=(tyro.conf.FlagCreatePairsOff,),
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            sys.stdout.write(text.getvalue())
            raise
        raise ConfigError(_one_line(text.getvalue())) from None
    named = {word.split("=")[0].removeprefix("--").replace("-", "_") for word in arguments if word.startswith("--")}
    return {name: getattr(parsed, name) for name in options if name in named}


def _one_line(boxed: str) -> str:
    """What tyro says in a box: a title, what is wrong and, for a wrong value, what the option is."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", boxed)
    lines = [line.strip("│╭╮╰╯ \t") for line in plain.splitlines()]
    parts = [" ".join(part.split()) for part in re.split(r"\n[-─]{5,}\n", "\n".join(lines))]
    wrong = (parts[1] if len(parts) > 1 else parts[0]).rstrip(".")
    about = [part.removeprefix("Argument helptext: ") for part in parts if part.startswith("Argument helptext: ")]
    return "; ".join([wrong, *about])


def _read(path: Path, options: Mapping[str, Option], whose: Whose) -> dict[str, Any]:
    """The options in a TOML file, or in the config.json of an earlier run."""
    from scarlet.experiment.flat import converted  # knows all methods, and is slow to load

    table = table_in(path)
    table.pop("method", None)
    names = {name.replace("-", "_"): value for name, value in table.items()}
    for name in names:
        if name not in options or name == "config":
            if why := whose(name):
                raise ConfigError(f"{name} in {path} {why}")
            raise unknown(f"option in {path}", name, set(options) - {"config"})
    return {name: converted(name, options[name].hint, value, str(path)) for name, value in names.items()}


def table_in(path: Path) -> dict[str, object]:
    """The content of a TOML file, or of a JSON file."""
    try:
        content = path.read_text()
        table = json.loads(content) if path.suffix == ".json" else tomllib.loads(content)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"config cannot be read: {path}: {error}") from None
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        raise ConfigError(f"config {path} is not well formed: {error}") from None
    if not isinstance(table, dict):
        raise ConfigError(f"config {path} must be a table of options, got {type(table).__name__}")
    return table


def integers(name: str, text: str) -> tuple[int, ...]:
    """The whole numbers in a list such as 0,1,2."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"{name} must be whole numbers with commas between, such as 0,1,2, got {text!r}") from None
