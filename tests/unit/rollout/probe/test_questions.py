"""No engine serves that breaks a promise; the field that is wrong is named."""

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

import pytest

from seamlessflow.infra.device_model.rates import Rates
from seamlessflow.infra.errors import ExitStatus
from seamlessflow.producers.rollout.clock_engine.engine import ClockEngine, ClockEngineSettings
from seamlessflow.producers.rollout.engine.contract import Engine
from seamlessflow.producers.rollout.probe.answers import EngineProbeFailed
from seamlessflow.producers.rollout.probe.asking import EngineProbe
from seamlessflow.producers.rollout.probe.questions import PROMPT_TEXT
from seamlessflow.producers.rollout.scripted_engine import Script, ScriptedEngine
from seamlessflow.producers.rollout.torch_engine.engine import TorchEngine, TorchEngineSettings
from tests.builders.engines import broken as broken
from tests.builders.engines.broken import Altered, BreakingScript, Wrapped
from tests.builders.models import model
from tests.builders.rollout.clock_turns import answers
from tests.builders.rollout.completions import codes
from tests.builders.rollout.generation import as_bytes

PROMPT = as_bytes(codes(PROMPT_TEXT))
PATTERN = as_bytes([11, 12, 13])
VERSION = 3
PATIENT = EngineProbe(60)
IMPATIENT = EngineProbe(0.2)


@pytest.fixture(scope="module")
def sound() -> Iterator[Engine]:
    engine = TorchEngine(model(), TorchEngineSettings(threads=1), VERSION)
    with closing(engine):
        yield engine


@pytest.mark.parametrize(
    "script",
    [
        Script(PATTERN, 150),
        Script(PATTERN, 0),
        Script(PATTERN, 5, tokens_per_second=2_000.0),
        Script(as_bytes([7]), 4),
    ],
)
def test_a_scripted_engine_passes(script: Script) -> None:
    with closing(ScriptedEngine(script, VERSION)) as engine:
        PATIENT.whole(engine, PROMPT, VERSION)
        PATIENT.short(engine, PROMPT, VERSION)


def test_a_clock_engine_passes() -> None:
    settings = ClockEngineSettings(rates=Rates(row_s=1e-5))
    with closing(ClockEngine(settings, answers(), VERSION)) as engine:
        PATIENT.whole(engine, PROMPT, VERSION)
        PATIENT.short(engine, PROMPT, VERSION)


@pytest.mark.parametrize("kind", ["qwen3", "qwen2", "llama"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_torch_engine_passes(kind: str, dtype: str) -> None:
    settings = TorchEngineSettings(dtype=dtype, max_running=1, threads=1)
    with closing(TorchEngine(model(kind), settings, VERSION)) as engine:
        PATIENT.whole(engine, PROMPT, VERSION)
        PATIENT.short(engine, PROMPT, VERSION)


def test_it_takes_few_requests_and_leaves_the_engine_running(sound: Engine) -> None:
    counted = Wrapped(sound)
    PATIENT.whole(counted, PROMPT, VERSION)
    assert counted.submitted == 6
    PATIENT.short(counted, PROMPT, VERSION)
    assert counted.submitted == 7
    assert not sound.health().paused


@pytest.mark.parametrize(
    ("damage", "field"),
    [
        (partial(Altered, alter=broken.without_logprobs), "logprobs"),
        (partial(Altered, alter=broken.not_a_number), "logprobs"),
        (partial(Altered, alter=broken.probabilities), "logprobs"),
        (partial(Altered, alter=broken.without_the_likely), "top_ids"),
        (partial(Altered, alter=broken.unnormalised), "top_logprobs"),
        (partial(Altered, alter=broken.without_spans), "spans"),
        (partial(Altered, alter=broken.spans_of_the_chunk), "spans"),
        (partial(Altered, alter=broken.of_another_version), "version"),
        (partial(Altered, alter=broken.offsets_with_gaps), "offset"),
        (partial(Altered, alter=broken.half_a_token), "token_ids"),
        (partial(Altered, alter=broken.shifted_ids), "top_ids"),
        (partial(Altered, alter=broken.shifted_vocabulary), "top_ids"),
        (partial(Altered, alter=broken.always_stopped), "finish_reason"),
        (partial(Altered, alter=broken.never_stopped), "finish_reason"),
        (broken.Raw, "logprobs"),
        (broken.Forgetful, "logprobs"),
        (broken.Unstoppable, "finish_reason"),
        (broken.Refusing, "submit"),
        (broken.Stale, "version"),
    ],
)
def test_an_engine_that_breaks_a_promise_is_refused(
    sound: Engine, damage: Callable[[Engine], Engine], field: str
) -> None:
    with pytest.raises(EngineProbeFailed) as failed:
        PATIENT.whole(damage(sound), PROMPT, VERSION)
    sound.abort(None)  # what the probe left behind: the next one asks under the same names
    assert failed.value.field == field, failed.value
    assert failed.value.process_status(ready=True) is ExitStatus.LASTING


@pytest.mark.parametrize(
    "damage",
    [
        partial(Altered, alter=broken.nothing),
        partial(Altered, alter=broken.endless),
        broken.Deaf,
    ],
)
def test_an_engine_that_hangs_is_refused_at_the_deadline(
    damage: Callable[[Engine], Engine],
) -> None:
    with closing(ScriptedEngine(Script(PATTERN, 150), VERSION)) as engine:
        with pytest.raises(EngineProbeFailed, match=r"within 0\.2 s") as failed:
            IMPATIENT.whole(damage(engine), PROMPT, VERSION)
        assert failed.value.field == "finish_reason"
        assert failed.value.process_status(ready=True) is ExitStatus.PASSING


def test_an_engine_that_breaks_is_refused() -> None:
    script = BreakingScript(PATTERN, 50, tokens_per_second=2_000.0, breaks_at=3)
    with closing(ScriptedEngine(script, VERSION)) as engine:
        with pytest.raises(EngineProbeFailed) as failed:
            PATIENT.whole(engine, PROMPT, VERSION)
        assert (failed.value.field, failed.value.got) == ("finish_reason", "abort")
        assert failed.value.process_status(ready=True) is ExitStatus.PASSING


@pytest.mark.parametrize(
    ("damage", "field"),
    [
        (partial(Altered, alter=broken.without_logprobs), "logprobs"),
        (partial(Altered, alter=broken.of_another_version), "version"),
        (broken.Stale, "version"),
    ],
)
def test_an_engine_that_woke_up_is_looked_at_again(
    sound: Engine, damage: Callable[[Engine], Engine], field: str
) -> None:
    with pytest.raises(EngineProbeFailed) as failed:
        PATIENT.short(damage(sound), PROMPT, VERSION)
    assert failed.value.field == field
    assert failed.value.process_status(ready=True) is ExitStatus.PASSING, "it was right before"


def test_how_far_log_probabilities_may_be_off_can_be_set(sound: Engine) -> None:
    EngineProbe(60, tolerance=5.0).whole(broken.Raw(sound), PROMPT, VERSION)
