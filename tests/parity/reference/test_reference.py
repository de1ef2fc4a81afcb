"""Checks the reference against hand-computed vectors and the properties of each method (sparsity: test_sparsity)."""
import numpy as np
import pytest

from . import a3smoe, common, fed_sb, fedex_lora, fedit, ffa_lora, flexlora, flora, florist, hetlora, smoe_llb, ub_smoe
from .random_rounds import (EXPERTS, OPTIONS, OUT, WIDTH, close, federation, homogeneous, mean_of_products,
                            numeric_gradient, rng, site)

TAU_ONE = {**OPTIONS, "florist_tau": 1.0}


def pair(b, a, scaling=1.0):
    """Returns a rank-1 client of the two-client vectors, with a column of zeros added to its inputs."""
    return {"sites": {"w": {"b": np.array(b, float)[:, None], "a": np.array([[*a, 0.0]]), "scaling": scaling}}}


def two_clients(scales=(1.0, 1.0)):
    clients = [pair((1, 0), (1, 2), scales[0]), pair((0, 1), (3, -1), scales[1])]
    return {"sites": {"w": {"a": np.zeros((1, 3)), "b": np.zeros((2, 1)), "scaling": 1.0}}}, clients, [0.5, 0.5]


TWO_CLIENT_DELTA = np.array([[0.5, 1, 0], [1.5, -0.5, 0]])


# ---- shared pieces

def test_scale_follows_alpha_over_rank_or_the_largest_rank():
    options = {"alpha": 20, "max_rank": 20}
    close([common.lora_scale(r, options) for r in (6, 8, 12, 20)], [10 / 3, 2.5, 5 / 3, 1])
    assert common.lora_scale(6, {**options, "lora_scale_mode": "const_scale"}) == 1


@pytest.mark.parametrize("rank", [2, 6, 9])
def test_product_svd_equals_the_dense_one_also_beyond_a_side(rank):
    draw = rng(1)
    b, a = draw.standard_normal((EXPERTS, OUT, rank)), draw.standard_normal((EXPERTS, rank, WIDTH))
    u, s, v_t = common.product_svd(b, a)
    close(s, np.linalg.svd(b @ a, compute_uv=False)[:, :s.shape[1]])
    close((u * s[:, None, :]) @ v_t, b @ a)
    largest = np.argmax(np.abs(u), axis=1)
    assert (np.take_along_axis(u, largest[:, None], axis=1) > 0).all()


def test_sign_ties_up_to_rounding_go_to_the_lowest_index():
    u = np.array([[-0.5 ** 0.5], [0.5 ** 0.5 * (1 + 1e-15)]])
    flipped, v_t = common.fix_signs(u, np.ones((1, 3)))
    assert flipped[0, 0] > 0 and (v_t < 0).all()


def test_top_k_is_stable():
    assert common.top_k(np.array([1.0, 3, 3, 3, 0]), 2).tolist() == [1, 2]


def test_factors_of_different_scale_are_not_averaged():
    state, clients, weights = homogeneous(2)
    clients[0]["sites"]["q"]["scaling"] = 9.0
    with pytest.raises(ValueError, match="scales"):
        fedit.aggregate(state, clients, weights, OPTIONS)


def test_single_precision_is_rejected():
    state, clients, weights = homogeneous(2)
    clients[1]["sites"]["up"]["a"] = clients[1]["sites"]["up"]["a"].astype(np.float32)
    for method in (fedit, flora, hetlora):
        with pytest.raises(ValueError, match="float32"):
            method.aggregate(state, clients, weights, OPTIONS)


def test_pad_then_cut_is_the_identity():
    x = site(rng(), 2, 1.0, True)
    y = common.with_rank(common.with_rank(x, 9), 2)
    assert np.array_equal(x["a"], y["a"]) and np.array_equal(x["b"], y["b"])


def test_entropy_and_gini_of_known_utilisations():
    u = np.array([0.7, 0.4, 0.25, 0.15])
    close(common.entropy(u), 1.23701867, 1e-8)
    close(common.gini(u), 0.3)
    close([common.entropy(np.ones(7)), common.gini(np.ones(7))], [np.log(7), 0])
    close([common.entropy([0, 1, 0]), common.gini([0, 1, 0])], [0, 2 / 3])
    close([common.entropy([1, 1, 0, 0, 0]), common.gini([1, 1, 0, 0, 0])], [np.log(2), 3 / 5])
    other = np.array([0.3, 0.3, 0.5, 0.4])
    joint = np.log(2) + (common.entropy(u) + common.entropy(other)) / 2
    close(common.entropy(np.stack([u, other])), joint)


