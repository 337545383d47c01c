"""Strategies of records with any values, from their schemas."""

from io import BytesIO
from typing import Any

from fastavro import schemaless_writer
from hypothesis import strategies as st

from seamlessflow.schemas.codec import MARKER
from seamlessflow.schemas.registry import NAMESPACE, Schema, parsed, schema_fingerprint

_PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(max_size=8),
    "bytes": st.binary(max_size=8),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "boolean": st.booleans(),
    "double": st.floats(allow_nan=False),
    "null": st.none(),
}
_ITEMS = 2


def any_encoded(schema: Schema) -> st.SearchStrategy[bytes]:
    """Return the strategy of records that another Avro library wrote in this schema."""
    header = MARKER + bytes.fromhex(schema_fingerprint(schema))
    writer = parsed(schema)

    def encoded(datum: Any) -> bytes:
        body = BytesIO()
        schemaless_writer(body, writer, datum)
        return header + body.getvalue()

    return _values(schema, {}).map(encoded)


def _values(avro: Any, definitions: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    if isinstance(avro, list):
        return st.one_of([_values(branch, definitions) for branch in avro])
    if isinstance(avro, str):
        return definitions[avro] if avro in definitions else _PRIMITIVES[avro]
    if avro["type"] == "record":
        fields = {field["name"]: _values(field["type"], definitions) for field in avro["fields"]}
        made = st.fixed_dictionaries(fields)
        definitions[f"{NAMESPACE}.{avro['name']}"] = made
        return made
    if avro["type"] == "array":
        return st.lists(_values(avro["items"], definitions), max_size=_ITEMS)
    return st.dictionaries(
        _PRIMITIVES["string"], _values(avro["values"], definitions), max_size=_ITEMS
    )
