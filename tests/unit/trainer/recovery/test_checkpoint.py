"""Checkpoints, publications, settings: what is on disk is complete and belongs to this run."""

import json
import os
import shutil
from pathlib import Path

import pytest
from pydantic import ValidationError

from seamlessflow.consumers.trajectories.decisions.turn_start import (
    effective_sampling,
    inexact_reason,
)
from seamlessflow.demo.tokenizer import make_tokenizer
from seamlessflow.infra.rendering.settings import FROM_MODEL, RendererError, RendererSettings
from seamlessflow.infra.settings import PastSection
from seamlessflow.infra.weights.manifest import verify
from seamlessflow.infra.weights.settings import WeightsSection
from seamlessflow.infra.weights.versions import PathOutside, PublishedWeights, versions
from seamlessflow.schemas.records import Sampling
from seamlessflow.trainer.backends.backend import ModelUnusable
from seamlessflow.trainer.policy import PolicySection
from seamlessflow.trainer.recovery import checkpoint
from seamlessflow.trainer.recovery.checkpoint import STATE, Checkpoint, CheckpointForeign
from seamlessflow.trainer.recovery.control_state import ControlState
from seamlessflow.trainer.recovery.resume import Origin, resume_from
from seamlessflow.trainer.settings import TrainerSettings
from seamlessflow.trainer.steps.publication import Publication, WeightsDirectoryInUse, first_weights
from tests.builders.model_hub import COMMIT, LATER, snapshot_directory
from tests.builders.records import control
from tests.builders.records.sampling import BENT_SAMPLING, BY_REQUEST
from tests.builders.trainer.stub_backend import StubBackend

LOG = "cluster/prefix."


def some(version: int) -> Checkpoint:
    state = ControlState("tiny", offset=9, over={"g-0"})
    return Checkpoint(Origin(version, version, "a"), {0: 4, 1: -2}, state, 3, LOG, layout="tree")


def write(root: Path, version: int, keep: int = 9) -> Path:
    return checkpoint.write(root, some(version), StubBackend(f"w{version}").save, keep)


def newest(root: Path) -> Checkpoint:
    return checkpoint.newest(root, "tiny", LOG)


def test_the_newest_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    write(tmp_path, 2)
    directory = write(tmp_path, 12)
    restored = newest(tmp_path)
    assert (restored.origin, restored.offsets) == (Origin(12, 12, "a"), {0: 4, 1: -2})
    assert restored.control_state == some(12).control_state
    assert restored.directory == directory
    assert restored.epoch == 3
    assert restored.layout == "tree"


def test_a_checkpoint_of_an_earlier_release_is_of_padded_steps(tmp_path: Path) -> None:
    file = write(tmp_path, 2) / STATE
    values = json.loads(file.read_bytes())
    del values["layout"]
    file.write_text(json.dumps(values))
    assert newest(tmp_path).layout == "padded"


def test_without_a_checkpoint_a_run_begins_at_the_beginning(tmp_path: Path) -> None:
    restored = newest(tmp_path / "nowhere")
    assert (restored.origin, restored.offsets, restored.directory) == (Origin(), {}, None)


@pytest.mark.parametrize("damage", [STATE, "weights.safetensors"])
def test_a_damaged_checkpoint_is_passed_over_for_an_older_one(tmp_path: Path, damage: str) -> None:
    write(tmp_path, 2)
    (write(tmp_path, 4) / damage).write_text("{}")
    assert newest(tmp_path).origin.version == 2


def test_a_checkpoint_with_a_file_cut_short_is_passed_over_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, 2)
    file = write(tmp_path, 4) / "weights.safetensors"
    os.truncate(file, file.stat().st_size - 1)
    assert newest(tmp_path).origin.version == 2
    assert "checkpoint-00000004 is not complete, trying an older one" in caplog.text


