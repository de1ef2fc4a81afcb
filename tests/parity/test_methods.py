"""Compares every method's server step and gradient edits with the numpy reference of tests/parity/reference.

Random rounds have 2 to 5 clients with unequal weights and unequal K (experts per token); for methods with client ranks,
these are unequal too. The adapted weights are one dense and one stacked (mixture-of-experts) matrix, neither of them
square. Effective updates agree to 1e-10 in float64 and 1e-5 in float32.
"""
import json
import pathlib
import sys

import numpy as np
import pytest
import safetensors.torch
import torch
from safetensors.numpy import save_file

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from jobs import answer  # noqa: E402
from reference import (a3smoe, common, fed_sb, fedex_lora, fedit, ffa_lora, flexlora, flora, florist, hetlora,  # noqa: E402
                       slimmable_moe, smoe_llb, ub_smoe)

LAYER, EXPERTS, K_MAX, LR, ALPHA, RANK = "moe", 4, 3, 0.01, 6.0, 5
SITES = {"q": {"experts": 0, "in": 7, "out": 9, "moe_layer": ""},
         "gate": {"experts": 0, "in": 7, "out": EXPERTS, "moe_layer": ""},
         "up": {"experts": EXPERTS, "in": 7, "out": 3, "moe_layer": LAYER},
         "down": {"experts": EXPERTS, "in": 3, "out": 8, "moe_layer": LAYER}}
SITE_LAYER = {name: site["moe_layer"] for name, site in SITES.items() if site["experts"]}


def options_of(**more):
    return {"alpha": ALPHA, "max_rank": RANK, "lr": LR, "site_layer": SITE_LAYER, "k_max": K_MAX, **more}


def random_sites(draw, rank, scaling, core=False):
    sites = {}
    for name, s in SITES.items():
        lead = (s["experts"],) if s["experts"] else ()
        sites[name] = {"a": draw.standard_normal(lead + (rank, s["in"])), "b": draw.standard_normal(lead + (s["out"], rank)),
                       "scaling": scaling}
        if core:
            sites[name]["core"] = draw.standard_normal(lead + (rank, rank))
    return sites


def federation(seed, ranks, scale_mode="fixed_alpha", core=False):
    """Returns (state, clients, weights) for the reference. Only the last client uses expert 2."""
    draw, options = np.random.default_rng(seed), options_of(lora_scale_mode=scale_mode)
    state = {"sites": random_sites(draw, RANK, common.lora_scale(RANK, options), core)}
    clients = []
    for index, rank in enumerate(ranks):
        top_k = 1 + index % K_MAX
        counts = draw.multinomial(20 * top_k, [0.3, 0.3, 0.0, 0.4])
        if index == len(ranks) - 1:
            counts = draw.multinomial(20 * top_k, [0.25] * EXPERTS)
        clients.append({"sites": random_sites(draw, rank, common.lora_scale(rank, options), core), "rank": rank,
                        "top_k": top_k, "counts": {LAYER: counts}, "tokens": {LAYER: 20}, "steps": 3 + index})
    weights = draw.uniform(0.5, 2.0, len(ranks))
    return state, clients, list(weights / weights.sum())


def write_payload(path, sites, dtype, extras=None, only=("a", "b", "core")):
    """Writes a payload. dtype: a numpy type, or torch.bfloat16, which numpy lacks."""
    tensors = {f"adapter/{name}/{key}": site[key] for name, site in sites.items() for key in only if key in site}
    extras = {f"extra/{name}": value for name, value in (extras or {}).items()}
    scaling = {"scaling": json.dumps({name: site["scaling"] for name, site in sites.items()})}
    if dtype is torch.bfloat16:
        tensors = {name: torch.tensor(value).to(dtype).contiguous() for name, value in tensors.items()}
        safetensors.torch.save_file({**tensors, **{n: torch.tensor(x) for n, x in extras.items()}}, path, scaling)
    else:
        tensors = {name: np.ascontiguousarray(value.astype(dtype)) for name, value in tensors.items()}
        save_file({**tensors, **extras}, path, scaling)
    return str(path)


def run_job(folder, job):
    return answer("method_step", folder, {
        "sites": SITES, "moe_layers": [LAYER], "num_experts": EXPERTS, "max_top_k": K_MAX, "rank": RANK, "alpha": ALPHA,
        "scale_mode": "fixed_alpha", "lr": LR, "fixed": None, **job})


