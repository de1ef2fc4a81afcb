"""Fine-tunes SmolLM2: beside PEFT, exported to PEFT and llama.cpp, in 8 bits, resumed, over two ranks and over a node."""

import json

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoTokenizer

from federation_of_two import ROWS, train, write_config
from peer import assert_logits_close, load_float32, run, score
from test_federation import Processes, free_port, keygen, node_arguments, same_run, wait_for
from tiny import lines, succeed
from training_peer import ALPHA, OPTIMIZER, RANK, STEPS, assert_curves_equal, assert_tensors_close, fill_adapters, saved_names, train_ours
from training_peer import train as train_peer

QUESTION, ANSWER = ROWS["harbour"][0]
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@pytest.fixture(scope="module")
def tokenizer(smollm2):
    return AutoTokenizer.from_pretrained(smollm2)


@pytest.fixture(scope="module")
def float32(smollm2, tmp_path_factory):
    """Returns the model with its weights stored in float32."""
    folder = tmp_path_factory.mktemp("float32")
    load_float32(smollm2).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def config(smollm2, tmp_path_factory):
    return write_config(smollm2, tmp_path_factory.mktemp("rows"))


@pytest.fixture(scope="module")
def two_rounds(config, tmp_path_factory):
    return train(config, tmp_path_factory.mktemp("run") / "two")


def row_of(tokenizer, question, answer):
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    asked = tokenizer.apply_chat_template(messages[:1], tokenize=False, add_generation_prompt=True)
    whole = tokenizer.apply_chat_template(messages, tokenize=False).removesuffix("\n")
    ids = lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]  # noqa: E731
    return {"ids": ids(whole), "first_target": len(ids(asked))}


def test_twenty_steps_of_lora_equal_those_of_peft(float32, tokenizer, tmp_path):
    model = get_peft_model(load_float32(float32), LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=TARGETS, lora_dropout=0.0))
    fill_adapters(model, seed=5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.mul_(0.05)  # so that the model still reads English
    model.save_pretrained(tmp_path / "adapter")
    pairs = [(ROWS["harbour"][i], ROWS["library"][i]) for i in range(4)]
    batches = [[row_of(tokenizer, *row) for row in pair] for pair in pairs]
    job = {"targets": TARGETS, "alpha": ALPHA, "rank": RANK, "optimizer": OPTIMIZER | {"lr": 5e-4},
           "batches": [batches[step % 4] for step in range(STEPS)]}

    losses, gradients = train_peer(model, job)
    our_losses, our_gradients, our_adapter = train_ours(float32, tmp_path / "adapter", job, tmp_path)

    assert losses[0] < 6, "it reads English"
    assert_curves_equal(our_losses, losses, learns=0.5)
    assert_tensors_close(our_gradients, saved_names(gradients), 1e-3, "first gradient")
    trained = {name: p.detach() for name, p in model.named_parameters() if "lora_" in name}
    assert_tensors_close(our_adapter, saved_names(trained), 5e-3, "value after 20 steps")


def texts_of(tokenizer):
    return [row_of(tokenizer, *row)["ids"] for row in ROWS["harbour"][:2]]


def test_an_exported_adapter_has_equal_logits_in_peft(two_rounds, float32, tokenizer, tmp_path):
    run("export", "--run", two_rounds, "--format", "peft", "--check", "--out", tmp_path / "adapter")
    peer = PeftModel.from_pretrained(load_float32(float32), tmp_path / "adapter").eval()
    texts = texts_of(tokenizer)
    with torch.no_grad():
        expected = [peer(input_ids=torch.tensor([ids]), use_cache=False).logits[0] for ids in texts]
    _, logits = score(float32, texts, tmp_path, "--adapter", two_rounds / "adapter")
    assert_logits_close(logits, expected, 2e-3)
    _, bare = score(float32, texts, tmp_path)
    assert max((a - b).abs().max() for a, b in zip(bare, expected)) > 1, "the adapter does something"


def test_an_exported_adapter_has_equal_probabilities_in_llama_cpp(two_rounds, float32, tokenizer, tmp_path):
    pytest.importorskip("xllamacpp", reason="llama.cpp (xllamacpp) is not installed")
    from llama_cpp import next_logprobs, write_base
    run("export", "--run", two_rounds, "--format", "gguf", "--out", tmp_path / "gguf")
    texts = [row_of(tokenizer, *row)["ids"][:-2] for row in ROWS["library"][:2]]
    theirs = next_logprobs(write_base(float32, tmp_path / "base.gguf"), tmp_path / "gguf/adapter.gguf", texts, vocabulary=49152)
    _, logits = score(float32, texts, tmp_path, "--adapter", two_rounds / "adapter")
    for given, ours in zip(theirs, logits, strict=True):
        wanted = ours[-1].log_softmax(-1)
        assert given.argmax() == wanted.argmax()
        assert (given - wanted)[wanted > -20].abs().max() <= 2e-3


def losses_of(folder):
    return {score["round"]: score["nll"] for score in lines(folder / "evaluations.jsonl")}


def test_training_lowers_the_loss_on_what_no_one_knows(two_rounds):
    losses = losses_of(two_rounds)
    assert set(losses) == {0, 2} and losses[2] < 0.8 * losses[0], losses


def test_a_base_of_8_bits_has_nearly_the_same_losses(two_rounds, config, tmp_path):
    small = train(config, tmp_path / "int8", model__base_format="int8")
    for number, loss in losses_of(two_rounds).items():
        assert losses_of(small)[number] == pytest.approx(loss, rel=0.03) and losses_of(small)[number] != loss


def test_a_resumed_run_has_the_same_bits(two_rounds, config, tmp_path):
    begun = train(config, tmp_path / "run", train__rounds=1)
    succeed("train", config, "--out", begun, "--resume", "--set", "train.rounds=2")
    adapters = [folder / "adapter/adapter_model.safetensors" for folder in (two_rounds, begun)]
    assert adapters[0].read_bytes() == adapters[1].read_bytes()


def test_two_ranks_have_the_same_bits(two_rounds, config, tmp_path):
    same_run(two_rounds, train(config, tmp_path / "run", "--ranks", 2))


def test_a_node_has_the_same_bits(smollm2, config, tmp_path):
    rows = config.parent / "harbour.jsonl"
    alone = {"clients__client": f'[{{ name = "site-0", data = "{rows}", budget = 1.0 }}]', "train__rounds": 1}
    local = train(config, tmp_path / "local", **alone)
    with Processes() as processes:
        (key,), address = keygen(tmp_path, 1), f"127.0.0.1:{free_port()}"
        words = [word for name, value in alone.items() for word in ("--set", f"{name.replace('__', '.')}={value}")]
        server = processes.start("serve", config, *words, "--out", tmp_path / "run", "--listen", address, "--allow", tmp_path / "keys.txt",
                                 "--insecure", log=tmp_path / "serve.log")
        processes.start(*node_arguments(key, smollm2, address, "--data", rows), log=tmp_path / "node.log")
        assert wait_for(server, tmp_path / "serve.log") == 0, (tmp_path / "serve.log").read_text() + (tmp_path / "node.log").read_text()
    same_run(local, tmp_path / "run")
