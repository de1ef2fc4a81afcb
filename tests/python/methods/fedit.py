"""FedIT, written again: weighted means of A and of B."""

import evenkeel_moe as ek


class Fedit(ek.Method):
    name = "py-fedit"

    def prepare(self, download, view):
        setup = super().prepare(download, view)
        assert set(setup.adapters) == set(download.adapters) == set(view.sites)
        return setup

    def upload(self, download, setup, counts, view):
        return ek.Payload({site: ek.Factors(one.a, one.b, scaling=one.scaling) for site, one in setup.adapters.items()})

    def broadcast(self, state, client, round):
        return ek.Payload(state.adapters)

    def aggregate(self, server, state, round, uploads):
        for site, factors in state.adapters.items():
            factors.a, factors.b = uploads.mean(site, "a"), uploads.mean(site, "b")
        return state