def server_step(folder, method, federation_, dtype, toml="", extras=None, client_extras=None, **job):
    state, clients, weights = federation_
    only, fixed = job.pop("only", ("a", "b", "core")), None
    upload_dtype = job.pop("upload_dtype", dtype)
    if only != ("a", "b", "core"):
        fixed = write_payload(folder / "fixed.safetensors", state["sites"], dtype, only=[k for k in "ab" if k not in only])
    uploads = []
    for index, (client, weight) in enumerate(zip(clients, weights)):
        more = {f"{LAYER}.counts": client["counts"][LAYER].astype(np.int32),
                f"{LAYER}.tokens": np.array(client["tokens"][LAYER], dtype=np.int32),
                "rank": np.array(client["rank"], dtype=np.int32), **{f"{layer}.share": s for layer, s in client.get("share", {}).items()}}
        path = write_payload(folder / f"upload-{index}.safetensors", client["sites"], upload_dtype, more, only)
        uploads.append({"id": index, "top_k": client["top_k"], "rank": client.get("budget_rank", client["rank"]),
                        "weight": weight, "steps": client["steps"], "file": path})
    begun = write_payload(folder / "state.safetensors", job.pop("sites_sent", state["sites"]), dtype, extras, only)
    return run_job(folder, {"method": method, "options": toml, "state": begun, "fixed": fixed, "clients": uploads, **job})


def sites_in(tensors, prefix):
    """Returns the factors under a prefix as reference sites."""
    sites = {}
    for name, value in tensors.items():
        if not name.startswith(prefix):
            continue
        site, key = name[len(prefix):].rsplit("/", 1)
        sites.setdefault(site, {})[key] = float(value) if key == "scaling" else value.astype(np.float64)
    return sites


def deltas(sites):
    return {name: common.delta(site) for name, site in sites.items()}


def assert_same(ours, theirs, tolerance):
    assert ours.keys() == theirs.keys() and theirs
    for name, expected in theirs.items():
        scale = max(np.abs(expected).max(), 1e-12)
        assert np.abs(ours[name] - expected).max() <= tolerance * scale, name


PRECISIONS = [(np.float64, 1e-10), (np.float32, 1e-5)]
ROUNDS = [(0, [5, 5]), (1, [5, 5, 5]), (2, [5] * 5)]
UNEQUAL = [(3, [2, 5]), (4, [1, 3, 5]), (5, [2, 4, 1, 3, 5])]


@pytest.fixture(params=PRECISIONS, ids=["float64", "float32"])
def precision(request):
    return request.param


@pytest.mark.parametrize("seed,ranks", ROUNDS)
@pytest.mark.parametrize("name,reference,toml,options", [
    ("fedit", fedit, "", {}), ("smoe-llb", smoe_llb, "", {}), ("a3smoe", a3smoe, "", {}),
    ("a3smoe", a3smoe, "temperature = 2.0", {"a3_temp": 2.0}), ("a3smoe", a3smoe, "temperature = 0.0", {"a3_temp": 0.0}),
    ("a3smoe", a3smoe, "frequency = \"per_selection\"", {"a3_frequency": "per_selection"}),
    ("a3smoe", a3smoe, "frequency = \"per_selection\"\ntemperature = 0.5", {"a3_frequency": "per_selection", "a3_temp": 0.5}),
    ("a3smoe", a3smoe, "unused_expert = \"mean\"", {"a3_unused": "mean"})])
def test_server_step_of_methods_that_average_factors_equals_the_reference(tmp_path, precision, seed, ranks, name, reference, toml, options):
    dtype, tolerance = precision
    round_ = federation(seed, ranks)
    for client in round_[1]:
        client["counts"][LAYER][2] = 0  # an unused expert
    out = server_step(tmp_path, name, round_, dtype, toml)
    expected = reference.aggregate(*round_, options_of(**options))["sites"]
    ours = sites_in(out, "adapter/")
    for key in ("a", "b"):
        assert_same({n: s[key] for n, s in ours.items()}, {n: s[key] for n, s in expected.items()}, tolerance)


