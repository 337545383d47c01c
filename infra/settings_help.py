"""What `--help` of a process says: every setting with its variable, type, default and meaning."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined


def describe(settings: type[BaseModel], prefix: str) -> str:
    """One paragraph a setting, in the order of the class."""
    return "\n".join(_lines(settings, prefix))


def _lines(section: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in section.model_fields.items():
        variable = f"{prefix}{name.upper()}"
        nested = field.annotation
        if isinstance(nested, type) and issubclass(nested, BaseModel):
            yield from _lines(nested, f"{variable}__")
        else:
            yield f"{variable}  ({_kind(field)}; {_default(field)})"
            yield f"    {field.description or ''}"


def _kind(field: FieldInfo) -> str:
    annotation: Any = field.annotation
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=False)
    if field.is_required():
        return "required"
    return "default: empty" if value in (None, PydanticUndefined, "") else f"default: {value}"
