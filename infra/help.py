"""Text of `--help`: every setting with its variable, type, default and meaning.

Not the help of pydantic-settings: that lists flags, and no process takes its settings as flags.
"""

from collections.abc import Iterator
from types import EllipsisType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined


def describe(settings: type[BaseModel], prefix: str) -> str:
    """Return one paragraph for each setting, in the order of the class."""
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


def _spelled(annotation: Any) -> str:
    """Return a type as a person would write it, without the constraints of its field."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _spelled(arguments[0])
    if origin is Literal:
        return " | ".join(repr(one) for one in arguments)
    if origin in (Union, UnionType):
        return " | ".join(_spelled(one) for one in arguments)
    if isinstance(annotation, EllipsisType):
        return "..."
    if annotation in (None, NoneType):
        return "None"
    name = str(getattr(annotation, "__name__", annotation))
    return f"{name}[{', '.join(_spelled(one) for one in arguments)}]" if arguments else name


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=False)
    if field.is_required():
        return "required"
    return "default: empty" if value in (None, PydanticUndefined, "") else f"default: {value}"