@pytest.mark.parametrize("g, ratio", [(1e-2, 0.9990), (1e-3, 0.9901), (1e-4, 0.9091), (1e-5, 0.5)])
def test_adamw_moves_by_the_rate_under_a_constant_gradient(g, ratio):
    x, moments = 0.0, (0.0, 0.0)
    for step in range(1, 48):
        x, moments = common.adamw(x, g, moments, step, 2e-4)
    close(x / (47 * 2e-4), -ratio, 1e-4)


# ---- FedIT and FFA-LoRA

def test_fedit_averages_each_factor():
    state, clients, weights = two_clients()
    w = fedit.aggregate(state, clients, weights, {})["sites"]["w"]
    close(w["b"], [[0.5], [0.5]])
    close(w["a"], [[2, 0.5, 0]])
    close(common.delta(w), [[1, 0.25, 0], [1, 0.25, 0]])


def test_fedit_of_identical_clients_is_that_client():
    state, clients, _ = homogeneous(1)
    new = fedit.aggregate(state, clients * 3, [1, 2, 5], OPTIONS)
    close(new["sites"]["up"]["b"], clients[0]["sites"]["up"]["b"])


def test_fedit_is_linear_in_the_weights():
    state, clients, _ = homogeneous(2)
    first, second, mixed = (fedit.aggregate(state, clients, p, {})["sites"]["q"]["a"]
                            for p in ([1, 0], [0, 1], [0.3, 0.7]))
    close(mixed, 0.3 * first + 0.7 * second)


def test_ffa_mean_of_products_is_the_product_of_means():
    a = np.array([[1.0, 2, 0]])
    clients = [{"sites": {"w": {"a": a, "b": np.array(b)[:, None], "scaling": 1.0}}} for b in ([1.0, 0], [0, 3.0])]
    state = {"sites": {"w": {"a": a, "b": np.zeros((2, 1)), "scaling": 1.0}}}
    new = ffa_lora.aggregate(state, clients, [0.5, 0.5], {})
    close(common.delta(new["sites"]["w"]), [[0.5, 1, 0], [1.5, 3, 0]])
    close(common.delta(new["sites"]["w"]), mean_of_products(clients, [0.5, 0.5], "w"))


def test_ffa_never_touches_a_and_stays_in_its_row_space():
    state, clients, weights = homogeneous(3)
    first = {name: s["a"].copy() for name, s in state["sites"].items()}
    for _ in range(3):
        for client in clients:
            for name in client["sites"]:
                client["sites"][name]["a"] = state["sites"][name]["a"]
        state = ffa_lora.aggregate(state, clients, weights, OPTIONS)
    assert all(np.array_equal(state["sites"][n]["a"], first[n]) for n in first)
    a, dense = first["q"], common.delta(state["sites"]["q"])
    close(dense @ np.linalg.pinv(a) @ a, dense, 1e-10)


def test_ffa_has_no_gradient_of_a_and_rejects_another_a():
    assert set(ffa_lora.trainable_gradients({"q": {"a": 1, "b": 2}})["q"]) == {"b"}
    state, clients, weights = homogeneous(2)
    with pytest.raises(ValueError, match="differs"):
        ffa_lora.aggregate(state, clients, weights, OPTIONS)


# ---- FedEx-LoRA

def test_fedex_residual_of_two_clients():
    state, clients, weights = two_clients()
    new = fedex_lora.aggregate(state, clients, weights, {})
    close(new["base_delta"]["w"], [[-0.5, 0.75, 0], [0.5, -0.75, 0]])
    assert np.linalg.matrix_rank(new["base_delta"]["w"]) == 1


@pytest.mark.parametrize("name", ["q", "up"])
def test_fedex_effective_weight_is_the_mean_of_products(name):
    state, clients, weights = homogeneous(3)
    new = fedex_lora.aggregate(state, clients, weights, OPTIONS)
    close(new["base_delta"][name] + common.delta(new["sites"][name]), mean_of_products(clients, weights, name))
    b, a = fedex_lora.residual_factors(clients, weights, name)
    close(b @ a, fedex_lora.residual(clients, weights, name))


