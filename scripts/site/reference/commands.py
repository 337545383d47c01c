"""Reference for the command line, from its commands as typer has them."""

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from scripts.site.reference.markdown import code, entry, plain
from seamlessflow.__main__ import app

_INTRODUCTION = """# Commands

This page has each command of `seamlessflow`, its arguments and its options.

```sh
seamlessflow COMMAND --help
```
"""


def page() -> str:
    """Return the whole page."""
    sections = [_section(name, command) for name, command in commands()]
    return "\n".join([_INTRODUCTION, *sections])


def commands() -> Iterator[tuple[str, Any]]:
    """Yield each command with its name. A command in a group has its whole name."""
    for name, command in vars(get_command(app))["commands"].items():
        for inner, part in getattr(command, "commands", {}).items():
            yield f"{name} {inner}", part
        if not hasattr(command, "commands"):
            yield name, command


def _section(name: str, command: Any) -> str:
    parameters = [parameter for parameter in command.params if not parameter.hidden]
    arguments = " ".join(_label(part) for part in parameters if part.param_type_name == "argument")
    usage = " ".join(part for part in ("seamlessflow", name, "[OPTIONS]", arguments) if part)
    paragraphs = [plain(part) for part in (command.help or "").split("\n\n") if part.strip()]
    lines = [f"## {name}\n", "\n\n".join(paragraphs), f"\n```text\n{usage}\n```\n"]
    context = command.context_class(command)
    return "\n".join([*lines, *(_entry(parameter, context) for parameter in parameters)])


def _label(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper())
    return ", ".join([*parameter.opts, *parameter.secondary_opts])


def _entry(parameter: Any, context: Any) -> str:
    shown = parameter.default not in (None, "", (), False, []) and not callable(parameter.default)
    facts = [
        "" if getattr(parameter, "is_flag", False) else code(parameter.display_type(context)),
        "required" if parameter.required else "",
        f"default {code(parameter.default)}" if shown else "",
        "may be repeated" if getattr(parameter, "multiple", False) else "",
    ]
    return entry(_label(parameter), plain(parameter.help or ""), facts)
