"""Splits a random dense model into experts (tools/sparse_base.py), and compares the written checkpoint, as transformers reads it,
with the model that was distilled."""
import pathlib
import random
import sys

import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, OlmoeForCausalLM

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))
import sparse_base  # noqa: E402

TOP_KS = [8, 4, 2, 1]
SHAPE = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
         "max_position_embeddings": 1024, "tie_word_embeddings": True, "initializer_range": 0.2}


def write_dense(folder):
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "assets/tiny-olmoe")
    tokenizer.save_pretrained(folder)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **SHAPE))
    for layer in model.model.layers:  # queries of one length, as the checkpoint's norm of queries has them
        torch.nn.init.orthogonal_(layer.self_attn.q_proj.weight, gain=3)
    model.save_pretrained(folder)
    for name in ("chat_template.jinja", "generation_config.json", "LICENSE"):
        (folder / name).touch()


def make(dense, out, *flags):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["sparse_base.py", "--dense", str(dense), "--text", str(dense / "text.txt"), "--out", str(out),
                                    "--experts", "8", "--block-steps", "3", *flags])
        sparse_base.main()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Returns the distilled model, the folder of its checkpoint, and that of the dense model."""
    dense, out = tmp_path_factory.mktemp("dense"), tmp_path_factory.mktemp("sparse")
    words = (ROOT / "LICENSE").read_text(encoding="utf-8").split()
    (dense / "text.txt").write_text(" ".join(random.Random(0).choices(words, k=16_000)), encoding="utf-8")
    torch.manual_seed(3)
    write_dense(dense)
    students, write = [], sparse_base.write
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse_base, "write", lambda student, *rest: (students.append(student), write(student, *rest)))
        make(dense, out, "--steps", "3")
    return students[0].eval(), out, dense


@torch.no_grad()
def test_the_spread_of_router_logits_is_that_of_the_checkpoint(made):
    student, folder, _ = made
    model, inputs = OlmoeForCausalLM.from_pretrained(folder, dtype=torch.float32).eval(), []
    for layer in model.model.layers:
        layer.mlp.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    ids = torch.randint(model.config.vocab_size, (2, 200))
    model(ids)
    wanted = [(x @ layer.mlp.gate.weight.T).std(-1).mean().item() for x, layer in zip(inputs, model.model.layers, strict=True)]
    assert sparse_base.router_spread(student, ids, 8) == pytest.approx(wanted, rel=0.02)


def likeness(a, b):
    """Returns the cosine of two models' logits, each token's mean taken away."""
    a, b = (logits - logits.mean(-1, keepdim=True) for logits in (a, b))
    return torch.nn.functional.cosine_similarity(a.flatten(), b.flatten(), dim=0).item()


@torch.no_grad()
def test_the_checkpoint_has_the_logits_of_the_distilled_model_at_every_k(made):
    student, folder, _ = made
    model = OlmoeForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    assert model.config.num_experts_per_tok == model.config.num_experts == 8
    ids = torch.randint(model.config.vocab_size, (4, 200))
    wanted, given = {}, {}
    for top_k in TOP_KS:
        sparse_base.set_top_k(student, top_k)
        for layer in model.model.layers:
            layer.mlp.gate.top_k = top_k
        wanted[top_k], given[top_k] = student(ids).logits, model(ids).logits
    for top_k in TOP_KS:  # bfloat16 swaps experts whose scores are near each other
        own, others = likeness(wanted[top_k], given[top_k]), [likeness(wanted[top_k], given[other]) for other in TOP_KS if other != top_k]
        assert own > 0.97 and max(others) < 0.8, (top_k, own, others)
        assert 1 - max(others) > 10 * (1 - own), (top_k, own, others)


def test_what_another_call_left_unfinished_is_refused(made):
    _, folder, dense = made
    before = (folder / "model.safetensors").read_bytes()
    with pytest.raises(SystemExit, match=r"unfinished\.pt: of another version of this script, other flags or other texts"):
        make(dense, folder, "--steps", "4")
    torch.save((3, []), folder / "unfinished.pt")  # of a script that kept no digest
    with pytest.raises(SystemExit, match=r"unfinished\.pt: of another version of this script"):
        make(dense, folder, "--steps", "3")
    assert (folder / "model.safetensors").read_bytes() == before


class Killed(BaseException):
    """Stands for a kill."""


def killed_in_call(number, write):
    """Returns `write`, a function of content and file, as it is if the process is killed halfway through this call of it."""
    calls = []

    def killed(content, file, **options):
        calls.append(file)
        if len(calls) < number:
            return write(content, file, **options)
        pathlib.Path(file).write_bytes(b"half")
        raise Killed
    return killed


def test_a_kill_while_a_file_is_written_loses_nothing(made, tmp_path):
    _, _, dense = made
    for owner, name, number in ((torch, "save", 2), (sparse_base, "save_file", 1)):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
            patch.setattr(owner, name, killed_in_call(number, getattr(owner, name)))
            make(dense, tmp_path, "--steps", "1")
        assert torch.load(tmp_path / "unfinished.pt", weights_only=False)[1] == (0 if name == "save" else 1)
        assert not (tmp_path / "model.safetensors").exists()
    assert (tmp_path / "config.json").exists() and (tmp_path / "tokenizer.json").exists(), "the weights come last"
    make(dense, tmp_path, "--steps", "1")
    assert OlmoeForCausalLM.from_pretrained(tmp_path).config.num_experts == 8
    assert not list(tmp_path.glob("*.part"))
