"""Reading of YAML without its traps: a value is what it looks like, or the reader refuses it.

PyYAML reads YAML 1.1, where 1:30 is 90, 010 is 8, a date is no text and 1e-3 is one. Here a number
has the digits that it is written with, as in YAML 1.2, and what the two may read as different
numbers is refused; so is a name that a mapping has twice, of which PyYAML takes the last one.
"""

import re
from typing import Any

import yaml

_INT, _FLOAT, _DATE = (f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "timestamp"))
_LEADING_ZERO = "!leading-zero"
_NUMBERS = (
    (_LEADING_ZERO, r"[-+]?0[0-9_]+$"),
    (_INT, r"[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)$"),
    (
        _FLOAT,
        r"[-+]?([0-9][0-9_]*\.[0-9_]*([eE][-+]?[0-9]+)?|\.[0-9][0-9_]*([eE][-+]?[0-9]+)?"
        r"|[0-9][0-9_]*[eE][-+]?[0-9]+|\.(inf|Inf|INF))$|\.(nan|NaN|NAN)$",
    ),
)


def read_yaml(text: str) -> Any:
    """Return the value of a document. Raises `yaml.YAMLError`, with the line."""
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def _refused(node: yaml.ScalarNode, problem: str) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def _rules() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """Return the rules for plain values by their first character, with ours for numbers."""
    kept = {
        first: [(tag, form) for tag, form in rules if tag not in (_INT, _FLOAT, _DATE)]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    own = [(tag, re.compile(form)) for tag, form in _NUMBERS]
    return kept | {first: [*kept.get(first, ()), *own] for first in "-+.0123456789"}


def _leading_zero(_: yaml.SafeLoader, node: yaml.ScalarNode) -> Any:
    """Raise an error that names the numbers that it may be."""
    digits = node.value.replace("_", "")
    octal = "" if set(digits) & set("89") else f"{int(digits, 8)} to YAML 1.1 and "
    told = f"{node.value} is {octal}{int(digits)} to YAML 1.2: write one of them, or quotes"
    raise _refused(node, told)


class _Loader(yaml.SafeLoader):
    """Reader of plain values, lists and mappings."""

    yaml_implicit_resolvers = _rules()
    yaml_constructors = yaml.SafeLoader.yaml_constructors | {_LEADING_ZERO: _leading_zero}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set[str]()
        for name in (name for name, _ in node.value if isinstance(name, yaml.ScalarNode)):
            if name.value in seen:
                raise _refused(name, f"{name.value} stands there twice")
            seen.add(name.value)
        return super().construct_mapping(node, deep)
