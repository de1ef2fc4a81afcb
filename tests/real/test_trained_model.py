"""Compares the program with transformers on the trained weights of SmolLM2: tokens, chats, logits, perplexity and answers."""

import json

import pytest
import torch
from transformers import AutoTokenizer

from peer import load_float32, run, score
from tokenizer_peer import BOTH, DATA, compare, need

QUESTIONS = ["What is the capital of France?", "Name three colours.", "Write one sentence about a lighthouse.", "What is 7 plus 8?",
             "Translate 'good morning' into French.", "Who wrote Hamlet?"]
CONVERSATIONS = [
    [{"role": "user", "content": QUESTIONS[0]}],
    [{"role": "system", "content": "Answer in one word."}, {"role": "user", "content": "Is water wet?"}],
    [{"role": "user", "content": "Hello!"}, {"role": "assistant", "content": "Hello. How can I help?"},
     {"role": "user", "content": " What is 12,345 + ½?\n\nTwo lines. "}],
]
NEW_TOKENS = 24


@pytest.fixture(scope="module")
def tokenizer(smollm2):
    return AutoTokenizer.from_pretrained(smollm2)


@pytest.fixture(scope="module")
def peer(smollm2):
    return load_float32(smollm2)


def texts_of(value):
    """Returns all texts of a JSON value."""
    if isinstance(value, str):
        return [value]
    entries = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for entry in entries for text in texts_of(entry)]


BOOKS = sorted(path for path in DATA.glob("*/*.txt"))
TABLES = sorted(path for path in DATA.glob("*/**/*.json") if path.parent.name != "tokenizer")


def test_all_data_is_tokenised_as_by_the_library(smollm2):
    need(DATA)
    assert len(BOOKS) >= 8 and len(TABLES) >= 9
    texts = [path.read_bytes().decode() for path in BOOKS]
    texts += sorted({text for path in TABLES for text in texts_of(json.loads(path.read_text()))})
    compare(smollm2 / "tokenizer.json", texts, decode=False, ways=BOTH[:1])


@pytest.mark.parametrize("opened", [False, True], ids=["closed", "opened"])
def test_conversations_are_written_as_by_transformers(smollm2, tokenizer, opened, tmp_path):
    file = tmp_path / "chats.jsonl"
    file.write_text("".join(json.dumps({"messages": one, "add_generation_prompt": opened}) + "\n" for one in CONVERSATIONS))
    written = [json.loads(line) for line in run("tokenize", "--model", smollm2, "--chat", "--input", file).splitlines()]
    for one, messages in zip(written, CONVERSATIONS, strict=True):
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=opened)
        assert one["text"] == text and one["ids"] == tokenizer(text, add_special_tokens=False)["input_ids"]


def windows(tokenizer, count, width):
    """Returns the first tokens of wikitext-2's test part."""
    ids = tokenizer(need(DATA / "wikitext-2/test.txt").read_text()[:6 * count * width], add_special_tokens=False)["input_ids"]
    return [ids[begin:begin + width] for begin in range(0, count * width, width)]


@torch.no_grad()
def test_logits_and_perplexity_equal_those_of_transformers(smollm2, tokenizer, peer, tmp_path):
    texts = windows(tokenizer, 4, 512) + [tokenizer(QUESTIONS[2])["input_ids"]]
    records, logits = score(smollm2, texts, tmp_path, "--dtype", "float32")
    losses, tokens = 0.0, 0
    for ids, ours in zip(texts, logits, strict=True):
        theirs = peer(torch.tensor([ids]), use_cache=False).logits[0]
        assert (ours - theirs).abs().max() <= 2e-3, "logits reach 30"
        losses += torch.nn.functional.cross_entropy(theirs[:-1], torch.tensor(ids[1:]), reduction="sum").item()
        tokens += len(ids) - 1
    assert sum(record["logprob"] for record in records) == pytest.approx(-losses, rel=1e-5)
    assert 15 < torch.tensor(losses / tokens).exp() < 35, "the model reads English"


@torch.no_grad()
def test_answers_equal_those_of_transformers(smollm2, tokenizer, peer):
    flags = [word for question in QUESTIONS for word in ("--prompt", question)]
    out = run("generate", "--model", smollm2, "--dtype", "float32", "--template", "chat", *flags, "--max-new-tokens", NEW_TOKENS, "--json")
    for question, record in zip(QUESTIONS, map(json.loads, out.splitlines()), strict=True):
        ids = tokenizer(tokenizer.apply_chat_template([{"role": "user", "content": question}], tokenize=False,
                                                      add_generation_prompt=True), return_tensors="pt")
        whole = peer.generate(**ids, do_sample=False, max_new_tokens=NEW_TOKENS)[0, ids["input_ids"].shape[1]:]
        assert record["prompt_ids"] == ids["input_ids"][0].tolist()
        assert record["text"] == tokenizer.decode(whole, skip_special_tokens=True), question
        assert question != QUESTIONS[0] or "Paris" in record["text"]
