"""A policy's renderer settings, which travel in `PolicyWeights`, and their hash.

Imports neither `renderers` nor a tokenizer, so that processes that only announce or compare a
policy start fast.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Literal

import pydantic

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.rendering.model_template.files import prompting_bytes
from seamlessflow.schemas.records import PolicyWeights

FROM_MODEL = "auto"
"""Name in a configuration that leaves the trainer to find the model's renderer."""
CHAT_TEMPLATE = "chat-template"
"""Name of the renderer for the model's own chat template."""

ThinkingRetention = Literal["tool_cycle", "all"]
ControlTokens = Literal["text", "tokens"]
Option = pydantic.StrictBool | pydantic.StrictInt | pydantic.StrictStr


class RendererError(SeamlessFlowError):
    """No renderer can be made from these settings and this tokenizer, or it refuses messages."""

    lasting: bool | None = True

    def __init__(self, renderer: str, reason: str, lasting: bool | None = True) -> None:
        """`lasting`: None for a tokenizer whose files may be there at another start."""
        self.renderer = renderer
        self.reason = reason
        self.lasting = lasting
        super().__init__(f"renderer {renderer}: {reason}")


RECORDED_WITHOUT: ControlTokens = "tokens"
"""Rule for settings that were recorded without one."""


@pydantic.dataclasses.dataclass(frozen=True, slots=True, config={"extra": "forbid"})
class RendererSettings:
    """A policy's renderer settings."""

    name: str
    """Model family in the `renderers` library: `qwen3`, `qwen3.5`, `glm-4.5`, `llama-3`, ...

    Or `chat-template` for the template in the model's directory.
    """

    thinking_retention: ThinkingRetention | None = None
    """Rule for earlier thinking when a new user message comes.

    None: as in the model's own template. `tool_cycle`: a new user message removes it, so the
    trajectory forks there. `all`: it stays, so one session remains one chain. But the policy then
    reads prompts that the model's template would not have made.
    """

    options: Mapping[str, Option] = field(default_factory=dict)
    """The chat template's arguments, such as `enable_thinking`; unknown ones are refused."""

    control_tokens: ControlTokens = "text"
    """Rule for control tokens that are spelt in users' words or in tool results.

    `text`: they are letters like others. `tokens`: they become the tokens, as in vLLM. Then such a
    text may end its message and begin another one. Records without this field were written by the
    rule `tokens`.
    """

    def with_options(self, more: bytes | None) -> "RendererSettings":
        """Return the settings with more template arguments, a JSON object.

        Raises `RendererError`.
        """
        if more is None:
            return self
        try:
            options = {**self.options, **json.loads(more)}
            return replace(self, options=options)
        except pydantic.ValidationError as error:
            raise RendererError(self.name, f"template arguments: {faults(error)}") from error
        except (ValueError, TypeError) as error:
            raise RendererError(self.name, f"template arguments: {error}") from error

    def to_json(self) -> bytes:
        """Return canonical JSON: equal settings are equal bytes."""
        fields: dict[str, object] = {
            "name": self.name,
            "options": dict(self.options),
            "thinking_retention": self.thinking_retention,
        }
        if self.control_tokens != RECORDED_WITHOUT:
            fields["control_tokens"] = self.control_tokens
        return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes) -> "RendererSettings":
        """Return the settings that `to_json` wrote. Raises `RendererError`."""
        try:
            read = _FIELDS.validate_json(data)
            return _SETTINGS.validate_python({"control_tokens": RECORDED_WITHOUT, **read})
        except pydantic.ValidationError as error:
            raise RendererError("?", f"settings: {faults(error)}") from error


def faults(error: pydantic.ValidationError) -> str:
    """Return the errors as one line."""
    errors = ((".".join(map(str, fault["loc"])), fault["msg"]) for fault in error.errors())
    return "; ".join(f"{place}: {text}" if place else text for place, text in errors)


_SETTINGS = pydantic.TypeAdapter(RendererSettings)
_FIELDS = pydantic.TypeAdapter(dict[str, object])


def with_template_args(policy: PolicyWeights, template_args: bytes | None) -> PolicyWeights:
    """Return the policy with more arguments for its chat template. Raises `RendererError`."""
    if template_args is None:
        return policy
    settings = RendererSettings.from_json(policy.renderer).with_options(template_args)
    return replace(policy, renderer=settings.to_json())


def rendering_hash(tokenizer_dir: Path, settings: RendererSettings) -> str:
    """Return the hex SHA-256 of settings and `tokenizer.json`; equal hashes render equal prompts.

    A chat template that renders is hashed with them. Raises `OSError`, and `ValueError` if it
    cannot be read.
    """
    digest = hashlib.sha256(settings.to_json())
    digest.update(b"\0")
    digest.update((tokenizer_dir / "tokenizer.json").read_bytes())
    if settings.name == CHAT_TEMPLATE:
        digest.update(prompting_bytes(tokenizer_dir))
    return digest.hexdigest()