def test_fedex_residual_rank_and_sum_over_rounds():
    options = {"alpha": 1.0, "max_rank": 1}
    state, clients, weights = federation([1, 1], 3, options)
    new = fedex_lora.aggregate(state, clients, weights, options)
    assert (np.linalg.matrix_rank(new["base_delta"]["up"], tol=1e-10) == 1).all()
    again = fedex_lora.aggregate(new, clients, weights, options)
    close(again["base_total"]["q"], 2 * new["base_delta"]["q"])
    same = fedex_lora.aggregate(state, clients[:1] * 2, weights, options)
    close(same["base_delta"]["up"], np.zeros((EXPERTS, OUT, WIDTH)))


# ---- FLoRA

def test_flora_stack_of_two_clients():
    state, clients, weights = two_clients()
    new = flora.aggregate(state, clients, weights, {})
    close(new["stack"]["w"]["b"], np.eye(2))
    close(new["stack"]["w"]["a"], TWO_CLIENT_DELTA)
    close(new["base_delta"]["w"], TWO_CLIENT_DELTA)
    scaled = flora.aggregate(*two_clients((2.0, 1.0)), {})
    close(scaled["stack"]["w"]["a"], [[1, 2, 0], [1.5, -0.5, 0]])


@pytest.mark.parametrize("name", ["q", "up"])
def test_flora_is_the_mean_of_products_in_any_client_order(name):
    state, clients, weights = federation([1, 2, 8, 6])
    new = flora.aggregate(state, clients, weights, OPTIONS)
    close(new["base_delta"][name], mean_of_products(clients, weights, name))
    turned = flora.aggregate(state, clients[::-1], weights[::-1], OPTIONS)
    close(turned["base_delta"][name], new["base_delta"][name])
    alone = flora.aggregate(state, clients[:1], [1.0], OPTIONS)
    close(alone["base_delta"][name], common.delta(clients[0]["sites"][name]))


def test_flora_idle_expert_changes_nothing():
    state, clients, weights = federation([2, 8])
    for client in clients:
        client["sites"]["up"]["b"][1] = 0
    assert not flora.aggregate(state, clients, weights, OPTIONS)["base_delta"]["up"][1].any()


# ---- FLoRIST

@pytest.mark.parametrize("tau, p", [(0.5, 1), (0.6795, 1), (0.68, 2), (0.9, 2), (1.0, 2)])
def test_florist_rank_of_two_clients(tau, p):
    new = florist.aggregate(*two_clients(), {"florist_tau": tau})
    assert new["p"]["w"] == p
    if p == 1:
        close(new["base_delta"]["w"], [[0.29642383, -0.05708601, 0], [1.53920519, -0.29642383, 0]], 1e-8)


def test_florist_compact_svd_equals_the_dense_one():
    draw = rng(5)
    for rank in (2, 8):
        b, a = draw.standard_normal((OUT, rank)), draw.standard_normal((rank, 7))
        u, s, v_t = florist.compact_svd(b, a)
        close(s[:min(rank, OUT)], np.linalg.svd(b @ a, compute_uv=False)[:min(rank, OUT)])
        close((u * s) @ v_t, b @ a)
    _, s, _ = florist.compact_svd(*common.stack(two_clients()[1], [0.5, 0.5], "w"))
    close(s, [1.5962912, 1.0962912], 1e-7)
    close(s[0] ** 2 / (s ** 2).sum(), 0.67950549, 1e-8)


def test_florist_p_is_monotone_in_tau_and_per_expert():
    state, clients, weights = federation([2, 8, 6], 7)
    for client in clients:
        client["sites"]["up"]["b"][2] = 0
    last = np.zeros(EXPERTS)
    for tau in (0.3, 0.6, 0.9, 0.99, 1.0):
        p = florist.aggregate(state, clients, weights, {**OPTIONS, "florist_tau": tau})["p"]["up"]
        assert (p >= last).all() and p[2] == 0
        last = p
    assert last.tolist() == [OUT, OUT, 0, OUT]


def test_florist_tau_one_keeps_values_too_small_for_a_sum_of_squares():
    assert florist.energy_rank(np.array([1.0, 1e-9, 1e-25]), 1.0) == 2
    assert florist.energy_rank(np.array([1.0, 1e-9]), 1.0, max_rank=1) == 1
    assert florist.energy_rank(np.zeros(3), 0.9) == 0
    assert florist.energy_rank(np.array([1.0, 1.0, 1.0]), 1 / 3) == 1


def test_florist_without_any_update_sends_nothing():
    state, clients, weights = federation([2, 6], zero_b=True)
    new = florist.aggregate(state, clients, weights, OPTIONS)
    assert new["p"]["q"] == 0 and new["broadcast"]["up"]["a"].shape == (EXPERTS, 0, WIDTH)
    assert new["base_delta"]["up"].shape == (EXPERTS, OUT, WIDTH) and not new["base_delta"]["up"].any()


