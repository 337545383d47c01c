"""The form that an answer is asked to have: a JSON schema, or none. Pure."""

from producers.gateway.dialects.canonical import ordered_json
from producers.gateway.errors import bad

_ANY_OBJECT = '{"type":"object"}'


def json_schema(name: str, wanted: object) -> str | None:
    """The schema that a `response_format` called `name` asks for; none for plain text.

    Its members keep their order, in which engines make an answer's. Raises `ApiError`.
    """
    match wanted:
        case {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return _ANY_OBJECT
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return ordered_json(schema, name).decode()
        case {"type": "json_schema"}:
            where = f"{name}.json_schema.schema"
            raise bad(where, f"{where} must be an object")
    raise bad(name, f"{name} must be of type text, json_object or json_schema")
