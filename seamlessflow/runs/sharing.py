"""Groups that a run gives to others as text, and takes from them, by its configuration.

The run's files have the tasks, its model has the tokenizer and the renderer, and the section
`share` has keys and judge. All of them are checked before anything is read or written.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from seamlessflow.checks.callables import Importing, NamedCallable
from seamlessflow.checks.check import pacing_faults
from seamlessflow.config import RunConfig
from seamlessflow.infra.device_model.model_shape import context_limit, vocabulary_of
from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.faults import Fault
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.rendering.model_template.discovery import named_for
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.user_functions import user_function
from seamlessflow.inspection.model_directory import incomplete, unrenderable
from seamlessflow.processes.cluster import kafka_to_inspect
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.recorded.select.selection import SessionSelection
from seamlessflow.recorded.share.examining import TakingRules
from seamlessflow.recorded.share.keys import KeyUnusable, SigningKey
from seamlessflow.recorded.share.publishing import PublishingJob
from seamlessflow.runs.conversations import conversation_chains
from seamlessflow.scheduler.tasks.file import read
from seamlessflow.schemas.releases import this_release
from seamlessflow.trainer.credit import ONE_REWARD
from seamlessflow.trainer.data.chains import Chain

JUDGE = ("share", "judge")
_KEY = ("share", "sign_with")


def before_publishing(config: RunConfig) -> Iterator[Fault]:
    """Yield all faults of publishing: no key, or one that cannot be used."""
    if config.share.sign_with is None:
        yield Fault(_KEY, "no key is named: nothing is published unsigned; `share key` makes one")
    yield from _key_faults(config)
    if config.pacing.issues:
        yield from pacing_faults(config.pacing)


def before_taking(config: RunConfig) -> Iterator[Fault]:
    """Yield all faults of taking: without a judge, signers and tasks nothing can be taken."""
    share = config.share
    named = []
    if share.judge is None:
        yield Fault(JUDGE, "no judge is named: nothing is taken without a judge of your own")
    else:
        settings = share.functions.get(share.judge, {})
        named = [NamedCallable(JUDGE, share.judge, ("task", "text"), settings)]
    with Importing(named, config.start_timeout_s) as importing:
        if not share.signers:
            yield Fault(("share", "signers"), "no signer is named, so no group could be taken")
        weighed = set(config.trainer.reward_weights)
        if weighed != set(ONE_REWARD):
            text = "its reward is named reward, and trainer.rewards weighs"
            yield Fault(JUDGE, f"{text} {', '.join(sorted(weighed))}")
        yield from _key_faults(config)
        yield from pacing_faults(config.pacing)
        if reason := incomplete(config.policy.model, with_weights=False):
            yield Fault(("policy", "model"), reason)
        elif reason := unrenderable(config.policy.model, config.policy.renderer):
            yield Fault(("policy", "renderer"), reason)
        yield from importing.faults()


def _key_faults(config: RunConfig) -> Iterator[Fault]:
    if config.share.sign_with is not None:
        try:
            SigningKey.read(config.share.sign_with)
        except KeyUnusable as error:
            yield Fault(_KEY, str(error))


@contextmanager
def kafka_of(config: RunConfig, out: Path | None) -> Iterator[KafkaSettings]:
    """Yield the Kafka of the run in `out`; None: the configuration's, or its directory's."""
    if out is None and config.kafka is not None:
        yield config.kafka
        return
    with kafka_to_inspect(out or config.out) as kafka:
        yield kafka


def publishing_job(
    config: RunConfig, kafka: KafkaSettings, target: str, selection: SessionSelection
) -> PublishingJob:
    """Return how the run's groups are published.

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
    """Return the rules by which others' groups become sessions in the run's pools.

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
    """Return a function from the id of a run's task to its JSON; None for an unknown id.

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
