"""The command `seamlessflow plan` for memory."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from seamlessflow.__main__ import app
from seamlessflow.commands.scheduling.planned_memory import bytes_of
from seamlessflow.config_file import ConfigRejected
from tests.builders.run_files import model_headers

RECOMPUTED = ["--set", "trainer.gradient_checkpointing=true"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_headers(tmp_path_factory.mktemp("model"))


def plan(*options: object) -> Result:
    return CliRunner().invoke(app, ["plan", *map(str, options)])


def table(*options: object) -> dict[str, Any]:
    places = json.loads(plan(*options, "--json").stdout)
    return {place["place"]: place for place in places}


def test_what_fits_and_what_does_not_is_told_with_the_lever_that_helps(model: Path) -> None:
    done = plan("--model", model, "--devices", "8xH100-80GB")
    assert done.exit_code == 1
    assert "8,190,735,360 parameters" in done.stdout
    assert "training of w0 and 7 more, its device" in done.stdout
    assert "in all of 74.5 GiB: DOES NOT FIT" in done.stdout
    assert "with trainer.gradient_checkpointing true, which fits" in done.stdout
    again = plan("--model", model, "--devices", "8xH100-80GB", *RECOMPUTED)
    assert again.exit_code == 0
    assert "DOES NOT FIT" not in again.stdout


def test_devices_that_only_train_keep_nothing_on_the_host_for_another_role(model: Path) -> None:
    split = ["--train-devices", 8, "--engine-devices", 2]
    memory = table("--model", model, "--devices", "12xH100", *RECOMPUTED, *split)
    trained, sampled = (
        memory["training of t0, each of its devices"],
        memory["rollout of w0 and 1 more, each of its devices"],
    )
    assert trained["parts"]["weights (float32)"] == 4 * 8_190_735_360 / 8
    assert sampled["parts"]["weights"] == 8_190_735_360
    assert not any("without the role" in name for name in memory["host n0"]["parts"])
    assert memory["host n1"]["fits"] is None
    limited = table("--model", model, "--devices", "12xH100", "--host-memory", "1TB", *split)
    assert limited["host n1"]["there"] == 10**12


def test_each_replica_of_an_engine_has_all_weights(model: Path) -> None:
    asked = ["--model", model, "--devices", "4xH100", "--engine-devices", 4, *RECOMPUTED]
    place = "rollout of w0, each of its devices"
    for replicas in (1, 2, 4):
        memory = table(*asked, "--set", f"rollout.vllm.replicas={replicas}")
        assert memory[place]["parts"]["weights"] == 2 * 8_190_735_360 * replicas / 4
        host = next(entry for name, entry in memory.items() if name.startswith("host"))
        (asleep,) = (n for part, n in host["parts"].items() if part.startswith("weights of a sle"))
        assert asleep == 2 * 8_190_735_360 * replicas


def test_a_configuration_says_all_but_the_devices(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(
        f"policy: {{model: {model}, max_context: 4096}}\n"
        "trainer: {backend: fsdp2, ranks: 4, dtype: bfloat16, device: cuda, loss: {kl: 0.1}}\n"
        "workers: [{id: a, tags: [train], devices: [0, 1, 2, 3]}]\n"
    )
    memory = table("--config", file, "--devices", "4xH100")
    parts = memory["training of a, each of its devices"]["parts"]
    assert parts["reference (bfloat16)"] == round(2 * 8_190_735_360 / 4)
    wrong = plan("--config", file, "--devices", "8xH100")
    assert "the workers of --config have 4" in wrong.stderr.replace("\n", " ")


@pytest.mark.parametrize(
    ("option", "lever"),
    [("rollout.vllm.kv_bytes=1000000000", "rollout.vllm.kv_bytes 4831838208"), (None, None)],
)
def test_an_engine_without_room_for_one_turn_does_not_fit(
    option: str | None, lever: str | None, model: Path
) -> None:
    changes = [] if option is None else ["--set", option]
    memory = table("--model", model, "--devices", "8xH100", *RECOMPUTED, *changes)
    engine = memory["rollout of w0 and 7 more, its device"]

    assert engine["fits"] is (option is None)
    assert any("no turn of full length fits" in note for note in engine["notes"]) is bool(option)
    assert lever is None or lever in engine["levers"]


def test_a_configuration_without_weights_is_planned(model: Path, tmp_path: Path) -> None:
    bare = tmp_path / "config.json"
    bare.write_bytes((model / "config.json").read_bytes())
    whole = plan("--model", model, "--devices", "8xH100", *RECOMPUTED)

    for asked in (bare, tmp_path):
        done = plan("--model", asked, "--devices", "8xH100", *RECOMPUTED)
        assert done.stdout.splitlines()[1:] == whole.stdout.splitlines()[1:]


def test_a_mixture_of_experts_has_no_activations(tmp_path: Path) -> None:
    done = plan("--model", model_headers(tmp_path, num_experts=128), "--devices", "8xB200")
    assert "activations are unknown and not in the sum: num_experts in its config" in done.stdout
    assert "keys and values of a token are unknown" in done.stdout
    [training] = [line for line in done.stdout.splitlines() if "fits but for" in line]
    assert "in all of" in training, "the engine's line says that it fits"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--devices", "8xH1000"], "no device 'H1000' is known"),
        (["--devices", "eight"], "give a number, as 8, 8xH100"),
        (["--devices", "8"], "needs --memory"),
        (["--devices", "8", "--memory", "much"], "--memory 'much' is no size"),
        (["--devices", "8xH100", "--host-memory", "2"], "--host-memory '2' is no size"),
        (["--devices", "8xH100", "--train-devices", "9"], "8 devices cannot be so: 9 train"),
        (["--devices", "8xH100", "--engine-devices", "3"], "engines have 3 each"),
        (["--devices", "8xH100", "--set", "trainer.dtype"], "give NAME=VALUE"),
    ],
)
def test_a_wrong_option_is_named(options: list[str], text: str, model: Path) -> None:
    done = plan("--model", model, *options)
    assert done.exit_code == 2
    assert text in " ".join(done.output.replace("│", " ").split())


def test_a_division_that_the_trainer_would_refuse_is_not_planned(model: Path) -> None:
    apart = ["--set", "trainer.backend=megatron", "--set", "trainer.megatron.tensor_parallel=16"]
    done = plan("--model", model, "--devices", "16xH100", *apart)
    assert isinstance(done.exception, ConfigRejected)
    assert "16 does not divide the num_key_value_heads" in str(done.exception)


def test_options_of_memory_need_a_model() -> None:
    done = plan("--rollout-s", 1, "--train-s", 1, "--devices", 2, "--set", "trainer.ranks=2")
    assert done.exit_code == 2


@pytest.mark.parametrize(
    ("text", "size"), [("80GB", 80e9), ("79.6GiB", 79.6 * 2**30), ("512 MiB", 2**29)]
)
def test_sizes_have_decimal_and_binary_units(text: str, size: float) -> None:
    assert bytes_of(text) == size
