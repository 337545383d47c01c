"""Renderer: messages to token ids and back, for one model family.

The trajectory manager renders prompts and bridges, the rollout process parses completions. Prompts
and completions are int32 bytes. Sampled tokens are never tokenised again: a bridge only appends to
the exact ids.

`chat_template.py` renders, `bridge.py` goes from turn to turn, `completion_parser.py` parses
completions; all use the library that `library.py` loads.
"""

from pathlib import Path

from seamlessflow.infra.rendering import probes
from seamlessflow.infra.rendering.bridge import Bridge
from seamlessflow.infra.rendering.chat_template import ChatTemplate, Messages, Tools, offered
from seamlessflow.infra.rendering.completion import MessageStream, ParsedMessage, PlainStream
from seamlessflow.infra.rendering.completion_parser import MARKS, CompletionParser
from seamlessflow.infra.rendering.differences import GenerationPrompts, behind_prompt
from seamlessflow.infra.rendering.forced_calls import NoOpening, find_opening
from seamlessflow.infra.rendering.model_template.files import template_source
from seamlessflow.infra.rendering.model_template.renderer import renderer_for
from seamlessflow.infra.rendering.outside_text import OutsideText, control_spellings
from seamlessflow.infra.rendering.settings import RendererError, RendererSettings, rendering_hash
from seamlessflow.infra.rendering.tokenizer import TextStream, Tokenizer, TokenizerError
from seamlessflow.schemas.tokens import pack, unpack