@pytest.mark.parametrize("seed,ranks", ROUNDS)
@pytest.mark.parametrize("mass", ["steps", "tokens", "gates"])
def test_server_step_of_slimmable_moe_equals_the_reference(tmp_path, precision, seed, ranks, mass):
    dtype, tolerance = precision
    state, clients, weights = federation(seed, ranks)
    draw = np.random.default_rng(seed)
    for client in clients:
        share = draw.uniform(0, 1 / EXPERTS, EXPERTS).astype(np.float32)
        share[2] = 0  # an unused expert
        client["share"] = {LAYER: share}
    out = server_step(tmp_path, "slimmable-moe", (state, clients, weights), dtype, f'expert_mass = "{mass}"')
    expected = slimmable_moe.aggregate(state, clients, weights, options_of())["sites"]
    ours = sites_in(out, "adapter/")
    for key in ("a", "b"):
        assert_same({n: s[key] for n, s in ours.items()}, {n: s[key] for n, s in expected.items()}, tolerance)
        np.testing.assert_array_equal(ours["up"][key][2], state["sites"]["up"][key][2].astype(dtype))


@pytest.mark.parametrize("seed,ranks", ROUNDS)
@pytest.mark.parametrize("toml,options", [("", {}), ("rho_fn = \"log\"\npg_gamma = \"literal_0.4\"", {"pg_gamma": "literal_0.4"}),
                                          ("phi_momentum = 0.5\nphi_range = [-0.5, 2.0]",
                                           {"phi_momentum": 0.5, "phi_range": (-0.5, 2.0)}),
                                          ("phi_range = [-0.1, 0.1]\nphi_scale = \"clip\"",
                                           {"phi_range": (-0.1, 0.1), "phi_scale": "clip"}),
                                          ("phi_range = [-0.1, 0.1]\nphi_scale = \"none\"",
                                           {"phi_range": (-0.1, 0.1), "phi_scale": "none"})])
def test_server_step_of_ub_smoe_equals_the_reference(tmp_path, precision, seed, ranks, toml, options):
    dtype, tolerance = precision
    state, clients, weights = federation(seed, ranks)
    phi = np.array([0.3, -0.2, 0.1, 0.0])
    out = server_step(tmp_path, "ub-smoe", (state, clients, weights), dtype, toml, {f"{LAYER}.phi": phi.astype(np.float32)})
    expected = ub_smoe.aggregate({**state, "phi": {LAYER: phi}}, clients, weights, options_of(**options))
    assert_same({n: s["a"] for n, s in sites_in(out, "adapter/").items()},
                {n: s["a"] for n, s in expected["sites"].items()}, tolerance)
    # phi is stored in float32, and a difference of two float32 tensors has fewer digits
    assert_same({"phi": out[f"extra/{LAYER}.phi"]}, {"phi": expected["phi"][LAYER]}, 1e-6)
    assert_same({"u": out[f"memory/{LAYER}.utilization"]}, {"u": expected["utilisation"][LAYER]}, 1e-12)
    for key in ("a", "b"):
        assert_same({n: out[f"extra/{n}.pseudo_grad_{key}"] for n in expected["pseudo"]},
                    {n: pair[key] for n, pair in expected["pseudo"].items()}, tolerance)


@pytest.mark.parametrize("seed,ranks", ROUNDS + UNEQUAL)
@pytest.mark.parametrize("scale_mode", ["fixed_alpha", "const_scale"])
@pytest.mark.parametrize("name,reference", [("flexlora", flexlora), ("hetlora", hetlora)])
def test_server_step_of_methods_that_send_rank_slices_equals_the_reference(tmp_path, precision, seed, ranks, scale_mode, name, reference):
    dtype, tolerance = precision
    round_ = federation(seed, ranks, scale_mode)
    options = options_of(lora_scale_mode=scale_mode)
    for site in round_[0]["sites"].values():
        site["scaling"] = 1.0  # the server's scale
    out = server_step(tmp_path, name, round_, dtype, scale_mode=scale_mode)
    expected = reference.aggregate(*round_, options)
    assert_same(deltas(sites_in(out, "adapter/")), deltas(expected["sites"]), tolerance)
    if name == "flexlora":  # also rows beyond the rank of the sum, which would not train if they were zero
        for site in sites_in(out, "adapter/").values():
            rows = site["a"][..., :site["a"].shape[-1], :]
            np.testing.assert_allclose(rows @ rows.swapaxes(-1, -2), np.broadcast_to(np.eye(rows.shape[-2]), rows.shape[:-2] + 2 * rows.shape[-2:-1]),
                                       atol=1e-5)
    for rank in set(ranks):
        assert_same(deltas(sites_in(out, f"down/{rank}/")), deltas(reference.broadcast(expected, rank, options)), tolerance)


