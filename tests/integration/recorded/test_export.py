"""Recorded sessions exported from a real broker, and brought in again."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from seamlessflow.demo.model import make_model
from seamlessflow.infra.disk import DiskFull
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.kafka.topics.existing import partition_counts
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.codec import decode
from seamlessflow.schemas.records import LineageStarted, Trajectory
from seamlessflow.schemas.topics import CONTROL, SESSIONS, TRAJECTORIES
from tests.builders.disks.file_limit import largest_file
from tests.builders.own_topics import SMALL
from tests.builders.trajectories.exports import bring_in, brought_in, export, named_cluster, rows
from tests.builders.trajectories.golden_topics import golden_log

LOG = golden_log()
SMALL_FILE = 4_000
PLACE = tuple[str, str, int]
"""Session, turn and number of a sampled token in it."""


@pytest.fixture(scope="module", autouse=True)
def log(broker: KafkaSettings) -> Iterator[KafkaSettings]:
    """Yield a cluster with the topics of a finished run."""
    with named_cluster(broker, LOG) as kafka:
        yield kafka


def recorded() -> dict[str, Trajectory]:
    records = [decode(record.value) for record in LOG[TRAJECTORIES.name]]
    return {record.session_id: record for record in records if isinstance(record, Trajectory)}


def sampled(made: Trajectory) -> dict[PLACE, tuple[int, float, bool]]:
    """Return id, log-prob and mask of each sampled token of a trajectory."""
    ids, logprobs = np.frombuffer(made.tokens, "<i4"), np.frombuffer(made.logprobs, "<f4")
    seen: Counter[str] = Counter()
    tokens = {}
    for node in made.nodes:
        if node.origin != "policy":
            continue
        for at in range(node.start, node.start + node.length):
            place = made.session_id, node.turn_id, seen[node.turn_id]
            tokens[place] = int(ids[at]), float(logprobs[at]), bool(made.loss_mask[at])
            seen[node.turn_id] += 1
    return tokens


def unmasked(row: dict[str, Any]) -> Iterator[tuple[PLACE, tuple[int, float, bool]]]:
    """Yield the same of the tokens that stand unmasked in a row of chains."""
    seen: Counter[int] = Counter()
    turns = row["turns"].split()
    columns = ("turn_numbers", "token_ids", "logprobs", "mask", "sampled")
    for turn, token, logprob, trained, is_sampled in zip(*(row[c] for c in columns), strict=True):
        if is_sampled:
            yield (row["session_id"], turns[turn], seen[turn]), (token, logprob, trained)
        if turn >= 0:
            seen[turn] += 1


def test_each_sampled_token_stands_once_unmasked_in_the_chains(
    log: KafkaSettings, tmp_path: Path
) -> None:
    answer = export("--to", tmp_path / "all")
    assert answer.exit_code == 0, answer.output
    tokens = [token for row in rows(tmp_path / "all", "chains") for token in unmasked(row)]
    wanted = {
        place: token for made in recorded().values() for place, token in sampled(made).items()
    }
    assert len(tokens) == len(dict(tokens))
    assert dict(tokens) == wanted

    sessions = {row["session_id"]: row for row in rows(tmp_path / "all", "sessions")}
    assert sessions.keys() == recorded().keys()
    cluster = find_cluster(log).id
    for name, made in recorded().items():
        row = sessions[name]
        assert (row["cluster"], row["prefix"]) == (cluster, log.topic_prefix)
        for column in ("partition", "first_offset", "last_offset", "fold_version", "status"):
            assert row[column] == getattr(made, column)
        assert len(orjson.loads(row["rewards"])) == len(made.rewards)
        assert row["tokens_trained"] == made.loss_mask.count(1)


def test_messages_are_those_of_the_conversation(tmp_path: Path) -> None:
    export("by-hand", "forks-free", "--to", tmp_path / "few", "--format", "jsonl")
    for row in rows(tmp_path / "few", "sessions"):
        messages = orjson.loads(row["messages"])
        assert messages[0]["role"] in ("system", "user")
        assert messages[-1]["role"] == "assistant"
        turns = orjson.loads(row["turns"])
        assert all(turn["message"]["role"] == "assistant" for turn in turns if turn["message"])
        assert messages[-1] in [turn["message"] for turn in turns]
        rules = {turn["match_rule"] for turn in turns}
        assert turns[0]["match_rule"] == "root" and rules <= {"root", "extend", "render", "same"}


def test_an_interrupted_export_goes_on_where_it_ended(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    assert export("--to", whole, "--format", "jsonl").exit_code == 0
    files = {path: path.read_bytes() for path in whole.rglob("*.jsonl")}

    manifest = orjson.loads((whole / "manifest.json").read_bytes())
    lost = next(path for path in sorted(files) if path.parent.name == "chains")
    del manifest["finished"][str(int(lost.stem[-3:]))]
    (whole / "manifest.json").write_bytes(orjson.dumps(manifest))
    lost.rename(lost.with_name(f".{lost.name}"))
    answer = export("--to", whole, "--format", "jsonl")
    others = SMALL[SESSIONS.name].partitions - 1
    assert f"{others} partitions were written by an earlier call" in answer.output
    assert {path: path.read_bytes() for path in whole.rglob("*.jsonl")} == files

    other = export("--to", whole, "--format", "jsonl", "--form", "verl")
    assert other.exit_code != 0
    assert "has an export with another form" in str(other.exception)
    assert "another selection" in str(
        export("nothing", "--to", whole, "--format", "jsonl").exception
    )


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_forms_of_frameworks_have_the_trained_tokens_once(tmp_path: Path, format: str) -> None:
    def samples(form: str) -> list[dict[str, Any]]:
        answer = export("--to", tmp_path / form, "--form", form, "--format", format)
        assert answer.exit_code == 0, answer.output
        return rows(tmp_path / form, "samples")

    trained = sorted(
        (name, token)
        for name, made in recorded().items()
        for token in np.frombuffer(made.tokens, "<i4")[np.frombuffer(made.loss_mask, np.bool_)]
    )
    prime = samples("prime-rl")
    assert trained == _of(prime, "completion_ids", "completion_mask")
    assert not any(flag for row in prime for flag in row["prompt_mask"])
    for row in prime:
        assert len(row["completion_ids"]) == len(row["completion_logprobs"])
        assert len(row["completion_ids"]) == len(row["completion_temperatures"])
    verl = samples("verl")
    assert trained == _of(verl, "response_ids", "response_mask")
    assert [row["prompt_ids"] for row in verl] == [row["prompt_ids"] for row in prime]
    trl = samples("trl")
    assert trained == sorted(
        (row["session_id"], label) for row in trl for label in row["labels"] if label != -100
    )
    assert all(len(row["input_ids"]) == len(row["labels"]) for row in trl)


def test_the_reward_of_a_row_is_the_return_by_the_runs_own_weights(
    broker: KafkaSettings, tmp_path: Path
) -> None:
    settings = orjson.dumps({"trainer": {"rewards": {"reward": 0.5, "unused": 0}}})
    begun = [
        LineageStarted(at_ms=0, policy=policy, lineage=policy, step=0, settings=settings)
        for policy in sorted({made.policy for made in recorded().values()})
    ]
    with named_cluster(broker, LOG) as kafka:
        plain = export("--to", tmp_path / "plain", "--form", "verl", "--format", "jsonl")
        create_topics(kafka, [CONTROL])
        producer = Producer(kafka, "trainer")
        for record in begun:
            producer.send(CONTROL.name, record)
        producer.close()
        answer = export("--to", tmp_path / "own", "--form", "verl", "--format", "jsonl")
        again = export("--to", tmp_path / "plain", "--form", "verl", "--format", "jsonl")
    assert (plain.exit_code, answer.exit_code) == (0, 0), answer.output
    whole, half = (
        {row["session_id"]: row["reward_score"] for row in rows(tmp_path / name, "samples")}
        for name in ("plain", "own")
    )
    assert any(whole.values())
    assert half == {name: reward and reward / 2 for name, reward in whole.items()}
    assert "another rewards" in str(again.exception)


def _of(table: list[dict[str, Any]], ids: str, mask: str) -> list[tuple[str, int]]:
    return sorted(
        (row["session_id"], token)
        for row in table
        for token, flag in zip(row[ids], row[mask], strict=True)
        if flag
    )


def test_only_what_is_selected_is_exported(tmp_path: Path) -> None:
    target = tmp_path / "none"
    for named, reason in ((("nosuch",), "session nosuch"), (("--group", "none"), "group none")):
        answer = export(*named, "--to", target, "--format", "jsonl")
        assert "wrote nothing" in answer.output and reason in answer.output
        assert answer.exit_code == 78
        assert [*target.iterdir()] == []
    empty = export("--offsets", "0:900000-900001", "--to", target, "--format", "jsonl")
    assert "no session that ended matches" in empty.output and empty.exit_code == 0
    assert "no partition 99" in str(export("--offsets", "99:1-2", "--to", target).exception)
    assert export("by-hand", "--to", target, "--format", "jsonl").exit_code == 0


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_an_export_can_be_brought_in_once(log: KafkaSettings, tmp_path: Path, format: str) -> None:
    export("--to", tmp_path / "all", "--format", format)
    chains_there = rows(tmp_path / "all", "chains")
    files = sorted((tmp_path / "all" / "chains").iterdir())
    prefix = f"{log.topic_prefix}{format}."
    answer = bring_in(*files[1:], "--to", prefix, "--train", "--version", "0")
    assert answer.exit_code == 0, answer.output
    answer = bring_in(*files, "--to", prefix, "--train", "--version", "0")
    assert "rows were there" in answer.output

    made = brought_in(log, prefix)
    assert len(made) == len({trajectory.session_id for trajectory in made}) == len(chains_there)
    assert sorted(
        (
            trajectory.metadata["foreign_session_id"],
            trajectory.tokens,
            trajectory.loss_mask,
            trajectory.logprobs,
        )
        for trajectory in made
    ) == sorted(
        (
            row["session_id"],
            np.array(row["token_ids"], "<i4").tobytes(),
            bytes(row["mask"]),
            np.array(row["logprobs"], "<f4").tobytes(),
        )
        for row in chains_there
    )


@pytest.mark.parametrize("form", ["prime-rl", "verl", "trl"])
def test_an_export_of_each_form_comes_back_with_its_versions(
    log: KafkaSettings, tmp_path: Path, form: str
) -> None:
    export("--to", tmp_path / "all", "--form", form, "--format", "jsonl")
    samples = rows(tmp_path / "all", "samples")
    assert any(row["version_min"] != row["version_max"] for row in samples)
    whole = tmp_path / "whole.jsonl"
    exact = [row for row in samples if row["version_min"] is not None]
    whole.write_bytes(b"\n".join(map(orjson.dumps, exact)))
    answer = bring_in(whole, "--to", f"{log.topic_prefix}{form}.", "--train", "--version", "0")
    assert answer.exit_code == 0, answer.output
    made = brought_in(log, f"{log.topic_prefix}{form}.")
    came = sorted((trajectory.version_min, trajectory.version_max) for trajectory in made)
    assert came == sorted((row["version_min"], row["version_max"]) for row in exact)


def test_documents_of_atif_come_back_with_their_tokens(log: KafkaSettings, tmp_path: Path) -> None:
    export("--to", tmp_path / "all", "--form", "atif", "--format", "jsonl")
    files = sorted((tmp_path / "all" / "trajectories").iterdir())
    prefix = f"{log.topic_prefix}atif."
    answer = bring_in(*files, "--to", prefix, "--train")
    assert answer.exit_code == 0, answer.output
    trained = Counter[str]()
    for made in brought_in(log, prefix):
        trained[made.metadata["foreign_session_id"]] += made.loss_mask.count(1)
    expected = {name: made.loss_mask.count(1) for name, made in recorded().items()}
    assert +trained == +Counter(expected)


def test_conversations_are_brought_in_once_and_need_a_model(
    log: KafkaSettings, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    make_model(model, 0)
    said = [{"role": "user", "content": "key 7"}, {"role": "assistant", "content": "code 3"}]
    path = tmp_path / "chat.jsonl"
    path.write_bytes(orjson.dumps({"messages": said}))
    prefix = f"{log.topic_prefix}chat."

    without = bring_in(path, "--to", prefix)
    assert without.exit_code != 0
    for answer in (bring_in(path, "--to", prefix, "--model", model) for _ in range(2)):
        assert answer.exit_code == 0, answer.output
    refused = bring_in(path, "--to", f"{prefix}2.", "--model", model, "--train", "--version", "0")
    assert refused.exit_code != 0

    (made,) = brought_in(log, prefix)
    assert orjson.loads(made.metadata["messages"]) == said
    assert made.loss_mask == bytes(len(made.loss_mask))


def test_files_without_rows_are_said_to_have_none(log: KafkaSettings, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    answer = bring_in(tmp_path / "empty.jsonl", "--to", f"{log.topic_prefix}empty.")
    assert "no rows" in answer.output


def test_a_wrong_file_changes_nothing(log: KafkaSettings, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text('{"token_ids": [1], "mask": [true]}\n{"token_ids": [1], "mask": [1, 0]}\n')
    prefix = f"{log.topic_prefix}wrong."
    reason = f"{wrong}, row 2: mask has 2 entries for 1 tokens"
    assert reason in str(bring_in(wrong, "--to", prefix).exception)
    wrong.write_text("prompt,completion\n")
    assert f"{wrong}, row 1: no JSON" in str(bring_in(wrong, "--to", prefix).exception)
    parquet = wrong.rename(wrong.with_suffix(".parquet"))
    assert "is no Parquet file" in str(bring_in(parquet, "--to", prefix).exception)
    parquet.write_bytes(b"")
    right = tmp_path / "right.jsonl"
    right.write_text('{"token_ids": [1], "mask": [true]}\n')
    live = bring_in(right, "--to", log.topic_prefix)
    assert "prefix of the recorded topics" in str(live.exception)
    assert prefix + TRAJECTORIES.name not in partition_counts(log)


def test_an_export_without_room_leaves_whole_files_only_and_goes_on(tmp_path: Path) -> None:
    target, whole = tmp_path / "e", tmp_path / "whole"
    with largest_file(SMALL_FILE):
        refused = export("--to", target, "--format", "jsonl")
    assert isinstance(refused.exception, DiskFull), refused.output
    assert [path for path in target.rglob(".*.jsonl")] == []
    for directory in (target, whole):
        assert export("--to", directory, "--format", "jsonl").exit_code == 0
    names = sorted(path.relative_to(whole) for path in whole.rglob("*.jsonl"))
    assert names == sorted(path.relative_to(target) for path in target.rglob("*.jsonl"))
    assert [(target / name).read_bytes() for name in names] == [
        (whole / name).read_bytes() for name in names
    ]
