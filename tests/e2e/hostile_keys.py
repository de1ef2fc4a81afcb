"""Checks every key of a config with invalid values. The keys are listed by the program, so a new key without an entry
in BAD fails. A value of the wrong type is tested for every key.
"""

import re
import tomllib

import pytest

from hostile import refused
from tiny import CONFIG, ROOT, succeed

METHODS = [line.split()[0] for line in succeed("list", "methods").stdout.splitlines()]
WHOLE = 2**62

# key -> [(value, words of the error line besides the key)]. Values are TOML as after --set.
AT_LEAST_ONE = [("0", ["is 0", "1 or more"])]
NONE_OR_MORE = [("-1", ["is -1", "0 or more"])]
POSITIVE = [("0.0", ["is 0", "allowed"])]
NOT_NEGATIVE = [("-0.5", ["is -0.5", "allowed"])]
SHARE = [("0.0", ["is 0", "greater than 0, at most 1"]), ("1.5", ["is 1.5", "at most 1"])]
KERNELS = [('["sideways"]', ["sideways", "own, widen, native, dot, tile"]), ('["own", "own"]', ["a list of 2", "none, or one kernel"])]
NO_OTHER = []  # every value of the right type is valid, or is checked by what it names


def word(*allowed):
    """Returns invalid values of an enumerated key."""
    return [('"sideways"', ["sideways", *allowed])]


