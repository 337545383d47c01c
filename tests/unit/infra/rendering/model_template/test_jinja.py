"""Chat templates as Hugging Face stores them."""

import json
from pathlib import Path

import pytest

from seamlessflow.infra.rendering.model_template.files import (
    CONFIG_FILE,
    TEMPLATE_FILE,
    template_source,
)
from seamlessflow.infra.rendering.model_template.jinja import JinjaTemplate, TemplateRefusal
from tests.builders.messages import ASKED, called


def _rendered(source: str, **options: object) -> str:
    template = JinjaTemplate(source, {"bos_token": "<s>"}, options)
    return template.text([ASKED, called('{"a": "ä<"}')], None, ask=True)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ bos_token }}{{ messages[0].content }}", "<s>one"),
        ("{{ messages[1].tool_calls[0].function.arguments | tojson }}", '{"a": "ä<"}'),
        ("{{ strftime_now('%d %b %Y') }}", "26 Jul 2024"),
        ("{% generation %}x{% endgeneration %}", "x"),
        ("{% for m in messages %}{{ m.role }}{% break %}{% endfor %}", "user"),
        ("{{ add_generation_prompt }}", "True"),
    ],
)
def test_it_reads_as_transformers_renders_it(source: str, text: str) -> None:
    assert _rendered(source) == text


def test_options_are_variables_that_the_template_reads() -> None:
    assert _rendered("{{ mood }}", mood="calm") == "calm"

    for name in ("mood", "tools"):
        with pytest.raises(TemplateRefusal, match=f"does not read {name}"):
            _rendered("{{ tools }}", **{name: "calm"})


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[7].content }}", "no element 7"),
        ("{{ 1 / 0 }}", "division"),
        ("{{ messages.__class__.__mro__ }}", "unsafe"),
        ("{% do messages.append(1) %}", "do"),
    ],
)
def test_what_a_template_cannot_render_is_refused(source: str, reason: str) -> None:
    with pytest.raises(TemplateRefusal, match=reason):
        _rendered(source)


def test_the_file_counts_before_the_configuration(tmp_path: Path) -> None:
    assert template_source(tmp_path) is None
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    (tmp_path / CONFIG_FILE).write_text(json.dumps({"chat_template": named}))
    assert template_source(tmp_path) == "d"
    (tmp_path / CONFIG_FILE).write_text(json.dumps({"chat_template": "c"}))
    assert template_source(tmp_path) == "c"
    (tmp_path / TEMPLATE_FILE).write_text("f")
    assert template_source(tmp_path) == "f"


def test_special_tokens_come_from_the_configuration(tmp_path: Path) -> None:
    config = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": None}
    config["chat_template"] = "{{ bos_token }}{{ eos_token }}{{ pad_token }}"
    (tmp_path / CONFIG_FILE).write_text(json.dumps(config))

    assert JinjaTemplate.load(tmp_path, {}).text([], None, ask=False) == "<s></s>"
