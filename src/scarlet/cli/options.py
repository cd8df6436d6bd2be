"""Options from dataclasses: read from the command line and from files, shown in groups, refused in one line."""

from __future__ import annotations

import json
import tomllib
from argparse import ArgumentParser, HelpFormatter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

from typing_extensions import Doc

from scarlet.errors import ConfigError, unknown
from scarlet.experiment.config_json import choices_of, element_of, from_file, from_text, kinds_of, words_of

_METAVARS = {int: "INT", float: "FLOAT", str: "NAME", Path: "PATH", tuple: "INT,INT,..."}


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its type, its default, and how the help shows it."""

    name: str
    hint: Any
    default: object
    help: str
    group: str = "options"  # the heading in the help

    @property
    def is_switch(self) -> bool:
        """Whether it takes no value."""
        return bool in kinds_of(self.hint)

    @property
    def metavar(self) -> str:
        """What the help shows in place of a value."""
        choices = choices_of(self.hint)
        if choices:
            return "{" + ",".join(choices) + "}"
        kind = kinds_of(self.hint)[0]
        name = "FLOAT,..." if kind is tuple and element_of(self.hint) is float else _METAVARS.get(kind, "VALUE")
        return "|".join([name, *words_of(self.hint)])


@dataclass(frozen=True, slots=True)
class AsJson:
    """The option of every command that prints a result."""

    json: Annotated[bool, Doc("print the result as JSON, and nothing else")] = False


def options_of(*types: type) -> dict[str, Option]:
    """The fields of some dataclasses as options; of two of the same name the first counts."""
    found: dict[str, Option] = {}
    for each in types:
        hints = get_type_hints(each, include_extras=True)
        for item in fields(each):
            hint, default = hints[item.name], None if item.default is MISSING else item.default
            found.setdefault(item.name, Option(item.name, hint, default, help_text(hint, default)))
    return found


def help_text(hint: Any, default: object) -> str:
    """The documentation of an option with its default; the documentation itself describes a default of None."""
    doc = next((str(each.documentation) for each in get_args(hint) if isinstance(each, Doc)), "")
    if default is None or default is False:
        return doc
    return f"{doc} (default: {','.join(map(str, default)) if isinstance(default, tuple) else default})".lstrip()


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words before the first option, and the rest."""
    first = next((at for at, word in enumerate(arguments) if word.startswith("-")), len(arguments))
    return list(arguments[:first]), list(arguments[first:])


@dataclass(frozen=True, slots=True)
class Command:
    """How a command is called, what it does, and its options; words before them only where the usage shows some."""

    usage: str
    about: str
    options: Mapping[str, Option]
    whose: Callable[[str], str | None] = lambda name: None  # unknown option -> why it is not here, if methods have it
    named_by: int = 2  # words of the usage that are the command's name

    def parse(self, arguments: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
        """The words before the options, and the options given on the command line or in the file of --config."""
        words, rest = split(arguments)
        if words and not self.takes_words:
            raise ConfigError(f"{self._name} takes options only, got {words[0]!r}; {self._see}")
        if "--help" in rest:
            print(self._help(), end="")
            raise HelpShown(self)
        given: dict[str, Any] = {}
        for name, text in self._texts(rest).items():
            given[name] = True if text is None else from_text(flag(name), self.options[name].hint, text)
        return words, given if given.get("config") is None else self._in_file(given["config"], given) | given

    def _texts(self, words: list[str]) -> dict[str, str | None]:
        """What was typed for each option; None for a switch."""
        texts: dict[str, str | None] = {}
        while words:
            typed, equals, text = words.pop(0).partition("=")
            name = typed.removeprefix("--").replace("-", "_")
            if not typed.startswith("--"):
                raise ConfigError(f"unexpected argument {typed!r} among the options; {self._see}")
            self._check_known(name)
            switch = self.options[name].is_switch
            if switch and equals:
                raise ConfigError(f"{flag(name)} takes no value, got {text!r}; leave the value out")
            if not switch and not equals:
                if not words or words[0].startswith("--"):
                    raise ConfigError(f"{flag(name)} takes a value, got none; {self._see}")
                text = words.pop(0)
            texts[name] = None if switch else text
        return texts

    def _in_file(self, path: Path, given: Mapping[str, Any]) -> dict[str, Any]:
        """The options in a TOML file, or in the config.json of an earlier run, that the command line does not give."""
        values: dict[str, Any] = {}
        for written, value in table_in(path).items():
            name = written.replace("-", "_")
            if name in values:
                raise ConfigError(f"{name} in {path} is there twice, with - and with _; leave one of them out")
            if name != "method":
                self._check_known(name, path)
                values[name] = value
        return {
            name: from_file(f"{name} in {path}", self.options[name].hint, value)
            for name, value in values.items()
            if name not in given
        }

    def _check_known(self, name: str, file: Path | None = None) -> None:
        if name in self.options and not (file and name == "config"):
            return
        if why := self.whose(name):
            raise ConfigError(f"{f'{name} in {file}' if file else flag(name)} {why}")
        if file:
            raise unknown(f"option in {file}", name, self.options, self._see)
        raise unknown("option", flag(name), ["--help", *map(flag, self.options)], self._see)

    def _help(self) -> str:
        layout = partial(HelpFormatter, max_help_position=26)
        parser = ArgumentParser(usage=f"{self.usage} [options]", description=self.about, formatter_class=layout)
        groups: dict[str, Any] = {"options": parser}
        for option in self.options.values():
            if option.group not in groups:
                groups[option.group] = parser.add_argument_group(option.group)
            shape = {"action": "store_true"} if option.is_switch else {"metavar": option.metavar}
            groups[option.group].add_argument(flag(option.name), help=option.help.replace("%", "%%"), **shape)
        return parser.format_help()

    @property
    def takes_words(self) -> bool:
        """Whether anything may stand before the options."""
        return self.usage != self._name

    @property
    def _name(self) -> str:
        return " ".join(self.usage.split()[: self.named_by])

    @property
    def _see(self) -> str:
        return f"see {self._name} --help"


class HelpShown(SystemExit):
    """The end of a command that was asked for its help; it ends the process with exit code 0."""

    def __init__(self, command: Command) -> None:
        super().__init__(0)
        self.command = command


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


def table_in(path: Path, argument: str = "config") -> dict[str, object]:
    """The content of a TOML file, or of a JSON file, that an argument names."""
    try:
        content = path.read_text()
        table = json.loads(content) if path.suffix == ".json" else tomllib.loads(content)
    except OSError as error:
        raise ConfigError(f"{argument} cannot be read: {path}: {error.strerror}; check the path") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{argument} cannot be read: {path}: it is not text; check the path") from None
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        raise ConfigError(f"{argument} {path} is not well formed: {error}") from None
    if not isinstance(table, dict):
        raise ConfigError(f"{argument} {path} must be a table of options, got {type(table).__name__}")
    return table
