"""Checks the reference of the three sparsity methods against hand-computed vectors and their properties."""
import numpy as np
import pytest

from . import a3smoe, common, fedit, slimmable_moe, smoe_llb, ub_smoe
from .random_rounds import OPTIONS, close, homogeneous, numeric_gradient, rng

# ---- A3SMoE

COUNTS = np.array([[6, 2, 1, 1], [8, 6, 4, 2]])


@pytest.mark.parametrize("t, first", [(1, [0.42857143, 0.25, 0.2, 0.33333333]), (2, [0.36, 0.1, 0.05882353, 0.2]),
                                      (0, [0.5] * 4)])
def test_a3smoe_weights(t, first):
    w = a3smoe.activation_weights(COUNTS, [10, 10], [0.5, 0.5], t)
    close(w[0], first, 1e-7)
    close(w.sum(axis=0), np.ones(4))


def test_a3smoe_at_temperature_zero_is_fedavg_bit_for_bit():
    state, clients, weights = homogeneous(3)
    clients[0]["counts"]["moe"][:] = 0
    new = a3smoe.aggregate(state, clients, weights, {**OPTIONS, "a3_temp": 0})
    plain = fedit.aggregate(state, clients, weights, OPTIONS)
    for name in ("q", "up"):
        assert all(np.array_equal(new["sites"][name][k], plain["sites"][name][k]) for k in ("a", "b"))


def test_a3smoe_client_without_tokens_on_an_expert_has_no_influence_on_it():
    state, clients, weights = homogeneous(3)
    clients[0]["counts"]["moe"][2] = 0
    new = a3smoe.aggregate(state, clients, weights, OPTIONS)["sites"]["up"]
    clients[0]["sites"]["up"]["a"][2] += 100
    moved = a3smoe.aggregate(state, clients, weights, OPTIONS)["sites"]["up"]
    assert np.array_equal(new["a"], moved["a"])


@pytest.mark.parametrize("rule", ["keep", "mean"])
def test_a3smoe_expert_nobody_used(rule):
    state, clients, weights = homogeneous(2)
    for client in clients:
        client["counts"]["moe"][1] = 0
    new = a3smoe.aggregate(state, clients, weights, {**OPTIONS, "a3_unused": rule})["sites"]["up"]
    plain = fedit.aggregate(state, clients, weights, OPTIONS)["sites"]["up"]
    close(new["b"][1], (state["sites"]["up"] if rule == "keep" else plain)["b"][1])
    assert np.isfinite(new["a"]).all()


def test_a3smoe_permuted_experts_permute_the_result():
    state, clients, weights = homogeneous(3)
    new, order = a3smoe.aggregate(state, clients, weights, OPTIONS)["sites"]["up"], [2, 0, 3, 1]
    for holder in (state, *clients):
        s = holder["sites"]["up"]
        s["a"], s["b"] = s["a"][order], s["b"][order]
    for client in clients:
        client["counts"]["moe"] = client["counts"]["moe"][order]
    close(a3smoe.aggregate(state, clients, weights, OPTIONS)["sites"]["up"]["a"], new["a"][order])


def test_a3smoe_output_scale():
    assert [a3smoe.output_scale(2, {"a3_rescaler": r}) for r in ("off", "learn", "fixed")] == [1, 1, 4]


# ---- Slimmable MoE

def test_slimmable_moe_with_shares_of_tokens_is_a3smoe():
    state, clients, weights = homogeneous(3)
    for client in clients:
        client["share"] = {layer: counts / client["tokens"][layer] for layer, counts in client["counts"].items()}
    ours, theirs = (m.aggregate(state, clients, weights, OPTIONS)["sites"]["up"] for m in (slimmable_moe, a3smoe))
    close(ours["a"], theirs["a"])
    close(ours["b"], theirs["b"])


