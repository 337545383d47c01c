"""A rollout with verifiers' training client: `python verifiers_training.py ORDERS`.

ORDERS is JSON: `base_url` of a session, whose key is in SESSION_KEY; `taskset`; `tokenizer`, a
directory; `renderer` with its settings; `sampling`. The client renders prompts, asks
`/inference/v1/generate` with ids and keeps the ids of the answers. Prints the branches of the
rollout's trace, each a training sample.
"""

import asyncio
import json
import sys

import verifiers.v1 as vf


async def main(orders):
    """Run the first task of the set."""
    config = vf.resolve_env_config(
        {
            "taskset": {"id": orders["taskset"]},
            "interception": {"type": "server"},
            "agent": {
                "harness": {"id": "null"},
                "runtime": {"type": "subprocess"},
                "sampling": orders["sampling"],
            },
        }
    )
    client = vf.TrainClientConfig(
        base_url=orders["base_url"],
        api_key_var="SESSION_KEY",
        renderer=orders["renderer"],
        renderer_model_name=orders["tokenizer"],
    )
    environment = vf.load_environment(config)
    task = next(iter(environment.taskset))
    async with environment.serving():
        context = vf.ModelContext(model="policy", client=client)
        episode = await environment.run_episode(task, context)
    if not episode.ok:
        sys.exit(f"{episode.errors} {[trace.errors for trace in episode.traces]}")
    [trace] = episode.traces
    branches = [
        {"token_ids": branch.token_ids, "mask": branch.sampled_mask, "logprobs": branch.logprobs}
        for branch in trace.branches
        if branch.trainable
    ]
    print(json.dumps({"reward": trace.reward, "branches": branches}))


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
