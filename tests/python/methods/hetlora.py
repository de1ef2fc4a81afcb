"""HetLoRA, written again. src/methods/hetlora.cpp has the equations and the source."""

import numpy as np

import evenkeel_moe as ek


def norms(tail):
    return np.sqrt((tail.astype("f8") ** 2).sum((-2, -1), keepdims=True))


def rescaled(f, scaling):
    root = np.float32((f.scaling / scaling) ** 0.5)
    return ek.Factors(f.a * root, f.b * root, scaling=scaling)


def cut(adapters, rank):
    return {site: ek.Factors(f.a[..., :rank, :], f.b[..., :rank], scaling=f.scaling) for site, f in adapters.items()}


class HetLora(ek.Method):
    name, family, needs_individuals, gamma, weight = "py-hetlora", "rank", True, 0.99, 1e-3

    def tails(self, f):
        q = int(self.gamma * f.a.shape[-2])
        return f.a[..., q:, :], f.b[..., q:]

    def tail(self, adapters):
        return sum((norms(a) * norms(b)).sum() for a, b in map(self.tails, adapters.values()))

    def initialize(self, server):
        state = super().initialize(server)
        state.adapters = {site: rescaled(f, 1.0) for site, f in state.adapters.items()}
        return state

    def prepare(self, download, view):
        setup = super().prepare(download, view)
        setup.adapters = {site: rescaled(f, view.scale.of(f.a.shape[-2])) for site, f in setup.adapters.items()}
        return setup

    def penalty(self, step):
        gradients = {site: ek.Factors(np.zeros_like(f.a), np.zeros_like(f.b)) for site, f in step.parameters.items()}
        for site, f in step.parameters.items():
            (a, b), (da, db) = self.tails(f), self.tails(gradients[site])
            da[:], db[:] = (self.weight * norms(y) * x / np.maximum(norms(x), 1e-300) for x, y in ((a, b), (b, a)))
        return ek.Loss(self.weight * self.tail(step.parameters), gradients)

    def upload(self, download, setup, counts, view):
        rank, scaling = next((f.a.shape[-2], f.scaling) for f in setup.adapters.values())
        shrank = self.tail(setup.adapters) * scaling < self.tail(download.adapters)
        rank = min(rank, max(1, int(self.gamma * rank))) if shrank else rank
        return ek.Payload(cut(setup.adapters, rank), {"rank": np.array(rank, "i4")})

    def broadcast(self, state, client, round):
        return ek.Payload(cut(state.adapters, int(state.memory.get(f"rank/{client.id}", client.rank))))

    def diagnostics(self, state):
        return state.memory

    def aggregate(self, server, state, round, uploads):
        state.memory.update({f"rank/{u.client.id}": u.extras["rank"].astype("i8") for u in uploads})
        sizes = {u.client.id: sum(((f.scaling * norms(f.b @ f.a)) ** 2).sum() for f in u.adapters.values()) ** 0.5 for u in uploads}
        for site, f in state.adapters.items():
            for name in ("a", "b"):
                def part(upload, _, like=getattr(f, name)):
                    sent, wide = getattr(rescaled(upload.adapters[site], 1.0), name), np.zeros(like.shape)
                    wide[tuple(map(slice, sent.shape))] = sent * (sizes[upload.client.id] / sum(sizes.values()))
                    return wide
                setattr(f, name, uploads.sum(part).astype("f4"))
        return state
