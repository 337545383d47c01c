"""The models' own templates as renderers: what each family can do, as docs/renderers.md says."""

from pathlib import Path

import pytest

from seamlessflow.infra.rendering.completion import MessageDelta
from seamlessflow.infra.rendering.model_template.discovery import found_for
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.settings import (
    CHAT_TEMPLATE,
    RendererError,
    RendererSettings,
    rendering_hash,
)
from seamlessflow.schemas.tokens import TOKEN_BYTES
from tests.builders.messages import ASKED, TOLD, TOOLS, called
from tests.builders.model_directories import FAMILIES, Family, model_directory
from tests.paths import ROOT

ASKED_AGAIN = {"role": "user", "content": "two"}
SAID = {"role": "assistant", "content": "three"}
SYSTEM = {"role": "system", "content": "be brief"}

WITH_TOOLS = ("Qwen2.5", "Llama 3.x", "Mistral")
FORKS_AT_USERS = ("Mistral",)


def made(directory: Path, name: str, settings: RendererSettings | None = None) -> Renderer:
    model_directory(directory, FAMILIES[name])
    return Renderer.load(directory, settings or RendererSettings(CHAT_TEMPLATE))


def closed(renderer: Renderer, text: str) -> bytes:
    stop = renderer.stop_token_ids[0].to_bytes(TOKEN_BYTES, "little")
    return renderer.encode(text) + stop


def spelt(renderer: Renderer, arguments: str = '{"a": 1}') -> bytes:
    """Return a call as the model samples it: a rendered one, from where an answer begins."""
    asked = renderer.render([ASKED], TOOLS)
    answered = renderer.render([ASKED, called(arguments), TOLD], TOOLS)
    assert answered.startswith(asked)
    text = renderer.decode(answered[len(asked) :])
    return renderer.encode(text.partition(renderer.decode(closed(renderer, "")))[0])


@pytest.mark.parametrize("name", FAMILIES)
def test_the_documentation_says_what_a_family_can_do(name: str) -> None:
    page = (ROOT / "docs" / "renderers.md").read_text()
    (row,) = [line for line in page.splitlines() if line.startswith(f"| {name} |")]
    _, _, _, tools, users, *_ = (cell.strip() for cell in row.split("|"))

    assert tools.startswith("yes") is (name in WITH_TOOLS)
    assert (users == "extend") is (name not in FORKS_AT_USERS)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_renderer_is_found_for_a_family(tmp_path: Path, name: str) -> None:
    model_directory(tmp_path, FAMILIES[name])

    renderer = found_for(tmp_path)

    assert renderer.name == ("llama-3" if name == "Llama 3.x" else CHAT_TEMPLATE)


@pytest.mark.parametrize("name", FAMILIES)
def test_new_user_messages_follow_the_exact_ids(tmp_path: Path, name: str) -> None:
    renderer = made(tmp_path, name)
    before = " " if name == "Mistral" else ""
    prompt, completion = renderer.render([ASKED]), closed(renderer, f"{before}three")

    suffix = renderer.bridge(prompt, completion, [ASKED_AGAIN])

    if name in FORKS_AT_USERS:
        assert suffix is None
    else:
        assert suffix is not None
        whole = renderer.render([ASKED, SAID, ASKED_AGAIN])
        assert prompt + completion + suffix == whole


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in FORKS_AT_USERS])
def test_a_completion_that_was_cut_short_is_closed_first(tmp_path: Path, name: str) -> None:
    renderer = made(tmp_path, name)
    prompt = renderer.render([ASKED])

    whole = renderer.bridge(prompt, closed(renderer, "thr"), [ASKED_AGAIN])
    cut = renderer.bridge(prompt, renderer.encode("thr"), [ASKED_AGAIN])

    assert whole is not None
    assert cut == closed(renderer, "") + whole
    assert renderer.bridge(prompt, closed(renderer, "thr") + whole[:8], [ASKED_AGAIN]) is None


@pytest.mark.parametrize("name", WITH_TOOLS)
def test_a_call_is_read_answered_and_forced(tmp_path: Path, name: str) -> None:
    renderer = made(tmp_path, name)
    prompt, call = renderer.render([ASKED], TOOLS), spelt(renderer)

    read = renderer.parse(call, TOOLS, prompt)
    assert [(entry.name, entry.arguments) for entry in read.tool_calls] == [("act", '{"a": 1}')]
    assert (read.content, read.malformed) == ("", ())
    assert renderer.parse(call, None, prompt).content == renderer.decode(call).strip()

    completion = call + closed(renderer, "")
    suffix = renderer.bridge(prompt, completion, [TOLD], TOOLS)
    assert suffix is not None
    assert prompt + completion + suffix == renderer.render([ASKED, called('{"a": 1}'), TOLD], TOOLS)

    begun = renderer.forced_call(prompt, [ASKED], TOOLS, "act")
    assert call.startswith(begun) and '"act"' in renderer.decode(begun)


@pytest.mark.parametrize("name", ["Qwen2.5", "Mistral"])
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (("{", ""), "invalid_json"),
        (('"name"', '"names"'), "missing_name"),
        (('"arguments"', '"parameters"'), "missing_arguments"),
    ],
)
def test_a_malformed_call_stays_in_the_content(
    tmp_path: Path, name: str, damage: tuple[str, str], reason: str
) -> None:
    renderer = made(tmp_path, name)
    text = renderer.decode(spelt(renderer)).replace(*damage, 1)

    read = renderer.parse(renderer.encode(text), TOOLS)

    assert (read.tool_calls, read.malformed) == ((), (reason,))
    assert "act" in read.content


