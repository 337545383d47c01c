"""A rank that trains two steps on one long chain and tells how far its memory rose.

python -m tests.integration.trainer.memory.peak_of_step MODEL SETTINGS TOKENS [PLACE]
SETTINGS is the section `trainer` as JSON. Rank 0 of a gang needs no place of the meeting and prints
it first; all print the rise of the peak of resident memory, in bytes, from before the model is
loaded until the second step is trained, without what loading itself took.
"""

import json
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from seamlessflow.trainer.backends.backend import StepInput
from seamlessflow.trainer.backends.model import load_model
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.chains import chains, credited
from seamlessflow.trainer.data.packing import Layout, pack
from seamlessflow.trainer.ranks.torch_devices import chosen_backend
from seamlessflow.trainer.settings import TrainerSection
from tests.builders.models import model, saved
from tests.builders.resident_memory import MOST, NOW, forget_peak, resident
from tests.builders.trainer.gangs.meetings import line, meeting
from tests.builders.trainer.trajectories import Run, trajectory


def step(tokens: int, layout: Layout, sequences: int = 1) -> StepInput:
    """Return a step of chains of so many tokens, all but their first trained."""
    random = np.random.default_rng(0)
    made = []
    for number in range(sequences):
        ids = [int(token) for token in random.integers(0, 512, tokens)]
        said = [-6.0] * (tokens - 1)
        runs = [Run(ids[:1], "prompt"), Run(ids[1:], "policy", "t0", 0, 1, logprobs=said)]
        made.append(chains(trajectory(runs, f"g-{number}.0.0"), "tiny").chains[0])
    credited_chains = [credited(chain, np.ones(chain.trained())) for chain in made]
    return StepInput(pack(credited_chains, tokens, layout), [], 0, 1e-4)


def main() -> None:
    directory, text, tokens, *place = sys.argv[1:]
    settings = TrainerSection.model_validate(json.loads(text))
    warm = TrainerSection.model_validate(
        {**json.loads(text), "backend": "torch", "ranks": 1, "rank": 0}
    )
    with ExitStack() as stack:
        way = None
        if settings.backend != "torch":
            way = line(place[0], settings.rank) if place else meeting()
            if not place:
                print(way.place, flush=True)
        # What the libraries take at their first use is not of the model.
        small = Path(directory) / f"small-{settings.rank}"
        backend = TorchBackend(saved(model(), small), warm)
        backend.train(step(64, settings.layout))
        load_model(small, "float32", empty=True)
        chosen = chosen_backend(settings)
        del backend
        before = resident(NOW)
        if way is None:
            backend = TorchBackend(Path(directory), settings)
        else:
            backend = chosen(Path(directory), settings, way)
            stack.callback(backend.close)
        for _ in range(2):
            forget_peak()
            if settings.rank == 0:
                backend.train(step(int(tokens), settings.layout, settings.ranks))
                backend.rest()
            else:
                backend.follow()
        print(resident(MOST) - before)


if __name__ == "__main__":
    main()