def test_a_run_of_which_no_checkpoint_is_complete_says_where_it_begins(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (write(tmp_path, 2) / STATE).unlink()
    (write(tmp_path, 4) / STATE).unlink()
    assert newest(tmp_path).directory is None
    assert f"no checkpoint in {tmp_path} is complete: all recorded steps are exec" in caplog.text


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    (tmp_path / ".checkpoint-00000001.dead").mkdir()
    for version in (2, 4, 6):
        write(tmp_path, version, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint-00000004",
        "checkpoint-00000006",
    ]


@pytest.mark.parametrize("name", ["../weights.safetensors", "/etc/hostname"])
def test_a_checkpoint_with_files_of_other_directories_is_refused(tmp_path: Path, name: str) -> None:
    state = write(tmp_path, 2) / STATE
    state.write_text(state.read_text().replace("weights.safetensors", name))
    with pytest.raises(PathOutside, match=name):
        newest(tmp_path)


def test_a_checkpoint_whose_file_is_a_link_to_elsewhere_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, 2) / "weights.safetensors"
    file.rename(tmp_path / file.name)
    file.symlink_to(tmp_path / file.name)
    with pytest.raises(PathOutside, match=file.name):
        newest(tmp_path)


def test_a_checkpoint_of_another_log_is_refused(tmp_path: Path) -> None:
    write(tmp_path, 2)
    with pytest.raises(CheckpointForeign):
        checkpoint.newest(tmp_path, "tiny", "cluster/other.")


@pytest.fixture
def settings(tmp_path: Path) -> TrainerSettings:
    model = tmp_path / "model"
    model.mkdir()
    (model / "tokenizer.json").write_text("{}")
    (model / "config.json").write_text('{"from": "model"}')
    (model / "model.safetensors").write_text("initial")
    (model / "model.safetensors.index.json").write_text("{}")
    return TrainerSettings(
        data_dir=tmp_path / "data",
        policy=PolicySection(model=model, renderer=RendererSettings("qwen3")),
    )


def test_a_published_version_is_a_whole_model_directory(settings: TrainerSettings) -> None:
    publication = Publication(settings)
    publication.prepare()
    published = publication.write(StubBackend(), 3, 2, "a")
    directory = Path(published.directory)
    manifest = verify(directory, published.manifest_sha256)
    assert set(manifest.files) == {"config.json", "model.safetensors", "tokenizer.json"}
    assert json.loads((directory / "config.json").read_text()) == {"from": "backend"}
    assert (manifest.version, manifest.optimizer_step, manifest.lineage) == (3, 2, "a")


def test_all_versions_announce_one_tokenizer_and_the_model_s_own_distribution(
    settings: TrainerSettings,
) -> None:
    publication = Publication(settings)
    publication.prepare()
    announced = [
        publication.policy_weights(publication.write(StubBackend(), version, version, "a"), 7)
        for version in range(5)
    ]
    assert (
        len(
            {
                (weights.tokenizer_directory, weights.tokenizer_hash, weights.renderer)
                for weights in announced
            }
        )
        == 1
    )
    assert (Path(announced[0].tokenizer_directory) / "tokenizer.json").is_file()
    replaced = {name: value for name, value in BENT_SAMPLING.items() if name not in BY_REQUEST}
    sampled_with = effective_sampling(Sampling(**replaced), announced[0].overrides, room=9)
    assert inexact_reason(sampled_with) == "", "nothing that the agent asks for changes it"
    assert list(versions(settings.weights_dir)) == [1, 2, 3, 4]


def test_a_model_without_a_tokenizer_is_a_typed_error(settings: TrainerSettings) -> None:
    (settings.policy.model / "tokenizer.json").unlink()
    with pytest.raises(ModelUnusable):
        Publication(settings).prepare()


def test_a_run_does_not_go_on_with_a_model_of_other_tokens(settings: TrainerSettings) -> None:
    Publication(settings).prepare()
    Publication(settings).prepare()
    (settings.policy.model / "tokenizer.json").write_text('{"other": 1}')
    with pytest.raises(ModelUnusable, match="is not that of this run"):
        Publication(settings).prepare()