def test_slimmable_moe_shares():
    close(slimmable_moe.share_of_steps([[3, 0, 1], [1, 0, 0]]), [1, 0, 0.5])
    close(slimmable_moe.share_of_gates(np.array([[np.log(3), 0, -9], [0, 5, -9]]), 1), [0.5, 0.5, 0])
    close(slimmable_moe.share_of_gates(np.array([[np.log(3), 0, -9]]), 2), [0.75, 0.25, 0])


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_slimmable_moe_divergence_has_its_gradient(temperature):
    teacher, student = rng(3).standard_normal((2, 4, 5))
    value, gradient = slimmable_moe.divergence(teacher, student, temperature)
    assert value > 0 and slimmable_moe.divergence(teacher, teacher, temperature)[0] == 0
    close(gradient, numeric_gradient(lambda: slimmable_moe.divergence(teacher, student, temperature)[0], student), 1e-6)


# ---- SMoE-LLB

def test_llb_two_tokens():
    logits = {"moe": np.array([[np.log(4), 0, 0, 0], [0, np.log(4), 0, 0]])}
    _, _, terms = smoe_llb.loss(logits, 1, {})
    close([terms["balance"], terms["z"]], [1.42857143, np.log(7) ** 2], 1e-8)
    close(np.log(7) ** 2, 3.78656631, 1e-8)


@pytest.mark.parametrize("norm, value", [("hf", 2.0), ("per_layer_k", 1.0)])
def test_llb_at_balance(norm, value):
    total, _, terms = smoe_llb.loss({"moe": np.zeros((3, 4))}, 2, {"llb_norm": norm})
    close([terms["balance"], terms["z"]], [value, 1.92181206], 1e-8)
    close(total, 0.01 * value + 0.001 * 1.92181206, 1e-8)


def test_llb_of_several_layers_is_their_mean_or_their_sum():
    draw = rng(3)
    logits = {f"m{i}": draw.standard_normal((7, 4)) for i in range(3)}
    mean, total = (smoe_llb.loss(logits, 2, {"llb_norm": n})[0] for n in ("per_layer_k", "sum"))
    close(total, 3 * mean)


def test_llb_at_collapse_is_the_number_of_experts():
    _, _, terms = smoe_llb.loss({"moe": np.array([[800.0, 0, 0, 0, 0, 0]] * 4)}, 1, {})
    close(terms["balance"], 6)


def test_llb_pooling_hides_opposite_bias_of_two_layers():
    draw, bias = rng(2), np.array([3.0, 3, 0, 0])
    logits = {"m0": draw.standard_normal((50, 4)) + bias, "m1": draw.standard_normal((50, 4)) + bias[::-1]}
    pooled, apart = (smoe_llb.loss(logits, 2, {"llb_norm": n})[2]["balance"] for n in ("hf", "per_layer_k"))
    assert pooled / 2 < 1.02 < 1.5 < apart


@pytest.mark.parametrize("norm", ["hf", "sum", "per_layer_k"])
def test_llb_gradient_matches_differences_and_skips_padding(norm):
    draw, options = rng(6), {"llb_norm": norm, "llb_coef": 0.3, "z_coef": 0.2}
    logits = {"m0": draw.standard_normal((5, 4)), "m1": draw.standard_normal((5, 4))}
    mask = np.array([1, 1, 0, 1, 1], bool)
    _, gradients, _ = smoe_llb.loss(logits, 2, options, mask)
    for layer, x in logits.items():
        close(gradients[layer], numeric_gradient(lambda: smoe_llb.loss(logits, 2, options, mask)[0], x), 1e-8)
        assert not gradients[layer][2].any()


def test_llb_with_zero_coefficients_is_nothing_and_the_server_is_fedavg():
    value, gradients, _ = smoe_llb.loss({"moe": rng().standard_normal((5, 4))}, 2, {"llb_coef": 0.0, "z_coef": 0.0})
    assert value == 0 and not gradients["moe"].any()
    state, clients, weights = homogeneous(2)
    new, plain = (m.aggregate(state, clients, weights, {})["sites"]["up"]["a"] for m in (smoe_llb, fedit))
    assert np.array_equal(new, plain)


# ---- UB-SMoE: server

