"""Algorithm settings that were set, but that the other settings leave unread. Pure.

A section alone cannot know them. A further policy's settings override the run's, and recorded
settings have every value. So `seamlessflow/checks/combinations.py` looks at the whole
configuration.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from pydantic import BaseModel

from seamlessflow.infra.user_functions import is_user_function
from seamlessflow.infra.variables import SettingPath
from seamlessflow.trainer.credit import CRITICS
from seamlessflow.trainer.loss import OF_PAIRS
from seamlessflow.trainer.settings import TrainerSection


class SettingReader(NamedTuple):
    """A setting, and those of its values with which the trainer reads another setting."""

    setting: str
    chosen: Callable[[TrainerSection], str]
    values: tuple[str, ...]

    def reads(self, trainer: TrainerSection) -> bool:
        """Return whether the trainer's value is among them."""
        return self.chosen(trainer) in self.values

    def lacking(self, trainer: TrainerSection) -> str:
        """Return the values that would read the setting, and the chosen value."""
        return f"{self.setting} {_listed(self.values)}, not {self.chosen(trainer)}"


def _listed(values: tuple[str, ...]) -> str:
    *others, last = values
    return f"{', '.join(others)} or {last}" if others else last


def _surrogate(*values: str) -> SettingReader:
    return SettingReader("loss.surrogate", lambda trainer: trainer.loss.chosen_surrogate, values)


def _correction(*values: str) -> SettingReader:
    return SettingReader("loss.correction", lambda trainer: trainer.loss.chosen_correction, values)


def _advantage(*values: str) -> SettingReader:
    def name(trainer: TrainerSection) -> str:
        return trainer.loss.chosen_surrogate if trainer.loss.of_pairs else trainer.advantage

    return SettingReader("advantage", name, values)


def _above_0(setting: str, number: Callable[[TrainerSection], float | None]) -> SettingReader:
    return SettingReader(
        setting, lambda trainer: "above 0" if number(trainer) else "0", ("above 0",)
    )


_RETURNS_LEARNED = _advantage("gae", "turn_gae")
_BY_DEVIATION = (
    *("grpo", "grpo_batch", "gdpo", "turn", "session_and_turn"),
    *("reinforce_pp", "reinforce_pp_baseline", "gae", "turn_gae"),
)
_HYBRID = _above_0("returns.hybrid_scale", lambda trainer: trainer.returns.hybrid_scale)
_KL = _above_0("loss.kl", lambda trainer: trainer.loss.kl)
_REUSE = _above_0("reuse.groups", lambda trainer: trainer.reuse.groups)
_SPREAD = SettingReader(
    "filters",
    lambda trainer: "spread" if "spread" in trainer.filters else ", ".join(trainer.filters),
    ("spread",),
)
_FALLING = SettingReader(
    "optimizer.schedule", lambda trainer: trainer.optimizer.schedule, ("linear", "cosine")
)
_OPPONENTS = SettingReader(
    "loss.surrogate",
    lambda trainer: (
        "pairs_squared with pairs.reference_share 1"
        if trainer.loss.chosen_surrogate == "pairs_squared" and not trainer.opponents
        else trainer.loss.chosen_surrogate
    ),
    ("pairs_squared",),
)
_CONSTANT = SettingReader(
    "loss.aggregation", lambda trainer: trainer.loss.aggregation, ("constant",)
)


def _selection(*values: str) -> SettingReader:
    return SettingReader("selection.name", _selection_name, values)


def _selection_name(trainer: TrainerSection) -> str:
    chosen = trainer.selection.name or "none"
    return "module:function" if is_user_function(chosen) else chosen


def _compared_selection(trainer: TrainerSection) -> str:
    """Return the chosen selection, or a phrase with the surrogate if that compares pairs."""
    if trainer.loss.of_pairs:
        return f"{trainer.loss.chosen_surrogate}, which compares pairs"
    return _selection_name(trainer)


def _replay(*values: str) -> SettingReader:
    def name(trainer: TrainerSection) -> str:
        chosen = trainer.replay.name or "none"
        return "module:function" if is_user_function(chosen) else chosen

    return SettingReader("replay.name", name, values)


