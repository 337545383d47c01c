"""Files with the records' Avro schemas, for other Avro tools."""

import json
from pathlib import Path

from seamlessflow.infra.disk import make_writable
from seamlessflow.schemas.registry import schema_versions
from seamlessflow.schemas.releases import this_release


def write_schemas(directory: Path, every_version: bool) -> list[Path]:
    """Write `Record.FINGERPRINT.avsc` for each record in this release; return the files.

    With `every_version`, also write all versions from earlier releases. Raises `SettingsRejected`.
    """
    make_writable(directory, "DIRECTORY")
    now = this_release().fingerprints
    written = []
    for name, versions in schema_versions().items():
        for fingerprint, schema in versions.items():
            if every_version or now.get(name) == fingerprint:
                path = directory / f"{name}.{fingerprint}.avsc"
                path.write_text(
                    json.dumps(schema, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
                )
                written.append(path)
    return written
