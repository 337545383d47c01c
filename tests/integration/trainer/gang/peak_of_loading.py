"""A rank that loads a model and tells how far its memory rose.

python -m tests.integration.trainer.gang.peak_of_loading MODEL RANK RANKS [PLACE]
Rank 0 needs no place of the meeting and prints it first; all print the rise of the peak of resident
memory, in bytes.
"""

import sys
from pathlib import Path

from tests.builders.models import model, saved
from tests.builders.trainer.gangs.meetings import line, meeting
from trainer.backends.fsdp_backend import FsdpBackend
from trainer.backends.model import load_model
from trainer.settings import TrainerSection


def peak() -> int:
    """Return the most resident memory so far, in bytes."""
    # Not `getrusage`: its figure begins with that of the parent process.
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def main() -> None:
    directory, rank, ranks, *place = sys.argv[1:]
    gang = {"backend": "fsdp2", "rank": rank, "ranks": ranks, "device": "cpu", "threads": 1}
    settings = TrainerSection.model_validate(gang)
    way = line(place[0], int(rank)) if place else meeting()
    if not place:
        print(way.place, flush=True)
    # What the libraries take at their first use is not of the model.
    small = Path(directory) / f"small-{rank}"
    load_model(saved(model(), small), "float32", empty=True)
    load_model(small, "float32")
    before = peak()
    backend = FsdpBackend(Path(directory), settings, way)
    print(peak() - before)
    backend.close()


if __name__ == "__main__":
    main()