READERS: Mapping[SettingPath, tuple[SettingReader, ...]] = {
    ("loss", "clip_low"): (_surrogate("ppo_clip", "gspo"),),
    ("loss", "clip_high"): (_surrogate("ppo_clip", "gspo"),),
    ("loss", "dual_clip"): (_surrogate("ppo_clip"),),
    ("loss", "ratio_level"): (_surrogate("gspo"),),
    ("loss", "gate_positive"): (_surrogate("sapo"),),
    ("loss", "gate_negative"): (_surrogate("sapo"),),
    ("loss", "divergence"): (_surrogate("dppo"),),
    ("loss", "divergence_bound"): (_surrogate("dppo"),),
    ("loss", "cap"): (_surrogate("cispo"), _correction("tis", "icepop")),
    ("loss", "floor"): (_correction("icepop"),),
    ("loss", "correction_level"): (_correction("tis"),),
    ("loss", "kl_estimator"): (_KL,),
    ("loss", "kl_weighted"): (_KL,),
    ("loss", "constant_length"): (_CONSTANT,),
    ("returns", "discount"): (_advantage("turn", "session_and_turn", "turn_gae"), _SPREAD),
    ("returns", "session_weight"): (_advantage("session_and_turn"),),
    ("returns", "turn_weight"): (_advantage("session_and_turn"),),
    ("returns", "token_discount"): (_advantage("reinforce_pp", "reinforce_pp_baseline", "gae"),),
    ("returns", "trace"): (_RETURNS_LEARNED,),
    ("returns", "restart_below"): (_advantage("turn", "session_and_turn"), _SPREAD),
    ("spread_over",): (_SPREAD,),
    ("returns", "epsilon"): (_advantage(*_BY_DEVIATION, "maxrl"), _HYBRID),
    ("returns", "deviation"): (_advantage(*_BY_DEVIATION), _HYBRID),
    **{("critic", name): (_advantage(*CRITICS),) for name in ("kind", "coefficient", "lr")},
    ("critic", "clip"): (_RETURNS_LEARNED,),
    **{("critic", name): (_advantage("habc"),) for name in ("passes", "warmup_steps")},
    ("overlong", "weight"): (_above_0("overlong.length", lambda trainer: trainer.overlong.length),),
    **{("reuse", name): (_REUSE,) for name in ("uses", "max_staleness", "choice")},
    ("replay", "take"): (_replay("rescue"),),
    ("replay", "passes"): (_replay("rescue"),),
    ("replay", "foreign"): (_replay("mix"),),
    ("replay", "pools"): (_replay("rescue", "mix", "module:function"),),
    ("optimizer", "min_lr"): (_FALLING,),
    ("pairs", "name"): (_surrogate(*OF_PAIRS),),
    ("pairs", "beta"): (_surrogate("pairs_logistic"),),
    ("pairs", "eta"): (_surrogate("pairs_squared"),),
    ("pairs", "reference_share"): (_surrogate("pairs_squared"),),
    **{("pairs", "opponents", name): (_OPPONENTS,) for name in ("every", "most", "weights")},
    ("selection", "best"): (_selection("extremes", "module:function"),),
    ("selection", "worst"): (_selection("extremes", "module:function"),),
    ("selection", "keep"): (_selection("max_variance", "balanced", "module:function"),),
    ("selection", "baseline"): (
        SettingReader(
            "selection.name",
            _compared_selection,
            ("extremes", "max_variance", "balanced", "module:function"),
        ),
    ),
}
"""By setting, the choices that read it: one of them is enough. All other settings are always read.

Model directories are not among these settings: an unused one may stay named
(docs/algorithms/methods.md).
"""


def unread(
    section: TrainerSection, trainers: tuple[TrainerSection, ...]
) -> Iterator[tuple[SettingPath, str]]:
    """Yield each setting that `section` sets but that none of the trainers reads, and why.

    `trainers`: those whose settings come from `section`; the text is about the first. A setting
    that is None counts as not set.
    """
    for path, readers in READERS.items():
        if not _set(section, path) or any(
            reader.reads(trainer) for reader in readers for trainer in trainers
        ):
            continue
        lacking = ", or ".join(reader.lacking(trainers[0]) for reader in readers)
        yield path, f"nothing reads it: it needs {lacking}; choose that, or leave this out"


def _set(section: BaseModel, path: SettingPath) -> bool:
    name, *rest = path
    if name not in section.model_fields_set:
        return False
    value = getattr(section, str(name))
    return _set(value, tuple(rest)) if rest else value is not None
