"""Groups shared as text: keys, contents, records, and the rules by which they are taken."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from seamlessflow.demo.configuration import RENDERER
from seamlessflow.demo.task import LOOKUP, dialogue, make_tasks
from seamlessflow.demo.tokenizer import make_tokenizer
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.recorded.share.content import SharedContent, SharedSession
from seamlessflow.recorded.share.examining import TakingRules
from seamlessflow.recorded.share.keys import SigningKey
from seamlessflow.runs.conversations import conversation_chains
from seamlessflow.schemas.codec import encode
from seamlessflow.schemas.records import SharedGroup

TASKS: dict[str, dict[str, Any]] = {task["id"]: dict(task) for task in make_tasks(200, 0, "train")}
TASK = next(iter(TASKS))
PROVENANCE = {"cluster": "c/", "run": "theirs", "policy": "p", "group": "g"}
_LONGEST = 512


def key_of(number: int) -> SigningKey:
    """Return the same key for the same number."""
    return SigningKey(Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32))


THEIRS = key_of(1)
OURS = key_of(2)
STRANGERS = key_of(3)


def answered(task: str = TASK, reward: float = 1.0) -> SharedSession:
    """Return a session that solves its task with a call and an answer."""
    messages: Any = dialogue(TASKS[task])  # type: ignore[arg-type]
    return SharedSession(tuple(messages), reward, (LOOKUP,))


def content_of(*sessions: SharedSession, task: str = TASK, **provenance: str) -> SharedContent:
    """Return the content of a group, by default of one session."""
    return SharedContent(TASKS[task], sessions or (answered(task),), {**PROVENANCE, **provenance})


def record_of(
    shared: SharedContent | bytes, key: SigningKey = THEIRS, **changes: Any
) -> SharedGroup:
    """Return a signed record."""
    encoded = shared if isinstance(shared, bytes) else shared.encode()
    whole = SharedGroup(content=encoded, signer=key.public, signature=key.sign(encoded), at_ms=0)
    return replace(whole, **changes)


def value_of(shared: SharedContent | bytes, key: SigningKey = THEIRS, **changes: Any) -> bytes:
    """Return the bytes of a signed record."""
    return encode(record_of(shared, key, **changes))


def judge(task: dict[str, Any], text: str) -> float:
    """Reward the right code behind any call."""
    return float(text.endswith(f"code {task['table'][task['key']]}"))


@cache
def renderer() -> Renderer:
    """Return the demo's renderer on the demo's tokenizer."""
    with TemporaryDirectory() as folder:
        make_tokenizer(Path(folder))
        return Renderer.load(Path(folder), RENDERER)


def rules(judging: Callable[[Any, str], Any] = judge, **changes: Any) -> TakingRules:
    """Return rules that take what `THEIRS` signed, for a run that signs with `OURS`."""
    made = TakingRules(
        signers={THEIRS.public: "theirs"},
        public=OURS.public,
        payload=lambda task: json.dumps(TASKS[task]).encode() if task in TASKS else None,
        read=lambda name, row: conversation_chains(name, row, renderer(), _LONGEST),
        judge=judging,
        policy="p",
        tokenizer_hash=renderer().hash,
    )
    return replace(made, **changes)