def test_results_of_calls_get_the_ids_that_the_model_sampled(tmp_path: Path) -> None:
    renderer = made(tmp_path, "Mistral")
    prompt = renderer.render([ASKED], TOOLS)
    text = renderer.decode(spelt(renderer)).replace("00000000c", "abcdefghi")
    result = {**TOLD, "tool_call_id": "call_a-turn_0"}

    suffix = renderer.bridge(prompt, closed(renderer, text), [result], TOOLS)

    assert '"call_id": "abcdefghi"' in renderer.decode(suffix or b"")


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in WITH_TOOLS])
def test_tools_that_a_template_would_drop_are_refused(tmp_path: Path, name: str) -> None:
    renderer = made(tmp_path, name)

    for messages, tools in (([ASKED], TOOLS), ([ASKED, called("{}"), TOLD], None)):
        with pytest.raises(RendererError, match="leave them out, or describe them"):
            renderer.render(messages, tools)


@pytest.mark.parametrize("name", FAMILIES)
def test_text_comes_as_it_is_sampled(tmp_path: Path, name: str) -> None:
    renderer = made(tmp_path, name)
    ids = closed(renderer, " \nsome text\n ")
    stream = renderer.stream()

    parts: list[MessageDelta] = []
    for start in range(0, len(ids), TOKEN_BYTES):
        parts.append(stream.feed(ids[start : start + TOKEN_BYTES]))
    early = "".join(part.content for part in parts)
    stream.finish()

    assert early == stream.message.content == renderer.parse(ids).content == "some text"


def test_a_system_message_that_a_template_refuses_is_refused(tmp_path: Path) -> None:
    settings = RendererSettings(CHAT_TEMPLATE, options={"no_system": True})

    with pytest.raises(RendererError, match="System role not supported"):
        made(tmp_path, "Gemma", settings).render([SYSTEM, ASKED])


CHATML = "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
EACH = "{% for message in messages %}" + CHATML + "{% endfor %}"
ASK = "{{ '<|im_start|>assistant\\n' if add_generation_prompt }}"
SILENT = EACH.replace("messages %}", "messages if message.role != 'system' %}")
NUMBERED = EACH.replace("message.role +", "(loop.index | string) + message.role +")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (EACH.replace("<|im_end|>", "") + ASK, "no special token behind an answer"),
        (NUMBERED + ASK, "depends on what stands before"),
        ("{{ messages[0].content }}<|im_end|>" + ASK, "leaves out the text of answers"),
        (
            EACH.replace("message.content", "message.content.split('</think>')[-1]") + ASK,
            "removes thinking of earlier turns; set thinking_retention to all",
        ),
    ],
)
def test_a_template_that_nothing_can_follow_is_refused_with_the_property(
    tmp_path: Path, source: str, reason: str
) -> None:
    thinking = Family("qwen25", FAMILIES["Qwen2.5"].specials, "<|im_end|>", plain=("</think>",))
    model_directory(tmp_path, thinking, source)

    with pytest.raises(RendererError, match=reason):
        found_for(tmp_path)


def test_thinking_that_a_template_removes_may_be_kept(tmp_path: Path) -> None:
    source = EACH.replace("message.content", "message.content.split('</think>')[-1]") + ASK
    marks = ("<think>", "</think>")
    thinking = Family("qwen25", FAMILIES["Qwen2.5"].specials, "<|im_end|>", plain=marks)
    model_directory(tmp_path, thinking, source)
    renderer = Renderer.load(tmp_path, RendererSettings(CHAT_TEMPLATE, "all"))
    completion = closed(renderer, "<think>\nwhy\n</think>\n\nthree")

    suffix = renderer.bridge(renderer.render([ASKED]), completion, [ASKED_AGAIN])

    assert renderer.decode(suffix or b"").startswith("\n<|im_start|>user\ntwo")
    read = renderer.parse(completion)
    assert (read.content, read.reasoning) == ("three", "why")
    unclosed = closed(renderer, "<think>\nwhy")
    assert renderer.bridge(renderer.render([ASKED]), unclosed, [ASKED_AGAIN]) is None


def test_a_system_message_that_a_template_drops_is_refused(tmp_path: Path) -> None:
    model_directory(tmp_path, FAMILIES["Qwen2.5"], SILENT + ASK)
    renderer = Renderer.load(tmp_path, RendererSettings(CHAT_TEMPLATE))

    with pytest.raises(RendererError, match="leaves out system messages"):
        renderer.render([SYSTEM, ASKED])


def test_options_that_a_template_does_not_read_are_refused(tmp_path: Path) -> None:
    settings = RendererSettings(CHAT_TEMPLATE, options={"no_such": True})

    with pytest.raises(RendererError, match="does not read no_such"):
        made(tmp_path, "Gemma", settings)


def test_the_hash_is_that_of_the_template_too(tmp_path: Path) -> None:
    settings, family = RendererSettings(CHAT_TEMPLATE), FAMILIES["Phi"]
    hashes = {
        rendering_hash(model_directory(tmp_path, family, source), settings)
        for source in (None, None, EACH + ASK)
    }
    assert len(hashes) == 2
