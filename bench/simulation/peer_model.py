"""What both peers train: the same checkpoint with transformers and PEFT in PyTorch, on the same rows.

Run as a program it takes the steps of some users in one loop, without a federation: the peers' own step alone.
"""
import argparse
import functools
import json
import pathlib

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

import task

TARGETS = {"target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"],
           "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]}


def load(folder):
    """Returns the model with fresh LoRA factors on attention and experts."""
    torch.set_num_threads(1)
    torch.manual_seed(46)
    base = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    return get_peft_model(base, LoraConfig(r=task.RANK, lora_alpha=task.RANK, **TARGETS)).train()


@functools.cache
def model_of(folder):
    """Returns the model of this process, loaded once."""
    return load(folder)


def rows_of(folder, clients):
    """Returns the int32 token ids [clients, rows, tokens], mapped from their file."""
    return np.memmap(folder / f"rows-{clients}.i32", np.int32, "r", shape=(clients, task.ROWS, task.LENGTH))


def tensor_of(ids):
    return torch.from_numpy(ids.astype(np.int64))


def new_optimizer(parameters, lr=task.LR):
    trained = [p for p in parameters if p.requires_grad]
    return torch.optim.AdamW(trained, lr=lr, betas=task.BETAS, eps=task.EPS, weight_decay=task.WEIGHT_DECAY, fused=True)


def loss_of(model, ids):
    """Returns the mean loss of a batch of ids [rows, tokens], at every position."""
    return model(input_ids=ids, labels=ids, use_cache=False).loss


def learn(model, optimizer, ids):
    """Takes the steps of one epoch over ids [rows, tokens]. Returns the mean of their losses."""
    losses = []
    for batch in tensor_of(ids).split(task.BATCH):
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


def options(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", type=pathlib.Path)
    for name in ("clients", "per-round", "rounds", "workers"):
        parser.add_argument(f"--{name}", type=int, default=1)
    return parser.parse_args()


def mark(loss=None):
    """Tells the driver that a round ends, or, without a loss, that the rounds begin."""
    print("mark " + json.dumps({"loss": loss}), flush=True)


def main():
    chosen = options(__doc__.splitlines()[0])
    model, rows = load(chosen.folder), rows_of(chosen.folder, chosen.clients)
    optimizer = new_optimizer(model.parameters())
    learn(model, optimizer, rows[0])  # the first steps are slower
    mark()
    loss = sum(learn(model, optimizer, rows[user]) for user in range(chosen.per_round)) / chosen.per_round
    mark(loss)


if __name__ == "__main__":
    main()