def test_florist_code_mode_keeps_adapters_and_leaves_the_base():
    state, clients, weights = federation([2, 6])
    new = florist.aggregate(state, clients, weights, {**TAU_ONE, "florist_mode": "code"})
    assert "base_delta" not in new
    close(common.delta(new["sites"]["up"]), mean_of_products(clients, weights, "up"))
    sent = florist.broadcast(new, 5, OPTIONS)["up"]
    assert sent["a"].shape == (EXPERTS, 5, WIDTH) and sent["scaling"] == 1
    close(common.delta(sent), common.delta(new["sites"]["up"]))


def test_a_component_with_both_factors_zero_gets_no_gradient():
    b, a, g = np.array([[1.0, 0], [0, 0]]), np.array([[1.0, 2, 0], [0, 0, 0]]), np.array([[1.0, 2, 0], [3, 4, 0]])
    close(g @ a.T, [[5, 0], [11, 0]])
    close(b.T @ g, [[1, 2, 0], [0, 0, 0]])


# ---- FlexLoRA

def test_flexlora_rank_one_of_two_clients():
    new = flexlora.aggregate(*two_clients(), {"max_rank": 1})
    got = common.delta(new["sites"]["w"])
    close(got, [[0.29642383, -0.05708601, 0], [1.53920519, -0.29642383, 0]], 1e-8)
    close(np.linalg.norm(got - TWO_CLIENT_DELTA), 1.0962912, 1e-7)


def test_flexlora_full_rank_reproduces_the_update():
    state, clients, weights = federation([1, 2, 6])
    new = flexlora.aggregate(state, clients, weights, OPTIONS)
    for name in ("q", "up"):
        close(common.delta(new["sites"][name]), mean_of_products(clients, weights, name))
        again = flexlora.broadcast(new, 3, OPTIONS)[name]
        close(common.delta(again), mean_of_products(clients, weights, name))


@pytest.mark.parametrize("mode", ["fixed_alpha", "const_scale"])
def test_flexlora_truncation_is_nested_and_loses_the_discarded_values(mode):
    options = {**OPTIONS, "lora_scale_mode": mode}
    state, clients, weights = federation([1, 2, 6], options=options)
    new = flexlora.aggregate(state, clients, weights, options)
    two, one = flexlora.broadcast(new, 2, options)["up"], flexlora.broadcast(new, 1, options)["up"]
    close(two["a"][:, :1], one["a"])
    close(two["b"][..., :1] * two["scaling"], one["b"] * one["scaling"])
    lost = np.linalg.norm(common.delta(one) - mean_of_products(clients, weights, "up"), axis=(1, 2))
    close(lost, np.sqrt((new["singular_values"]["up"][:, 1:] ** 2).sum(axis=1)))


def test_flexlora_rows_of_a_are_orthonormal_as_far_as_they_can_be():
    for zero_b in (False, True):
        state, clients, weights = federation([2, 6], zero_b=zero_b)
        new = flexlora.aggregate(state, clients, weights, OPTIONS)["sites"]
        a = new["up"]["a"]
        close(a @ common.transpose(a), np.broadcast_to(np.diag([1.0] * WIDTH + [0]), (EXPERTS, 6, 6)), 1e-10)
        close(new["q"]["a"] @ new["q"]["a"].T, np.eye(6), 1e-10)
        assert zero_b is not new["up"]["b"].any()


def test_flexlora_single_client_keeps_its_product():
    state, clients, _ = federation([2])
    new = flexlora.aggregate(state, clients, [1.0], OPTIONS)
    close(common.delta(flexlora.broadcast(new, 2, OPTIONS)["q"]), common.delta(clients[0]["sites"]["q"]))


# ---- HetLoRA

def test_hetlora_two_clients():
    new = hetlora.aggregate(*two_clients(), {"max_rank": 1})
    close(new["scores"], [5 ** 0.5, 10 ** 0.5])
    close(new["norm_weights"], [0.41421356, 0.58578644], 1e-8)
    close(new["sites"]["w"]["a"], [[2.17157288, 0.24264069, 0]], 1e-8)
    close(new["sites"]["w"]["b"], [[0.41421356], [0.58578644]], 1e-8)


