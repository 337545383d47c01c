"""List of seams: their methods with settings, defaults and sources, read from registries.

The loss registries import torch, so this takes seconds.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from seamlessflow.config import RunConfig
from seamlessflow.producers.rollout.control.rules import RULES
from seamlessflow.scheduler.decisions.strategies.registry import STRATEGIES
from seamlessflow.scheduler.sampling.registry import SAMPLERS
from seamlessflow.scheduler.sampling.registry import TERMS as TERMS_BY_NAME
from seamlessflow.seams.seams import (
    ADVANTAGE,
    AGGREGATION,
    CONTROL,
    CORRECTION,
    FILTER,
    FORK_PREDICTION,
    MASK,
    MIXER,
    PAIRS,
    PREDICTION,
    SAMPLER,
    SEAMS,
    SELECTION,
    STRATEGY,
    SURROGATE,
    TERMS,
    Seam,
)
from seamlessflow.trainer.backends.losses.corrections import CORRECTIONS
from seamlessflow.trainer.backends.losses.surrogates import SURROGATES
from seamlessflow.trainer.data.advantages import ESTIMATORS
from seamlessflow.trainer.data.aggregations import AGGREGATIONS
from seamlessflow.trainer.data.credit.batches import BATCH_ESTIMATORS
from seamlessflow.trainer.data.filters import FILTERS
from seamlessflow.trainer.data.pairs import PAIR_RULES
from seamlessflow.trainer.data.selection import SELECTIONS
from seamlessflow.trainer.data.turn_masks import TURN_MASKS
from seamlessflow.trainer.mixing.mixers import MIXERS
from seamlessflow.trainer.unread import READERS

_SOURCE = re.compile(r"arXiv (\d{4}\.\d{4,5})")
_WHOLE_BATCH = {name: method.estimate for name, method in BATCH_ESTIMATORS.items()}
_METHODS: Mapping[Seam, Mapping[str, Callable[..., Any]]] = {
    ADVANTAGE: {**ESTIMATORS, **_WHOLE_BATCH},
    FILTER: FILTERS,
    SELECTION: SELECTIONS,
    PAIRS: PAIR_RULES,
    MASK: TURN_MASKS,
    MIXER: MIXERS,
    SURROGATE: SURROGATES,
    CORRECTION: CORRECTIONS,
    AGGREGATION: AGGREGATIONS,
    SAMPLER: SAMPLERS,
    PREDICTION: {},
    FORK_PREDICTION: {},
    TERMS: TERMS_BY_NAME,
    CONTROL: RULES,
    STRATEGY: STRATEGIES,
}


@dataclass(frozen=True, slots=True)
class ListedMethod:
    """A built-in method, as it is described to users."""

    name: str
    meaning: str
    settings: Mapping[str, Any]
    """Defaults for settings that only some methods read, by their paths."""
    source: str
    """Its paper; empty if its description names none."""


def listed_methods() -> Iterator[tuple[Seam, list[ListedMethod]]]:
    """Yield each seam with its methods, in registry order."""
    for seam in SEAMS:
        yield seam, [_listed(seam, name, call) for name, call in _METHODS[seam].items()]


def _listed(seam: Seam, name: str, call: Callable[..., Any]) -> ListedMethod:
    text = inspect.getdoc(_defined(call)) or ""
    matched = _SOURCE.search(text)
    return ListedMethod(
        name,
        " ".join(text.partition("\n\n")[0].split()).removeprefix("Return "),
        _settings(seam, name),
        f"arXiv {matched[1]}" if matched else "",
    )


def _defined(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with the description; an estimator may be a partial's argument."""
    return call.args[0] if isinstance(call, partial) and call.args else call


def _settings(seam: Seam, name: str) -> Mapping[str, Any]:
    setting = ".".join(seam.setting).removeprefix("trainer.")
    if seam is MASK:
        return _keyword_defaults(_METHODS[seam][name], f"trainer.masks.{name}")
    if seam is CONTROL:
        return _keyword_defaults(_METHODS[seam][name], ".".join(seam.functions))
    if seam in (SAMPLER, TERMS):
        return _keyword_defaults(_METHODS[seam][name], ".".join(seam.setting[:-1]))
    paths = [
        path
        for path, readers in READERS.items()
        if any(reader.setting == setting and name in reader.values for reader in readers)
    ]
    return {".".join(("trainer", *map(str, path))): _default(path) for path in paths}


def _keyword_defaults(call: Callable[..., Any], section: str) -> Mapping[str, Any]:
    parameters = inspect.signature(call).parameters.values()
    return {
        f"{section}.{parameter.name}": _shown_default(parameter.default)
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY
    }


def _shown_default(default: Any) -> Any:
    return "must be set" if default is inspect.Parameter.empty else default


def _default(path: tuple[int | str, ...]) -> Any:
    section: Any = RunConfig.model_fields["trainer"].annotation
    *outer, last = map(str, path)
    for part in outer:
        section = section.model_fields[part].annotation
    return section.model_fields[last].default
