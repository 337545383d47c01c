"""The `--help` text: every setting with its variable, type, default and meaning.

It replaces pydantic-settings' help, which lists flags: no process takes its settings as flags.
`every_setting` lists the same for a configuration file, by the settings' paths.
"""

from collections.abc import Iterator, Mapping
from types import EllipsisType, NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, Tag
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined


def describe(settings: type[BaseModel], prefix: str) -> str:
    """Return one paragraph for each setting, in the class's order."""
    return "\n".join(_lines(settings, prefix))


def _lines(section: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in section.model_fields.items():
        variable = f"{prefix}{name.upper()}"
        nested = field.annotation
        if isinstance(nested, type) and issubclass(nested, BaseModel):
            yield from _lines(nested, f"{variable}__")
        else:
            yield f"{variable}  ({_spelled(field.annotation)}; {_default(field)})"
            yield f"    {field.description or ''}"


class ExplainedSetting(NamedTuple):
    """A setting in a configuration file."""

    path: str
    """As in YAML, with NAME for any name and [] for any place in a list."""
    form: str
    """Type and default."""
    meaning: str


def every_setting(section: type[BaseModel], path: str = "") -> Iterator[ExplainedSetting]:
    """Yield all settings in the class's order; those in an inner section come once."""
    yield from _settings(section, path, set())


def _settings(
    section: type[BaseModel], path: str, seen: set[type[BaseModel]]
) -> Iterator[ExplainedSetting]:
    inside = {name: _section_in(field.annotation) for name, field in section.model_fields.items()}
    top = {kind for kind, _ in inside.values() if kind is not None} if not path else set()
    for name, field in section.model_fields.items():
        place = f"{path}.{name}" if path else name
        kind, mark = inside[name]
        if kind is None or kind in seen:
            form = f"{_spelled(field.annotation)}; {_default(field)}"
            yield ExplainedSetting(place, form, field.description or "")
        else:
            yield from _settings(kind, place + mark, {*seen, *(top - {kind})})


def _section_in(annotation: Any) -> tuple[type[BaseModel] | None, str]:
    """Return the section that a setting is or holds, and its mark: `.NAME`, `[]` or empty."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, ""
    origin = get_origin(annotation)
    arguments = get_args(annotation)
    if origin in (Union, UnionType):
        kinds = [argument for argument in arguments if argument is not NoneType]
        return _section_in(kinds[0]) if len(kinds) == 1 else (None, "")
    if origin is not None and arguments and origin in (dict, tuple, list, Mapping):
        by_name = origin in (dict, Mapping)
        kind, _ = _section_in(arguments[-1] if by_name else arguments[0])
        return kind, ".NAME" if by_name else "[]"
    return None, ""


def _spelled(annotation: Any) -> str:
    """Return a type as a person would write it, without its field's constraints."""
    origin = get_origin(annotation)
    arguments = get_args(annotation)
    if origin is Annotated:
        return "module:function" if Tag("function") in arguments else _spelled(arguments[0])
    if origin is Literal:
        return " | ".join(repr(argument) for argument in arguments)
    if origin in (Union, UnionType):
        return " | ".join(_spelled(argument) for argument in arguments)
    if isinstance(annotation, EllipsisType):
        return "..."
    if annotation in (None, NoneType):
        return "None"
    name = str(getattr(annotation, "__name__", annotation))
    return (
        f"{name}[{', '.join(_spelled(argument) for argument in arguments)}]" if arguments else name
    )


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=False)
    if field.is_required():
        return "required"
    return "default: empty" if value in (None, PydanticUndefined, "") else f"default: {value}"
