"""The part of Flower: a ClientApp and a ServerApp with FedAvg in its simulation engine, over Ray."""
import tempfile

import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

import peer_model


def factors_of(model):
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def received(model, arrays):
    """Sets the LoRA factors to those of an ArrayRecord."""
    with torch.no_grad():
        for name, factor in factors_of(model).items():
            factor.copy_(torch.from_numpy(arrays[name].numpy()))


def sent(model):
    return ArrayRecord({name: p.detach() for name, p in factors_of(model).items()})


def client_app(folder, clients):
    app = ClientApp()

    @app.train()
    def train(message, context):
        model, rows = peer_model.model_of(folder), peer_model.rows_of(folder, clients)
        received(model, message.content["arrays"])
        ids = rows[context.node_config["partition-id"]]
        loss = peer_model.learn(model, peer_model.new_optimizer(model.parameters()), ids)
        metrics = MetricRecord({"loss": loss, "num-examples": len(ids)})
        return Message(content=RecordDict({"arrays": sent(model), "metrics": metrics}), reply_to=message)

    return app


class MarkedFedAvg(FedAvg):
    """FedAvg that marks the end of every round, and stops at a client that failed, whom FedAvg leaves out."""

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        failed = [reply.error for reply in replies if reply.has_error()]
        assert not failed, failed
        arrays, metrics = super().aggregate_train(server_round, replies)
        peer_model.mark(metrics["loss"])
        return arrays, metrics


def server_app(chosen):
    app = ServerApp()

    @app.main()
    def main(grid, context):
        strategy = MarkedFedAvg(fraction_train=chosen.per_round / chosen.clients, fraction_evaluate=0.0, min_train_nodes=chosen.per_round,
                                min_available_nodes=chosen.clients)
        arrays = sent(peer_model.model_of(chosen.folder))
        peer_model.mark()
        strategy.start(grid=grid, initial_arrays=arrays, num_rounds=chosen.rounds)

    return app


def main():
    chosen = peer_model.options(__doc__)
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as ray:  # its sockets' paths must be short
        backend = {"init_args": {"num_cpus": chosen.workers, "_temp_dir": ray}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
        run_simulation(server_app(chosen), client_app(chosen.folder, chosen.clients), num_supernodes=chosen.clients, backend_config=backend)


if __name__ == "__main__":
    main()
