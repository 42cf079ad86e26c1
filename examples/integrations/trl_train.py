"""Trains a tiny model with TRL on the CPU, in a minute: the reward is whether the code that it writes passes tests.

It needs `pip install coderoom trl torch`. The model has a few thousand parameters and knows nine words, so nothing is
downloaded. It learns to go on after `def twice(n): return` with code that doubles.
"""

import tempfile

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, set_seed
from trl import GRPOConfig, GRPOTrainer

from coderoom.integrations.trl import CodeReward

PROMPT = "def twice(n): return"
WORDS = ["<pad>", "<end>", *PROMPT.split(), "n", "+", "*", "2"]


def main() -> None:
    """Train, and print the mean reward of the first and the last steps."""
    set_seed(1)
    words = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<end>")
    shape = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 16, "vocab_size": len(WORDS)}
    model = GPT2LMHeadModel(GPT2Config(**shape, bos_token_id=1, eos_token_id=1, pad_token_id=0))
    dataset = Dataset.from_list([{"prompt": PROMPT, "tests": ["assert twice(3) == 6", "assert twice(-5) == -10"]}] * 64)
    with CodeReward() as code, tempfile.TemporaryDirectory() as folder:

        def reward(completions: list[str], **columns: object) -> list[float | None]:
            return code([f"{PROMPT} {each}" for each in completions], **columns)

        settings = GRPOConfig(
            folder,
            max_steps=20,
            per_device_train_batch_size=32,
            num_generations=32,
            max_completion_length=3,
            learning_rate=0.03,
            lr_scheduler_type="constant",
            beta=0.0,
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            bf16=False,
            disable_tqdm=True,
        )
        trainer = GRPOTrainer(model, reward, settings, dataset, processing_class=tokenizer)
        trainer.train()
        rewards = [each["reward"] for each in trainer.state.log_history if "reward" in each]
    print(f"{sum(rewards[:5]) / 5:.2f} {sum(rewards[-5:]) / 5:.2f}")


torch.set_num_threads(1)
main()