def test_ub_phi_and_utilisation_of_two_clients():
    phi, u = ub_smoe.next_phi(np.zeros(4), COUNTS, [10, 10], [0.5, 0.5], [1, 2], {})
    close(u, [0.7, 0.4, 0.25, 0.15])
    close(phi, [-0.04335707, -0.00624188, 0.04621171, 0.09051482], 1e-7)
    target, _ = ub_smoe.next_phi(np.zeros(4), COUNTS, [10, 10], [0.5, 0.5], [1, 2], {"phi_momentum": 0.0})
    close(target, [-0.43357075, -0.06241877, 0.46211711, 0.90514822], 1e-7)
    exact = {"phi_momentum": 0.0, "util_eps": 0.0}
    close(ub_smoe.next_phi(np.zeros(4), COUNTS, [10, 10], [0.5, 0.5], [1, 2], exact)[0],
          [-0.43357074, -0.06241875, 0.46211716, 0.90514825], 1e-7)


def test_ub_phi_of_extreme_utilisations_and_its_range():
    one = {"phi_momentum": 0.0}
    counts, ref = np.array([[0, 10, 20, 40, 80]]) / 2, 2.0
    for scale, want in [((-1, 1), [1, 0.7616, 0, -0.4621, -0.6351]), ((-2, 3), [3, 2.2848, 0, -0.9242, -1.2702])]:
        phi, _ = ub_smoe.next_phi(np.zeros(5), counts, [10 * 5 / ref], [1], [ref], {**one, "phi_range": scale})
        close(phi, want, 1e-4)


def test_ub_rho_of_every_function():
    want = {"none": [1, 1, 1, 1], "sqrt": [1.936492, 1.369306, 0.968246, 0.684653],
            "linear": [3.75, 1.875, 0.9375, 0.46875],
            "inv_sqrt": [0.516398, 0.730297, 1.032796, 1.460593], "log": [1.558145, 1.056053, 0.661398, 0.384412]}
    for name, values in want.items():
        close([ub_smoe.rho(k, 3.75, {"rho_fn": name}) for k in (1, 2, 4, 8)], values, 1e-6)
    close([ub_smoe.rho(k, 1.5, {}) for k in (1, 2)], [1.22474487, 0.86602540], 1e-8)
    close(ub_smoe.rho(2, 1.5, {"rho_ref": "kmax"}), 2)


def test_ub_pseudo_gradient_is_the_change_over_rate_and_steps():
    before = {"up": {"a": np.full((2, 1, 3), 1.0), "b": np.zeros((2, 4, 1)), "scaling": 1.0},
              "q": {"a": np.ones((1, 3)), "b": np.ones((4, 1)), "scaling": 1.0}}
    after = {n: {**s, "a": 0.9 * s["a"]} for n, s in before.items()}
    gt = ub_smoe.pseudo_gradients(before, after, 0.01, 5)
    assert set(gt) == {"up"}
    close(gt["up"]["a"], np.full((2, 1, 3), 2.0))


def test_ub_server_is_fedavg_with_bookkeeping():
    state, clients, weights = homogeneous(3)
    new, p = ub_smoe.aggregate(state, clients, weights, OPTIONS), common.normalise(weights)
    assert np.array_equal(new["sites"]["up"]["a"], fedit.aggregate(state, clients, weights, {})["sites"]["up"]["a"])
    close(new["kbar"], p @ [1, 2, 1])
    close(new["utilisation"]["moe"].sum(), new["kbar"])
    steps = p @ [3, 4, 5]
    close(new["pseudo"]["up"]["b"], (state["sites"]["up"]["b"] - new["sites"]["up"]["b"]) / (0.01 * steps))
    literal = ub_smoe.aggregate(state, clients, weights, {**OPTIONS, "pg_gamma": "literal_0.4"})
    close(literal["pseudo"]["up"]["b"], new["pseudo"]["up"]["b"] * steps / 0.4)


def test_ub_trained_phi_replaces_the_previous_one():
    state, clients, weights = homogeneous(2)
    for client in clients:
        client["phi"] = {"moe": np.array([0.1, 0.2, 0.3, 0.4])}
    options = {**OPTIONS, "phi_train": "local_fedavg", "phi_update": "off"}
    close(ub_smoe.aggregate(state, clients, weights, options)["phi"]["moe"], [0.1, 0.2, 0.3, 0.4])
    both = ub_smoe.aggregate(state, clients, weights, {**options, "phi_update": "utilization"})["phi"]["moe"]
    plain = ub_smoe.aggregate(state, clients, weights, OPTIONS)["phi"]["moe"]
    close(both - plain, 0.9 * np.array([0.1, 0.2, 0.3, 0.4]))


