"""Maven repository of the embedded broker's jars: fetches and resolves them. Alone imports jgo.

    python -m seamlessflow.infra.broker.maven fetch FOLDER
    python -m seamlessflow.infra.broker.maven lock

`fetch` reads lines `sha256 path` from stdin (run by `jars.py`). Each jar appears in FOLDER when it
is whole and has that hash. `lock` prints such lines for `ENDPOINT` (run by `scripts/lock`).

A mirror is set in jgo's own configuration file: `central` there replaces Maven Central.
"""

import hashlib
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

import jgo
from jgo.config import GlobalSettings
from jgo.constants import MAVEN_CENTRAL_URL
from jgo.maven import Artifact, MavenContext

# slf4j-simple 1.7: without a logging binding, a failing broker logs nothing.
ENDPOINT = "org.apache.kafka:kafka_2.13:4.3.1+org.slf4j:slf4j-simple:1.7.36"
AT_ONCE = 6


def fetch(folder: Path, lines: list[str]) -> None:
    """Download into a scratch directory first, so that no jar is ever seen incomplete or wrong."""
    wanted = [(sha256, PurePosixPath(path)) for sha256, path in map(str.split, lines)]
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as scratch:
        context = _maven(Path(scratch))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            files = pool.map(lambda jar: _artifact(context, jar[1]).resolve(), wanted)
            for (sha256, path), file in zip(wanted, files, strict=True):
                if _sha256(file) != sha256:
                    sys.exit(f"{path}: fetched {_sha256(file)}, locked is {sha256}")
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                file.replace(folder / path)


def lock() -> None:
    """Print `ENDPOINT`'s runtime dependencies with the hashes of freshly downloaded files."""
    with tempfile.TemporaryDirectory() as scratch:
        context = _maven(Path(scratch))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            artifacts = jgo.resolve(ENDPOINT, repositories=GlobalSettings.load().repositories)
            paths = [PurePosixPath(a.component.path_prefix, a.filename) for a in artifacts]
            files = pool.map(lambda path: _artifact(context, path).resolve(), paths)
            for path, file in zip(paths, files, strict=True):
                print(f"{_sha256(file)}  {path}")


def _maven(repository: Path) -> MavenContext:
    repositories = {"central": MAVEN_CENTRAL_URL, **GlobalSettings.load().repositories}
    return MavenContext(repo_cache=repository, remote_repos=repositories)


def _artifact(context: MavenContext, path: PurePosixPath) -> Artifact:
    *group, artifact, version, _ = path.parts
    return context.project(".".join(group), artifact).at_version(version).artifact()


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["fetch", folder]:
            fetch(Path(folder), sys.stdin.read().splitlines())
        case ["lock"]:
            lock()
        case _:
            sys.exit(__doc__)