BAD = {
    "name": [('""', ["a file name"]), ('"a/b"', ["a/b", "without /"]), ('".."', ["..", "not starting with a dot"])],
    "seed": NONE_OR_MORE,
    "threads": NONE_OR_MORE,
    "cluster.size": NONE_OR_MORE,
    "cluster.rank": [("-2", ["is -2", "-1 or more"])],
    "cluster.store": NO_OTHER,
    "cluster.device": NO_OTHER,
    "cluster.timeout": [("0.1", ["is 0.1", "0.5 to 86400"])],
    "cluster.start_timeout": [("1e9", ["is 1e+09", "0.5 to 86400"])],
    "cluster.regroup": NO_OTHER,
    "cluster.scratch": NO_OTHER,
    "model.path": NO_OTHER,
    "model.dtype": word("checkpoint", "bfloat16", "float32"),
    "model.compute_dtype": word("auto", "bfloat16", "float32", "measured") + [('"measured"', ["measured", "auto, bfloat16 or float32"])],
    "model.base_format": word("stored", "int8"),
    "model.base_cache": NO_OTHER,
    "model.device": [('"gpu"', ["model.device", "gpu", "cpu, cuda"]), ('""', ["model.device", "cpu, cuda"]), ('"cuda:"', ["cuda:"]), ("1", ["model.device"])],
    "model.engine": word("auto", "kernels", "aten"),
    "model.graphs": word("auto", "on", "off") + [('"on"', ["model.graphs", "auto or off", "cpu"])],
    "model.cuda_kernels": [(f'"{bad}"', ["model.cuda_kernels", "swiglu,norm,rows,routing"]) for bad in ("", "on", "swiglu,", "rows,rows", "all,rows")]
                          + [('"all"', ["model.cuda_kernels", "auto or none", "cpu"]), ("1", ["model.cuda_kernels"])],
    "model.products.expert_forward": KERNELS,
    "model.products.expert_backward": KERNELS,
    "model.products.linear_forward": KERNELS,
    "model.products.linear_backward": KERNELS,
    "lora.rank": AT_LEAST_ONE,
    "lora.alpha": POSITIVE,
    "lora.targets": NO_OTHER,
    "lora.router_lora": NO_OTHER,
    "lora.init": NO_OTHER,
    "lora.lora_scale_mode": word("fixed_alpha", "const_scale"),
    "data.task": word("commonsense", "telequad", "builtin", "builtin_large", "builtin_changed", "files") + [("[]", ["empty"]), ('["builtin", "x"]', ["x", "files"])],
    "data.path": NO_OTHER,
    "data.template": word("paper", "llm_adapters"),
    "data.chat_template": [("'chat.jinja'", ["given", 'template = "chat"'])],
    "data.date": [("'1.3.2025'", ["1.3.2025", "YYYY-MM-DD"]), ("'2025-02-30'", ["2025-02-30", "no moment"]), ("'2025-03-01'", ["given", 'template = "chat"'])],
    "data.cutoff": [("1", ["is 1", "2 or more"]), ("-7", ["is -7", "2 or more"])],
    "data.mask_prompt": NO_OTHER,
    "data.limit": NONE_OR_MORE,
    "data.partition.kind": word("iid", "sequential", "dirichlet", "budget"),
    "data.partition.alpha": POSITIVE,
    "data.partition.key": [('"colour"', ["colour", "label"])],
    "data.partition.scheme": word("client", "prior", "group"),
    "data.partition.share": SHARE,
    "data.partition.groups": [('["x", "y", "x"]', ['"x" twice', "each group once"])],
    "data.telequad.split": word("order", "documents", "specs", "questions"),
    "data.telequad.split_seed": NONE_OR_MORE,
    "data.telequad.train_share": SHARE,
    "data.telequad.impossible": NO_OTHER,
    "data.files.train": [('[""]', [])],
    "data.files.test": [('[""]', [])],
    "data.files.held_out": [("1.0", ["is 1", "less than 1"]), ("-0.1", ["is -0.1", "0 or more"])],
    "data.files.split_seed": NONE_OR_MORE,
    "data.files.format": word("auto", "alpaca", "messages", "prompt_completion"),
    "data.files.strict": NO_OTHER,
    "data.files.score": word("choice", "f1", "exact", "nll"),
    "data.files.options": [('["yes"]', ["given", "choice"]), ('[""]', ["holds", "answers that say something"]),
                           ('["yes", "no", "yes"]', ['"yes" twice', "every answer once"]), ('["no", " no"]', ["twice"])],
    "data.files.ignore": NO_OTHER,
    "data.files.label": NO_OTHER,
    "clients.count": AT_LEAST_ONE,
    "clients.participation": SHARE,
    "clients.parallel": AT_LEAST_ONE,
    "clients.budgets": [("[0.5]", ["1 entries", "clients.count is 5"]), ("[1.0, 1.0, 1.0, 1.0, 2.0]", ["is 2", "at most 1"])],
    "clients.ranks": [("[3]", ["1 entries", "clients.count is 5"]), ("[3, 3, 3, 3, 4]", ["holds 4", "1 .. lora.rank = 3"]),
                      ("[3, 3, 0, 3, 3]", ["holds 0", "1 .. lora.rank = 3"])],
    "clients.profiles": [('["box"]', ["1 entries", "clients.count is 5"]), ('{ values = ["box"] }', ["box", "holds none"])],
    "clients.deadline": NOT_NEGATIVE,
    "clients.most_examples": [("-1", ["is -1"])],
    "clients.update_norm": NOT_NEGATIVE,
    "clients.update_ratio": NOT_NEGATIVE + [("0.5", ["is 0.5", "0, or 1 or more"])],
    "clients.bound_simulated": NO_OTHER,
    "clients.quorum": [("0", ["is 0", "1 .. 3"]), ("4", ["is 4", "1 .. 3", "drawn per round"])],
    "clients.start": [("-1", ["is -1", "clients.count = 5"]), ("6", ["is 6", "clients.count = 5"])],
    "clients.assign": word("named", "arrival"),
    "clients.on_change": word("refuse", "record"),
    "client_profiles.server_seconds": NOT_NEGATIVE,
    "train.rounds": AT_LEAST_ONE,
    "train.local_epochs": POSITIVE,
    "train.batch_size": AT_LEAST_ONE,
    "train.accumulation": AT_LEAST_ONE,
    "train.loss_mean": word("micro_batch", "step"),
    "train.share_prefixes": NO_OTHER,
    "train.merge_tokens": NONE_OR_MORE,
    "train.idle_expert_update": word("zero_grad", "skip"),
    "train.transport_dtype": word("float32", "bfloat16"),
    "train.max_grad_norm": NOT_NEGATIVE,
    "train.optimizer.name": word("adamw", "sgd"),
    "train.optimizer.lr": POSITIVE,
    "train.optimizer.betas": [("[0.9]", ["two numbers"]), ("[0.9, 1.0]", ["two numbers"]), ("[-0.1, 0.9]", ["two numbers"])],
    "train.optimizer.eps": POSITIVE,
    "train.optimizer.weight_decay": NOT_NEGATIVE,
    "train.optimizer.momentum": [("-0.1", ["[0, 1)"]), ("1.0", ["[0, 1)"]), ("0.5", ["is 0.5", 'name is "adamw"'])],
    "train.schedule.kind": word("constant", "linear", "cosine"),
    "train.schedule.warmup_rounds": [("-1", ["is -1"]), ("4", ["is 4", "0 .. train.rounds = 3"])],
    "train.schedule.final_ratio": SHARE,
    "train.stop.patience": [("-1", ["is -1", "0 or more"]), ("2", ["is 2", "allowed: 0", "evaluate.every is 0"])],
    "train.stop.min_delta": NOT_NEGATIVE + [("0.1", ["is 0.1", "patience is 0"])],
    "aggregation.rule": word("mean", "trimmed_mean", "median", "clipped_mean", "krum"),
    "aggregation.trim": [("0.0", ["is 0", "above 0, below 0.5"]), ("0.5", ["is 0.5", "above 0, below 0.5"])],
    "aggregation.byzantine": AT_LEAST_ONE,
    "privacy.unit": word("off", "example", "client"),
    "privacy.epsilon": [("8.0", ["is 8", "0 where unit is off"]), ("-1.0", ["is -1"])],
    "privacy.delta": [("1e-5", ["is 1e-05", "0 where unit is off"])],
    "privacy.noise_multiplier": [("1.0", ["is 1", "0 where unit is off"])],
    "privacy.clip": [("0.1", ["is 0.1", "0 where unit is off"])],
    "privacy.lot": [("8", ["is 8", "0 where unit is off"])],
    "privacy.sampling": word("all", "fixed", "poisson") + [('"fixed"', ["fixed", "with unit client only"])],
    "privacy.weights": word("examples", "uniform") + [('"examples"', ["examples", "with unit client only"])],
    "privacy.weight_cap": [("8", ["is 8", "with unit client only"])],
    "privacy.public_sizes": [("true", ["is true", "with unit client only"])],
    "privacy.noise": word("secret", "seeded") + [('"seeded"', ["seeded", "with unit client only"])],
    "privacy.noise_cohort": [("8", ["is 8", "with unit client only"])],
    "privacy.continues": [('"runs/before"', ["with unit client only"])],
    "privacy.adapt.target": [("-0.1", ["is -0.1", "below 1"]), ("1.0", ["is 1", "below 1"]), ("0.5", ["is 0.5", "with unit client only"])],
    "privacy.adapt.rate": POSITIVE + [("0.3", ["is 0.3", "with target above 0 only"])],
    "privacy.adapt.indicator_noise": NOT_NEGATIVE + [("2.0", ["is 2", "0 where target is 0"])],
    "secure_aggregation.mode": word("off", "sums", "masks"),
    "secure_aggregation.bits": [("24", ["is 24", "16, 32, 64"]), ("16", ["is 16", "with secure_aggregation.mode sums or masks only"])],
    "secure_aggregation.range": NOT_NEGATIVE + [("0.5", ["is 0.5", "with secure_aggregation.mode sums or masks only"])],
    "secure_aggregation.threshold": [("2", ["is 2", "3 or more"]), ("3", ["is 3", "with secure_aggregation.mode sums or masks only"])],
    "secure_aggregation.colluders": [("-1", ["is -1", "0 or more"]), ("1", ["is 1", "privacy.unit client"])],
    "secure_aggregation.reports": [("false", ["is false", "with secure_aggregation.mode sums or masks only"])],
    "secure_aggregation.weights": word("examples", "uniform") + [('"uniform"', ["with secure_aggregation.mode sums or masks only"])],
    "evaluate.tasks": [('["arc_x"]', ["arc_x", "arc_c"])],
    "evaluate.budgets": [("[]", ["empty"]), ("[0.0]", ["is 0", "at most 1"]), ("[1.5]", ["is 1.5", "at most 1"]),
                         ("[1, 1]", ["1 twice", "every value once"]), ("[0.5, 1.0, 0.5]", ["0.5 twice"])],
    "evaluate.rank_eval_modes": [('["a", "a"]', ["a twice", "every value once"]), ("[]", ["empty", "a, b"]), ('["c"]', ['"c"', "a, b"])],
    "evaluate.limit": NONE_OR_MORE,
    "evaluate.decode": word("greedy", "beam4"),
    "evaluate.max_new_tokens": AT_LEAST_ONE,
    "evaluate.cutoff": NONE_OR_MORE,
    "evaluate.batch_size": AT_LEAST_ONE,
    "evaluate.cache": word("float32", "bfloat16"),
    "evaluate.cache_gib": POSITIVE,
    "evaluate.lowercase": NO_OTHER,
    "evaluate.likelihood": NO_OTHER,
    "evaluate.every": NONE_OR_MORE,
    "evaluate.before": NO_OTHER,
    "evaluate.as_exported": NO_OTHER,
    "evaluate.per_client": [("true", ["test rows of their own"])],
    "evaluate.items": NO_OTHER,
    "evaluate.keep_best": [("true", ["is true", "false", "evaluate.every is 0"])],
    "evaluate.best.measure": word("log_likelihood", "accuracy", "exact_match", "f1") + [('"accuracy"', ["evaluate.best.measure is given", "keep_best"])],
    "evaluate.best.budget": [("-0.5", ["is -0.5", "at most 1"]), ("1.5", ["is 1.5", "at most 1"]), ("0.5", ["evaluate.best.budget is given"])],
    "evaluate.best.tasks": [('["arc_x"]', ["arc_x", "arc_c"]), ('"builtin"', ["evaluate.best.tasks is given"])],
    "report.tensorboard": NO_OTHER,
    "evaluate.bert_score.encoder": NO_OTHER,
    "evaluate.bert_score.layer": [("2", ["encoder is empty"])],
    "evaluate.bert_score.idf": [("true", ["encoder is empty"])],
    "evaluate.bert_score.baseline": [('"b.tsv"', ["encoder is empty"])],
    "output.dir": NO_OTHER,
    "method.name": [('"fedavg"', ["fedavg", "fedit", "ub-smoe"]), ('""', ['""', "fedit"])],
    "method.ub-smoe.dmr_mode": word("candidate", "preserve"),
    "method.ub-smoe.num_candidates": [("-1", ["is -1"])],
    "method.ub-smoe.phi_update": word("utilization", "off"),
    "method.ub-smoe.phi_momentum": [("-0.1", ["is -0.1"]), ("1.1", ["is 1.1"])],
    "method.ub-smoe.gate_scores": word("modulated", "raw"),
    "method.ub-smoe.phi_scale": word("range", "none", "clip"),
    "method.ub-smoe.phi_range": [("[1.0]", ["phi_range"]), ("[0.5, 1.0]", ["phi_range"]), ("[1.0, -1.0]", ["phi_range"])],
    "method.ub-smoe.util_frequency": word("per_token", "per_selection"),
    "method.ub-smoe.util_eps": POSITIVE,
    "method.ub-smoe.phi_train": word("off", "local_discard", "local_fedavg"),
    "method.ub-smoe.phi_penalty": word("hinge", "l2"),
    "method.ub-smoe.lambda_phi": NOT_NEGATIVE,
    "method.ub-smoe.phi_at_eval": NO_OTHER,
    "method.ub-smoe.pg": NO_OTHER,
    "method.ub-smoe.pg_source": word("own", "placebo", "momentum", "oracle"),
    "method.ub-smoe.pg_activity": word("step_union"),
    "method.ub-smoe.pg_apply": word("adam_grad"),
    "method.ub-smoe.pg_clip_mode": word("per_expert_norm", "elementwise"),
    "method.ub-smoe.pg_clip": POSITIVE,
    "method.ub-smoe.pg_gamma": word("opt_steps"),
    "method.ub-smoe.kbar_over": word("participants", "clients"),
    "method.ub-smoe.rho_ref": word("kbar"),
    "method.ub-smoe.rho_fn": word("sqrt"),
    "method.a3smoe.temperature": NOT_NEGATIVE,
    "method.a3smoe.frequency": word("per_token", "per_selection"),
    "method.a3smoe.rescaler": word("off", "learn", "fixed"),
    "method.a3smoe.unused_expert": word("keep"),
    "method.slimmable-moe.expert_mass": word("steps", "tokens", "gates"),
    "method.slimmable-moe.distillation": NOT_NEGATIVE,
    "method.slimmable-moe.temperature": POSITIVE,
    "method.smoe-llb.llb_coef": NOT_NEGATIVE,
    "method.smoe-llb.z_coef": NOT_NEGATIVE,
    "method.smoe-llb.llb_norm": word("per_layer_k", "sum", "hf"),
    "method.hetlora.gamma": [("0.0", ["is 0"]), ("1.0", ["is 1"])],
    "method.hetlora.lambda": NOT_NEGATIVE,
    "method.hetlora.prune": NO_OTHER,
    "method.hetlora.rank_min": AT_LEAST_ONE,
    "method.hetlora.unused_rank": word("zero", "keep"),
    "method.flora.fresh_init": word("own", "shared"),
    "method.florist.mode": word("paper", "code"),
    "method.florist.tau": [("0.0", ["is 0"]), ("1.5", ["is 1.5"])],
    "method.florist.max_rank": NONE_OR_MORE,
    "method.fed-sb.init": word("pooled"),
    "method.fed-sb.samples": AT_LEAST_ONE,
    "method.gate_norm": word("olmoe_native", "renorm_selected", "softmax_all"),
}