@pytest.mark.parametrize("seed,ranks", ROUNDS + UNEQUAL)
@pytest.mark.parametrize("name,reference,toml,options", [
    ("flora", flora, "", {}), ("florist", florist, "", {}), ("florist", florist, "tau = 1.0", {"florist_tau": 1.0}),
    ("florist", florist, "tau = 0.6\nmax_rank = 2", {"florist_tau": 0.6, "florist_max_rank": 2})])
def test_server_step_of_methods_that_change_the_base_equals_the_reference(tmp_path, precision, seed, ranks, name, reference, toml, options):
    dtype, tolerance = precision
    round_ = federation(seed, ranks)
    out = server_step(tmp_path, name, round_, dtype, toml, sites_sent={})
    expected = reference.aggregate(*round_, options_of(**options))
    ours = sites_in(out, "base_delta/")
    assert_same(deltas(ours), expected["base_delta"], tolerance)
    for site, p in expected.get("p", {}).items():
        got = ours[site].get("ranks", np.array(ours[site]["a"].shape[-2]))
        np.testing.assert_array_equal(got, p)


@pytest.mark.parametrize("seed,ranks", ROUNDS)
def test_server_step_of_fedex_lora_equals_the_reference(tmp_path, precision, seed, ranks):
    dtype, tolerance = precision
    round_ = federation(seed, ranks)
    out = server_step(tmp_path, "fedex-lora", round_, dtype)
    expected = fedex_lora.aggregate(*round_, options_of())
    assert_same(deltas(sites_in(out, "adapter/")), deltas(expected["sites"]), tolerance)
    ours = sites_in(out, "base_delta/")
    assert_same(deltas(ours), expected["base_delta"], tolerance)
    assert all(site["a"].shape[-2] == (len(ranks) - 1) * RANK for site in ours.values())
    # A transposed residual, as once published, could not be added here, because no site is square.
    assert all(common.delta(ours[n]).shape[-2:] == (SITES[n]["out"], SITES[n]["in"]) for n in ours)


@pytest.mark.parametrize("seed,ranks", ROUNDS)
@pytest.mark.parametrize("name,reference,only", [("ffa-lora", ffa_lora, ("b",)), ("fed-sb", fed_sb, ("core",))])
def test_server_step_of_methods_with_fixed_factors_equals_the_reference(tmp_path, precision, seed, ranks, name, reference, only):
    dtype, tolerance = precision
    state, clients, weights = federation(seed, ranks, core=name == "fed-sb")
    for client in clients:
        for site, own in client["sites"].items():
            own.update({key: state["sites"][site][key] for key in "ab" if key not in only})
    out = server_step(tmp_path, name, (state, clients, weights), dtype, only=only)
    expected = reference.aggregate(state, clients, weights, options_of())["sites"]
    ours = sites_in(out, "adapter/")
    assert all(set(site) == {only[0], "scaling"} for site in ours.values()), "a fixed factor travels"
    assert_same({n: s[only[0]] for n, s in ours.items()}, {n: s[only[0]] for n, s in expected.items()}, tolerance)


def effect(sites, base_delta):
    """Returns the weight that a state adds to each module."""
    whole = dict(base_delta)
    for name, change in deltas(sites).items():
        whole[name] = whole[name] + change if name in whole else change
    return whole


@pytest.mark.parametrize("name,reference,ranks", [
    ("fedit", fedit, [5, 5, 5]), ("a3smoe", a3smoe, [5, 5, 5]), ("fedex-lora", fedex_lora, [5, 5, 5]),
    ("hetlora", hetlora, [2, 4, 5]), ("flexlora", flexlora, [2, 4, 5]), ("flora", flora, [2, 4, 5]),
    ("florist", florist, [2, 4, 5])])
