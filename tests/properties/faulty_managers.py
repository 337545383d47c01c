"""Managers that commit another trajectory than they built."""

from dataclasses import replace

from seamlessflow.schemas.records import Trajectory
from tests.properties.simulation.managers import SteppedManager


class Publishes(SteppedManager):
    """A manager that commits another trajectory than was built."""

    def publish(self, trajectory: Trajectory) -> None:
        super().publish(self.bent(trajectory))

    def bent(self, made: Trajectory) -> Trajectory:
        """Return the trajectory that is committed instead."""
        raise NotImplementedError


class TrainsTheMasked(Publishes):
    """A manager that lets tokens of abandoned samples be trained."""

    def bent(self, made: Trajectory) -> Trajectory:
        mask = bytearray(made.loss_mask)
        for node in made.nodes:
            if node.masked_reason == "abandoned":
                mask[node.start : node.start + node.length] = b"\1" * node.length
        return replace(made, loss_mask=bytes(mask))


class MasksTheTrained(Publishes):
    """A manager that masks the first trained token without counting it."""

    def bent(self, made: Trajectory) -> Trajectory:
        return replace(made, loss_mask=made.loss_mask.replace(b"\1", b"\0", 1))


class TrainsTwice(Publishes):
    """A manager that writes the last turn twice."""

    def bent(self, made: Trajectory) -> Trajectory:
        if not made.nodes or not made.nodes[-1].length:
            return made
        last = made.nodes[-1]
        again = replace(last, node_id=len(made.nodes), start=len(made.loss_mask))
        cut = slice(4 * last.start, 4 * (last.start + last.length))
        spans = [span for span in made.spans if span.start >= last.start]
        return replace(
            made,
            tokens=made.tokens + made.tokens[cut],
            logprobs=made.logprobs + made.logprobs[cut],
            loss_mask=made.loss_mask + made.loss_mask[last.start : last.start + last.length],
            nodes=(*made.nodes, again),
            spans=(*made.spans, *(replace(span, start=span.start + last.length) for span in spans)),
        )


class DropsAFork(Publishes):
    """A manager that leaves out the last turn."""

    def bent(self, made: Trajectory) -> Trajectory:
        if len(made.nodes) < 4:
            return made
        *kept, prompt, _ = made.nodes
        end = prompt.start
        return replace(
            made,
            tokens=made.tokens[: 4 * end],
            logprobs=made.logprobs[: 4 * end],
            loss_mask=made.loss_mask[:end],
            nodes=tuple(kept),
            spans=tuple(span for span in made.spans if span.start < end),
        )


class CountsNothing(Publishes):
    """A manager that does not count ignored events."""

    def bent(self, made: Trajectory) -> Trajectory:
        return replace(made, ignored_events={})


class WritesItsOwnTime(Publishes):
    """A manager that writes the time of building into the trajectory."""

    def bent(self, made: Trajectory) -> Trajectory:
        return replace(made, opened_at_ms=self._clock())
