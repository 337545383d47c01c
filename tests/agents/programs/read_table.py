"""Files of a table read by `datasets`: `read_table.py JOB`, with a JSON object.

A job names `format` (that of `load_dataset`) and `files`. With `kinds`, a type or [type of a list's
items] by column, the columns get these; the rows also go into the files that `write` names. Prints
the `kinds` that `datasets` found, and the `rows`.

With `apart` each file is read for itself. Lines of JSON get their types from the first file, which
may have a column without a value.
"""

import json
import sys
from typing import Any

import datasets


def features(kinds: dict[str, Any]) -> datasets.Features:
    return datasets.Features(
        {
            name: datasets.List(datasets.Value(kind[0]))
            if isinstance(kind, list)
            else datasets.Value(kind)
            for name, kind in kinds.items()
        }
    )


def kinds(schema: datasets.Features) -> dict[str, Any]:
    return {
        name: [column.feature.dtype] if isinstance(column, datasets.List) else column.dtype
        for name, column in schema.items()
    }


def main(job: dict[str, Any]) -> None:
    parts = [[path] for path in job["files"]] if job.get("apart") else [job["files"]]
    tables = [
        datasets.load_dataset(
            job["format"],
            data_files=files,
            features=features(job["kinds"]) if "kinds" in job else None,
            split="train",
        )
        for files in parts
    ]
    table = tables[-1]
    for path in job.get("write", []):
        write = table.to_json if path.endswith(".jsonl") else table.to_parquet
        write(path)
    print(
        json.dumps(
            {
                "kinds": kinds(table.features),
                "rows": [row for part in tables for row in part.to_list()],
            }
        )
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
