"""Checks that an adapter keeps its values when it is exported to PEFT and read back, as docs/python.md shows."""

import numpy as np
import pytest
import torch

import evenkeel_moe as ek
from package import CONFIG, settings

peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def exported_to_peft_and_reimported(small_run, tiny_model, tmp_path_factory):
    base, here = tiny_model, tmp_path_factory.mktemp("peft")
    folder = ek.export(small_run, here / "adapter")
    model = peft.PeftModel.from_pretrained(transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), folder)
    model.save_pretrained(here / "tuned")
    run = ek.train(CONFIG, set=settings(base, lora__init=here / "tuned", train__rounds=1, train__optimizer={"lr": 1e-12}), out=here / "run")
    return model, here / "tuned", run


def test_peft_gives_the_log_probabilities_of_the_run(exported_to_peft_and_reimported, small_run):
    model, _, _ = exported_to_peft_and_reimported
    ids = list(range(5, 45))
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, :-1].double()
    expected = torch.log_softmax(logits, -1)[range(len(ids) - 1), ids[1:]]
    ours = ek.score([ids], run=small_run)[0]["token_logprobs"]
    plain = ek.score([ids], model=ek.Run(small_run).config["model"]["path"])[0]["token_logprobs"]
    assert np.allclose(ours, expected, atol=2e-5)
    assert not np.allclose(ours, plain, atol=2e-5)


def test_a_run_can_start_from_an_adapter_that_peft_saved(exported_to_peft_and_reimported, small_run):
    _, tuned, run = exported_to_peft_and_reimported
    first, second = ek.Run(small_run).adapter(), run.adapter()
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert np.allclose(second[name], tensor, atol=1e-7), name
    assert ek.score(["a text"], model=run.config["model"]["path"], adapter=tuned)[0]["logprob"] == \
        pytest.approx(ek.score(["a text"], run=small_run)[0]["logprob"], abs=1e-5)
