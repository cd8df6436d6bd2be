"""`scarlet completion bash`: a script that completes commands, options and their values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO

from scarlet.cli.flower import COMMANDS as FLOWER_COMMANDS
from scarlet.cli.main import COMMANDS, module_of
from scarlet.cli.options import Command, HelpShown, flag
from scarlet.data.datasets import DATASETS
from scarlet.data.fetch import ARCHIVES
from scarlet.errors import ConfigError, unknown
from scarlet.experiment.config_json import choices_of, words_of
from scarlet.methods.registry import METHODS
from scarlet.presets import PRESETS
from scarlet.protocol.codec_registry import CODECS
from scarlet.trackers.registry import NO_TRACKER, TRACKERS

SHELLS = ("bash",)

# Names that an option takes and that its type does not tell.
_NAMES: Mapping[str, Iterable[str]] = {
    "--private": [name for name, its in DATASETS.items() if its.public],
    "--public": DATASETS,
    "--preset": PRESETS,
    "--method": METHODS,
    "--codec": CODECS,
    "--track": [NO_TRACKER, *TRACKERS],
}

# Words before the options, by a pattern of the words that stand before them.
_WORDS: Mapping[str, Iterable[str]] = {
    "run": METHODS,
    "compare*": METHODS,
    "presets": PRESETS,
    "paper*": ["list", "all"],
    "data": ["list", "get", "pack"],
    "data get": ARCHIVES,
    "data pack": DATASETS,
    "flower": FLOWER_COMMANDS,
    "completion": SHELLS,
}

# Bash takes '=' and ':' for the ends of words: '--private=npz:FILE' is five of them.
_BASH = """# Completion of scarlet {version} in bash. Where nothing is known, bash completes names of files.
_scarlet() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} found=
    local words="${{COMP_WORDS[*]:1:COMP_CWORD - 1}}"
    COMPREPLY=()
    [[ $current == : || $before == : ]] && return
    [[ $current == = ]] && current=
    [[ $before == = ]] && before=${{COMP_WORDS[COMP_CWORD - 2]}}
    [[ ' {switches} ' == *" $before "* ]] && before=
    if ((COMP_CWORD == 1)); then
        found='{commands}'
    elif [[ $current != -* && $before == --* ]]; then
        case $before in
{values}
        esac
    elif [[ $current != -* && " $words" != *' -'* ]]; then
        case $words in
{words}
        esac
    else
        case "${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}" in
{options}
        esac
    fi
    COMPREPLY=($(compgen -W "$found" -- "$current"))
}}
complete -o default -F _scarlet scarlet
"""


def main(argv: Sequence[str]) -> int:
    """Print the script."""
    about = (
        "Print a script that completes commands, options, methods, presets and datasets. In bash: "
        "source <(scarlet completion bash), or keep what it prints in a file that ~/.bashrc sources."
    )
    words, _ = Command("scarlet completion bash", about, {}).parse(argv)
    if len(words) != 1:
        raise ConfigError(f"scarlet completion takes the name of one shell, got {len(words)}: {', '.join(SHELLS)}")
    if words[0] not in SHELLS:
        raise unknown("shell", words[0], SHELLS)
    print(bash(), end="")
    return 0


def bash() -> str:
    """The script for bash."""
    from importlib.metadata import version  # slow to load

    commands = _commands()
    taken = [(flag(name), option) for command in commands.values() for name, option in command.options.items()]
    values: dict[str, dict[str, None]] = {}  # a dict in place of a set keeps the order
    for name, option in taken:
        known = [*choices_of(option.hint), *words_of(option.hint), *_NAMES.get(name, ())]
        values.setdefault(name, {}).update(dict.fromkeys(known))
    options = {pattern: ["--help", *map(flag, command.options)] for pattern, command in commands.items()}
    without_words = {pattern.rstrip(" *"): options[pattern] for pattern, its in commands.items() if not its.takes_words}
    return _BASH.format(
        version=version("scarlet-fl"),
        switches=" ".join(dict.fromkeys(name for name, option in taken if option.is_switch)),
        commands=" ".join([*COMMANDS, "--help", "--version"]),
        values=_cases({name: known for name, known in values.items() if known}),
        words=_cases({**_WORDS, **without_words}),
        options=_cases(options),
    )


def _commands() -> dict[str, Command]:
    """Each command, by a pattern of its first two words; a method and a command of flower have options of their own."""
    calls = {f"run {method}": ["run", method] for method in METHODS}
    calls |= {f"flower {name}": ["flower", name] for name in FLOWER_COMMANDS}
    calls |= {f"{name} *": [name] for name in COMMANDS if name != "flower"}
    return {pattern: _command(words) for pattern, words in calls.items()}


def _command(words: Sequence[str]) -> Command:
    name, *rest = words
    try:
        with redirect_stdout(StringIO()):
            import_module(module_of(name)).main([*rest, "--help"])
    except HelpShown as shown:
        return shown.command
    raise AssertionError(f"scarlet {' '.join(words)} --help shows no command")


def _cases(words: Mapping[str, Iterable[str]]) -> str:
    """The branches of a case: pattern -> words that complete; a star matches whatever follows."""
    return "\n".join(f"        {_quoted(pattern)}) found='{' '.join(known)}' ;;" for pattern, known in words.items())


def _quoted(pattern: str) -> str:
    star = "*" if pattern.endswith("*") else ""
    return f"'{pattern.removesuffix('*')}'{star}"
