"""Promises of the settings: what they are, by name, and the metrics that follow from them. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, Tag

from seamlessflow.infra.user_functions import is_user_function
from seamlessflow.infra.worker.control_rule import ControlSection
from seamlessflow.scheduler.sampling.settings import SamplerSection, TermsSection
from seamlessflow.scheduler.settings import PacingSection
from seamlessflow.trainer.settings import TrainerSection

LEFT_OUT = {
    "trainer.backend clock",  # computes nothing: tests/e2e/runs/test_rehearsal.py
    "trainer.backend megatron",  # steps as of others: tests/integration/trainer/gang
    "trainer.attention eager",  # as sdpa: tests/unit/trainer/backends/test_attention.py
    "trainer.attention flash_attention_2",  # needs a GPU
    "trainer.attention flash_attention_3",
    # Other chances of the same draws: tests/unit/scheduler/sampling/test_league.py.
    *(f"pacing.terms.weight {name}" for name in ("squared", "variance", "linear")),
    # Parts of dtype, of which one name each is in a run.
    *(
        f"trainer.{part}_dtype {name}"
        for part in ("compute", "weights")
        for name in ("float32", "float16")
    ),
}
"""Names that no whole run has."""
OPERATION = {
    "megatron",
    "worker",
    "tags",
    "hardware",
    "host",
    "devices",
    "rank",
    "device",
    "offload_mb",
    "source_prefix",
    "follow",
    "train_foreign",
    "window",
    "mismatch_versions",
    "mismatch_memory_mb",
    "mismatch_tokens",
    "mismatch_alarm",
    "explain_after",
    "most_barren_steps",
    "checkpoints_kept",
    "versions_kept",
    "weights_dir",
    "run_name",
    "samples",
    "samples_every",
    "trained_dir",
    "checkpoints_dir",
    "metrics_csv",
    "tensorboard_dir",
    "wandb_project",
    "mlflow_uri",
    "mlflow_experiment",
    "heartbeat_s",
    "usage_s",
}
"""Settings of `trainer` that change how a run is operated, not what it computes."""
_OWN = "module:function"


def untested(trained: Sequence[TrainerSection]) -> list[str]:
    """Return the settings of algorithms that none of these has, sorted.

    Of a setting with names each name must be in one of them; any other one must have in one of them
    another value than its default. All settings of `trainer` count, except those of `OPERATION`.
    """
    return _untested(TrainerSection, trained, "trainer")


def untested_choices(drawn: Sequence[PacingSection]) -> list[str]:
    """Return the settings of samplers and terms that none of these has, sorted."""
    return [
        *_untested(SamplerSection, [section.sampler for section in drawn], "pacing.sampler"),
        *_untested(TermsSection, [section.terms for section in drawn], "pacing.terms"),
    ]


def untested_controls(used: Sequence[ControlSection]) -> list[str]:
    """Return the settings of rules that end turns that none of these has, sorted."""
    return _untested(ControlSection, used, "rollout.control")


def _untested(section: type[BaseModel], used: Sequence[BaseModel], path: str) -> list[str]:
    tested = {name for each in used for name in _had(each, path)}
    return sorted(set(_wanted(section, path)) - tested - LEFT_OUT)


def promised(trainer: TrainerSection) -> Iterator[str]:
    """Yield the metrics that some step of a run with these settings must have."""
    yield from ("loss", "grad_norm", "entropy", "effective_sample_size", "update_s")
    if trainer.critic_used:
        yield "value_loss"
    if trainer.advantage in ("gae", "turn_gae"):
        yield from ("value_mean", "explained_variance")
    if trainer.advantage == "habc":
        yield from ("viability_mean", "efficiency_mean", "success_share")
    if trainer.reference_used and trainer.loss.kl:
        yield "reference_kl"
    if trainer.loss.of_pairs:
        yield from ("pairs", "pair_accuracy", "pair_margin")
    if trainer.updates > 1:
        yield "updates"
    if trainer.layout == "tree":
        yield "tokens_saved"
    if trainer.reuse.groups:
        yield from ("reused_groups", "reused_share", "reused_most")
    yield from (f"reward/{name}" for name in trainer.reward_weights)
    if trainer.overlong.length is not None:
        yield from ("overlong_share", "overlong_penalty")


def _wanted(section: type[BaseModel], path: str) -> Iterator[str]:
    for name, field in section.model_fields.items():
        if path == "trainer" and name in OPERATION:
            continue
        kind, place = field.annotation, f"{path}.{name}"
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _wanted(kind, place)
        elif get_origin(kind) is dict:
            keys, values = (_names(part) for part in get_args(kind))
            yield from (f"{place}.{key} {value}" for key in keys for value in values)
        elif names := _names(kind):
            yield from (f"{place} {value}" for value in names)
        else:
            yield place


def _had(section: BaseModel, path: str) -> Iterator[str]:
    for name, field in type(section).model_fields.items():
        value, place = getattr(section, name), f"{path}.{name}"
        if isinstance(value, BaseModel):
            yield from _had(value, place)
        elif isinstance(value, Mapping):
            yield from (f"{place}.{_name(key)} {choice}" for key, choice in value.items())
        else:
            choices = value if _several(value) else [value]
            yield from (f"{place} {_name(choice)}" for choice in choices)
            if value != field.get_default(call_default_factory=True):
                yield place


def _name(value: Any) -> Any:
    """Return the name of a value; all functions of the user's own have one."""
    return _OWN if isinstance(value, str) and is_user_function(value) else value


def _several(value: Any) -> bool:
    return isinstance(value, tuple | list)


def _names(kind: Any) -> list[str]:
    """Return the values of a `Literal`, in a union or a tuple too; none of another type."""
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    if get_origin(kind) is Annotated:
        inner, *marks = get_args(kind)
        return [_OWN] if Tag("function") in marks else _names(inner)
    if get_origin(kind) in (Union, UnionType, tuple):
        return [name for part in get_args(kind) for name in _names(part)]
    return []
