"""A rank that trains, publishes and saves, and tells how far its memory rose for each.

python -m tests.integration.trainer.memory.peak_of_writing MODEL SETTINGS [PLACE]
SETTINGS is the section `trainer` as JSON. Rank 0 needs no place of the meeting and prints it first;
all print, in bytes, how far the peak of resident memory rose above what was resident before: while
publishing and while saving.
"""

import ctypes
import json
import sys
from pathlib import Path

from seamlessflow.trainer.backends.backend import StepInput
from seamlessflow.trainer.backends.rank_backend import RankBackend
from seamlessflow.trainer.data.packing import pack
from seamlessflow.trainer.ranks.torch_devices import chosen_backend
from seamlessflow.trainer.settings import TrainerSection
from tests.builders.resident_memory import MOST, forget_peak, resident
from tests.builders.trainer.chains import some_chains, with_advantages
from tests.builders.trainer.gangs.meetings import line, meeting


def begun() -> int:
    """Let the peak begin anew at what is resident now; return that, in bytes."""
    ctypes.CDLL(None).malloc_trim(0)
    forget_peak()
    return resident(MOST)


def main() -> None:
    directory, text, *place = sys.argv[1:]
    values = {**json.loads(text), "weights_dtype": "bfloat16"}
    section = TrainerSection.model_validate(values)
    way = line(place[0], section.rank) if place else meeting()
    if not place:
        print(way.place, flush=True)
    backend = chosen_backend(section)(Path(directory), section, way)
    out = Path(directory) / "out"
    if place:
        measured = [_followed(backend, rests) for rests in (1, 1, 2)][1:]
    else:
        measured = _led(backend, out)
    print(*measured)
    backend.close()


def _led(backend: RankBackend, out: Path) -> list[int]:
    backend.load(None, 0)
    batches = pack(with_advantages(some_chains(), [1.0, -1.0] * 3), 16, "padded")
    backend.train(StepInput(batches, [], 1, 0.05))
    backend.rest()
    out.mkdir()
    before = begun()
    backend.write_weights(out)
    published = resident(MOST) - before
    backend.rest()
    before = begun()
    backend.snapshot()
    backend.rest()
    backend.save(out)
    saving = resident(MOST) - before
    backend.rest()
    return [published, saving]


def _followed(backend: RankBackend, rests: int) -> int:
    before = begun()
    for _ in range(rests):
        backend.follow()
    return resident(MOST) - before


if __name__ == "__main__":
    main()
