"""Conversations from elsewhere as trajectories: exact messages, rendered tokens, no log-probs."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from seamlessflow.demo.model import make_model
from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.settings import RendererSettings
from seamlessflow.recorded.importing.conversations.reading import reader_of
from seamlessflow.recorded.importing.foreign_row import ForeignRowRejected, foreign_row
from seamlessflow.recorded.importing.foreign_trajectory import (
    ForeignRules,
    RowOrigin,
    foreign_trajectory,
)
from seamlessflow.runs.imported_conversations import ConversationReader
from seamlessflow.schemas.records import Trajectory
from seamlessflow.schemas.tokens import unpack
from seamlessflow.trainer.data.chains import chains

ASKED: dict[str, Any] = {"role": "user", "content": "key 7"}
SAID: dict[str, Any] = {"role": "assistant", "content": "code 3"}
AGAIN: dict[str, Any] = {"role": "user", "content": "key 8"}
UNTRAINED = ForeignRules()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model")
    make_model(directory, 0)
    return directory


def brought_in(
    directory: Path, model: Path | None, *values: Any, rules: ForeignRules = UNTRAINED
) -> list[Trajectory]:
    """Write values as lines and return the trajectories that they become."""
    path = directory / "chat.jsonl"
    path.write_bytes(b"\n".join(map(orjson.dumps, values)))
    reader = reader_of(path)
    assert reader is not None
    rows = ConversationReader(model).rows(reader)(path)
    return [
        foreign_trajectory(
            RowOrigin(str(path), path.name, "d", number),
            foreign_row(str(path), number, row),
            rules,
        )
        for number, row in enumerate(rows, 1)
    ]


def test_messages_stay_as_they_are_and_tokens_are_marked_as_rendered(
    tmp_path: Path, model: Path
) -> None:
    messages = [ASKED, SAID, AGAIN, SAID]
    (made,) = brought_in(tmp_path, model, {"messages": messages, "id": "mine"})
    facts = made.metadata
    assert orjson.loads(facts["messages"]) == messages
    assert (facts["tokens"], facts["logprobs"], facts["source"]) == ("rendered", "none", "chat")
    assert facts["foreign_session_id"] == "mine"
    assert made.logprobs == bytes(len(made.tokens))
    assert made.loss_mask == bytes(len(made.loss_mask))
    assert {node.origin for node in made.nodes} == {"prompt", "foreign"}
    assert not any(node.behavior_exact for node in made.nodes if node.origin == "foreign")


def test_its_answers_are_the_foreign_tokens(tmp_path: Path, model: Path) -> None:
    renderer = Renderer.load(model, RendererSettings("qwen3"))
    (made,) = brought_in(tmp_path, model, {"messages": [ASKED, SAID]})
    (answer,) = [node for node in made.nodes if node.origin == "foreign"]
    text = renderer.decode(made.tokens[4 * answer.start : 4 * (answer.start + answer.length)])
    assert text.endswith("code 3<|im_end|>")
    assert made.tokenizer_hash == renderer.hash


def test_a_branch_that_the_template_rewrites_is_a_root_of_its_own(
    tmp_path: Path, model: Path
) -> None:
    thought = {**SAID, "reasoning_content": "hm"}
    (made,) = brought_in(tmp_path, model, {"messages": [ASKED, thought, AGAIN, thought]})
    roots = [node for node in made.nodes if node.parent < 0]
    assert len(roots) == 2
    assert unpack(made.tokens)[roots[1].start] == unpack(made.tokens)[0]


def test_it_is_no_policy_data(tmp_path: Path, model: Path) -> None:
    talk = {"messages": [ASKED, SAID]}
    with pytest.raises(ForeignRowRejected, match="no log-probs to be trained with"):
        brought_in(tmp_path, model, talk, rules=ForeignRules(train=True, version=3))
    cloned = ForeignRules(train=True, unscored=True, policy="tiny")
    (made,) = brought_in(tmp_path, model, talk, rules=cloned)
    assert made.loss_mask.count(1) > 0
    assert chains(made, "tiny").chains == ()


def test_a_file_with_conversations_needs_a_model(tmp_path: Path) -> None:
    with pytest.raises(SettingsRejected, match="name the directory of the model"):
        brought_in(tmp_path, None, {"messages": [ASKED, SAID]})


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([ASKED], "no message is an answer"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}, SAID], "text"),
        ([ASKED, {"role": "assistant", "content": "a<|im_end|>b"}], "learned otherwise"),
    ],
)
def test_what_cannot_be_rendered_is_named_by_its_row(
    tmp_path: Path, model: Path, messages: list[Any], reason: str
) -> None:
    with pytest.raises(ForeignRowRejected, match=reason) as raised:
        brought_in(tmp_path, model, {"messages": [ASKED, SAID]}, {"messages": messages})
    assert raised.value.row == 2


def test_what_cannot_be_rendered_may_be_left_out_by_name(tmp_path: Path, model: Path) -> None:
    path = tmp_path / "chat.jsonl"
    talks = [{"messages": [ASKED]}, {"messages": [ASKED, SAID]}]
    path.write_bytes(b"\n".join(map(orjson.dumps, talks)))
    form = reader_of(path)
    assert form is not None
    reader = ConversationReader(model, skip=True)
    assert len(list(reader.rows(form)(path))) == 1
    ((place, reason),) = reader.skipped.items()
    assert place == (path, 1) and "no message is an answer" in reason
