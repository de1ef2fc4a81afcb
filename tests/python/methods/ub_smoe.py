"""UB-SMoE with the default of every option, written again. src/methods/ub_smoe.cpp has the equations and the source."""

import numpy as np

import evenkeel_moe as ek


def expert_norms(tensors):
    """[E] float64: the norm of each expert over tensors [E, ...]."""
    return np.sqrt(sum((tensor.astype("f8") ** 2).reshape(len(tensor), -1).sum(1) for tensor in tensors))


def lower_median(values):
    return np.sort(values)[(len(values) - 1) // 2] if len(values) else 0.0


def stacks(sites):
    """The expert sites of each layer."""
    layers = {}
    for name, site in sites.items():
        if site.experts:
            layers.setdefault(site.moe_layer, []).append(name)
    return layers


class UbSmoe(ek.Method):
    name = "py-ub-smoe"
    family, needs_experts, gate_norm = "sparsity", True, "renorm_selected"
    sends = "A and B of every adapted weight, and how many tokens chose each expert"
    metrics = {"idle_share": (0, 1), "pg_share": (0, 1), "pg_norm": (0, 1e300), "pg_clipped": (0, 1)}
    num_candidates: int = 2
    momentum: float = 0.9
    lambda_phi: float = 0.01
    clip: float = 2.0
    eps: float = 1e-8

    # --- client ---

    def prepare(self, download, view):
        setup = super().prepare(download, view)
        setup.mode, setup.num_candidates = "candidate", self.num_candidates
        for name, phi in download.extras.items():
            if name.endswith(".phi"):
                own = phi.copy()
                setup.modulation[name[:-len(".phi")]] = own
                if view.client.trains:
                    setup.extra_trainables[name] = own
        return setup

    def penalty(self, step):
        """The squared distances of phi to [-1, 1]."""
        outside = {name: phi - phi.clip(-1, 1) for name, phi in step.extra_parameters.items()}
        value = self.lambda_phi * sum((distance.astype("f8") ** 2).sum() for distance in outside.values())
        return ek.Loss(value, extras={name: np.float32(2 * self.lambda_phi) * distance for name, distance in outside.items()})

    def edit_parameters(self, step):
        """theta -= lr * clip(rho Gt) for every expert that no token of the step chose."""
        if not step.routing:
            return
        sent, rho = step.download.extras, np.sqrt(step.download.extras["rho.reference"].item() / step.view.client.top_k)
        idle, got, clipped, total, experts = 0, 0, 0, 0.0, 0
        for layer, names in stacks(step.view.sites).items():
            terms = [sent[f"{name}.pseudo_grad_{kind}"] for name in names for kind in "ab"]
            targets = [getattr(step.parameters[name], kind) for name in names for kind in "ab"]
            unused = sum(routing[layer].counts for routing in step.routing) == 0
            norms = expert_norms(terms)
            limit = self.clip * lower_median(norms[~unused])
            above = rho * norms > limit
            scale = np.where(above, limit / np.where(norms > 0, norms, 1), rho) * unused
            for target, term in zip(targets, terms):
                target += (-step.lr * scale).astype("f4").reshape(-1, 1, 1) * term
            added = scale * norms
            idle, got, total = idle + unused.sum(), got + (added > 0).sum(), total + added.sum()
            clipped, experts = clipped + (above & unused & (added > 0).any()).sum(), experts + len(norms)
        step.add_metric("idle_share", idle / experts)
        step.add_metric("pg_share", got / experts)
        if got:
            step.add_metric("pg_norm", total / got, got)
            step.add_metric("pg_clipped", clipped / got, got)

    def upload(self, download, setup, counts, view):
        payload = super().upload(download, setup, counts, view)
        for layer, routing in counts.items():
            payload.extras[f"{layer}.counts"] = routing.counts.astype("i4")
            payload.extras[f"{layer}.tokens"] = np.array([routing.tokens], "i4")
        return payload

    # --- server ---

    def check_upload(self, upload, client):
        for name, counts in upload.extras.items():
            if name.endswith(".counts"):
                tokens = int(upload.extras[name.replace(".counts", ".tokens")].sum())
                if tokens < 1 or counts.sum() != tokens * client.top_k:
                    raise ValueError(f"{name}: {counts.sum()} choices by {tokens} tokens of {client.top_k} each")

    def initialize(self, server):
        state = super().initialize(server)
        state.memory["k_max"] = np.array(float(server.max_top_k))
        for layer in server.moe_layers:
            state.extras[f"{layer}.phi"] = np.zeros(server.num_experts, "f4")
        self.set_pseudo_gradients(server, state.adapters, state, 1.0)
        return state

    def set_pseudo_gradients(self, server, before, state, divisor):
        """Gt = (Theta - Theta') / (eta Gamma)"""
        for layer, names in stacks(server.sites).items():
            for name in names:
                for kind in "ab":
                    moved = getattr(before[name], kind) - getattr(state.adapters[name], kind)
                    state.extras[f"{name}.pseudo_grad_{kind}"] = moved / np.float32(divisor)
            moves = [state.extras[f"{name}.pseudo_grad_{kind}"] for name in names for kind in "ab"]
            state.memory[f"{layer}.pseudo_grad_norm"] = expert_norms(moves)

    def broadcast(self, state, client, round):
        payload = super().broadcast(state, client, round)
        payload.extras = {name: tensor for name, tensor in state.extras.items() if name.endswith(".phi") or client.trains}
        if client.trains:
            payload.extras["rho.reference"] = np.array(self.mean_top_k(round))
        return payload

    def mean_top_k(self, round):
        return sum((w * client.top_k for w, client in zip(round.weights, round.participants)), 0.0)

    def aggregate(self, server, state, round, uploads):
        new = super().aggregate(server, state, round, uploads)
        steps = uploads.sum(lambda upload, weight: np.array(weight * upload.steps)).item()
        self.set_pseudo_gradients(server, state.adapters, new, server.lr * steps)
        for layer in server.moe_layers:
            used = uploads.sum(lambda upload, weight: upload.extras[f"{layer}.counts"].astype("f8")
                               * (weight / max(float(upload.extras[f"{layer}.tokens"].item()), 1.0)))
            pull = np.tanh(self.mean_top_k(round) / len(used) / (used + self.eps) - 1)
            phi = new.extras[f"{layer}.phi"].astype("f8")
            new.extras[f"{layer}.phi"] = ((1 - self.momentum) * pull + self.momentum * phi).astype("f4")
            new.memory[f"{layer}.utilization"] = used
        return new

    def diagnostics(self, state):
        phi = {name: tensor for name, tensor in state.extras.items() if name.endswith(".phi")}
        return {**{name: tensor for name, tensor in state.memory.items() if name != "k_max"}, **phi}

    def pseudo_gradients(self, state):
        names = [name[:-len(".pseudo_grad_a")] for name in state.extras if name.endswith(".pseudo_grad_a")]
        return {name: ek.Factors(state.extras[f"{name}.pseudo_grad_a"], state.extras[f"{name}.pseudo_grad_b"]) for name in names}
