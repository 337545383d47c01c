"""Models by a hub's names: `owner/name`, with `@revision` for a branch, a tag or a commit.

Only `huggingface_hub` speaks with the hub; its cache, its token and its variables (HF_*) count. A
snapshot is a directory in that cache. It has safetensors and texts, never code: `FILES`. Files are
fetched one after the other, in the calling thread, so that Ctrl-C ends a download at once. The
weights come after all other files, their index last: a snapshot that has them is whole.

The library's import takes part of a second, so it waits until a name is met.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import urlsplit

from seamlessflow.infra.clock import within
from seamlessflow.infra.disk import free_bytes, is_full
from seamlessflow.infra.errors import SeamlessFlowError

FILES = ("*.json", "*.txt", "*.jinja", "*.model", "*.tiktoken", "*.safetensors")
"""Files that are fetched, only from a repository's root."""
_NOT = ("*/*", "consolidated*")
"""Folders, and weights in another program's form."""
_INDEX = "model.safetensors.index.json"
_WEIGHTS = (".safetensors", _INDEX)
_NAME = re.compile(r"(?P<name>\w[\w.-]*/\w[\w.-]*)(@(?P<revision>\w[\w./-]*))?", re.ASCII)
_SNAPSHOT = re.compile(r"/models--(?P<owner>[^/]+?)--(?P<name>[^/]+)/snapshots/(?P<commit>\w{40})")
_SHOWN = 5
"""Most files that an error names from a repository that is no such model."""
_ANSWER_S = 15.0
"""Seconds in which a hub must have listed a model's files."""


@dataclass(frozen=True, slots=True)
class HubModel:
    """A hub's model by its name, at a revision."""

    name: str
    revision: str = "main"

    @classmethod
    def named(cls, text: str) -> "HubModel | None":
        """Return the model that a text names, or None if it has another form."""
        matched = _NAME.fullmatch(text)
        if matched is None or "--" in matched["name"] or ".." in text:
            return None
        return cls(matched["name"], matched["revision"] or "main")

    @classmethod
    def of_snapshot(cls, directory: Path) -> "HubModel | None":
        """Return a snapshot's model with its commit as the revision, or None for other places."""
        matched = _SNAPSHOT.search(directory.as_posix())
        if matched is None or not directory.as_posix().endswith(matched[0]):
            return None
        return cls(f"{matched['owner']}/{matched['name']}", matched["commit"])

    def __str__(self) -> str:
        return f"{self.name}@{self.revision}"


class ModelNotFetched(SeamlessFlowError):
    """A hub's model that cannot be had, and the remedy."""

    lasting = True

    def __init__(self, model: HubModel, reason: str) -> None:
        self.model = model
        self.reason = reason
        super().__init__(f"there is no directory {model.name}, and {reason}")


@dataclass(frozen=True, slots=True)
class Listing:
    """A model's files that a run reads, as the hub lists them."""

    model: HubModel
    commit: str
    sizes: Mapping[str, int]
    """Each file's bytes, in the order in which they are fetched."""

    def files(self, with_weights: bool) -> list[str]:
        """Return all files' names, or only the names of files that are no weights."""
        return [file for file in self.sizes if with_weights or not file.endswith(_WEIGHTS)]

    def lacking(self, with_weights: bool = True) -> Mapping[str, int]:
        """Return the bytes of each file that the cache lacks."""
        from huggingface_hub import try_to_load_from_cache

        places = {
            file: try_to_load_from_cache(self.model.name, file, revision=self.commit)
            for file in self.files(with_weights)
        }
        return {file: self.sizes[file] for file in places if not isinstance(places[file], str)}

    def require_room(self, with_weights: bool = True) -> None:
        """Raise `ModelNotFetched` if the cache's disk has no room for the lacking files."""
        cache = cache_directory()
        disk = next(path for path in (cache, *cache.parents) if path.exists())
        needed = sum(self.lacking(with_weights).values())
        if (free := free_bytes(disk)) < needed:
            text = f"{self.model} takes {needed / 1e6:,.1f} MB more, and {free / 1e6:,.1f} are free"
            remedy = "make room, or move the cache with HF_HOME"
            raise ModelNotFetched(self.model, f"{text} for the cache {cache}: {remedy}")

    def fetch(self, with_weights: bool = True) -> Path:
        """Return the snapshot's directory, with all its files. Raises `ModelNotFetched`."""
        from huggingface_hub import hf_hub_download

        self.require_room(with_weights)
        directory = Path()
        with _explained(self.model):
            for file in self.files(with_weights):
                fetched = hf_hub_download(self.model.name, file, revision=self.commit)
                directory = Path(fetched).parent
        return directory


