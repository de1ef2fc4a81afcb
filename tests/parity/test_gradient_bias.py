"""Computes what `evenkeel gradient-bias` measures with transformers 4.57 + PEFT 0.17 in float64, from the definitions in
docs/methods.md: gradients of every batch at every K by autograd, choices of experts from the routers' logits."""
import json

import numpy as np
import pytest
import torch
from peft import PeftModel
from tokenizers import Tokenizer

from federated_run import OLMOE, federated_run
from peer import load_float32, run

ROWS = [(f"Is the {thing} {kind}?", f" {answer}") for thing, kind, answer in (
    ("fox", "quick", "true"), ("dog", "lazy", "true"), ("fox", "lazy", "false"), ("answer", "false", "please choose"), ("dog", "brown", "false"),
    ("seven", "eight", "never, fifteen"), ("fox", "true", "answer1"), ("answer", "seven", "false"), ("dog", "quick", "answer4"), ("plus", "fox", "no"))]
BATCH, BUDGETS, MOST = 4, {1: 0.25, 2: 0.5, 4: 1.0}, 4
MEASURES = ["bias", "bias_active", "bias_idle", "predicted", "cosine", "cosine_active", "idle_experts"]
LAYERS = OLMOE | {"num_hidden_layers": 3}  # an odd number: the median over layers is not their mean
T_OF_TWO = 4.302652729911275  # t(0.975) with 2 degrees of freedom


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bias")
    rows = folder / "rows.jsonl"
    rows.write_text("".join(json.dumps({"prompt": prompt, "completion": answer}) + "\n" for prompt, answer in ROWS))
    return federated_run(folder / "made", "fedit", "data.task=files", "data.limit=0", f"data.files.train=['{rows}']", f"data.files.test=['{rows}']",
                         "data.template=plain", "method.gate_norm=olmoe_native", f"evaluate.budgets={list(BUDGETS.values())}", model=LAYERS)


class Reference:
    def __init__(self, model_folder, run_folder):
        self.peer = PeftModel.from_pretrained(load_float32(model_folder), run_folder / "adapter", is_trainable=True).double().eval()
        self.tokenizer = Tokenizer.from_file(str(model_folder / "tokenizer.json"))
        self.blocks = [layer.mlp for layer in self.peer.base_model.model.model.layers]
        self.experts = len(self.blocks[0].experts)
        self.logits = [None] * len(self.blocks)
        for number, block in enumerate(self.blocks):
            block.gate.register_forward_hook(lambda _, __, out, number=number: self.logits.__setitem__(number, out.detach()))

    def factors(self, layer, expert):
        return [value for name, value in self.blocks[layer].experts[expert].named_parameters() if "lora_" in name]

    def batch(self, rows, top_k):
        """Returns the gradient of the summed loss by layer and expert, [L][E][N], the share of tokens that chose each
        expert, [L, E], and the number of targets."""
        self.peer.zero_grad()
        counts, tokens, targets = torch.zeros(len(self.blocks), self.experts), 0, 0
        for block in self.blocks:
            block.top_k = top_k
        for prompt, answer in rows:
            ids = self.tokenizer.encode(prompt + answer, add_special_tokens=False).ids + [2]
            first = len(self.tokenizer.encode(prompt, add_special_tokens=False).ids)
            logits = self.peer(torch.tensor([ids])).logits[0]
            torch.nn.functional.cross_entropy(logits[first - 1:-1], torch.tensor(ids[first:]), reduction="sum").backward()
            for layer, scores in enumerate(self.logits):
                counts[layer] += torch.zeros(len(ids), self.experts).scatter(1, scores.reshape(len(ids), -1).topk(top_k).indices, 1.0).sum(0)
            tokens, targets = tokens + len(ids), targets + len(ids) - first
        zero = lambda value: torch.zeros_like(value) if value.grad is None else value.grad.clone()  # noqa: E731
        gradients = torch.stack([torch.stack([torch.cat([zero(value).flatten() for value in self.factors(layer, expert)])
                                              for expert in range(self.experts)]) for layer in range(len(self.blocks))])
        return gradients, counts, tokens, targets


def sums(full, sparse, counts, tokens):
    """Returns the sums over experts of every layer, [L] each, that the measures are made of."""
    idle, bias = counts == 0, (full - sparse).square().sum(-1)
    square = full.square().sum(-1)
    return {"full": square.sum(1), "sparse": sparse.square().sum((1, 2)), "product": (full * sparse).sum((1, 2)), "active": (bias * ~idle).sum(1),
            "idle": (bias * idle).sum(1), "predicted": ((1 - counts / tokens).square() * square).sum(1), "count": idle.sum(1).double() / idle.shape[1],
            "full_active": (square * ~idle).sum(1)}


