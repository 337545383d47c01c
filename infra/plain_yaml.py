"""YAML reading without traps: a value is what it looks like, or the reader refuses it.

PyYAML reads YAML 1.1. There 1:30 is 90, 010 is 8, a date is no text, and 1e-3 is text. Here a
number has the digits that it is written with, as in YAML 1.2. The reader refuses:

- a value that the two versions may read as different numbers
- a name that a mapping has twice: PyYAML takes the last one
- a name that is no text
- a tag before a text that is no such value by itself, such as `!!int 1:30`
"""

import re
from contextlib import suppress
from typing import Any

import yaml

_INT, _FLOAT, _DATE = (f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "timestamp"))
_LEADING_ZERO = "!leading-zero"
_KINDS = {
    _INT: "a number",
    _FLOAT: "a number",
    _LEADING_ZERO: "a number",
    "tag:yaml.org,2002:bool": "true or false",
    "tag:yaml.org,2002:null": "null",
}
"""Kind of a value that is no text, by its tag."""
_LONGEST_SHOWN = 60
"""Most characters that an error shows from a wrong value."""
_NUMBERS = (
    (_LEADING_ZERO, r"[-+]?0[0-9_]+$"),
    (_INT, r"[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)$"),
    (
        _FLOAT,
        r"[-+]?([0-9][0-9_]*\.[0-9_]*([eE][-+]?[0-9]+)?|\.[0-9][0-9_]*([eE][-+]?[0-9]+)?"
        r"|[0-9][0-9_]*[eE][-+]?[0-9]+|\.(inf|Inf|INF))$|\.(nan|NaN|NAN)$",
    ),
)


_NAMES = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "merge", "value")}
"""Tags that may stand before a colon; merge is <<, value is =."""
_DIGITS = re.compile(r"[0-9]+")


def read_yaml(text: str) -> Any:
    """Return a document's value. Raises `yaml.YAMLError`, with the line."""
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _check_names(node, (), set())
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _check_names(node: yaml.Node, path: tuple[str, ...], seen: set[int]) -> None:
    """Raise an error for a name that is no text, or a text with half a character, at any depth.

    Halves that belong together are joined first. `seen` has the ids of nodes looked at.
    """
    if id(node) in seen:  # by an alias
        return
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        node.value = _joined(node.value)
        _check_text(node, path)
    elif isinstance(node, yaml.SequenceNode):
        for number, inner in enumerate(node.value):
            _check_names(inner, (*path, f"[{number}]"), seen)
    elif isinstance(node, yaml.MappingNode):
        before = ""
        for name, value in node.value:
            if name.tag not in _NAMES:
                raise _refused(name, _no_name(name, value, path, before))
            _check_names(name, path, seen)
            _check_names(value, (*path, f".{name.value}"), seen)
            before = value.value if isinstance(value, yaml.ScalarNode) else ""


def _joined(text: str) -> str:
    r"""Return a text with each pair of halves, such as JSON's "\ud83d\ude00", as its character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _check_text(node: yaml.ScalarNode, path: tuple[str, ...]) -> None:
    try:
        node.value.encode(errors="surrogateescape")  # a path may have bytes that are not UTF-8
    except UnicodeEncodeError as error:
        half = ascii(error.object[error.start])[1:-1]
        text = f"{_where(path)}{half} is half of a character, and no text alone"
        raise _refused(node, text) from error


def _where(path: tuple[str, ...]) -> str:
    return f"{''.join(path).lstrip('.')}: " if path else ""


def _no_name(name: yaml.Node, value: yaml.Node, path: tuple[str, ...], before: str) -> str:
    """Return why a node cannot be a name; `before` is the value that stands before it."""
    where = _where(path)
    if not isinstance(name, yaml.ScalarNode):
        return f"{where}a list or a mapping stands where a name belongs"
    shown = name.value or "nothing"
    # A comma ends a value between braces: {lr: 0,001} has the names lr and 001.
    alone = value.start_mark.index == value.end_mark.index
    if alone and _DIGITS.fullmatch(before) and _DIGITS.fullmatch(shown):
        number = f"{before}.{shown}"
        return f"{where}a comma ends the number {before}: write a decimal point, as in {number}"
    kind = _KINDS.get(name.tag, "no text")
    return f'{where}the name {shown} is {kind} to YAML: put it in quotes, as in "{name.value}"'


def _refused(node: yaml.Node, problem: str) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def _rules() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """Return the rules for plain values by their first character, with ours for numbers."""
    kept = {
        first: [(tag, form) for tag, form in rules if tag not in (_INT, _FLOAT, _DATE)]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    numbers = [(tag, re.compile(form)) for tag, form in _NUMBERS]
    return kept | {first: [*kept.get(first, ()), *numbers] for first in "-+.0123456789"}


def _plain(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Any:
    """Return a number, a truth value or null.

    Raises an error if the text by itself is none of these, even with a tag such as `!!int`.
    """
    kind = loader.resolve(yaml.ScalarNode, node.value, (True, False))  # type: ignore[no-untyped-call]
    if kind == _LEADING_ZERO:
        raise _refused(node, _two_numbers(node.value))
    if kind == node.tag or (kind, node.tag) == (_INT, _FLOAT):
        with suppress(ValueError):  # no digits, as in 0x_, or more than Python reads
            return yaml.SafeLoader.yaml_constructors[node.tag](loader, node)
    raise _refused(node, f"{node.value[:_LONGEST_SHOWN]} is not {_KINDS[node.tag]}")


def _two_numbers(value: str) -> str:
    """Return why a number with a leading zero is refused, with the numbers that it may be."""
    digits = value.replace("_", "")
    octal = "" if set(digits) & set("89") else f"{int(digits, 8)} to YAML 1.1 and "
    return f"{value} is {octal}{int(digits)} to YAML 1.2: write one of them, or quotes"


class _Loader(yaml.SafeLoader):
    """Reader of plain values, lists and mappings."""

    yaml_implicit_resolvers = _rules()
    yaml_constructors = {
        tag: make for tag, make in yaml.SafeLoader.yaml_constructors.items() if tag != _DATE
    } | dict.fromkeys(_KINDS, _plain)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set[str]()
        for name in (name for name, _ in node.value if isinstance(name, yaml.ScalarNode)):
            if name.value in seen:
                raise _refused(name, f"{name.value} stands there twice")
            seen.add(name.value)
        return super().construct_mapping(node, deep)