def test_uploads_in_bfloat16_are_widened_before_anything_is_summed(tmp_path, name, reference, ranks):
    state, clients, weights = federation(14, ranks)
    for site in state["sites"].values():
        site["scaling"] = 1.0 if name in ("hetlora", "flexlora") else site["scaling"]
    exact = reference.aggregate(state, clients, weights, options_of())
    out = server_step(tmp_path, name, (state, clients, weights), np.float32, upload_dtype=torch.bfloat16,
                      sites_sent={} if name in ("flora", "florist") else state["sites"])
    for client in clients:
        for site in client["sites"].values():
            site.update({key: torch.tensor(site[key]).bfloat16().double().numpy() for key in "ab"})
    rounded = reference.aggregate(state, clients, weights, options_of())
    exact, rounded = (effect(x["sites"], x.get("base_delta", {})) if name not in ("flora", "florist") else x["base_delta"]
                      for x in (exact, rounded))
    assert_same(effect(sites_in(out, "adapter/"), deltas(sites_in(out, "base_delta/"))), rounded, 1e-5)
    lost = max(np.abs(rounded[n] - exact[n]).max() / np.abs(exact[n]).max() for n in exact)
    assert 1e-4 < lost < 2 ** -5


@pytest.mark.parametrize("init", ["pooled", "federated"])
def test_fed_sb_initialisation_equals_the_reference(tmp_path, init):
    draw = np.random.default_rng(15)

    def random_sum():
        return {n: draw.standard_normal(((s["experts"],) if s["experts"] else ()) + (s["out"], s["in"]))
                for n, s in SITES.items()}

    pooled, clients = random_sum(), [random_sum() for _ in range(3)]
    sums = {"pooled": pooled, "federated": {n: sum(c[n] for c in clients) for n in SITES}}
    for name, gradients in sums.items():
        for site in SITE_LAYER:
            gradients[site][2] = 0  # an expert without a token
        save_file({n: g.astype(np.float32) for n, g in gradients.items()}, tmp_path / f"{name}.safetensors")
    out = run_job(tmp_path, {"method": "fed-sb", "options": f'init = "{init}"', "gradient_sums": {
        name: str(tmp_path / f"{name}.safetensors") for name in sums}})
    fixed, cores = sites_in(out, "fixed/"), sites_in(out, "adapter/")
    expected = {n: fed_sb.initialise(g, RANK, LR, ALPHA / RANK) for n, g in sums[init].items()}
    assert_same({n: common.delta({**site, "core": cores[n]["core"]}) for n, site in fixed.items()}, deltas(expected), 1e-5)
    assert_same({n: site["core"] for n, site in cores.items()}, {n: site["core"] for n, site in expected.items()}, 1e-5)
    for site in fixed.values():
        a = site["a"]
        np.testing.assert_allclose(a @ common.transpose(a), np.broadcast_to(np.eye(a.shape[-2]), a.shape[:-1] + a.shape[-2:-1]),
                                   atol=1e-5)


# --- the client
# --------------------------------------------------------------------------------------------------------

def client_step(folder, method, sites, dtype, toml, extras, client, gradients, micro_batches, logits):
    state = write_payload(folder / "state.safetensors", sites, dtype, extras)
    save_file({name: np.ascontiguousarray(value.astype(dtype)) for name, value in gradients.items()}, folder / "g.safetensors")
    save_file({name: value.astype(dtype) for name, value in logits.items()}, folder / "l.safetensors")
    return run_job(folder, {"method": method, "options": toml, "state": state, "client": client,
                            "gradients": str(folder / "g.safetensors"), "logits": str(folder / "l.safetensors"),
                            "micro_batches": micro_batches})


def random_gradients(draw, sites):
    return {f"{name}/{key}": 0.1 * draw.standard_normal(site[key].shape) for name, site in sites.items() for key in "ab"}


def usage_of(draw, micro_batches):
    return [(draw.multinomial(9, p), 9) for p in [[0.5, 0.5, 0, 0], [0.5, 0.2, 0, 0.3], [0, 1.0, 0, 0]][:micro_batches]]


def pseudo_gradients(draw, sites):
    """Returns pseudo-gradients with norms of about 0.2, 1, 0.5 and 5 per expert, so that some of rho Gt are below each
    clip and some above.
    """
    size = np.array([0.02, 0.1, 0.05, 0.5])[:, None, None]
    return {n: {k: size * draw.standard_normal(sites[n][k].shape) for k in "ab"} for n in SITE_LAYER}


