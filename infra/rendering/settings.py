"""How a policy's prompts are rendered: the settings that travel in `PolicyWeights`, and their hash.

Imports neither `renderers` nor a tokenizer, so whoever only announces or compares a policy stays
light.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Literal

import pydantic

from infra.errors import SeamlessFlowError
from schemas.records import PolicyWeights

ThinkingRetention = Literal["tool_cycle", "all"]
Option = pydantic.StrictBool | pydantic.StrictInt | pydantic.StrictStr


class RendererError(SeamlessFlowError):
    """A renderer cannot be made from these settings and this tokenizer, or cannot render these
    messages."""

    def __init__(self, renderer: str, reason: str) -> None:
        self.renderer = renderer
        self.reason = reason
        super().__init__(f"renderer {renderer}: {reason}")

    def __reduce__(self) -> tuple[type["RendererError"], tuple[str, str]]:
        return RendererError, (self.renderer, self.reason)


@pydantic.dataclasses.dataclass(frozen=True, slots=True, config={"extra": "forbid"})
class RendererSettings:
    """What a policy's `PolicyWeights` record says of its rendering."""

    name: str
    """The `renderers` library's name of the model family: `qwen3`, `qwen3.5`, `glm-4.5`, `llama-3`,
    ..."""

    thinking_retention: ThinkingRetention | None = None
    """Whether earlier thinking stays when a new user message comes.

    None: as the model's own template has it. `tool_cycle`: the turn after a user message is
    rendered anew without it, so a trajectory forks there. `all`: it stays, so one session remains
    one chain, but the policy then sees prompts that the model's template would not have made.
    """

    options: Mapping[str, Option] = field(default_factory=dict)
    """Arguments of the model's chat template (`enable_thinking`, ...); the library refuses unknown
    ones."""

    def with_options(self, more: bytes | None) -> "RendererSettings":
        """With further arguments of the template, a JSON object. Raises `RendererError`."""
        if more is None:
            return self
        try:
            options = {**self.options, **json.loads(more)}
            return RendererSettings(self.name, self.thinking_retention, options)
        except pydantic.ValidationError as error:
            raise RendererError(self.name, f"template arguments: {faults(error)}") from error
        except (ValueError, TypeError) as error:
            raise RendererError(self.name, f"template arguments: {error}") from error

    def to_json(self) -> bytes:
        """Canonical JSON: equal settings, equal bytes."""
        fields = {
            "name": self.name,
            "options": dict(self.options),
            "thinking_retention": self.thinking_retention,
        }
        return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes) -> "RendererSettings":
        """Raises `RendererError` where `data` is no such settings."""
        try:
            return _SETTINGS.validate_json(data)
        except pydantic.ValidationError as error:
            raise RendererError("?", f"settings: {faults(error)}") from error


def faults(error: pydantic.ValidationError) -> str:
    """What is wrong, in one line."""
    found = ((".".join(map(str, fault["loc"])), fault["msg"]) for fault in error.errors())
    return "; ".join(f"{place}: {text}" if place else text for place, text in found)


_SETTINGS = pydantic.TypeAdapter(RendererSettings)


def with_template_args(policy: PolicyWeights, template_args: bytes | None) -> PolicyWeights:
    """The policy with further arguments of its chat template. Raises `RendererError`."""
    if template_args is None:
        return policy
    settings = RendererSettings.from_json(policy.renderer).with_options(template_args)
    return replace(policy, renderer=settings.to_json())


def rendering_hash(tokenizer_dir: Path, settings: RendererSettings) -> str:
    """Hex SHA-256 over `tokenizer.json` and the settings: equal hashes render equal prompts. Raises
    OSError."""
    digest = hashlib.sha256(settings.to_json())
    digest.update(b"\0")
    digest.update((tokenizer_dir / "tokenizer.json").read_bytes())
    return digest.hexdigest()
