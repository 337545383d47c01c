"""Directories of the models that settings and options name: local, or fetched from a hub.

If a directory and a hub's model have the same name, the directory wins. A model in the hub
library's cache is taken from there, without the network. Called by `config_file.py` for the
settings, and by commands for their options.
"""

import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.variables import SettingPath
from seamlessflow.infra.weights.model_hub import (
    HubModel,
    ModelNotFetched,
    cached,
    hub_address,
    look_up,
)
from seamlessflow.read_paths import MODELS, exists, values_at


class Fetched(Enum):
    """Model files that are fetched from a hub."""

    ALL = "all"
    WITHOUT_WEIGHTS = "without weights"
    """Only the files that describe it, for programs that compute nothing with it."""
    NONE = "none"
    """No file: the name stays, and another machine reads the model."""


def hub_models(sections: Mapping[str, Any]) -> Iterator[tuple[SettingPath, HubModel]]:
    """Yield each hub model that a setting names, with its setting."""
    for path, value in values_at(sections, MODELS):
        model = None if exists(Path(value)) else HubModel.named(value)
        if model is not None:
            yield path, model


def fetch(model: HubModel, fetched: Fetched) -> Path:
    """Return a hub model's directory; fetch the model unless it is in the cache.

    It prints what it fetches to standard error. Raises `ModelNotFetched`.
    """
    with_weights = fetched is Fetched.ALL
    if (directory := cached(model, with_weights)) is not None:
        return directory
    listing = look_up(model)
    listing.require_room(with_weights)
    size = sum(listing.lacking(with_weights).values())
    text = f"{model.name}@{listing.commit} of {hub_address()}: {size / 1e6:,.1f} MB are fetched"
    print(text, file=sys.stderr, flush=True)
    return listing.fetch(with_weights)


def fetchable(model: HubModel) -> Path | None:
    """Return a hub model's directory in the cache, None if it is not there but could be fetched.

    Raises `ModelNotFetched`.
    """
    if (directory := cached(model)) is None:
        look_up(model).require_room()
    return directory


def named_directory(option: str, path: Path, fetched: Fetched = Fetched.ALL) -> Path:
    """Return the directory that an option names, fetched if it is a hub's model.

    Raises `SettingsRejected`.
    """
    model = None if exists(path) else HubModel.named(str(path))
    try:
        return path if model is None else fetch(model, fetched)
    except ModelNotFetched as error:
        raise SettingsRejected(option, str(error)) from error