# ---- UB-SMoE: routing

SCORES, PHI = np.array([2.0, 1.8, 1.0, 0.5]), np.array([-0.7, 0.1, 0.9, 0.2])


@pytest.mark.parametrize("mode, k, chosen, gamma", [
    ("candidate", 1, [1], [1]),
    ("candidate", 2, [1, 0], [0.64565631, 0.35434369]),
    ("candidate", 3, [1, 0, 2], [0.51140921, 0.28066732, 0.20792347]),
    ("preserve", 1, [0], [1]),
    ("preserve", 2, [0, 1], [0.549834, 0.450166]),
    ("preserve", 3, [0, 1, 2], [0.36716540, 0.30060961, 0.33222499])])
def test_ub_route(mode, k, chosen, gamma):
    selected, gate, _ = ub_smoe.route(SCORES, k, PHI, {"dmr_mode": mode})
    assert selected.tolist() == chosen
    close(gate[chosen], gamma, 1e-6)
    close(gate.sum(), 1)
    batch, gates, _ = ub_smoe.route(np.stack([SCORES] * 5), k, PHI, {"dmr_mode": mode})
    assert (batch == selected).all() and (gates == gate).all()


def test_ub_route_modulated_scores_and_native_gate():
    close(ub_smoe.modulate(SCORES, PHI, {})[0], [1.3, 1.9, 1.0, 0.5])
    close(ub_smoe.modulate(SCORES, PHI, {"dmr_mode": "preserve"})[0], [2.0, 1.8, 1.9, 0.7])
    _, gate, _ = ub_smoe.route(SCORES, 1, PHI, {"gate_norm": "olmoe_native"})
    close(gate, [0, 0.45413709, 0, 0], 1e-8)


def test_ub_route_drops_a_candidate_that_phi_pushes_down():
    low = np.array([-1.2, 0.1, 0.9, 0.2])
    assert set(ub_smoe.route(SCORES, 2, low, {})[0].tolist()) == {1, 2}
    assert set(ub_smoe.route(SCORES, 2, PHI, {"num_candidates": 4})[0].tolist()) == {1, 2}
    assert set(ub_smoe.route(SCORES, 2, PHI, {"dmr_mode": "candidate_wide"})[0].tolist()) == {1, 2}


def test_ub_route_without_candidates():
    off, free = {"num_candidates": 0}, {"num_candidates": 0, "dmr_mode": "preserve"}
    assert ub_smoe.route(SCORES, 2, PHI, off)[0].tolist() == [0, 1] == ub_smoe.route(SCORES, 2, None, {})[0].tolist()
    close(ub_smoe.modulate(SCORES, PHI, free)[0], SCORES + PHI)


def test_ub_route_ties_go_to_the_lowest_index():
    assert ub_smoe.route(np.zeros((2, 6)), 3, np.zeros(6), {})[0].tolist() == [[0, 1, 2]] * 2


@pytest.mark.parametrize("mode", ["candidate", "preserve", "candidate_wide"])
def test_ub_route_to_all_experts_selects_all(mode):
    selected, _, _ = ub_smoe.route(rng().standard_normal((9, 4)), 4, PHI, {"dmr_mode": mode})
    assert (np.sort(selected) == np.arange(4)).all()


def test_ub_gate_ignores_a_constant_and_has_no_gradient_for_one_expert():
    selected, gate, m = ub_smoe.route(SCORES, 2, PHI, {})
    close(ub_smoe.gate(m + 5, selected, {}), gate)
    upstream = rng(1).standard_normal(4)
    one, _, m = ub_smoe.route(SCORES, 1, PHI, {})
    assert not ub_smoe.gate_gradient(m, one, upstream, {}).any()
    assert ub_smoe.gate_gradient(m, one, upstream, {"gate_norm": "olmoe_native"}).any()