def measures(of):
    return [(of["active"] + of["idle"]) / of["full"], of["active"] / of["full"], of["idle"] / of["full"], of["predicted"] / of["full"],
            of["product"] / (of["full"] * of["sparse"]).sqrt(), of["product"] / (of["full_active"] * of["sparse"]).sqrt(), of["count"]]


def with_all_layers(of, batches=1):
    """Appends the sums over all layers."""
    joined = {name: torch.cat([value, value.sum(0, keepdim=True)]) for name, value in of.items()}
    joined["count"] = torch.cat([of["count"], of["count"].mean(0, keepdim=True)]) / batches
    return joined


def by_layer(of):
    """Returns [layer][measure]: every layer, the median over layers, and all layers together."""
    values = torch.stack(measures(of)).T
    return torch.cat([values[:-1], torch.from_numpy(np.median(values[:-1].numpy(), axis=0, keepdims=True)), values[-1:]])


def estimates(passes, top_k, chosen):
    """Returns the measures of all rows and of batches, [layer][measure] each, over the chosen batches."""
    total = lambda k, at: sum(passes[k][b][at] for b in chosen)  # noqa: E731
    all_rows = sums(total(MOST, 0), total(top_k, 0), total(top_k, 1), total(top_k, 2))
    single = [sums(passes[MOST][b][0] / passes[MOST][b][3], passes[top_k][b][0] / passes[top_k][b][3], *passes[top_k][b][1:3]) for b in chosen]
    added = {name: sum(one[name] for one in single) for name in single[0]}
    return {"all_rows": by_layer(with_all_layers(all_rows)), "batch": by_layer(with_all_layers(added, len(chosen)))}


def test_the_measures_are_those_of_an_independent_computation(trained):
    model_folder, run_folder = trained
    reference = Reference(model_folder, run_folder)
    batches = [ROWS[start:start + BATCH] for start in range(0, len(ROWS), BATCH)]
    passes = {k: [reference.batch(rows, k) for rows in batches] for k in BUDGETS}
    found = [json.loads(line) for line in run("gradient-bias", "--run", run_folder, "--limit", len(ROWS), "--json").splitlines()]
    layers = [f"model.layers.{i}.mlp" for i in range(len(reference.blocks))] + ["median", "all"]
    assert [(one["gradient_of"], one["layer"], one["top_k"]) for one in found] == [
        (of, layer, k) for of in ("all_rows", "batch") for layer in layers for k in BUDGETS]
    assert any(one["idle_experts"] > 0 for one in found) and max(one["bias"] for one in found) > 0.05, "nothing to compare"
    expected = {k: estimates(passes, k, range(3)) for k in BUDGETS}
    left_out = {k: [estimates(passes, k, [b for b in range(3) if b != out]) for out in range(3)] for k in BUDGETS}
    for one in found:
        of, layer, k = one["gradient_of"], layers.index(one["layer"]), one["top_k"]
        for number, name in enumerate(MEASURES):
            value = float(expected[k][of][layer, number])
            assert one[name] == pytest.approx(value, rel=2e-4, abs=1e-6), (of, one["layer"], k, name)
            rest = torch.stack([part[of][layer, number] for part in left_out[k]])
            half = T_OF_TWO * float((2 / 3 * (rest - rest.mean()).square().sum()).sqrt())
            for end, at in (("low", value - half), ("high", value + half)):
                assert one[f"{name}_{end}"] == pytest.approx(at, rel=1e-3, abs=1e-5), (of, one["layer"], k, name, end)
        if k == MOST:
            assert one["bias"] == 0 and one["cosine"] == pytest.approx(1, abs=1e-12)


def test_several_runs_are_a_mean_with_an_interval_over_runs(trained, tmp_path):
    other = federated_run(tmp_path / "other", "fedit", "data.task=files", "data.limit=0",
                          f"data.files.train=['{trained[1].parent.parent / 'rows.jsonl'}']", f"data.files.test=['{trained[1].parent.parent / 'rows.jsonl'}']",
                          "data.template=plain", "method.gate_norm=olmoe_native", f"evaluate.budgets={list(BUDGETS.values())}", "seed=12", model=LAYERS)[1]
    lines = lambda *runs: [json.loads(line) for line in run("gradient-bias", *(word for one in runs for word in ("--run", one)),  # noqa: E731
                                                            "--limit", len(ROWS), "--json").splitlines()]
    one, two, both = lines(trained[1]), lines(other), lines(trained[1], other)
    t_of_one = 12.706204736174698  # t(0.975) with 1 degree of freedom; the deviation of two values is their distance / sqrt(2)
    for x, y, z in zip(one, two, both):
        assert z["runs"] == 2 and z["bias"] == pytest.approx((x["bias"] + y["bias"]) / 2)
        assert z["bias_high"] - z["bias"] == pytest.approx(t_of_one * abs(x["bias"] - y["bias"]) / 2, abs=1e-12)
