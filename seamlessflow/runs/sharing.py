"""Groups that a run gives to others as text, and takes from them, by its configuration.

The run's files have the tasks, its model has the tokenizer and the renderer, and the section
`share` has keys and judge.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from seamlessflow.config import RunConfig
from seamlessflow.infra.device_model.model_shape import context_limit, vocabulary_of
from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.rendering.model_template.discovery import named_for
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.user_functions import user_function
from seamlessflow.processes.cluster import kafka_to_inspect
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.recorded.select.selection import SessionSelection
from seamlessflow.recorded.share.examining import TakingRules
from seamlessflow.recorded.share.keys import SigningKey
from seamlessflow.recorded.share.publishing import PublishingJob
from seamlessflow.runs.conversations import conversation_chains
from seamlessflow.scheduler.tasks.file import read
from seamlessflow.schemas.releases import this_release
from seamlessflow.trainer.data.chains import Chain


@contextmanager
def kafka_of(config: RunConfig, out: Path | None) -> Iterator[KafkaSettings]:
    """Yield the Kafka of the run in `out`; None: that of the configuration, or of its directory."""
    if out is None and config.kafka is not None:
        yield config.kafka
        return
    with kafka_to_inspect(out or config.out) as kafka:
        yield kafka


def publishing_job(
    config: RunConfig, kafka: KafkaSettings, target: str, selection: SessionSelection
) -> PublishingJob:
    """Return how groups of the run are published.

    Raises `SettingsRejected` without a key, `KeyUnusable`, and what `find_cluster` raises.
    """
    if config.share.sign_with is None:
        raise SettingsRejected("share.sign_with", "is not set")
    provenance = {
        "cluster": f"{find_cluster(kafka).id}/{kafka.topic_prefix}",
        "run": config.run.id,
        "model": config.policy.model.name,
        "release": this_release().version,
    }
    return PublishingJob(
        target,
        SigningKey.read(config.share.sign_with),
        task_payloads(config),
        config.trainer.reward_weights,
        config.pacing.sampler.passes,
        provenance,
        selection,
    )


def taking_rules(config: RunConfig) -> TakingRules:
    """Return the rules by which groups of others become sessions of the run's pools.

    Raises `SettingsRejected` without a judge, `KeyUnusable`, `FunctionUnusable`, `TasksRejected`
    and `RendererError`.
    """
    share = config.share
    if share.judge is None:
        raise SettingsRejected("share.judge", "is not set")
    model = config.policy.model
    renderer = Renderer.load(model, named_for(model, config.policy.renderer))
    longest = context_limit(model, config.policy.max_context)
    vocabulary = vocabulary_of(model)

    def read_row(name: str, row: Mapping[str, Any]) -> tuple[Chain, ...]:
        try:
            return conversation_chains(name, row, renderer, longest, vocabulary)
        except ApiError as error:
            raise ValueError(error.message) from None

    return TakingRules(
        signers={key: name for name, key in share.signers.items()},
        public="" if share.sign_with is None else SigningKey.read(share.sign_with).public,
        payload=task_payloads(config),
        read=read_row,
        judge=partial(user_function(share.judge).call, **share.functions.get(share.judge, {})),
        policy=config.run.policy,
        tokenizer_hash=renderer.hash,
    )


def task_payloads(config: RunConfig) -> Callable[[str], bytes | None]:
    """Return a function from the id of a task of the run to its JSON, or None if it has none.

    Raises `TasksRejected`.
    """
    pacing = config.pacing
    files = [source.tasks for source in pacing.sources.values()]
    if pacing.tasks is not None:
        files.append(pacing.tasks)
    sources = [read(path) for path in files]

    def payload(task_id: str) -> bytes | None:
        rows = (source.find(task_id) for source in sources)
        return next((row.payload for row in rows if row is not None), None)

    return payload