def test_a_run_does_not_go_on_with_another_commit_of_its_model(
    settings: TrainerSettings, tmp_path: Path
) -> None:
    def of_commit(commit: str) -> Publication:
        directory = snapshot_directory(tmp_path, "org/name", commit)
        shutil.copytree(settings.policy.model, directory, dirs_exist_ok=True)
        policy = settings.policy.model_copy(update={"model": directory})
        return Publication(settings.model_copy(update={"policy": policy}))

    of_commit(COMMIT).prepare()
    of_commit(COMMIT).prepare()
    with pytest.raises(ModelUnusable, match=f"write org/name@{COMMIT} to go on"):
        of_commit(LATER).prepare()


def test_a_renderer_is_a_section_or_its_json_text(monkeypatch: pytest.MonkeyPatch) -> None:
    section = {"name": "qwen3", "thinking_retention": "all", "options": {"enable_thinking": False}}
    wanted = RendererSettings("qwen3", "all", {"enable_thinking": False})
    for value in (section, json.dumps(section), wanted):
        assert PolicySection.model_validate({"renderer": value}).renderer == wanted
    monkeypatch.setenv("SEAMLESSFLOW_POLICY__RENDERER", json.dumps(section))
    assert TrainerSettings().policy.renderer == wanted
    monkeypatch.delenv("SEAMLESSFLOW_POLICY__RENDERER")
    monkeypatch.setenv("SEAMLESSFLOW_POLICY", json.dumps({"renderer": json.dumps(section)}))
    assert TrainerSettings().policy.renderer == wanted
    unnamed: tuple[object, ...] = ({}, "{}")
    for renderer in unnamed:
        parsed = PolicySection.model_validate({"renderer": renderer}).renderer
        assert parsed == RendererSettings(FROM_MODEL)
    for wrong in ("nope", "[]", {"name": "qwen3", "family": "qwen3"}):
        with pytest.raises(ValidationError):
            PolicySection.model_validate({"renderer": wrong})


def test_a_renderer_without_a_name_is_the_one_of_the_models_template(
    settings: TrainerSettings,
) -> None:
    make_tokenizer(settings.policy.model)
    unnamed = RendererSettings(FROM_MODEL, "all")
    policy = settings.policy.model_copy(update={"renderer": unnamed})
    publication = Publication(settings.model_copy(update={"policy": policy}))
    publication.prepare()
    announced = publication.policy_weights(PublishedWeights(0, 0, "", ""), 0)
    assert announced.renderer == RendererSettings("qwen3", "all").to_json()


def test_the_context_that_is_announced_is_no_longer_than_the_models(
    settings: TrainerSettings,
) -> None:
    make_tokenizer(settings.policy.model)
    (settings.policy.model / "config.json").write_text('{"max_position_embeddings": 64}')
    publication = Publication(settings)
    publication.prepare()
    announced = publication.policy_weights(PublishedWeights(0, 0, "", ""), 0)
    assert settings.policy.max_context > announced.max_context == 64


def test_a_policy_that_cannot_be_rendered_is_refused(settings: TrainerSettings) -> None:
    make_tokenizer(settings.policy.model)
    Publication(settings).check_rendering()
    wrong = settings.policy.model_copy(update={"renderer": RendererSettings("nope")})
    with pytest.raises(RendererError, match="nope"):
        Publication(settings.model_copy(update={"policy": wrong})).check_rendering()


def test_a_new_run_begins_with_version_0_and_goes_on_with_what_is_current(
    settings: TrainerSettings,
) -> None:
    publication, root, state = Publication(settings), settings.weights_dir, ControlState("policy")
    first = first_weights(
        publication, root, state, resume_from(state, Origin(), "a"), StubBackend()
    )
    assert (first.published.version, first.new, first.resume.next_version) == (0, True, 1)
    state.apply(publication.announcement(first.published, "a", 0), 0)
    again = first_weights(
        publication, root, state, resume_from(state, Origin(), "b"), StubBackend()
    )
    assert (again.published.version, again.new, again.resume.next_version) == (0, False, 1)


