"""Export of a long log from a real broker on the same machine, in each format.

    python -m benchmarks export [--tokens 20000000] [--turns 20]

`tokens_per_s`: exported trajectories' tokens a second of wall time; each token is in a chain.
"""

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.manager import recorded
from benchmarks.recorded.sessions import Shape, interleaved, renderer, write
from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import SHORT_LIVED
from seamlessflow.recorded.export.exporting import ExportJob, export
from seamlessflow.recorded.export.parquet_file import PARQUET
from seamlessflow.recorded.export.tables import JSONL

_PROMPT, _SAMPLED = 340, 300


def main(argv: Sequence[str]) -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(prog="benchmarks export", description=__doc__)
    parser.add_argument("--tokens", type=int, default=20_000_000)
    parser.add_argument("--turns", type=int, default=20)
    asked = parser.parse_args(argv)
    with renderer() as (made, policy):
        shape = Shape(asked.turns, prompt=_PROMPT, sampled=_SAMPLED)
        sessions = recorded(made, policy, shape, finalized=True)
    tokens = asked.turns * (_PROMPT + _SAMPLED) * len(sessions)
    events = interleaved(sessions, max(1, asked.tokens // tokens))
    with Broker(None, java=SHORT_LIVED) as broker, tempfile.TemporaryDirectory() as directory:
        write(broker.settings, events)
        figures = {}
        for kind in (PARQUET, JSONL):
            job = ExportJob(Path(directory) / kind.name, kind)
            began = time.monotonic()
            counts = export(broker.settings, job, lambda *_: None).counts
            wall_s = time.monotonic() - began
            files = job.directory.rglob(f"*{kind.suffix}")
            figures[kind.name] = {
                "tokens": counts["tokens"],
                "tokens_per_s": round(counts["tokens"] / wall_s),
                "bytes_per_token": round(
                    sum(file.stat().st_size for file in files) / counts["tokens"], 2
                ),
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            }
    print(json.dumps({"benchmark": "export", "events": len(events), **figures}))