def test_hetlora_score_is_the_dense_norm_of_all_scaled_products():
    _, clients, _ = federation([1, 2, 6])
    dense = [np.sqrt(sum((common.delta(s) ** 2).sum() for s in c["sites"].values())) for c in clients]
    close(hetlora.scores(clients), dense)


def test_hetlora_equal_ranks_and_norms_is_the_plain_mean():
    state, clients, weights = homogeneous(3)
    for score, client in zip(hetlora.scores(clients), clients):
        for s in client["sites"].values():
            s["b"] = s["b"] / score
    options = {**OPTIONS, "max_rank": 2}
    new = hetlora.aggregate(state, clients, weights, options)
    plain = fedit.aggregate(state, clients, [1, 1, 1], options)
    for name in ("q", "up"):
        close(new["sites"][name]["a"], plain["sites"][name]["a"])
        close(new["sites"][name]["b"], plain["sites"][name]["b"])


def test_hetlora_without_any_update_weighs_clients_equally():
    state, clients, weights = federation([2, 6, 6], zero_b=True)
    close(hetlora.aggregate(state, clients, weights, OPTIONS)["norm_weights"], [1 / 3] * 3)


def test_hetlora_broadcast_is_the_head_of_the_global_product():
    state, clients, weights = federation([1, 2, 6])
    new = hetlora.aggregate(state, clients, weights, OPTIONS)
    for rank in (2, 6):
        sent, whole = hetlora.broadcast(new, rank, OPTIONS)["up"], new["sites"]["up"]
        head = whole["scaling"] * whole["b"][..., :rank] @ whole["a"][:, :rank]
        assert sent["scaling"] == OPTIONS["alpha"] / rank
        close(common.delta(sent), head)


def test_hetlora_dilutes_a_tail_by_the_square_of_its_weight():
    state, clients, _ = two_clients()
    tail = {"a": np.array([[0.0, 0, 0], [0, 0, 1]]), "b": np.array([[0.0, 2 ** 0.5], [0, 2 ** 0.5]]), "scaling": 1.0}
    clients.append({"sites": {"w": tail}})
    new = hetlora.aggregate(state, clients, [1, 1, 1], {"max_rank": 2})
    w = new["norm_weights"][2]
    close((new["sites"]["w"]["b"] @ new["sites"]["w"]["a"])[:, 2], w ** 2 * 2 ** 0.5)


def test_hetlora_tail_starts_at_the_floor():
    assert [hetlora.tail_start(r, {}) for r in (1, 6, 8, 12, 20)] == [0, 5, 7, 11, 19]


def test_hetlora_tail_gradient_matches_differences():
    options = {**OPTIONS, "het_gamma": 0.6, "het_lambda": 0.7}
    sites = federation([6], 2)[1][0]["sites"]
    value, gradients = hetlora.tail_regulariser(sites, 6, options)
    close(value, 0.7 * hetlora.tail_product(sites, 6, options))
    for name in sites:
        for k in ("a", "b"):
            numeric = numeric_gradient(lambda: hetlora.tail_regulariser(sites, 6, options)[0], sites[name][k])
            close(gradients[name][k], numeric, 1e-7)
            assert not np.take(gradients[name][k], range(3), axis=-2 if k == "a" else -1).any()


def test_hetlora_tail_gradient_is_zero_at_zero_b():
    sites = federation([6], zero_b=True)[1][0]["sites"]
    value, gradients = hetlora.tail_regulariser(sites, 6, {})
    assert value == 0 and not any(g[k].any() for g in gradients.values() for k in g)


def test_hetlora_prunes_only_when_the_tail_shrank():
    before = federation([2])[1][0]["sites"]
    same, rank = hetlora.prune(before, before, 2, {})
    assert rank == 2 and same is before
    after = {n: {**s, "b": s["b"] * np.array([1, 0.5])} for n, s in before.items()}
    cut, rank = hetlora.prune(before, after, 2, {})
    assert rank == 1 and cut["up"]["a"].shape == (EXPERTS, 1, WIDTH)
    close(cut["q"]["b"], before["q"]["b"][:, :1])
    assert hetlora.prune(before, after, 2, {"het_rank_min": 2})[1] == 2


# ---- Fed-SB

GRADIENT = np.array([[1.0, -2, 3], [-4, 5, -6]])


def test_fed_sb_start_of_a_rank_one_sign():
    new = fed_sb.initialise(GRADIENT, 1, 2e-4, 1.0)
    close(new["b"], [[0.70710678], [-0.70710678]], 1e-8)
    close(new["a"], [[-0.57735027, 0.57735027, -0.57735027]], 1e-8)
    close(new["core"], [[4.89897949e-4]], 1e-8)
    close(common.delta(new), -2e-4 * np.sign(GRADIENT))


