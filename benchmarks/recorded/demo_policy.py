"""Renderer of the demo, a policy that names it, and a worker that serves it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from seamlessflow.demo.configuration import RENDERER
from seamlessflow.demo.tokenizer import make_tokenizer
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Sampling

POLICY = "default"


@contextmanager
def renderer() -> Iterator[tuple[Renderer, r.PolicyWeights]]:
    """Return the demo's renderer, and the policy that names it."""
    with TemporaryDirectory() as name:
        directory = Path(name)
        make_tokenizer(directory)
        made = Renderer.load(directory, RENDERER)
        yield made, policy_weights(made, directory)


def policy_weights(made: Renderer, tokenizer_directory: Path) -> r.PolicyWeights:
    """Return version 0 of a policy with a practically unlimited context."""
    return r.PolicyWeights(
        policy=POLICY,
        version=0,
        step=0,
        directory="",
        manifest_sha256="",
        tokenizer_directory=str(tokenizer_directory),
        tokenizer_hash=made.hash,
        renderer=made.settings.to_json(),
        max_context=1 << 20,
        overrides=Sampling(temperature=1.0),
        at_ms=0,
    )


def acquired(at_ms: int) -> r.RoleAcquired:
    """Return the event by which a worker takes the rollout role."""
    return r.RoleAcquired(
        worker="worker-0",
        incarnation="incarnation-0",
        role="rollout",
        assignment=1,
        slot=0,
        slot_offset=0,
        version=0,
        took_ms=0,
        at_ms=at_ms,
    )