def leaves(table, prefix=""):
    for key, value in table.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def keys():
    """Returns every key with its value, for all methods."""
    found = {}
    for method in METHODS:
        text = succeed("train", CONFIG, "--set", f"method.name={method}", "--print-config").stdout
        found |= leaves(tomllib.loads(text))
    return found


KEYS = keys()


def wrong_type(value):
    """Returns a value of the wrong type for a key with this value, and the expected type."""
    if isinstance(value, bool):
        return '"yes"', "true or false"
    if isinstance(value, int):
        return "1.5", "a whole number"
    if isinstance(value, float):
        return '"much"', "a number"
    if isinstance(value, list):
        return "7", "a list"
    return "7", "a string"


def bad(key, value, says):
    method = re.match(r"method\.([^.]+)\.", key)
    name = ["--set", f"method.name={method[1]}"] if method else []
    refused("train", CONFIG, *name, "--set", f"{key}={value}", "--print-config", says=says)


def test_the_table_has_invalid_values_of_every_key():
    assert sorted(KEYS) == sorted(BAD)


@pytest.mark.parametrize("key", sorted(KEYS))
def test_a_value_of_another_type_is_rejected(key):
    value, expected = wrong_type(KEYS[key])
    bad(key, value, ["[config]", key, f"is {value}", expected, "--set"])


