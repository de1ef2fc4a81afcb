"""The part of pfl-research: FederatedAveraging of its PyTorchModel over a SimulatedBackend."""
import os

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel

import peer_model
import task


class Learner(torch.nn.Module):
    """The PEFT model with the two methods that PyTorchModel calls."""

    def __init__(self, model):
        super().__init__()
        self.model, self.losses = model, []

    def loss(self, ids):
        loss = peer_model.loss_of(self.model, ids)
        self.losses.append(loss.item())
        return loss

    def metrics(self, ids):
        """Evaluates nothing. pfl-research asks before and after every user of the first round."""
        return {}

    def take_loss(self):
        mean, self.losses = sum(self.losses) / max(1, len(self.losses)), []
        return mean


class Marks(TrainingProcessCallback):
    """Marks the beginning and the end of every round, on the first worker."""

    def __init__(self, learner):
        self.learner, self.first_worker = learner, os.environ.get("RANK", "0") == "0"

    def on_train_begin(self, *, model):
        if self.first_worker:
            peer_model.mark()
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        loss = self.learner.take_loss()
        if self.first_worker:
            peer_model.mark(loss)
        return False, Metrics()


def federated_dataset(rows):
    """Returns the users, of whom each is drawn once before any is drawn again."""
    def user(number):
        return Dataset([peer_model.tensor_of(rows[number])], user_id=str(number))
    return FederatedDataset(user, get_user_sampler("minimize_reuse", list(range(len(rows)))))


def main():
    chosen = peer_model.options(__doc__)
    learner = Learner(peer_model.load(chosen.folder))
    trained = [p for p in learner.parameters() if p.requires_grad]
    model = PyTorchModel(learner, peer_model.new_optimizer, torch.optim.SGD(trained, 1.0))
    data = federated_dataset(peer_model.rows_of(chosen.folder, chosen.clients))
    parameters = NNAlgorithmParams(central_num_iterations=chosen.rounds, evaluation_frequency=chosen.rounds + 1,
                                   train_cohort_size=chosen.per_round, val_cohort_size=None)
    FederatedAveraging().run(algorithm_params=parameters, backend=SimulatedBackend(data, data), model=model,
                             model_train_params=NNTrainHyperParams(local_num_epochs=1, local_learning_rate=task.LR, local_batch_size=task.BATCH),
                             callbacks=[Marks(learner)], send_metrics_to_platform=False)


if __name__ == "__main__":
    main()
