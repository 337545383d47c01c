"""Steps of TRL's `GRPOTrainer` on sessions of a gateway: `python trl_rollouts.py ORDERS`.

ORDERS is JSON: `url` and `key` of the gateway, `model` (a Hugging Face directory), `out`, `steps`.
Runs in the environment of `scripts/peers`. Prints a line of JSON for each sequence that the
trainer's loss gets.
"""

import json
import sys

import httpx2
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

ORDERS = json.loads(sys.argv[1])
QUESTIONS = ("How are you?", "And now?")
MAX_TOKENS = 12
GROUP = 2
service = httpx2.Client(
    base_url=ORDERS["url"], headers={"authorization": f"Bearer {ORDERS['key']}"}, timeout=60
)


def play(prompt, base_url, api_key):
    """Hold a conversation of two turns with any client of Chat Completions."""
    messages = list(prompt)
    for question in (*QUESTIONS[1:], None):
        answer = httpx2.post(
            f"{base_url}/chat/completions",
            json={"model": "policy", "messages": messages, "max_tokens": MAX_TOKENS},
            headers={"authorization": f"Bearer {api_key}"},
            timeout=60,
        )
        answer.raise_for_status()
        messages.append(answer.json()["choices"][0]["message"])
        if question is not None:
            messages.append({"role": "user", "content": question})


def rollout(prompts, trainer):
    names = ("prompt_ids", "completion_ids", "logprobs", "env_mask", "session")
    samples = {name: [] for name in names}
    for prompt in prompts:
        opened = service.post("/sessions", json={"policy": "policy"}).json()
        play(prompt, opened["base_url"], opened["api_key"])
        path = f"/sessions/{opened['session_id']}"
        chain = service.get(f"{path}/chains").json()["chains"][0]
        at = chain["prompt_length"]
        samples["prompt_ids"].append(chain["token_ids"][:at])
        samples["completion_ids"].append(chain["token_ids"][at:])
        samples["logprobs"].append(chain["logprobs"][at:])
        samples["env_mask"].append([int(flag) for flag in chain["mask"][at:]])
        samples["session"].append(opened["session_id"])
        service.post(f"{path}/close", json={})
    return samples


def reward(completion_ids, session, **further):
    """Return a reward that follows from the ids, and print whose it is."""
    for ids, name in zip(completion_ids, session, strict=True):
        print(json.dumps({"session": name, "completion_ids": ids}), flush=True)
    return [sum(ids) % 7 / 7 for ids in completion_ids]


class ShownTrainer(GRPOTrainer):
    """The trainer, which prints what its loss gets."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        """Print each sequence without its padding; compute the loss as always."""
        prompts, completions = inputs["prompt_ids"], inputs["completion_ids"]
        kept, said = inputs["prompt_mask"].bool(), inputs["completion_mask"].bool()
        with torch.no_grad():
            computed, *_ = self._get_per_token_logps_and_entropies(
                model,
                torch.cat([prompts, completions], dim=1),
                torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1),
                completions.size(1),
            )
        loss = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        for row in range(len(prompts)):
            shown = {
                "step": self.state.global_step,
                "loss": loss.item(),
                "token_ids": [
                    *prompts[row][kept[row]].tolist(),
                    *completions[row][said[row]].tolist(),
                ],
                "mask": inputs["tool_mask"][row][said[row]].tolist(),
                "logprobs": inputs["sampling_per_token_logps"][row][said[row]].tolist(),
                "computed": computed[row][said[row]].tolist(),
            }
            print(json.dumps(shown), flush=True)
        return loss


def main():
    """Train."""
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(ORDERS["model"], dtype=torch.float32)
    settings = GRPOConfig(
        output_dir=ORDERS["out"],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=GROUP,
        gradient_accumulation_steps=2,
        num_generations=GROUP,
        max_completion_length=512,
        max_steps=ORDERS["steps"],
        off_policy_mask_threshold=1.0,  # the loss then reads the sampled log-probs
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    prompts = [[{"role": "user", "content": f"{QUESTIONS[0]} {number}"}] for number in range(8)]
    trainer = ShownTrainer(
        model=model,
        args=settings,
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        processing_class=AutoTokenizer.from_pretrained(ORDERS["model"]),
        reward_funcs=reward,
        rollout_func=rollout,
    )
    trainer.train()


if __name__ == "__main__":
    main()