@pytest.mark.parametrize("key, value, says", [pytest.param(key, *one, id=f"{key}={one[0]}") for key in sorted(BAD) for one in BAD[key]])
def test_a_value_that_is_not_allowed_is_rejected(key, value, says):
    bad(key, value, ["[config]", key.rsplit(".", 1)[1] if "." in key else key, *says])


# --- unknown keys and invalid assignments ---

@pytest.mark.parametrize("setting, says", [
    ("rounds=3", ["rounds", "known", "name"]),
    ("train.rouns=3", ["train.rouns", "known", "rounds"]),
    ("train.optimizer.learning_rate=1", ["train.optimizer.learning_rate", "lr"]),
    ("evaluate.budget=[1.0]", ["evaluate.budget", "budgets"]),
    ("method.ub-smoe.phi_momentm=0.5", ["method.ub-smoe.phi_momentm", "phi_momentum"]),
    ("method.fedavg.momentum=0.9", ["fedavg", "fedit"]),
    ("method.fedit.gate_norm=olmoe_native", ["method.fedit.gate_norm"]),
    ("method.fedit=3", ["method.fedit", "3", "a table"]),
    ("train=3", ["train", "3", "a table"]),
    ("train.rounds.first=3", ["rounds", "not a table"]),
    ("seed", ["seed", "a.b=value"]),
    ("=3", ["=3", "not a key"]),
    ("", ["--set", "a.b=value"]),
    ("..=3", ["not a key"]),
    ("a b=3", ["a b", "not a key"]),
    ("seed=", ["seed=", "neither TOML nor a bare word"]),
    ("seed=3 4", ["seed=3 4", "neither TOML"]),
    ("seed=[1", ["seed=[1", "neither TOML"]),
    ("seed=1\nthreads=2", ["--set seed=1", "neither TOML"]),
    ("name=a b", ["name=a b", "neither TOML"]),
    (f"{'a.' * 60_000}b=1", ["--set"]),
    (f"name={'[' * 100_000}", ["--set"]),
    (f"name=\"{'x' * 10_000}/\"", ["name is", "without /"]),
    ("name=\"\\u001b[31m/\"", ["name is", "without /"]),
    ("name=\"a\\nevenkeel: b/\"", ["name is", "without /"]),
    ("threads=4294967297", ["threads", "4294967297", "allowed"]),
    (f"train.batch_size={WHOLE}", ["train.batch_size", str(WHOLE), "allowed"]),
    (f"train.accumulation={WHOLE}", ["train.accumulation", str(WHOLE), "allowed"]),
    (f"lora.rank={10**12}", ["lora.rank", str(10**12), "allowed"]),
    (f"clients.count={10**12}", ["clients.", str(10**12)]),
    (f"evaluate.max_new_tokens={2**63 - 1}", ["evaluate.max_new_tokens", str(2**63 - 1), "allowed"]),
    (f"evaluate.batch_size={WHOLE}", ["evaluate.batch_size", str(WHOLE), "allowed"]),
    ("lora.alpha=1e308", ["lora.alpha", "1e+308", "allowed"]),
    ("lora.alpha=nan", ["lora.alpha", "is nan", "a finite number"]),
    ("lora.alpha=1e309", ["lora.alpha"]),
    ("train.optimizer.lr=inf", ["train.optimizer.lr", "is inf", "a finite number"]),
    ("method.a3smoe.temperature=inf", ["method.a3smoe.temperature", "is inf", "a finite number"]),
    ("clients.budgets=[1.0, nan]", ["clients.budgets", "nan", "finite"]),
    ("clients.budgets=0.5", ["clients.budgets is 0.5", "a list or a table"]),
    ("clients.budgets={ values = [0.5, 2.0] }", ["clients.budgets.values is 2", "at most 1"]),
    ("clients.budgets={ values = [0.5], shares = [1, 2] }", ["clients.budgets.shares is [1, 2]", "one per value"]),
    ("clients.budgets={ values = [0.5], shares = [1e300] }", ["clients.budgets.shares is 1e+300", "up to 1e+06"]),
    ("clients.budgets={ values = [0.5], deal = \"turns\" }", ["clients.budgets.deal", "seed, order"]),
    ("clients.budgets={ shares = [1] }", ["clients.budgets.values is empty"]),
    ("clients.ranks={ values = [4] }", ["clients.ranks.values holds 4", "1 .. lora.rank = 3"]),
    ("client_profiles.box.tokens_per_second=[]", ["client_profiles.box.tokens_per_second is empty"]),
    ("client_profiles.box={ tokens_per_second = [1e300] }", ["client_profiles.box.tokens_per_second is 1e+300", "up to 1e+06"]),
    ("client_profiles.box={ tokens_per_second = [9], top_k = [1, 2] }", ["is [9]", "as many as top_k has, 2"]),
    ("client_profiles.box={ tokens_per_second = [9], dropout = 1 }", ["client_profiles.box.dropout is 1", "less than 1"]),
    ("client_profiles.box={ tokens_per_second = [9], speed_factor = { distribution = \"normal\" } }", ["none, log-normal, uniform"]),
    ("client_profiles.box={ tokens_per_second = [9], speed_factor = { sigma = 3.0 } }",
     ["client_profiles.box.speed_factor.sigma is 3", "with distribution = \"log-normal\" only"]),
    ("client_profiles.box={ tokens_per_second = [9], network_factor = { distribution = \"log-normal\", low = 0.2 } }",
     ["client_profiles.box.network_factor.low is 0.2", "with distribution = \"uniform\" only"]),
    ("client_profiles.box={ tokens_per_second = [9], mbit = 3 }", ["client_profiles.box.mbit", "down_mbit", "up_mbit"]),
    ("client_profiles.box={ tokens_per_second = [9] }", ["clients.profiles is empty", "box"]),
    ("client_profiles.box=3", ["client_profiles.box"]),
    ("clients.client=3", ["clients.client is 3", "a list of tables"]),
    ("clients.client=[3]", ["clients.client[0] is 3", "a table"]),
    ("clients.client=[{ nam = \"x\" }]", ["clients.client[0].nam", "budget, data, held_out, key, name, profile, rank, test, until"]),
    ("clients.client=[{ name = \"x\" }]", ["clients.count is 5", "[[clients.client]]"]),
    ("clients.client=[{ key = \"SHA256:abc\" }]", ["clients.client[0].key is \"SHA256:abc\"", "43 letters and digits"]),
    ("clients.client=[{ until = -1 }]", ["clients.client[0].until is -1"]),
    ("clients.client=[{ until = 1.5 }]", ["clients.client[0].until is 1.5", "a whole number"]),
    (f"seed={2**63}", [str(2**63)]),
    ("data.task=\"\"", ["data.task", "builtin"]),
    ("data.task=files", ["data.files", "empty", "data.files.train"]),
    ("data.files.support.strict=false", ["data.files.support", "names no files", "train or test"]),
    ("data.files.support.trian=[a.jsonl]", ["data.files.support.trian", "known", "train"]),
    ("data.files.support=3", ["data.files.support", "not a known key"]),
], ids=lambda value: value[:40] if isinstance(value, str) else "")
def test_an_invalid_assignment_is_rejected(setting, says):
    refused("train", CONFIG, "--set", setting, "--print-config", says=["[config]", *says])