@pytest.mark.parametrize("norm", ["renorm_selected", "olmoe_native"])
def test_ub_gate_gradient_matches_differences(norm):
    draw, options = rng(8), {"gate_norm": norm}
    m, upstream = draw.standard_normal((3, 5)), draw.standard_normal((3, 5))
    selected = common.top_k(m, 2)
    numeric = numeric_gradient(lambda: float((upstream * ub_smoe.gate(m, selected, options)).sum()), m)
    close(ub_smoe.gate_gradient(m, selected, upstream, options), numeric, 1e-8)


def test_ub_phi_penalty():
    phi = np.array([0.5, 1.5, -2.0])
    value, gradient = ub_smoe.phi_penalty(phi, {})
    close(value, 0.01 * (0.25 + 1.0))
    close(gradient, [0, 0.02 * 0.5, -0.02 * 1.0])
    value, gradient = ub_smoe.phi_penalty(phi, {"phi_penalty": "l2"})
    close(value, 0.065)
    close(gradient, 0.02 * phi)


# ---- UB-SMoE: pseudo-gradient on the client

USAGE = [(np.array([4, 0, 0, 1]), 5), (np.array([3, 2, 0, 0]), 5)]
LITERAL = {"pg_apply": "adam_grad", "pg_clip_mode": "per_expert_norm"}


@pytest.mark.parametrize("mode, share", [("step_union", [0, 0, 1, 0]), ("micro_union", [0, 0.5, 1, 0.5]),
                                         ("token_weighted", [0.3, 0.8, 1, 0.9])])
def test_ub_idle_share(mode, share):
    close(ub_smoe.idle_share(USAGE, mode), share)
    assert not ub_smoe.idle_share([(np.zeros(4), 0)] * 2, mode).any()


def injection(seed=0, size=1.0):
    """Returns gradients of a dense and two expert sites, and a pseudo-gradient of the expert sites."""
    draw = rng(seed)
    shapes = {"q": ((2, 7), (3, 2)), "up": ((4, 2, 5), (4, 3, 2)), "down": ((4, 2, 3), (4, 5, 2))}
    make = {n: {"a": draw.standard_normal(a), "b": draw.standard_normal(b)} for n, (a, b) in shapes.items()}
    pseudo = {n: {k: size * draw.standard_normal(x.shape) for k, x in make[n].items()} for n in ("up", "down")}
    return make, pseudo, {**OPTIONS, "site_layer": {"up": "moe", "down": "moe"}}


def joint_norm(pairs, expert):
    return np.sqrt(sum((x[expert] ** 2).sum() for pair_ in pairs for x in pair_.values()))


@pytest.mark.parametrize("mode", ["step_union", "micro_union", "token_weighted"])
def test_ub_injection_adds_the_share_and_leaves_other_sites(mode):
    real, pseudo, options = injection(size=0.01)
    edited, bypass = ub_smoe.edit_gradients(real, pseudo, {"moe": USAGE}, 2, 3.0, {**options, **LITERAL, "pg_activity": mode})
    assert not bypass and edited["q"]["a"] is real["q"]["a"]
    share = ub_smoe.idle_share(USAGE, mode)[:, None, None]
    close(edited["down"]["b"], real["down"]["b"] + share * 1.5 ** 0.5 * pseudo["down"]["b"])


def test_ub_clip_by_the_norm_of_one_expert_over_its_tensors():
    real, pseudo, options = injection(size=9.0)
    pseudo["up"]["a"][0] = pseudo["up"]["b"][0] = pseudo["down"]["a"][0] = pseudo["down"]["b"][0] = 0
    clipped = ub_smoe.clipped_pseudo_gradient(pseudo, 2.0, {"moe": 2.0}, options)
    close([joint_norm(clipped.values(), e) for e in range(4)], [0, 2, 2, 2])
    gentle = ub_smoe.clipped_pseudo_gradient(pseudo, 1e-4, {"moe": 2.0}, options)
    close(gentle["up"]["a"], 1e-4 * pseudo["up"]["a"])


