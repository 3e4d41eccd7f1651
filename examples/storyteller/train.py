"""Train the storyteller: a small Llama model that tells closed-vocabulary stories and adds one-digit numbers.

Everything is made here: the text (`stories.py`), the tokenizer, the weights. One core, about ten minutes.
The same seed on the same machine with the same package versions writes the same files bit for bit.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from safetensors.torch import save_file
from stories import documents
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM

PAD, BOS, EOS = "<pad>", "<s>", "</s>"
PAD_ID, BOS_ID, EOS_ID = range(3)
VOCABULARY = 768
TOKENIZER_DOCUMENTS = 4000
MAX_POSITIONS = 512
ROW = 256
"""Tokens of a training row; contexts beyond it are untrained."""
PEAK_RATE = 3e-3
WARM_UP = 100
SAMPLE_PROMPTS = ("Once upon a time", "Tom was a brave boy", "3 + 4 =")


@dataclass(frozen=True)
class Sample:
    """A greedy continuation."""

    prompt: str
    text: str
    """The continuation, without the prompt and without special tokens."""
    margin: float
    """How far the best logit leads the second best, at the closest step."""


def train_tokenizer(seed: int) -> Tokenizer:
    """A byte-level BPE: any text round-trips, a frequent word is one token, a digit is always one."""
    tokenizer = Tokenizer(models.BPE())
    digits = pre_tokenizers.Digits(individual_digits=True)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, BOS, EOS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(islice(documents(seed), TOKENIZER_DOCUMENTS), trainer)
    begin = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, BOS_ID)])
    tokenizer.post_processor = begin
    return tokenizer


def make_model(seed: int, vocabulary: int) -> LlamaForCausalLM:
    """The untrained model, seeded: 12 layers of width 128, 4 query heads over 2 key-value heads."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        architectures=["LlamaForCausalLM"],
        dtype="float32",
        vocab_size=vocabulary,
        hidden_size=128,
        intermediate_size=192,
        num_hidden_layers=12,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=MAX_POSITIONS,
        initializer_range=0.05,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        pad_token_id=PAD_ID,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
    )
    return LlamaForCausalLM(config)


def rows(tokenizer: Tokenizer, seed: int) -> Iterator[list[int]]:
    """Endless rows of ROW + 1 token ids; a row starts with a document and is filled up with further ones."""
    stream = documents(seed + 1)
    while True:
        row: list[int] = []
        while len(row) <= ROW:
            row += [*tokenizer.encode(next(stream)).ids, EOS_ID]
        yield row[: ROW + 1]


def learning_rate(step: int, steps: int) -> float:
    """Linear warm-up, then half a cosine down to a hundredth of the peak."""
    if step < WARM_UP:
        return PEAK_RATE * (step + 1) / WARM_UP
    done = (step - WARM_UP) / max(1, steps - WARM_UP)
    return PEAK_RATE * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done)))


def train(model: LlamaForCausalLM, data: Iterator[list[int]], steps: int, batch: int) -> float:
    """Train in place on `steps` batches of `batch` rows; the mean of the last fifty losses (nats a token)."""
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.05)
    losses: list[float] = []
    columns = (BarColumn(), TextColumn("{task.completed}/{task.total} steps, loss {task.fields[loss]}"))
    with Progress(*columns, TimeRemainingColumn()) as progress:
        task = progress.add_task("train", total=steps, loss="-")
        for step in range(steps):
            tokens = torch.tensor(list(islice(data, batch)))
            losses.append(train_step(model, optimizer, tokens, learning_rate(step, steps)))
            progress.update(task, advance=1, loss=f"{losses[-1]:.3f}")
    recent = losses[-50:]
    return sum(recent) / len(recent)


def train_step(
    model: LlamaForCausalLM, optimizer: torch.optim.Optimizer, tokens: torch.Tensor, rate: float
) -> float:
    """One update from `tokens` i64[batch, ROW + 1]; the loss before it."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


@torch.no_grad()
def sample(model: LlamaForCausalLM, tokenizer: Tokenizer, prompt: str, length: int = 64) -> Sample:
    """Continue `prompt` greedily by at most `length` tokens, without a cache."""
    tokens = tokenizer.encode(prompt).ids
    start, margin = len(tokens), math.inf
    while len(tokens) < start + length and tokens[-1] != EOS_ID:
        best = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1].topk(2)
        margin = min(margin, float(best.values[0] - best.values[1]))
        tokens.append(int(best.indices[0]))
    return Sample(prompt, tokenizer.decode(tokens[start:]), margin)


def save(model: LlamaForCausalLM, tokenizer: Tokenizer, folder: Path) -> None:
    """Write the checkpoint and the tokenizer as `transformers` lays them out."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(model.state_dict(), folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {"pad_token": PAD, "bos_token": BOS, "eos_token": EOS}
    special_ids = {"pad_token_id": PAD_ID, "bos_token_id": BOS_ID, "eos_token_id": EOS_ID}
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": MAX_POSITIONS}
    write_json(folder / "config.json", model.config.to_diff_dict())
    write_json(folder / "generation_config.json", {"do_sample": False, "max_new_tokens": 64, **special_ids})
    write_json(folder / "tokenizer_config.json", kind | special)


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Write with sorted keys, so that the bytes depend on the content alone."""
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Train the storyteller and write its checkpoint and tokenizer.",
        epilog="example:\n  python examples/storyteller/train.py --output my-storyteller --seed 1",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    here = Path(__file__).resolve().parent
    parser.add_argument("--output", type=Path, default=here, help="folder to write (this script's)")
    parser.add_argument("--seed", type=int, default=0, help="of the text and of the weights (0)")
    parser.add_argument("--steps", type=positive, default=1200, help="updates (1200)")
    parser.add_argument("--batch", type=positive, default=8, help=f"rows of {ROW} tokens in an update (8)")
    return parser.parse_args(arguments)


def positive(text: str) -> int:
    """An integer of at least 1, for argparse."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not at least 1")
    return value


def main() -> None:
    """Train, save, and show what came out."""
    options = parse_arguments()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    console = Console()
    tokenizer = train_tokenizer(options.seed)
    model = make_model(options.seed, tokenizer.get_vocab_size())
    console.print(f"{model.num_parameters():,} parameters, {tokenizer.get_vocab_size()} tokens")
    loss = train(model, rows(tokenizer, options.seed), options.steps, options.batch)
    save(model, tokenizer, options.output)
    console.print(f"loss {loss:.4f} nats per token")
    for prompt in SAMPLE_PROMPTS:
        result = sample(model, tokenizer, prompt)
        console.print(f"[bold]{prompt}[/]{result.text} [dim](margin {result.margin:.3f})[/]", highlight=False)


if __name__ == "__main__":
    main()