# --- pre-training ---

PRETRAIN = ROOT / "configs/tiny/pretrain.toml"


@pytest.mark.parametrize("setting, says", [
    ('name=7', ["name", "a string"]),
    ('seed=1.5', ["seed", "a whole number"]),
    ('seed=-1', ["seed", "-1", "0 or more"]),
    ('model.config=""', ["model.config"]),
    ('model.config=nowhere.json', ["nowhere.json"]),
    ('model.config=configs', ["configs"]),
    ('model.tokenizer=nowhere', ["nowhere"]),
    ('model.dtype=int8', ["model.dtype", "int8", "bfloat16"]),
    ('model.device=tpu', ["model.device", "tpu", "cuda"]),
    ('model.device=cuda:63', ["model.device", "cuda:63", "--device cpu"]),
    ('model.engine=tpu', ["model.engine", "tpu", "aten"]),
    ('data.files=["nowhere.txt"]', ["nowhere.txt"]),
    ('data.files=7', ["data.files", "a list"]),
    ('data.documents=-1', ["data.documents", "-1", "0 or more"]),
    ('data.documents=0', ["no text"]),
    ('data.world=huge', ["data.world", "huge", "small, large"]),
    ('data.validation=0.7', ["data.validation", "0.7", "0.5"]),
    ('train.steps=0', ["train.steps", "is 0", "1 or more"]),
    ('train.sequence_length=1', ["train.sequence_length", "is 1", "2 or more"]),
    (f'train.sequence_length={WHOLE}', ["train.sequence_length"]),
    ('train.batch_size=0', ["train.batch_size", "is 0", "1 or more"]),
    ('train.top_k=[1, 0]', ["train.top_k", "holds 0", "1 or more"]),
    ('train.top_k=[1, 99]', ["train.top_k", "holds 99", "up to 8, the experts per token"]),
    ('train.top_k=2', ["train.top_k", "a list"]),
    ('train.warmup_steps=-1', ["train.warmup_steps", "-1", "0 or more"]),
    ('train.final_lr_ratio=-1.0', ["train.final_lr_ratio", "-1"]),
    ('train.clip_norm=-1.0', ["train.clip_norm", "-1", "0 or more"]),
    ('train.load_balance=nan', ["train.load_balance", "nan", "finite"]),
    ('train.load_balance=-1.0', ["train.load_balance", "-1"]),
    ('train.router_z=-1.0', ["train.router_z", "-1"]),
    ('train.log_every=0', ["train.log_every", "is 0", "1 or more"]),
    ('train.checkpoint_every=0', ["train.checkpoint_every", "is 0", "1 or more"]),
    ('train.optimizer.lr=0.0', ["train.optimizer.lr", "above 0"]),
    ('train.stps=3', ["train.stps", "steps"]),
])
def test_an_invalid_setting_of_pretrain_is_rejected(tmp_path, setting, says):
    refused("pretrain", PRETRAIN, "--set", setting, "--out", tmp_path / "out", says=says, untouched=tmp_path)


def test_errors_in_a_config_file_name_file_and_line(tmp_path):
    """For values in a file, the error names the file and the line as well as the key."""
    (tmp_path / "run.toml").write_text("seed = 3\n\n[train]\nrounds = 0\n")
    refused("train", tmp_path / "run.toml", "--out", tmp_path / "run", says=["[config]", "train.rounds", "is 0"], untouched=tmp_path)
    (tmp_path / "run.toml").write_text("seed = 3\n\n[train]\nrounds = \"ten\"\n")
    refused("train", tmp_path / "run.toml", "--out", tmp_path / "run", says=["train.rounds", "run.toml, line 4"], untouched=tmp_path)
