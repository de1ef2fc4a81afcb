"""Compares `evenkeel generate` (greedy, beam search and sampling) with transformers' generate() on random models."""
import collections
import itertools
import json
import random

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from peer import random_model, run

VOCAB, PROMPTS, NEW_TOKENS = 300, 14, 14
# E, k, heads, kv heads, head width, F, layers, norm_topk_prob
SHAPES = [(6, 2, 4, 2, 8, 20, 2, False), (9, 9, 3, 3, 10, 28, 1, True), (16, 4, 5, 1, 8, 12, 3, False)]
FLAGS = {"temperature": "--temperature", "top_k": "--top-k-tokens", "top_p": "--top-p"}
WARPERS = {"temperature": TemperatureLogitsWarper, "top_k": TopKLogitsWarper, "top_p": TopPLogitsWarper}  # in the order of generate()
NAMES = ("num_experts", "num_experts_per_tok", "num_attention_heads", "num_key_value_heads", "head_width",
         "intermediate_size", "num_hidden_layers", "norm_topk_prob")


def words(seed, count):
    draw = random.Random(seed)
    return ["".join(draw.choices("abcdefgh", k=draw.randint(1, 6))) for _ in range(count)]


def save_tokenizer(folder):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([" ".join(words(1, 4000))], trainer)
    assert tokenizer.get_vocab_size() == VOCAB
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


def model_of(shape, seed):
    settings = dict(zip(NAMES, shape, strict=True))
    settings["hidden_size"] = settings["num_attention_heads"] * settings.pop("head_width")
    return random_model(seed, vocab_size=VOCAB, **settings)


@torch.no_grad()
def reference(model, ids, beams):
    """Returns new tokens without eos, or None if single and double precision differ, because then rounding decides."""
    outputs = []
    for dtype in (torch.float64, torch.float32):
        whole = model.to(dtype).generate(
            torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long), num_beams=beams, do_sample=False,
            length_penalty=1.0, early_stopping=False, max_new_tokens=NEW_TOKENS)
        new = whole[0, len(ids):].tolist()
        eos = model.config.eos_token_id
        outputs.append(new[:new.index(eos)] if eos in new else new)
    return outputs[1] if outputs[0] == outputs[1] else None


@pytest.mark.parametrize("shape, beams", [*itertools.product(SHAPES, (1, 4)), (SHAPES[0], 2), (SHAPES[2], 5)], ids=str)
def test_texts_equal_those_of_transformers_generate(shape, beams, tmp_path):
    model = model_of(shape, seed=sum(shape))
    tokenizer = save_tokenizer(tmp_path)
    draw = random.Random(beams)
    prompts = [" ".join(words(100 * beams + i, draw.randint(1, 30))) for i in range(PROMPTS)]
    ids = [tokenizer.encode(prompt).ids for prompt in prompts]
    with torch.no_grad():  # eos gets a probability at which some texts end early, some late, some never
        model.lm_head.weight[model.config.eos_token_id] *= 2
    expected = [reference(model, some, beams) for some in ids]
    model.to(torch.float32).save_pretrained(tmp_path)

    flags = [word for prompt in prompts for word in ("--prompt", prompt)]
    out = run("generate", "--model", tmp_path, *flags, "--beams", beams, "--max-new-tokens", NEW_TOKENS, "--json")
    records = [json.loads(line) for line in out.splitlines()]
    assert [record["prompt_ids"] for record in records] == ids
    clear = [(record["ids"], wanted) for record, wanted in zip(records, expected, strict=True) if wanted is not None]
    assert len(clear) >= PROMPTS // 2
    for given, wanted in clear:
        assert given == wanted
    assert any(len(wanted) < NEW_TOKENS for _, wanted in clear) and any(wanted for _, wanted in clear)
    for record in records:
        assert record["text"] == tokenizer.decode(record["ids"])


@pytest.mark.parametrize("settings", [{"temperature": 0.6, "top_p": 0.8}, {"temperature": 1.7, "top_k": 9}, {"top_p": 0.5},
                                      {"temperature": 1.2, "top_k": 12, "top_p": 0.85}], ids=str)
def test_sampled_tokens_follow_the_filtered_probabilities_of_transformers(settings, tmp_path):
    """Draws 2,000 tokens after one prompt. Every token with probability 2 % or more appears, no filtered token does,
    and frequencies are within five standard deviations.
    """
    model = model_of(SHAPES[0], seed=12)
    tokenizer = save_tokenizer(tmp_path)
    model.save_pretrained(tmp_path)
    prompt, draws = "abc de", 2000
    flags = [word for name, value in settings.items() for word in (FLAGS[name], value)]
    out = run("generate", "--model", tmp_path, *["--prompt", prompt] * draws, "--max-new-tokens", 1, "--json", *flags)
    eos = model.config.eos_token_id
    drawn = collections.Counter((json.loads(line)["ids"] or [eos])[0] for line in out.splitlines())
    ids = torch.tensor([tokenizer.encode(prompt).ids])
    with torch.no_grad():
        scores = model(ids, use_cache=False).logits[:, -1].float()
    for name, warper in WARPERS.items():
        scores = warper(settings[name])(ids, scores) if name in settings else scores
    shares = scores.softmax(-1)[0]
    kept = {token for token in range(VOCAB) if shares[token] > 0}
    assert set(drawn) <= kept and {token for token in kept if shares[token] > 0.02} <= set(drawn)
    for token in kept:
        share = shares[token].item()
        assert abs(drawn[token] / draws - share) < 5 * (share * (1 - share) / draws) ** 0.5 + 1 / draws
