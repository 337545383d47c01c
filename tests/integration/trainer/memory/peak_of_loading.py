"""A rank that loads a model and tells how far its memory rose.

python -m tests.integration.trainer.memory.peak_of_loading MODEL SETTINGS [PLACE]
SETTINGS is the section `trainer` as JSON. Rank 0 needs no place of the meeting and prints it first;
all print the rise of the peak of resident memory, in bytes.
"""

import json
import sys
from pathlib import Path

from seamlessflow.trainer.backends.model import load_model
from seamlessflow.trainer.ranks.torch_devices import chosen_backend
from seamlessflow.trainer.settings import TrainerSection
from tests.builders.models import model, saved
from tests.builders.resident_memory import MOST, resident
from tests.builders.trainer.gangs.meetings import line, meeting


def main() -> None:
    directory, text, *place = sys.argv[1:]
    settings = TrainerSection.model_validate(json.loads(text))
    way = line(place[0], settings.rank) if place else meeting()
    if not place:
        print(way.place, flush=True)
    # What the libraries take at their first use is not of the model.
    small = Path(directory) / f"small-{settings.rank}"
    load_model(saved(model(), small), "float32", empty=True)
    load_model(small, "float32")
    chosen = chosen_backend(settings)
    before = resident(MOST)
    backend = chosen(Path(directory), settings, way)
    print(resident(MOST) - before)
    backend.close()


if __name__ == "__main__":
    main()
