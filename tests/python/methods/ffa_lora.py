"""FFA-LoRA, written again: A is drawn once and never trained."""

import evenkeel_moe as ek


class FfaLora(ek.Method):
    name = "py-ffa-lora"
    exact = True

    def initialize(self, server):
        state = super().initialize(server)
        state.fixed = {site: ek.Factors(a=one.a, scaling=one.scaling) for site, one in state.adapters.items()}
        for factors in state.adapters.values():
            factors.a = None
        return state

    def prepare(self, download, view):
        setup = super().prepare(download, view)
        setup.trainable = "b"
        return setup

    def upload(self, download, setup, counts, view):
        return ek.Payload({site: ek.Factors(b=one.b, scaling=one.scaling) for site, one in setup.adapters.items()})