class Renderer:
    """One model family's template on one tokenizer. Not for several threads at once."""

    def __init__(self, tokenizer: Tokenizer, settings: RendererSettings, digest: str) -> None:
        """Prefer `Renderer.load`. Raises `RendererError`."""
        self.settings = settings
        self.hash = digest
        """Hex digest; equal for equal tokenizer and settings, on any machine."""
        self._tokenizer = tokenizer
        library = renderer_for(tokenizer, settings)
        guard = _outside_text(tokenizer).guard if settings.control_tokens == "text" else str
        self._template = template = ChatTemplate(library, settings.name, guard)
        self.stop_token_ids = template.stop_token_ids
        samples = list(probes.completions(tokenizer, template.spelt_call(), self.stop_token_ids[0]))
        usual_tail = template.from_last_stop(self.render(probes.SHORT))
        self._parser = CompletionParser(
            library,
            tokenizer,
            frozenset(self.stop_token_ids),
            samples,
            usual_tail,
            GenerationPrompts(lambda messages: template.render(messages, None, ask=True)),
        )
        self._bridge = Bridge(template, samples)

    @classmethod
    def load(cls, tokenizer_dir: Path, settings: RendererSettings) -> "Renderer":
        """Return a renderer for a directory's tokenizer.

        Raises `RendererError` with the special tokens that the tokenizer lacks, or with the wrong
        setting.
        """
        try:
            tokenizer = Tokenizer.load(tokenizer_dir)
            digest = rendering_hash(tokenizer_dir, settings)
        except (TokenizerError, ValueError) as error:  # a file that is no JSON
            lasts = error.lasting if isinstance(error, TokenizerError) else True
            raise RendererError(settings.name, str(error), lasts) from error
        return cls(tokenizer, settings, digest)

    def check(self, published: str, directory: str) -> None:
        """Raise `RendererError` if the trainer published another hash than this renderer's.

        Another tokenizer's tokens would mean something else to the model. `directory` is where this
        tokenizer is from.
        """
        if published not in ("", self.hash):
            text = f"the tokenizer in {directory} has the hash {self.hash}"
            raise RendererError(self.settings.name, f"{text}, the trainer's {published}")

    def put_off(self, longer_than: int) -> None:
        """Raise `TokensWanted` for texts with more letters, from now on, also in variants.

        Rendering, bridges and `encode` then raise it until the text was tokenised elsewhere.
        """
        self._tokenizer.put_off(longer_than)

    def variant(self, settings: RendererSettings) -> "Renderer":
        """Return a renderer with other settings on the same tokenizer. Raises `RendererError`."""
        return Renderer(self._tokenizer, settings, self.hash)

    @property
    def streams(self) -> bool:
        """True if `stream` returns text as its tokens arrive, instead of all of it at the end."""
        return self._parser.streams

    @property
    def thinking_marks(self) -> tuple[int, int] | None:
        """Tokens that begin and end thinking, or None if there is not one for each."""
        begin, end = map(self._tokenizer.token_id, MARKS[:2])
        return None if begin is None or end is None else (begin, end)

    def render(self, messages: Messages, tools: Tools | None = None) -> bytes:
        """Return the whole prompt with its generation prompt.

        Raises `RendererError` for messages that the template cannot render.
        """
        return pack(self._template.render(messages, tools, ask=True))

    def answer(self, messages: Messages, tools: Tools | None = None) -> bytes:
        """Return the ids with which the policy would have sampled the last message.

        They stand behind the earlier messages' prompt and end with a stop token. Raises
        `RendererError`, also if the template writes that answer in another way.
        """
        prompt = self._template.render(messages[:-1], tools, ask=True)
        whole = self._template.render(messages, tools, ask=False)
        added = behind_prompt(prompt, whole, self._tokenizer)
        ends = self._template.ends(added or [])
        if added is None or not ends:
            reason = (
                "does not follow its prompt" if added is None else "has no stop token behind it"
            )
            raise RendererError(
                self.settings.name, f"cannot render: answer {len(messages) - 1} {reason}"
            )
        return pack(added[: ends[0]])

    def forced_call(
        self, prompt: bytes, messages: Messages, tools: Tools | None, name: str | None
    ) -> bytes:
        """Return ids that open a call to function `name`, or to any function if that is None.

        They are to be appended to `prompt`, which renders `messages` (`GenerateTurn.prefill`). Then
        sampling continues inside the call. Thinking that the prompt opened is closed first. Raises
        `RendererError` if this template has no such opening, or if `prompt` does not end where an
        answer begins.
        """

        def render(messages: Messages, ask: bool) -> list[int]:
            return self._template.render(messages, tools, ask=ask)

        try:
            opening = find_opening(render, self._tokenizer, messages, name, tools or ())
            if not prompt.endswith(pack(opening.generation_prompt)):
                raise NoOpening("the prompt does not end where an answer begins")
            for function, ids in opening.calls.items():
                parsed = self.parse(pack(ids), tools, prompt).tool_calls
                if [call.name for call in parsed] != [name or function]:
                    raise NoOpening(f"a call of {name or function} that is opened so is not read")
        except NoOpening as error:
            raise RendererError(self.settings.name, f"cannot render: {error}") from error
        return pack(opening.ids)

    def tail(self, prompt: bytes) -> bytes:
        """Return the part of a prompt that `bridge` and `parse` read: from its last stop token on.

        It is the whole prompt if that has no stop token, or if this bridge needs the history.
        The cost grows with the tail's length; `tail(tail(prompt)) == tail(prompt)`.
        """
        return self._bridge.tail(prompt)

    def bridge(
        self, prompt: bytes, completion: bytes, new_messages: Messages, tools: Tools | None = None
    ) -> bytes | None:
        """Return the ids to append to `prompt + completion` so that the next turn can be sampled.

        `prompt` may be its `tail`. The ids begin with what the completion lacks (end of thinking,
        end of turn). New assistant messages are rendered, since the policy did not sample them.
        Without new messages only the next answer is asked for. Returns None if the template would
        change earlier tokens, for example for a new user message if thinking is not kept. Also
        None after a completion that stopped inside its thinking. Raises `RendererError` for
        messages that cannot be rendered at all.
        """
        return self._bridge.suffix(prompt, completion, new_messages, tools)

    def parse(
        self, completion: bytes, tools: Tools | None = None, prompt: bytes = b""
    ) -> ParsedMessage:
        """Return a whole completion's message. Raises nothing, whatever was sampled.

        Without `tools`, tool call markup is plain content, which the agent may parse itself.
        `prompt` (its `tail` is enough) shows whether it opened thinking; without it a prompt's
        usual end is assumed.
        """
        stream = self.stream(tools, prompt)
        stream.feed(completion)
        stream.finish()
        return stream.message

    def stream(self, tools: Tools | None = None, prompt: bytes = b"") -> MessageStream:
        """Return a stream for one completion, with the arguments of `parse`.

        All its deltas together equal the message that `parse` returns.
        """
        return self._parser.stream(offered(tools), self._template.from_last_stop(prompt))

    def raw_stream(self) -> MessageStream:
        """Return a stream for a completion without a chat template: all of it is plain text."""
        return PlainStream(self.text_stream())

    def text_stream(self) -> TextStream:
        """Return a stream of plain text, without special and stop tokens."""
        return self._tokenizer.text_stream(self._tokenizer.special_ids | set(self.stop_token_ids))

    def encode(self, text: str) -> bytes:
        """Return the ids of `text`; special tokens spelt out in it become their ids."""
        return pack(self._tokenizer.encode(text))

    def normalized(self, text: str) -> str:
        """Return the text as the tokenizer reads it; `decode` may give only this spelling back."""
        return self._tokenizer.normalized(text)

    def decode(self, ids: bytes) -> str:
        """Return the text of `ids`, with special tokens spelt out."""
        return self._tokenizer.decode(unpack(ids))


def _outside_text(tokenizer: Tokenizer) -> OutsideText:
    source = None if tokenizer.directory is None else template_source(tokenizer.directory)
    return OutsideText(control_spellings(tokenizer.added_tokens, source or ""))