@pytest.mark.parametrize("rank", [1, 2, 3, 6])
def test_fed_sb_start_is_orthonormal_and_the_best_approximation(rank):
    gradient = rng(3).standard_normal((EXPERTS, OUT, WIDTH))
    gradient[1] = 0
    new, kept = fed_sb.initialise(gradient, rank, 2e-4, 2.5), min(rank, OUT)
    close(common.transpose(new["b"]) @ new["b"], np.broadcast_to(np.eye(kept), (EXPERTS, kept, kept)))
    close(new["a"] @ common.transpose(new["a"]), np.broadcast_to(np.eye(kept), (EXPERTS, kept, kept)))
    target = -2e-4 * np.sign(gradient)
    lost = np.linalg.norm(common.delta(new) - target, axis=(1, 2))
    values = np.linalg.svd(target, compute_uv=False)
    close(lost, np.sqrt((values[:, kept:] ** 2).sum(axis=1)))
    assert not new["core"][1].any()


def test_fed_sb_core_gradient_projects_and_matches_differences():
    new, g = fed_sb.initialise(GRADIENT, 2, 2e-4, 0.5), rng(4).standard_normal((2, 3))
    gradient = fed_sb.core_gradient(g, new)
    close(gradient, numeric_gradient(lambda: (g * common.delta(new)).sum(), new["core"]), 1e-8)
    left, right = new["b"] @ new["b"].T, new["a"].T @ new["a"]
    close(new["b"] @ gradient @ new["a"] / 0.5, left @ g @ right)


def test_fed_sb_averages_the_core_exactly():
    start = fed_sb.initialise(GRADIENT, 1, 2e-4, 1.0)
    clients = [{"sites": {"w": {**start, "core": np.array([[r]])}}} for r in (0.001, 0.003)]
    new = fed_sb.aggregate({"sites": {"w": start}}, clients, [0.25, 0.75], {})
    close(new["sites"]["w"]["core"], [[0.0025]])
    assert new["sites"]["w"]["b"] is start["b"]
    close(common.delta(new["sites"]["w"]), mean_of_products(clients, [0.25, 0.75], "w"))


# ---- methods against each other

def test_one_round_from_zero_adapters_flora_florist_flexlora_agree():
    state, clients, weights = federation([1, 2, 6], 11)
    merged = flora.aggregate(state, clients, weights, OPTIONS)["base_delta"]
    cut = florist.aggregate(state, clients, weights, TAU_ONE)["base_delta"]
    flex = flexlora.aggregate(state, clients, weights, {**OPTIONS, "max_rank": 9})["sites"]
    for name in ("q", "up"):
        close(cut[name], merged[name])
        close(common.delta(flex[name]), merged[name])


def test_one_round_of_fedex_equals_flora():
    state, clients, weights = homogeneous(3, 12)
    merged = flora.aggregate(state, clients, weights, OPTIONS)["base_delta"]
    exact = fedex_lora.aggregate(state, clients, weights, OPTIONS)
    for name in ("q", "up"):
        close(exact["base_delta"][name] + common.delta(exact["sites"][name]), merged[name])


@pytest.mark.parametrize("method", [fedit, a3smoe, smoe_llb, ub_smoe, hetlora, flexlora, fedex_lora])
def test_client_order_does_not_matter(method):
    state, clients, weights = homogeneous(4, 13)
    options = {**OPTIONS, "max_rank": 2}
    new = method.aggregate(state, clients, weights, options)
    turned = method.aggregate(state, clients[::-1], weights[::-1], options)
    for name in ("q", "up"):
        close(common.delta(turned["sites"][name]), common.delta(new["sites"][name]), 1e-11)


@pytest.mark.parametrize("method", [fedit, a3smoe, smoe_llb, ub_smoe, hetlora, flexlora, fedex_lora, flora, florist])
def test_aggregate_changes_nothing_it_was_given(method):
    state, clients, weights = homogeneous(2, 14)
    before = [s[k].copy() for h in (state, *clients) for s in h["sites"].values() for k in ("a", "b")]
    method.aggregate(state, clients, weights, {**OPTIONS, "max_rank": 2})
    after = [s[k] for h in (state, *clients) for s in h["sites"].values() for k in ("a", "b")]
    assert all(np.array_equal(x, y) for x, y in zip(before, after)) and set(state) == {"sites"}
