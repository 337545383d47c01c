"""The rollout worker with the torch engine: what is on the log is what the policy says."""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pytest
from transformers import AutoModelForCausalLM, PreTrainedModel

from seamlessflow.demo.model import make_model
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.weights.manifest import Manifest, WeightsInvalid, publish
from seamlessflow.infra.weights.versions import PublishedWeights
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.tokens import unpack
from tests.builders.models import plain_logprobs, plain_top
from tests.builders.rollout.rollout_system import RolloutSystem, rollout_system

pytestmark = pytest.mark.kafka

TURNS = 12
LONG = r.Sampling(max_tokens=300)
ONE_THREAD = {"threads": 1, "kv_bytes": 64 * 1024 * 1024}
TOLERANCE = 1e-4


def plain_model(weights: PublishedWeights) -> PreTrainedModel:
    """Return the same weights as a plain model."""
    loaded: PreTrainedModel = AutoModelForCausalLM.from_pretrained(weights.directory)
    return loaded


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> list[PublishedWeights]:
    """Return two versions of a random model, with a tokenizer."""
    root = tmp_path_factory.mktemp("weights")
    made = []
    for number in (0, 1):
        facts = Manifest(
            policy="any", version=number, optimizer_step=number, lineage="l", dtype="float32"
        )
        made.append(publish(root, facts, partial(make_model, seed=number), False).weights)
    return made


@pytest.fixture(scope="module")
def system(broker: KafkaSettings, versions: list[PublishedWeights]) -> Iterator[RolloutSystem]:
    with rollout_system(broker, versions[0].path) as made:
        yield made


def serving(
    system: RolloutSystem, name: str, slot: int, version: PublishedWeights
) -> r.RoleAcquired:
    """Start a worker that samples with this version; return its role."""
    announce(system, name, version)
    system.start(name, f"policy-{name}", capacity=8, torch=ONE_THREAD)
    return system.serve(name, slot)


class Refusal(logging.Handler):
    """A log's reader, which waits for a line with this text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.seen = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if self.text in record.getMessage():
            self.seen.set()


@contextmanager
def logged_by(handler: logging.Handler) -> Iterator[None]:
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


def announce(system: RolloutSystem, name: str, version: PublishedWeights) -> None:
    system.publish(f"policy-{name}", version)


def prompt(number: int) -> list[int]:
    """Return a prompt of its own for each turn."""
    return [number + 20, 40, 41, 42, number + 60]


def ids_and_logprobs(records: Sequence[Record]) -> tuple[list[int], npt.NDArray[np.float32]]:
    """Return the completion of a turn's output records; check that it has no hole."""
    ids, logprobs = b"", b""
    for record in records:
        assert isinstance(record, r.TurnProgressed | r.TurnInterrupted | r.TurnCompleted)
        assert record.token_offset == len(ids) // 4
        ids += record.token_ids
        logprobs += record.logprobs
    return unpack(ids), np.frombuffer(logprobs, "<f4")


def test_turns_taken_from_one_worker_go_on_at_another_as_the_policy_would(
    system: RolloutSystem, versions: list[PublishedWeights]
) -> None:
    first = serving(system, "first", 1, versions[0])
    turns = [f"t-moved-{number}" for number in range(TURNS)]
    for number, turn_id in enumerate(turns):
        system.generate(first, turn_id, prompt(number), sampling=LONG, stream=True)
    # Of any: a turn that ends at once has no progress.
    system.wait(r.TurnProgressed, lambda progress: progress.turn_id in turns)
    system.assign("first", "train")
    system.wait(r.RoleReleased, lambda gone: gone.worker == "first")
    second = serving(system, "second", 2, versions[0])
    moved = 0
    for number, turn_id in enumerate(turns):
        written = system.outputs(turn_id)
        if isinstance(written[-1], r.TurnInterrupted):
            ids, _ = ids_and_logprobs(written)
            moved += bool(ids)
            system.generate(
                second,
                turn_id,
                prompt(number),
                sampling=LONG,
                dispatch=2,
                completion_ids=np.array(ids, "<i4").tobytes(),
            )
    assert moved, "no turn was interrupted in its middle"
    plain = plain_model(versions[0])
    for number, turn_id in enumerate(turns):
        done = system.completed(turn_id)
        ids, logprobs = ids_and_logprobs(system.outputs(turn_id))
        expected = plain_logprobs(plain, prompt(number) + ids, len(prompt(number)))
        np.testing.assert_allclose(logprobs, expected, atol=TOLERANCE)
        assert done.finish_reason in ("stop", "length")