def injected(folder, dtype, toml, options, top_k, kbar, seed, micro_batches):
    """Runs one step with idle experts. Returns (tensors of the program, its sites, the reference's gradients and its
    bypass).
    """
    draw = np.random.default_rng(seed)
    sites = random_sites(draw, RANK, ALPHA / RANK)
    pseudo, gradients = pseudo_gradients(draw, sites), random_gradients(draw, sites)
    extras = {f"{n}.pseudo_grad_{k}": pair[k].astype(dtype) for n, pair in pseudo.items() for k in "ab"}
    extras.update({f"{LAYER}.phi": np.zeros(EXPERTS, np.float32), "rho.reference": np.array(kbar)})
    usage = usage_of(draw, micro_batches)
    out = client_step(folder, "ub-smoe", sites, dtype, toml, extras, {"id": 0, "top_k": top_k, "rank": RANK}, gradients,
                      [{LAYER: {"counts": c.tolist(), "tokens": n}} for c, n in usage], {})
    real = {n: {k: gradients[f"{n}/{k}"] for k in "ab"} for n in sites}
    edited, bypass = ub_smoe.edit_gradients(real, pseudo, {LAYER: usage}, top_k, kbar, options_of(**options))
    return out, sites, edited, bypass


def flat(pairs):
    return {f"{n}/{k}": pair[k] for n, pair in pairs.items() for k in "ab"}


def of(out, prefix):
    return {name[len(prefix):]: value for name, value in out.items() if name.startswith(prefix)}


@pytest.mark.parametrize("activity", ["step_union", "token_weighted", "micro_union"])
@pytest.mark.parametrize("clip,limit", [("relative", 2.0), ("per_expert_norm", 2.0), ("elementwise", 0.5),
                                        ("global_norm", 1.5), ("off", 2.0)])
@pytest.mark.parametrize("rho", ["sqrt", "none", "linear", "inv_sqrt", "log"])
def test_ub_smoe_pseudo_gradients_equal_the_reference(tmp_path, precision, activity, clip, limit, rho):
    dtype, tolerance = precision
    toml = (f'pg_apply = "adam_grad"\npg_activity = "{activity}"\npg_clip_mode = "{clip}"\npg_clip = {limit}\n'
            f'rho_fn = "{rho}"')
    options = {"pg_apply": "adam_grad", "pg_activity": activity, "pg_clip_mode": clip, "pg_clip": limit, "rho_fn": rho}
    out, sites, edited, bypass = injected(tmp_path, dtype, toml, options, 1, 1.75, 7, 3)
    assert not bypass
    assert_same(of(out, "grad/"), flat(edited), tolerance)
    if rho != "none":
        unscaled = injected(tmp_path, dtype, toml.replace(rho, "none"), {**options, "rho_fn": "none"}, 1, 1.75, 7, 3)[0]
        apart = max(np.abs(out[n] - unscaled[n]).max() for n in out if n.startswith("grad/"))
        assert apart > 1e-4, "rho makes no difference"


@pytest.mark.parametrize("clip,limit", [("relative", 2.0), ("relative", 0.1), ("per_expert_norm", 2.0), ("off", 2.0)])
@pytest.mark.parametrize("rho", ["sqrt", "linear"])
def test_ub_smoe_decoupled_injection_equals_the_reference(tmp_path, precision, clip, limit, rho):
    dtype, tolerance = precision
    options = {"pg_clip_mode": clip, "pg_clip": limit, "rho_fn": rho}
    toml = f'pg_clip_mode = "{clip}"\npg_clip = {limit}\nrho_fn = "{rho}"'
    out, sites, edited, bypass = injected(tmp_path, dtype, toml, options, 2, 2.25, 8, 2)
    assert_same(of(out, "grad/"), flat(edited), tolerance)
    assert_same(of(out, "theta/"), flat(ub_smoe.apply_bypass(sites, bypass, LR)), tolerance)
    assert any(np.abs(x).max() > 1e-3 for pair in bypass.values() for x in pair.values()), "nothing is injected"


@pytest.mark.parametrize("toml,options", [
    ("", {}), ('phi_penalty = "l2"\nlambda_phi = 0.3', {"phi_penalty": "l2", "lambda_phi": 0.3}),
    ("phi_range = [-0.5, 0.25]\nlambda_phi = 0.7", {"phi_range": (-0.5, 0.25), "lambda_phi": 0.7})])