def cached(model: HubModel, with_weights: bool = True) -> Path | None:
    """Return a model's directory if the cache has all its files, without any network.

    None if some are lacking. A branch stands for the commit that it had when it was last asked for.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        directory = snapshot_download(
            model.name, revision=model.revision, local_files_only=True, allow_patterns="config.json"
        )
    except LocalEntryNotFoundError:
        return None
    return Path(directory) if _is_whole(Path(directory), with_weights) else None


def look_up(model: HubModel) -> Listing:
    """Ask the hub for a model's files. Raises `ModelNotFetched`."""
    from huggingface_hub import HfApi, is_offline_mode
    from huggingface_hub.errors import OfflineModeIsEnabled
    from huggingface_hub.hf_api import ModelInfo

    hub = HfApi()
    answers: list[ModelInfo] = []

    def ask() -> None:
        # The cache keeps which commit a branch was, for a later start without the network.
        revision = hub.resolve_revision(model.name, revision=model.revision)
        answers.append(hub.model_info(model.name, revision=revision.resolved, files_metadata=True))

    with _explained(model):
        if is_offline_mode():
            raise OfflineModeIsEnabled
        within(_ANSWER_S, ask)
    (info,) = answers
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    wanted = _in_order(sizes)
    whole = "config.json" in wanted and any(file.endswith(".safetensors") for file in wanted)
    if not whole:
        text = f"{model} at the hub {hub_address()} has no config.json with safetensors files"
        others = ", ".join(sorted(sizes)[:_SHOWN]) or "nothing"
        remedy = "name a model or a revision that has them, or convert it and name the directory"
        raise ModelNotFetched(model, f"{text}, but {others}: {remedy}")
    return Listing(model, str(info.sha), {file: sizes[file] for file in wanted})


def cache_directory() -> Path:
    """Return the cache's directory, which may not exist."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE).expanduser().absolute()


def hub_address() -> str:
    """Return the hub's URL, without what may be a password."""
    from huggingface_hub import constants

    parts = urlsplit(constants.ENDPOINT)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _in_order(files: Mapping[str, int]) -> list[str]:
    """Return the files that are fetched: weights after all others, and their index last."""
    chosen = [file for file in files if _matches(file, FILES) and not _matches(file, _NOT)]
    return sorted(chosen, key=lambda file: (file == _INDEX, file.endswith(".safetensors"), file))


def _matches(file: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(file, pattern) for pattern in patterns)


def _is_whole(directory: Path, with_weights: bool) -> bool:
    """Return whether a snapshot has all files, also if another program fetched some of them."""
    names = {"config.json", "tokenizer.json"}
    index = directory / _INDEX
    if with_weights:
        listed = json.loads(index.read_bytes())["weight_map"] if index.exists() else {}
        names |= set(listed.values()) or {"model.safetensors"}
    return all((directory / name).exists() for name in names)


@contextmanager
def _explained(model: HubModel) -> Iterator[None]:
    """Raise `ModelNotFetched` for each library error, with what to do about it."""
    import httpx2
    from huggingface_hub.errors import RevisionResolutionError, XetDownloadError

    try:
        yield
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, XetDownloadError) as error:
        raise ModelNotFetched(model, _reason(model, error)) from error
    except RevisionResolutionError as error:  # of a hub that cannot be asked
        raise ModelNotFetched(model, _reason(model, error.__cause__ or error)) from error


def _reason(model: HubModel, error: BaseException) -> str:
    from huggingface_hub import errors

    hub = f"the hub {hub_address()}"
    elsewhere = f"fetch it elsewhere (hf download {model.name} --local-dir DIRECTORY)"
    bring = f"{elsewhere} and name that directory"
    match error:
        case errors.OfflineModeIsEnabled():
            text = f"the cache {cache_directory()} has not all files of {model}"
            return f"{text}, while HF_HUB_OFFLINE is set: start once without it, or {bring}"
        case errors.GatedRepoError():
            terms = f"{hub} gives {model.name} only to users who accepted its terms"
            return f"{terms}: accept them on its page there, and set HF_TOKEN"
        case errors.HfHubHTTPError() if error.response.status_code == 401 or isinstance(
            error, errors.RepositoryNotFoundError
        ):
            text = f"{hub} shows no model {model.name} to this user"
            return f"{text}: check the name, and HF_TOKEN, which a private model needs"
        case errors.RevisionNotFoundError():
            text = f"{model.name} at {hub} has no revision {model.revision}"
            return f"{text}: write a branch, a tag or a commit behind the @"
        case errors.HfHubHTTPError():
            status = error.response.status_code
            text = f"{hub} answered {status} ({error.server_message or 'without a reason'})"
            remedy = "check HF_TOKEN" if status == 403 else "try again later"
            return f"{text}: {remedy}, or {bring}"
        case TimeoutError():
            text = f"{hub} gave no answer within {_ANSWER_S:g} s"
            return f"{text}: check the network and HF_ENDPOINT, or {bring}"
        case _:
            return _local_reason(error) or (
                f"{hub} cannot be reached, or broke off ({_in_line(error)}): check the network and "
                f"HF_ENDPOINT, then start again, which keeps the files that are whole, or {bring}"
            )


def _local_reason(error: BaseException) -> str:
    """Return what is wrong with the cache; empty for any other error."""
    cache = cache_directory()
    if not isinstance(error, OSError):
        return ""
    if is_full(error):
        return f"the disk of the cache {cache} is full: make room, or move the cache with HF_HOME"
    if error.filename is not None:
        text = f"nothing can be written to the cache {cache} ({error.strerror})"
        return f"{text}: move it with HF_HOME"
    return ""


def _in_line(error: BaseException) -> str:
    cause = error.__cause__ or error  # the library's error names a file, its cause the reason
    return f"{type(cause).__name__}: {' '.join(str(cause).split())[:300]}"