@pytest.mark.parametrize(
    ("shown", "kept"), [("policy", [0, 3, 7, 8, 9, 10, 11]), ("other", [8, 9, 10, 11])]
)
def test_one_version_in_so_many_steps_stays_if_a_frozen_policy_shows_them(
    settings: TrainerSettings, shown: str, kept: list[int]
) -> None:
    frozen = {"rival": PastSection(policy=shown, every=3)}
    run = settings.run.model_copy(update={"frozen": frozen})
    publication = Publication(settings.model_copy(update={"run": run}))
    publication.prepare()
    # The steps behind versions 3 and 7 are the first of 3 and 6: a step was skipped between.
    for version, step in enumerate((0, 1, 2, 3, 4, 5, 5, 7, 8, 8, 8, 8)):
        publication.write(StubBackend(), version, step, "a")
    assert list(versions(settings.weights_dir)) == kept


def test_weights_that_are_gone_are_written_again_under_a_new_number(
    settings: TrainerSettings,
) -> None:
    state = ControlState("policy")
    lost = control.published(7, directory=str(settings.data_dir / "gone"))
    state.apply(lost, 0)
    todo = resume_from(state, Origin(6, 6, "a"), "b")
    first = first_weights(Publication(settings), settings.weights_dir, state, todo, StubBackend())
    assert (first.published.version, first.published.step, first.resume.next_version) == (8, 6, 9)
    assert state.steps_of[8] == 6


def test_weights_that_are_broken_are_written_again_under_a_new_number(
    settings: TrainerSettings, caplog: pytest.LogCaptureFixture
) -> None:
    publication, root, state = Publication(settings), settings.weights_dir, ControlState("policy")
    written = first_weights(
        publication, root, state, resume_from(state, Origin(), "a"), StubBackend()
    ).published
    state.apply(publication.announcement(written, "a", 0), 0)
    (cut,) = written.path.glob("*.safetensors")
    cut.write_bytes(cut.read_bytes()[:-1])
    first = first_weights(
        publication, root, state, resume_from(state, Origin(), "b"), StubBackend()
    )
    assert (first.published.version, first.new) == (1, True)
    verify(first.published.path, first.published.manifest_sha256)
    assert "version 0 gets a new number: weights in" in caplog.text


def test_weights_of_another_run_are_not_overwritten(settings: TrainerSettings) -> None:
    publication, state = Publication(settings), ControlState("policy")
    publication.prepare()
    publication.write(StubBackend(), 120, 120, "old")
    with pytest.raises(WeightsDirectoryInUse):
        todo = resume_from(state, Origin(), "a")
        first_weights(publication, settings.weights_dir, state, todo, StubBackend())


def test_a_storage_of_another_run_is_refused_whose_removals_would_take_the_new_versions(
    settings: TrainerSettings,
) -> None:
    storage = WeightsSection(url=(settings.data_dir / "store").as_uri())
    earlier = settings.model_copy(update={"weights": storage})
    publication = Publication(earlier)
    publication.prepare()
    publication.write(StubBackend(), 120, 120, "old")
    state = ControlState("policy")
    later = earlier.model_copy(update={"data_dir": settings.data_dir / "later"})
    with pytest.raises(WeightsDirectoryInUse, match=r"^file:.*/store holds .* set weights\.url"):
        todo = resume_from(state, Origin(), "a")
        first_weights(Publication(later), later.weights_dir, state, todo, StubBackend())


def test_settings_come_from_the_environment_and_are_checked_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_TRAINER__OPTIMIZER__LR", "0.5")
    monkeypatch.setenv("SEAMLESSFLOW_RUN__GROUP_SIZE", "8")
    monkeypatch.setenv("SEAMLESSFLOW_TRAINER__FILTERS", '{"zero_variance": "drop"}')
    settings = TrainerSettings()
    assert settings.trainer.optimizer.lr == 0.5
    assert settings.trainer.filters == {"zero_variance": "drop"}
    monkeypatch.setenv("SEAMLESSFLOW_TRAINER__WINDOW", "2")
    with pytest.raises(ValueError, match="window"):
        TrainerSettings()
    monkeypatch.setenv("SEAMLESSFLOW_TRAINER__WINDOW", "99")
    monkeypatch.setenv("SEAMLESSFLOW_TRAINER__TAGS", '["rollout"]')
    with pytest.raises(ValueError, match="tags"):
        TrainerSettings()
