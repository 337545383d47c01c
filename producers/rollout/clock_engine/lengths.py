"""Lengths of the clock engine's answers. Pure.

A draw follows from the seed, the session and the turn's place in it. That place is its prompt's
length, and its number among the choices. Two rehearsals of a run therefore have the same lengths,
whatever their order of events. A turn that goes on at another worker is as long as one that stays.
"""

from random import Random

from seamlessflow.infra.device_model.lengths import LengthsSection, drawn_tokens
from seamlessflow.producers.rollout.engine.request import Request
from seamlessflow.schemas.identity import group_of_session


class AnswerLengths:
    """The distribution of the lengths, and the seed of all draws."""

    def __init__(self, section: LengthsSection, seed: int = 0) -> None:
        self._section = section
        self._seed = seed

    def of(self, request: Request) -> int:
        """Return the tokens of a request's whole completion, its stop token included."""
        sampling = request.sampling
        # A request of no session is named by its seed, as in a benchmark.
        session = sampling.session or str(request.seed)
        deviation = self._normal(session, request.prompt_length, sampling.choice)
        return drawn_tokens(self._section, self._normal(group_of_session(session)), deviation)

    def _normal(self, *parts: str | int) -> float:
        named = "/".join(str(part) for part in (self._seed, *parts))
        return Random(named).gauss()  # nosec B311 # repeatable draws
