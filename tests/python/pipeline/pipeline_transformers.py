"""Ranks of pipelines of transformers' models, which must compute what one process computes.

Usage: pipeline_transformers.py STAGES...: forks that many ranks, for each number, since loading
transformers takes long. Prints "> STAGES MODEL" for each that held at all ranks.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch
import transformers as tf
from torch import nn

ROWS, WORDS, LENGTH, MICROBATCHES = 2, 37, 9, 4


def gpt2() -> nn.Module:
    config = tf.GPT2Config(
        vocab_size=WORDS, n_positions=16, n_embd=16, n_layer=4, n_head=2,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
    )  # fmt: skip
    return tf.GPT2LMHeadModel(config)


def llama() -> nn.Module:
    config = tf.LlamaConfig(
        vocab_size=WORDS, hidden_size=16, intermediate_size=32, num_hidden_layers=4,
        num_attention_heads=2, max_position_embeddings=16, use_cache=False,
    )  # fmt: skip
    return tf.LlamaForCausalLM(config)


def bert() -> nn.Module:
    config = tf.BertConfig(
        vocab_size=WORDS, hidden_size=16, intermediate_size=32, num_hidden_layers=4,
        num_attention_heads=2, max_position_embeddings=16,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return tf.BertForMaskedLM(config)


def t5() -> nn.Module:
    config = tf.T5Config(
        vocab_size=WORDS, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2,
        dropout_rate=0.0, decoder_start_token_id=0, use_cache=False,
    )  # fmt: skip
    return tf.T5ForConditionalGeneration(config)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "gpt2": gpt2, "llama": llama, "bert": bert, "t5": t5,
}  # fmt: skip


def batch(at: int, replica: int) -> Any:
    made = torch.Generator().manual_seed(10 * at + replica)
    ids = torch.randint(1, WORDS, (ROWS * MICROBATCHES, LENGTH), generator=made)
    mask = torch.ones_like(ids)
    mask[::3, -2:] = 0
    return ({"input_ids": ids, "attention_mask": mask, "labels": ids},)


def train(model: Any, batch: dict[str, Any]) -> Any:
    out = model(**batch)
    model.backward(out.loss)
    return {"loss": out.loss, "logits": out.logits}


def check(make: Callable[[], nn.Module]) -> None:
    from pipeline_checks import compare

    compare(make, train, batch, microbatches=MICROBATCHES, steps=2)


def run_rank(stages: int) -> None:
    """Checks all models at one rank."""
    torch.set_num_threads(1)
    for name, make in MODELS.items():
        check(make)
        if os.environ["RANK"] == "0":
            print(f"> {stages} {name}", flush=True)


def fork_ranks(stages: int) -> None:
    """Forks the ranks, and waits for them. Exits if one fails."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.update(
        WORLD_SIZE=str(stages), LOCAL_WORLD_SIZE=str(stages), MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port), PAWL_JOB_ID=f"test-{secrets.token_hex(4)}",
    )  # fmt: skip
    pids = []
    for rank in range(stages):
        pid = os.fork()
        if pid == 0:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
            status = 1
            try:
                run_rank(stages)
                status = 0
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            os._exit(status)
        pids.append(pid)
    ended = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    if any(ended):
        sys.exit(f"{stages} stages: ranks ended with {ended}")


if __name__ == "__main__":
    for words in sys.argv[1:]:
        fork_ranks(int(words))