def test_tokens_under_new_weights_are_what_these_say_of_the_whole_history(
    system: RolloutSystem, versions: list[PublishedWeights]
) -> None:
    role = serving(system, "learns", 3, versions[0])
    # More than it samples at once: some are in their middle whenever the weights come.
    turns = {f"t-learns-{number}": prompt(number) for number in range(2 * TURNS)}
    for turn_id, prompted in turns.items():
        system.generate(role, turn_id, prompted, sampling=LONG, stream=True)
    # Of any: a turn that ends at once has no progress.
    system.wait(r.TurnProgressed, lambda progress: progress.turn_id in turns)
    announce(system, "learns", versions[1])
    system.wait(r.GenerationResumed, lambda resumed: resumed.worker == "learns")
    plain = [plain_model(version) for version in versions]
    mixed = 0
    for turn_id, prompted in turns.items():
        system.completed(turn_id)
        records = system.outputs(turn_id)
        ids, logprobs = ids_and_logprobs(records)
        version_of = versions_by_token(records, len(ids))
        mixed += len(set(version_of)) > 1
        expected = [plain_logprobs(model, prompted + ids, len(prompted)) for model in plain]
        chosen = [expected[version][place] for place, version in enumerate(version_of)]
        np.testing.assert_allclose(logprobs, chosen, atol=TOLERANCE)
    assert mixed, "no turn was in its middle at the update"


def versions_by_token(records: Sequence[Record], count: int) -> list[int]:
    """Return the version under which each token of a completion was sampled."""
    by_token = [-1] * count
    for record in records:
        assert isinstance(record, r.TurnProgressed | r.TurnInterrupted | r.TurnCompleted)
        end = record.token_offset + len(record.token_ids) // 4
        for span in record.spans:
            assert span.version_min == span.version_max
            by_token[span.start : end] = [span.version_min] * (end - span.start)
    return by_token


def test_the_most_likely_tokens_beside_each_are_those_of_the_policy(
    system: RolloutSystem, versions: list[PublishedWeights]
) -> None:
    role = serving(system, "tells", 5, versions[0])
    asked = r.Sampling(max_tokens=200, temperature=1.7, top_logprobs=5)
    system.generate(role, "t-tells", prompt(0), sampling=asked, stream=True)
    system.completed("t-tells")
    records = system.outputs("t-tells")
    ids, _ = ids_and_logprobs(records)
    pieces: dict[str, list[bytes]] = {"topk_ids": [], "topk_logprobs": []}
    for record in records:
        assert isinstance(record, r.TurnProgressed | r.TurnCompleted)
        tokens = len(record.token_ids) // 4
        for tensor in record.tensors:
            assert tensor.from_token == record.token_offset
            assert tensor.to_token == record.token_offset + tokens
            assert tensor.shape == (tokens, 5)
            pieces[tensor.name].append(tensor.data or b"")
    top_ids, top_logprobs = plain_top(plain_model(versions[0]), prompt(0) + ids, 5, 5, 1.7)
    assert unpack(b"".join(pieces["topk_ids"])) == [token for row in top_ids for token in row]
    logprobs = np.frombuffer(b"".join(pieces["topk_logprobs"]), "<f4").reshape(-1, 5)
    np.testing.assert_allclose(logprobs, top_logprobs, atol=TOLERANCE)


def test_a_seeded_turn_that_begins_anew_is_the_same(
    system: RolloutSystem, versions: list[PublishedWeights]
) -> None:
    role = serving(system, "draws", 6, versions[0])
    asked = r.Sampling(max_tokens=40, seed=7)
    system.generate(role, "t-draws", prompt(0), sampling=asked)
    first = system.completed("t-draws")
    system.generate(role, "t-draws", prompt(0), sampling=asked, dispatch=2)
    again = system.wait(
        r.TurnCompleted, lambda done: (done.turn_id, done.dispatch) == ("t-draws", 2)
    )
    system.generate(role, "t-draws-else", prompt(0), sampling=asked)
    assert first.token_ids == again.token_ids != system.completed("t-draws-else").token_ids


def test_a_worker_whose_first_weights_are_gone_waits_for_others(
    system: RolloutSystem, versions: list[PublishedWeights]
) -> None:
    gone = replace(versions[0], directory=f"{versions[0].directory}-gone")
    announce(system, "waits", gone)
    worker = system.start("waits", "policy-waits", torch=ONE_THREAD)
    refused = Refusal("version 0 is not loaded")
    with logged_by(refused):
        system.assign("waits", "rollout", 7)
        assert refused.seen.wait(system.deadline_s)
    announce(system, "waits", versions[1])
    role = system.wait(r.RoleAcquired, lambda role: role.worker == "waits")
    assert role.version == 1
    system.generate(role, "t-waits", prompt(0), sampling=r.Sampling(max_tokens=3))
    assert system.completed("t-waits").token_ids
    assert worker.error is None


def test_spoilt_weights_are_never_served(
    system: RolloutSystem, versions: list[PublishedWeights]
) -> None:
    announce(system, "refuses", versions[0])
    worker = system.start("refuses", "policy-refuses", torch=ONE_THREAD)
    role = system.serve("refuses", 4)
    system.generate(role, "t-before", prompt(0), sampling=r.Sampling(max_tokens=3))
    system.completed("t-before")
    system.publish("policy-refuses", replace(versions[1], manifest_sha256="0" * 64))
    worker.join()
    assert isinstance(worker.error, WeightsInvalid)
    beats = [
        item.record
        for item in system.log
        if isinstance(item.record, r.WorkerHeartbeat) and item.record.worker == "refuses"
    ]
    assert (beats[-1].state, beats[-1].version) == ("failed", 0)
    assert not any(
        isinstance(item.record, r.GenerationResumed) and item.record.worker == "refuses"
        for item in system.log
    )