@pytest.mark.parametrize("apply, measure", [("adam_grad", [4, 3, 9, 1]), ("decoupled_sgd", [2, 8, 9, 5])])
def test_ub_relative_clip_is_a_multiple_of_the_median_of_the_experts_in_use(apply, measure):
    real, pseudo, options = injection()
    for pairs, sizes in ((real, [4, 3, 9, 1]), (pseudo, [2, 8, 9, 5])):
        for expert, size in enumerate(sizes):
            factor = size / joint_norm([pairs["up"], pairs["down"]], expert)
            for name in ("up", "down"):
                for k in ("a", "b"):
                    pairs[name][k][expert] *= factor
    options = {**options, "pg_apply": apply, "pg_clip_mode": "relative", "pg_clip": 1.5}
    limit = ub_smoe.clip_limits(real, pseudo, {"moe": USAGE}, options)["moe"]
    close(limit, 1.5 * np.median([measure[e] for e in (0, 1, 3)]))
    clipped = ub_smoe.clipped_pseudo_gradient(pseudo, 0.5, {"moe": limit}, options)
    close(joint_norm(clipped.values(), 2), min(limit, 4.5))


def test_ub_clip_by_element_and_of_the_whole_gradient():
    real, pseudo, options = injection(size=9.0)
    by_element = {**options, "pg_clip_mode": "elementwise", "pg_clip": 0.5}
    clipped = ub_smoe.clipped_pseudo_gradient(pseudo, 2.0, {"moe": 0.5}, by_element)
    close(clipped["up"]["a"], np.clip(2 * pseudo["up"]["a"], -0.5, 0.5))
    whole = {**options, "pg_apply": "adam_grad", "pg_clip_mode": "global_norm"}
    edited, _ = ub_smoe.edit_gradients(real, pseudo, {"moe": USAGE}, 2, 2.0, whole)
    close(np.sqrt(sum((x ** 2).sum() for g in edited.values() for x in g.values())), 2)
    close(edited["q"]["a"] / edited["q"]["a"][0, 0], real["q"]["a"] / real["q"]["a"][0, 0])
    with pytest.raises(ValueError, match="bypass"):
        ub_smoe.edit_gradients(real, pseudo, {"moe": USAGE}, 2, 2.0, {**whole, "pg_apply": "decoupled_sgd"})


def test_ub_decoupled_injection_bypasses_the_gradient():
    real, pseudo, options = injection(size=0.01)
    options = {**options, "pg_apply": "decoupled_sgd", "pg_clip_mode": "off"}
    same, bypass = ub_smoe.edit_gradients(real, pseudo, {"moe": USAGE}, 1, 4.0, options)
    assert same is real and not bypass["up"]["a"][[0, 1, 3]].any()
    moved = ub_smoe.apply_bypass({"up": pseudo["up"], "q": real["q"]}, bypass, 0.1)
    close(moved["up"]["a"][2], pseudo["up"]["a"][2] * (1 - 0.1 * 2))
    assert moved["q"]["a"] is real["q"]["a"]


def test_ub_injection_never_fires_in_round_one_or_when_every_expert_is_used():
    real, pseudo, options = injection()
    zero = {n: {k: 0 * x for k, x in p.items()} for n, p in pseudo.items()}
    for gt, usage in ((zero, USAGE), (pseudo, [(np.full(4, 5), 5)] * 2)):
        edited, _ = ub_smoe.edit_gradients(real, gt, {"moe": usage}, 4, 4.0, {**options, **LITERAL})
        assert np.array_equal(edited["up"]["a"], real["up"]["a"])


@pytest.mark.parametrize("reference, growth", [("kbar", 1.239674), ("kmax", 1.810660)])
def test_ub_unused_expert_grows_under_sgd(reference, growth):
    ks, lr, steps, theta, gt = (1, 2, 4, 8), 0.01, 5, 1.0, 0.3
    options = {"rho_ref": reference}
    after = np.mean([theta - lr * steps * ub_smoe.rho(k, 3.75, options) * gt for k in ks])
    close((theta - after) / (lr * steps) / gt, growth, 1e-6)