def test_ub_smoe_penalty_of_phi_equals_the_reference(tmp_path, precision, toml, options):
    dtype, _ = precision
    draw = np.random.default_rng(11)
    sites, phi = random_sites(draw, RANK, ALPHA / RANK), np.array([0.5, 1.5, -2.0, -0.75], np.float32)
    extras = {f"{n}.pseudo_grad_{k}": np.zeros(sites[n][k].shape, dtype) for n in SITE_LAYER for k in "ab"}
    extras.update({f"{LAYER}.phi": phi, "rho.reference": np.array(2.0)})
    out = client_step(tmp_path, "ub-smoe", sites, dtype, toml, extras, {"id": 0, "top_k": 1, "rank": RANK},
                      random_gradients(draw, sites), [{LAYER: {"counts": [1, 1, 1, 1], "tokens": 4}}], {})
    value, gradient = ub_smoe.phi_penalty(phi.astype(np.float64), options_of(**options))
    assert abs(out["extra_loss"][0] - value) <= 1e-6 * value  # phi is stored in float32
    assert_same({"phi": out[f"extra_grad/{LAYER}.phi"]}, {"phi": gradient}, 1e-6)


@pytest.mark.parametrize("norm", ["per_layer_k", "sum", "hf"])
@pytest.mark.parametrize("top_k", [1, 3])
def test_smoe_llb_losses_equal_the_reference(tmp_path, precision, norm, top_k):
    dtype, tolerance = precision
    draw = np.random.default_rng(9)
    sites, logits = random_sites(draw, RANK, ALPHA / RANK), {LAYER: draw.standard_normal((11, EXPERTS)),
                                                             "moe2": draw.standard_normal((11, EXPERTS))}
    value, gradients, _ = smoe_llb.loss(logits, top_k, options_of(llb_norm=norm, llb_coef=0.3, z_coef=0.2))
    routed = {name: smoe_llb.routed_counts(x, top_k) for name, x in logits.items()}
    out = client_step(tmp_path, "smoe-llb", sites, dtype, f'llb_norm = "{norm}"\nllb_coef = 0.3\nz_coef = 0.2', {},
                      {"id": 0, "top_k": top_k, "rank": RANK}, random_gradients(draw, sites),
                      [{name: {"counts": c.astype(int).tolist(), "tokens": 11} for name, c in routed.items()}], logits)
    assert abs(out["extra_loss"][0] - value) <= tolerance * abs(value)
    assert_same({n: out[f"logits_grad/{n}"] for n in logits}, gradients, 10 * tolerance)


@pytest.mark.parametrize("rank", [1, 3, 5])
def test_hetlora_regulariser_equals_the_reference(tmp_path, precision, rank):
    dtype, tolerance = precision
    draw = np.random.default_rng(10)
    sites = random_sites(draw, rank, 1.0)  # the scale that is sent
    scaling = ALPHA / rank
    own = {n: {"a": s["a"] / np.sqrt(scaling), "b": s["b"] / np.sqrt(scaling), "scaling": scaling} for n, s in sites.items()}
    value, gradients = hetlora.tail_regulariser(own, rank, options_of(het_lambda=0.7))
    out = client_step(tmp_path, "hetlora", sites, dtype, "lambda = 0.7", {}, {"id": 0, "top_k": 1, "rank": rank},
                      random_gradients(draw, sites), [{LAYER: {"counts": [1, 0, 0, 0], "tokens": 1}}], {})
    assert abs(out["extra_loss"][0] - value) <= tolerance * abs(value)
    assert_same({n[11:]: v for n, v in out.items() if n.startswith("extra_grad/")},
                {f"{n}/{k}": pair[k] for n, pair in gradients.items() for k in "ab"}, tolerance)


def client_round(folder, method, toml, sites, dtype, client, moved, extras=None, **job):
    """Returns a client's prepared factors, and its upload if training changed them to `moved`."""
    state = write_payload(folder / "state.safetensors", sites, dtype, extras)
    save_file({f"{name}/{key}": np.ascontiguousarray(site[key].astype(dtype)) for name, site in moved.items() for key in "ab"},
              folder / "moved.safetensors")
    return run_job(folder, {"method": method, "options": toml, "state": state, "client": client,
                            "moved": str(folder / "moved.safetensors"), **job})


