"""Messages to token ids and back.

Called by the trajectory manager (render, bridge, stream) and the rollout worker (parse). Prompts
and completions are int32 bytes. Nothing sampled is ever tokenised again: a bridge only adds behind
the exact ids.

`chat_template.py` renders, `bridge.py` goes from turn to turn, `completion_reader.py` reads what
was sampled; all on the library that `renderer_library.py` loads.
"""

from pathlib import Path

from infra.rendering import probes
from infra.rendering.bridge import Bridge
from infra.rendering.chat_template import ChatTemplate, Messages, Tools, offered
from infra.rendering.completion import MessageStream, ParsedMessage, PlainStream
from infra.rendering.completion_parser import CompletionParser
from infra.rendering.forced_calls import NoOpening, find_opening
from infra.rendering.library import library_renderer
from infra.rendering.settings import RendererError, RendererSettings, rendering_hash
from infra.rendering.tokenizer import TextStream, Tokenizer, TokenizerError
from schemas.tokens import pack, unpack


class Renderer:
    """One model family's template on one tokenizer. Not for several threads at once."""

    def __init__(self, tokenizer: Tokenizer, settings: RendererSettings, digest: str) -> None:
        """`Renderer.load` is the usual way. Raises `RendererError`."""
        self.settings = settings
        self.hash = digest
        """Hex; equal for equal tokenizer and settings, on any machine."""
        self._tokenizer = tokenizer
        library = library_renderer(tokenizer, settings)
        self._template = template = ChatTemplate(library, settings.name)
        self.stop_token_ids = template.stop_token_ids
        samples = list(probes.completions(tokenizer, template.spelt_call(), self.stop_token_ids[0]))
        usual_tail = template.from_last_stop(self.render(probes.SHORT))
        self._reader = CompletionParser(
            library, tokenizer, frozenset(self.stop_token_ids), samples, usual_tail
        )
        self._bridge = Bridge(template, samples)

    @classmethod
    def load(cls, tokenizer_dir: Path, settings: RendererSettings) -> "Renderer":
        """Raises `RendererError`, naming the special tokens that the tokenizer lacks, or the wrong
        setting."""
        try:
            tokenizer = Tokenizer.load(tokenizer_dir)
        except TokenizerError as error:
            raise RendererError(settings.name, str(error)) from error
        return cls(tokenizer, settings, rendering_hash(tokenizer_dir, settings))

    def variant(self, settings: RendererSettings) -> "Renderer":
        """Other settings on the same tokenizer. Raises `RendererError`."""
        return Renderer(self._tokenizer, settings, self.hash)

    @property
    def streams(self) -> bool:
        """Whether `stream` gives text as it comes; else all of it comes at the end."""
        return self._reader.streams

    def render(self, messages: Messages, tools: Tools | None = None) -> bytes:
        """The whole prompt with its generation prompt. Raises `RendererError` for messages it
        cannot take."""
        return pack(self._template.render(messages, tools, ask=True))

    def forced_call(
        self, prompt: bytes, messages: Messages, tools: Tools | None, name: str | None
    ) -> bytes:
        """Ids that open a call of function `name`, or of any function, behind the `prompt` of
        `messages`.

        They are to be the prompt's last ones (`GenerateTurn.prefill`): what is sampled behind them
        goes on inside the call. Thinking that the prompt opened is closed first. Raises
        `RendererError` where this template has no such opening, or `prompt` does not end where an
        answer begins.
        """

        def render(messages: Messages, ask: bool) -> list[int]:
            return self._template.render(messages, tools, ask=ask)

        try:
            opening = find_opening(render, self._tokenizer, messages, name, tools or ())
            if not prompt.endswith(pack(opening.generation_prompt)):
                raise NoOpening("the prompt does not end where an answer begins")
            for own, ids in opening.calls.items():
                read = self.parse(pack(ids), tools, prompt).tool_calls
                if [call.name for call in read] != [name or own]:
                    raise NoOpening(f"a call of {name or own} that is opened so is not read")
        except NoOpening as error:
            raise RendererError(self.settings.name, f"cannot render: {error}") from error
        return pack(opening.ids)

    def tail(self, prompt: bytes) -> bytes:
        """The part of a prompt that `bridge` and `parse` read: from its last stop token on.

        The whole prompt where it holds none, or where this renderer's bridge needs the history.
        Costs as much as the tail is long; `tail(tail(prompt)) == tail(prompt)`.
        """
        return self._bridge.tail(prompt)

    def bridge(
        self, prompt: bytes, completion: bytes, new_messages: Messages, tools: Tools | None = None
    ) -> bytes | None:
        """Ids to append behind `prompt + completion` so that the next turn can be sampled.

        `prompt` may be its `tail`. What the completion lacks (end of thinking, end of turn) comes
        first. None where the template would change what stands before: for a new user message where
        thinking is not retained, for new assistant messages, after a completion that stopped inside
        its thinking. Raises `RendererError` for messages that cannot be rendered at all.
        """
        return self._bridge.suffix(prompt, completion, new_messages, tools)

    def parse(
        self, completion: bytes, tools: Tools | None = None, prompt: bytes = b""
    ) -> ParsedMessage:
        """The message of a whole completion; raises nothing, whatever was sampled.

        Without `tools` the markup of tool calls is plain content: an agent that offered none reads
        it itself. `prompt` (its `tail` is enough) tells whether thinking was opened there; without
        it the usual end of a prompt counts.
        """
        stream = self.stream(tools, prompt)
        stream.feed(completion)
        stream.finish()
        return stream.message

    def stream(self, tools: Tools | None = None, prompt: bytes = b"") -> MessageStream:
        """A stream for one completion; all its deltas together equal `parse`. Arguments as
        there."""
        return self._reader.stream(offered(tools), self._template.from_last_stop(prompt))

    def raw_stream(self) -> MessageStream:
        """A stream for a completion of a prompt without a chat template: plain text, nothing in it
        is markup."""
        return PlainStream(self.text_stream())

    def text_stream(self) -> TextStream:
        """Plain text of ids as they come, without special and stop tokens."""
        return self._tokenizer.text_stream(self._tokenizer.special_ids | set(self.stop_token_ids))

    def encode(self, text: str) -> bytes:
        """Ids of `text`; special tokens spelt out in it become their ids."""
        return pack(self._tokenizer.encode(text))

    def decode(self, ids: bytes) -> str:
        """Text of `ids`, special tokens spelt out."""
        return self._tokenizer.decode(unpack(ids))