def assert_same_factors(ours, theirs, tolerance):
    for key in ("a", "b"):
        assert_same({n: s[key] for n, s in ours.items()}, {n: s[key] for n, s in theirs.items()}, tolerance)


@pytest.mark.parametrize("seed,ranks", ROUNDS + UNEQUAL)
@pytest.mark.parametrize("scale_mode", ["fixed_alpha", "const_scale"])
def test_florist_code_mode_equals_the_reference(tmp_path, precision, seed, ranks, scale_mode):
    dtype, tolerance = precision
    options = options_of(florist_mode="code", lora_scale_mode=scale_mode)
    round_ = federation(seed, ranks, scale_mode)
    out = server_step(tmp_path, "florist", round_, dtype, 'mode = "code"', scale_mode=scale_mode)
    expected = florist.aggregate(*round_, options)
    assert not any(name.startswith("base_delta/") for name in out), "the base never changes"
    for rank in set(ranks):
        down, theirs = sites_in(out, f"down/{rank}/"), florist.broadcast(expected, rank, options)
        assert_same(deltas(down), deltas(theirs), tolerance)
        own = client_round(tmp_path, "florist", 'mode = "code"', down, dtype, {"id": 0, "top_k": 1, "rank": rank}, down,
                           scale_mode=scale_mode)
        prepared = sites_in(own, "prepared/")
        assert_same(deltas(prepared), deltas(theirs), tolerance)
        assert {site["scaling"] for site in prepared.values()} == {common.lora_scale(rank, options)}
        assert_same_factors(sites_in(own, "up/"), down, tolerance)


@pytest.mark.parametrize("scale_mode", ["fixed_alpha", "const_scale"])
def test_hetlora_prunes_ranks_over_two_rounds_as_the_reference(tmp_path, precision, scale_mode):
    dtype, tolerance = precision
    options, budget_ranks = options_of(lora_scale_mode=scale_mode), [3, 5]
    state, clients, weights = federation(12, budget_ranks, scale_mode)
    for site in state["sites"].values():
        site["scaling"] = 1.0
    down = [{n: common.with_rank(site, rank) for n, site in state["sites"].items()} for rank in budget_ranks]
    ranks = list(budget_ranks)
    for number in range(2):
        for index, client in enumerate(clients):
            begun = hetlora.broadcast(state, ranks[index], options)
            factor = 0.5 if index == number else 2.0  # each client's tail shrinks once
            after = {n: {**site, "b": factor * site["b"]} for n, site in begun.items()}
            sent, ranks[index] = hetlora.prune(begun, after, ranks[index], options)
            out = client_round(tmp_path, "hetlora", "", down[index], dtype,
                               {"id": index, "top_k": 1, "rank": budget_ranks[index]}, after, scale_mode=scale_mode)
            assert_same_factors(sites_in(out, "prepared/"), begun, tolerance)
            assert_same_factors(sites_in(out, "up/"), sent, tolerance)
            assert int(out["up_extra/rank"]) == ranks[index]
            client.update(sites=sent, rank=ranks[index], budget_rank=budget_ranks[index])
        out = server_step(tmp_path, "hetlora", (state, clients, weights), dtype, scale_mode=scale_mode)
        state = hetlora.aggregate(state, clients, weights, options)
        down = [sites_in(out, f"to/{index}/") for index in range(2)]
        for index, rank in enumerate(ranks):
            assert_same(deltas(down[index]), deltas(hetlora.broadcast(state, rank, options)), tolerance)
    assert ranks == [2, 4]


@pytest.mark.parametrize("mode", ["off", "fixed", "learn"])
@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_a3smoe_rescaler_equals_the_reference(tmp_path, mode, top_k):
    sites = random_sites(np.random.default_rng(16), RANK, ALPHA / RANK)
    out = client_round(tmp_path, "a3smoe", f'rescaler = "{mode}"', sites, np.float32, {"id": 0, "top_k": top_k, "rank": RANK},
                       sites, {"k_max": np.array(float(K_MAX))})
    assert ("output_scale" in out) == (mode != "off")
    scale = float(out["output_scale"].reshape(())) if mode != "off" else 1.0
    assert abs(scale - a3smoe.output_scale(top_k, options_of(a3_rescaler=mode))) < 1e-6
