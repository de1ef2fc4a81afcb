"""Tests methods that are classes of the process that trains with them, their client hooks, and what checks them."""

import dataclasses
import pathlib
import sys
import threading
import time
import tomllib
import typing

import numpy as np
import pytest

import evenkeel_moe as ek
from evenkeel_moe.method import HOOKS
from own_method import EXAMPLES, METHODS, adapter, tensors
from tiny import started

sys.path[:0] = [str(METHODS), str(EXAMPLES)]
from fedprox import FedProx  # noqa: E402
from momentum import ServerMomentum  # noqa: E402
from scaffold import Scaffold  # noqa: E402
from server_adam import ServerAdam  # noqa: E402


def factors(run, name):
    """The factors [*, r, in] and [*, out, r] of an adapter, joined by experts."""
    return {key: tensor for key, tensor in tensors(run).items() if name in key}


# --- classes of this process ---

def test_a_class_and_its_file_train_the_same_adapter(config, momentum, tmp_path):
    own = ek.train(config, method=ServerMomentum(momentum=0.9), out=tmp_path / "class")
    assert adapter(own.path) == adapter(momentum)
    assert own.config["method"]["server-momentum"] == {"momentum": 0.9}
    assert own.manifest["method"]["sha256"] == ek.Run(momentum).manifest["method"]["sha256"]


def test_what_a_hook_raises_is_the_cause(config, tmp_path):
    class Wrong(ek.Method):
        def aggregate(self, server, state, round, uploads):
            raise LookupError("nothing there")

    with pytest.raises(ek.EvenkeelError, match="LookupError: nothing there") as raised:
        ek.train(config, method=Wrong, out=tmp_path / "run")
    assert raised.value.exit_code == 1 and isinstance(raised.value.__cause__, LookupError)


def test_options_are_those_of_the_class():
    with pytest.raises(TypeError, match="no option decay; it has momentum"):
        ServerMomentum(decay=1)
    with pytest.raises(TypeError, match="momentum is 'much', expected float"):
        ServerMomentum(momentum="much")
    with pytest.raises(ValueError, match="momentum is 2"):
        ServerMomentum(momentum=2)
    with pytest.raises(TypeError, match="method is 3, allowed: a class of ek.Method"):
        ek.train({}, method=3)
    assert ServerMomentum(momentum=1).options == {"momentum": 1.0}


def options_of(annotations, **values):
    """The options of a class with annotations."""
    return type("Own", (ek.Method,), {"__annotations__": annotations, **values})().options


def test_an_option_hides_nothing_of_a_method():
    for name in ("penalty", "upload", "options", "check_options"):
        with pytest.raises(TypeError, match=rf"^Own.{name} is annotated as an option, but {name} is an attribute of ek.Method: give the option another name"):
            options_of({name: float}, **{name: 0.1})
    for hint in (typing.ClassVar, typing.ClassVar[float], "typing.ClassVar"):
        assert options_of({"calls": hint, "step": float}, calls=0, step=1) == {"step": 1.0}


def test_options_take_numbers_and_arrays_of_numpy():
    class Own(ek.Method):
        count: int = np.int64(3)
        share: float = np.float32(0.5)
        steps: typing.List[float] = np.array([1, 2])
        is_on: bool = False

    assert Own().options == {"count": 3, "share": 0.5, "steps": [1.0, 2.0], "is_on": False}
    given = Own(count=np.int32(4), share=np.int64(1), steps=np.array([0.5]), is_on=np.bool_(True)).options
    assert given == {"count": 4, "share": 1.0, "steps": [0.5], "is_on": True} and [type(value) for value in given.values()] == [int, float, list, bool]
    for wrong in (np.float64(1.5), np.bool_(True), np.array([1])):
        with pytest.raises(TypeError, match="count is .*, expected int"):
            Own(count=wrong)


def test_a_study_compares_a_class_with_fedit(config, tmp_path):
    (tmp_path / "study.toml").write_text(
        f'[study]\nbase = "{config}"\nseeds = [1, 2]\nreference = "fedit"\nendpoint = "accuracy"\nset = ["train.rounds=1"]\n'
        '[[study.arm]]\nname = "fedit"\nset = ["method.name=fedit"]\n'
        '[[study.arm]]\nname = "momentum"\nset = ["method.name=server-momentum", "method.server-momentum.momentum=0.5"]\n')
    study = ek.Study(tmp_path / "study.toml", out=tmp_path / "study", methods=[ServerMomentum]).run(jobs=2)
    assert len(study.runs("momentum")) == 2 and study.runs("momentum")[0].config["method"]["server-momentum"] == {"momentum": 0.5}
    difference = ek.Study.open(tmp_path / "study").differences_list()[0]
    assert difference["arm"] == "momentum" and difference["low"] <= difference["difference"] <= difference["high"]


def test_a_class_replaces_the_method_of_a_dict_and_settings_may_not_name_one(config, fedit, tmp_path):
    table = tomllib.loads(config.read_text())
    for n, given in enumerate((table, {**table, "method": {"name": "fedit", "gate_norm": "olmoe_native"}}, {**table, "method": {}, "method.name": "fedit"},
                               ek.Run(fedit).config | {"output": {}})):
        run = ek.train(given, method=Louder, set={"train.rounds": 1}, out=tmp_path / str(n))
        assert run.config["method"]["name"] == "louder" and run.manifest["method"]["hooks"] == ["prepare"]
    for chosen in ({"method.name": "fedit"}, {"method": {"name": "fedit"}}):
        for call in (lambda: ek.train(config, method=Louder, set=chosen), lambda: ek.train(table, method=Louder(), set=chosen),
                     lambda: ek.train(config, method="own.py:Own", set=chosen), lambda: ek.check_method(Louder, set=chosen)):
            with pytest.raises(TypeError, match="method and method.name of set both choose a method"):
                call()


def test_options_of_an_object_go_with_the_run_that_it_trains(config, momentum, tmp_path):
    """Arms of a study choose their options, and a run that is scored has its own."""
    for call in (lambda: ek.Study("study.toml", out=tmp_path, methods=[ServerMomentum(momentum=0.5)]),
                 lambda: ek.Study.open(tmp_path, methods=[ServerMomentum(momentum=0.5)])):
        with pytest.raises(TypeError, match=r"object of ServerMomentum with options, allowed: the class, and method.server-momentum.momentum=0.5"):
            call()
    ek.Study("study.toml", out=tmp_path, methods=[ServerMomentum(momentum=0.9)])  # the default
    for use in (lambda one: ek.evaluate(run=momentum, method=one, limit=1), lambda one: ek.generate("a", run=momentum, method=one, max_new_tokens=2)):
        with pytest.raises(TypeError, match=r"method has method.server-momentum.momentum = 0.5, in the run 0.9"):
            use(ServerMomentum(momentum=0.5))
        assert use(ServerMomentum(momentum=0.9)) is not None


def test_no_thread_outlives_a_call(config, tmp_path):
    before = set(threading.enumerate())
    ek.train(config, method=Louder, set={"train.rounds": 1}, out=tmp_path / "run")
    for _ in range(200):
        if set(threading.enumerate()) <= before:
            break
        time.sleep(0.02)
    assert set(threading.enumerate()) <= before


def hooks_of_base(name, library):
    """A class that overrides every hook, and calls the base method's in each."""
    def hook_of(hook):
        return lambda self, *arguments: getattr(ek.Method, hook)(self, *arguments)
    return type("Every", (ek.Method,), {"base": name, "library": library, **{hook: hook_of(hook) for hook in HOOKS}})


@pytest.mark.parametrize("name, library", [("ub-smoe", "torch"), ("fed-sb", "numpy")])
def test_the_base_methods_hooks_have_its_bits(config, tmp_path, name, library):
    if library == "torch":
        pytest.importorskip("torch").set_num_threads(1)
    own = ek.train(config, method=hooks_of_base(name, library), out=tmp_path / "own")
    assert adapter(own.path) == adapter(ek.train(config, set={"method.name": name}, out=tmp_path / "base").path)


class AsksAsAnother(ek.Method):
    """Asks the base method's broadcast for the adapter of a client of another rank."""

    base = "hetlora"
    sent = []

    def broadcast(self, state, client, round):
        small = super().broadcast(state, dataclasses.replace(client, rank=1), round)
        AsksAsAnother.sent += [factors.a.shape[-2] for factors in small.adapters.values()]
        return super().broadcast(state, client, round)


class CountsAnew(ek.Method):
    """Gives the base method's upload routing counts of its own."""

    base = "a3smoe"
    uploads = 0

    def upload(self, download, setup, counts, view):
        twice = {layer: ek.RoutingCounts(2 * one.counts, 2 * one.tokens) for layer, one in counts.items()}
        sent = super().upload(download, setup, twice, view)
        assert all((sent.extras[f"{layer}.counts"] == 2 * one.counts).all() and sent.extras[f"{layer}.tokens"] == 2 * one.tokens
                   for layer, one in counts.items())
        wrong = {layer: ek.RoutingCounts(one.counts[:-1], one.tokens) for layer, one in counts.items()}
        with pytest.raises(ek.EvenkeelError, match="has shape .* expected"):
            super().upload(download, setup, wrong, view)
        CountsAnew.uploads += 1
        return super().upload(download, setup, counts, view)


def test_the_base_methods_hooks_get_the_arguments_that_a_hook_gives(config, tmp_path):
    one_round = {"train.rounds": 1, "train.local_epochs": 0.25, "evaluate.every": 0}
    ek.train(config, method=AsksAsAnother, set={**one_round, "clients.ranks": [1, 2, 3, 3]}, out=tmp_path / "ranks")
    assert set(AsksAsAnother.sent) == {1}
    ek.train(config, method=CountsAnew, set=one_round, out=tmp_path / "counts")
    assert CountsAnew.uploads == 4


def test_the_mean_of_k_over_all_clients_reaches_the_base_method(config, tmp_path):
    """A round has more than a hook sees of it. phi of UB-SMoE follows from that mean."""
    few = {"clients.participation": 0.5, "train.rounds": 1}
    over = {"kbar_over": "clients"}
    own = ek.train(config, method=type("Over", (hooks_of_base("ub-smoe", "numpy"),), {"base_options": over}), set=few, out=tmp_path / "own")
    known = ek.train(config, set={"method.name": "ub-smoe", "method.ub-smoe.kbar_over": "clients", **few}, out=tmp_path / "known")
    assert own.rounds_list()[0]["diagnostics"] == known.rounds_list()[0]["diagnostics"]


class OtherObjects(ek.Method):
    """Gives the base method's hooks what they cannot get."""

    needs_individuals = True

    def prepare(self, download, view):
        for call, error in ((lambda: super(OtherObjects, self).prepare({}, view), "got a dict as download, expected Payload"),
                            (lambda: super(OtherObjects, self).prepare(download, ek.View), "takes the view that prepare was called with"),
                            (lambda: super(OtherObjects, self).upload(download, None, {}, view), "upload is called in prepare"),
                            (lambda: setattr(view, "client", dataclasses.replace(view.client, rank=1)), "View.client cannot be set"),
                            (lambda: setattr(view, "base_change", {}), "View.base_change cannot be set")):
            with pytest.raises((TypeError, RuntimeError, AttributeError), match=error):
                call()
        return super().prepare(download, view)

    def aggregate(self, server, state, round, uploads):
        for call, error in ((lambda: super(OtherObjects, self).aggregate(server, state, round, list(uploads)[:2]), "takes the uploads that aggregate was"),
                            (lambda: super(OtherObjects, self).aggregate(server, state, uploads, uploads), "got a Uploads as round, expected RoundView"),
                            (lambda: setattr(uploads, "weights", [1.0]), "Uploads.weights cannot be set"),
                            (lambda: setattr(uploads[0], "adapters", {}), "Upload.adapters cannot be set")):
            with pytest.raises((TypeError, AttributeError), match=error):
                call()
        return super().aggregate(server, state, round, uploads)


def test_what_a_base_method_cannot_get_is_refused(config, fedit, tmp_path):
    assert adapter(ek.train(config, method=OtherObjects, out=tmp_path / "run").path) == adapter(fedit)


# --- evaluation ---

class Louder(ek.Method):
    """Clients and evaluations use adapters of twice the scale."""

    def prepare(self, download, view):
        setup = super().prepare(download, view)
        for one in setup.adapters.values():
            one.scaling *= 2
        return setup


def test_an_evaluation_prepares_by_the_class(config, tmp_path):
    run = ek.train(config, method=Louder, out=tmp_path / "run")
    with pytest.raises(ek.EvenkeelError, match="overrides prepare in Python, and a run folder starts no code: name its file by --method"):
        ek.evaluate(run=run)
    scores = ek.evaluate(run=run, method=Louder)
    assert scores[0]["log_likelihood"] == run.evaluations_list()[-1]["log_likelihood"]
    with pytest.raises(ek.EvenkeelError, match="--method is .* goes with --run"):
        ek.evaluate(model="builtin:tiny-olmoe", tasks="builtin", method=Louder)


# --- client hooks ---

class Clipped(ek.Method):
    """Every hook of a client, each with an effect that can be seen."""

    limit: float = 0.0

    def edit_gradients(self, step):
        assert set(step.gradients) == set(step.view.sites) and len(step.routing) == 2
        assert all(routing.counts.sum() == routing.tokens * step.view.client.top_k for routing in step.routing[0].values())
        for gradients in step.gradients.values():
            for _, gradient in gradients.items():
                gradient.clip(-self.limit, self.limit, out=gradient)
        step.view.memory["steps"] = step.view.memory.get("steps", np.zeros(1, "i8")) + 1
        step.add_metric("numbers", step.number)

    def edit_parameters(self, step):
        first = next(iter(step.parameters.values()))
        first.b[:] = 3

    def upload(self, download, setup, counts, view):
        payload = super().upload(download, setup, counts, view)
        payload.extras["model.steps"] = view.memory.get("steps", np.zeros(1, "i8")).astype("f4")
        return payload

    def aggregate(self, server, state, round, uploads):
        new = super().aggregate(server, state, round, uploads)
        new.memory["steps"] = uploads.mean_extra("model.steps", [1.0] * len(uploads))
        return new

    def diagnostics(self, state):
        return state.memory


def test_edits_in_place_reach_the_optimiser_and_memory_lasts(config, tmp_path):
    """Without gradients AdamW moves A by its decay alone, and B stays zero but for what edit_parameters writes."""
    run = ek.train(config, method=Clipped, set={"train.optimizer.weight_decay": 0.0}, out=tmp_path / "run")
    after = factors(run.path, "lora_B")
    values = sorted({float(value) for tensor in after.values() for value in np.unique(tensor)})
    assert values == [0.0, 3.0]
    steps = [sum(client["steps"] for client in record["clients"]) for record in run.rounds_list()]
    assert [record["diagnostics"]["steps"] for record in run.rounds_list()] == [[float(sum(steps[:n + 1]))] for n in range(2)]


class Notes(ek.Method):
    """Counts in the notes how often each hook of a step ran in a round, and sends it."""

    hooks = ("extra_loss", "penalty", "edit_gradients", "edit_parameters")

    def count(self, step, name):
        step.setup.notes[name] = step.setup.notes.get(name, np.zeros((), "i8")) + 1

    def extra_loss(self, step):
        self.count(step, "extra_loss")
        return super().extra_loss(step)

    def penalty(self, step):
        self.count(step, "penalty")

    def edit_gradients(self, step):
        self.count(step, "edit_gradients")
        super().edit_gradients(step)

    def edit_parameters(self, step):
        self.count(step, "edit_parameters")

    def upload(self, download, setup, counts, view):
        payload = super().upload(download, setup, counts, view)
        payload.extras = {name: np.array(setup.notes.get(name, 0), "f4") for name in self.hooks}
        return payload

    def aggregate(self, server, state, round, uploads):
        new = super().aggregate(server, state, round, uploads)
        new.memory = {name: uploads.mean_extra(name, [1.0] * len(uploads)) for name in self.hooks}
        return new

    def diagnostics(self, state):
        return state.memory


def test_notes_of_every_hook_last_for_a_round(config, tmp_path):
    run = ek.train(config, method=Notes, out=tmp_path / "run")
    for record in run.rounds_list():
        steps, counted = sum(client["steps"] for client in record["clients"]), record["diagnostics"]
        assert counted["penalty"] == counted["edit_gradients"] == counted["edit_parameters"] == steps
        assert counted["extra_loss"] > steps, "once per micro-batch"


class Penalised(ek.Method):
    """An L2 norm of the factors, by numpy."""

    weight: float = 0.1

    def penalty(self, step):
        gradients = {site: ek.Factors(2 * self.weight * f.a, 2 * self.weight * f.b) for site, f in step.parameters.items()}
        return ek.Loss(self.weight * sum((f.a**2).sum() + (f.b**2).sum() for f in step.parameters.values()), gradients)


class PenalisedByTorch(Penalised):
    library = "torch"

    def penalty(self, step):
        return self.weight * sum((f.a**2).sum() + (f.b**2).sum() for f in step.parameters.values())


class PenalisedByGradients(Penalised):
    def penalty(self, step):
        return super(Penalised, self).penalty(step)

    def edit_gradients(self, step):
        for site, f in step.parameters.items():
            step.gradients[site].a += 2 * self.weight * f.a
            step.gradients[site].b += 2 * self.weight * f.b


@pytest.mark.parametrize("other", [PenalisedByTorch, PenalisedByGradients])
def test_a_penalty_by_gradients_by_torch_and_by_hand_is_the_same(config, fedit, tmp_path, other):
    pytest.importorskip("torch")
    one = ek.train(config, method=Penalised, out=tmp_path / "one", set={"train.rounds": 1})
    two = ek.train(config, method=other, out=tmp_path / "two", set={"train.rounds": 1})
    assert adapter(one.path) == adapter(two.path) != adapter(fedit)


class Balanced(ek.Method):
    """A loss of the router logits: the z-loss, by torch."""

    library, weight = "torch", 0.5

    def extra_loss(self, step):
        return self.weight * sum((routing.logits.logsumexp(-1)**2).mean() for routing in step.routing[-1].values())


class BalancedByHand(ek.Method):
    weight = 0.5

    def extra_loss(self, step):
        value, gradients = 0.0, {}
        for layer, routing in step.routing[-1].items():
            sums = np.log(np.exp(routing.logits).sum(-1, keepdims=True))
            value += self.weight * float((sums**2).mean())
            gradients[layer] = (self.weight * 2 / len(sums) * sums * np.exp(routing.logits - sums)).astype("f4")
        return ek.Loss(value, logits=gradients)


def test_a_loss_of_router_logits_flows_through_the_model(config, tmp_path):
    pytest.importorskip("torch").set_num_threads(1)
    plain, torch, hand = (tensors(ek.train(config, method=cls, out=tmp_path / name, set={"train.rounds": 1}).path)
                          for name, cls in (("plain", Penalised(weight=0.0)), ("torch", Balanced), ("hand", BalancedByHand)))
    far, near = (sum(float(np.abs(one[key] - tensor).sum()) for key, tensor in torch.items()) for one in (plain, hand))
    assert near < 0.02 * far and far > 0.1


class Drawn(ek.Method):
    def edit_gradients(self, step):
        draws = step.view.random.standard_normal(3)
        step.add_metric("first", draws[0])

    def aggregate(self, server, state, round, uploads):
        new = super().aggregate(server, state, round, uploads)
        new.memory["draw"] = server.random.standard_normal(2)
        return new

    def diagnostics(self, state):
        return state.memory


def test_draws_are_seeded_by_run_round_client_and_step(config, tmp_path):
    one, two, other = (ek.train(config, method=Drawn, out=tmp_path / str(n), set={"seed": seed, "clients.parallel": parallel})
                       for n, (seed, parallel) in enumerate([(1, 1), (1, 2), (2, 1)]))
    drawn = [[(record["diagnostics"]["draw"], [client["metrics"]["first"] for client in record["clients"]]) for record in run.rounds_list()]
             for run in (one, two, other)]
    assert drawn[0] == drawn[1] != drawn[2] and len({str(draws) for draws in drawn[0]}) == 2


class Keeps(ek.Method):
    """Keeps arrays of earlier calls, which no later call may change."""

    kept = []

    def broadcast(self, state, client, round):
        for array, copy in Keeps.kept:
            assert (array == copy).all()
        array = next(iter(state.adapters.values())).a
        Keeps.kept.append((array, array.copy()))
        return super().broadcast(state, client, round)

    def aggregate(self, server, state, round, uploads):
        Keeps.state = getattr(Keeps, "state", state)
        if state.round == 1:
            Keeps.state.extras
        return super().aggregate(server, state, round, uploads)


def test_arrays_that_a_class_keeps_do_not_change_and_objects_end_with_the_call(config, tmp_path):
    with pytest.raises(ek.EvenkeelError, match="an object of an earlier call: a hook keeps no arguments"):
        ek.train(config, method=Keeps, out=tmp_path / "run")
    assert len(Keeps.kept) > 6


class Counts(ek.Method):
    """Reads gradients, parameters and routing of every step, and counts the pieces of shared memory that are mapped."""

    mapped = []

    def edit_gradients(self, step):
        assert step.gradients and step.parameters and step.routing[0]
        Counts.mapped.append(pathlib.Path("/proc/self/maps").read_text().count("memfd:evenkeel-method"))


def test_shared_memory_is_used_again_in_every_step(config, tmp_path):
    ek.train(config, method=Counts, out=tmp_path / "run", set={"train.rounds": 1, "train.local_epochs": 2.0})
    assert len(Counts.mapped) > 10 and len(set(Counts.mapped[1:])) == 1, Counts.mapped


# --- the examples of the tutorial ---

def test_fedprox_without_weight_is_fedit_and_with_it_clients_move_less(config, tmp_path):
    long = {"train.optimizer.name": "sgd", "train.optimizer.lr": 0.5, "train.local_epochs": 4.0, "train.rounds": 1}
    none, much = (ek.train(config, method=FedProx(mu=mu), out=tmp_path / str(mu), set=long) for mu in (0.0, 1.9))
    assert adapter(none.path) == adapter(ek.train(config, out=tmp_path / "plain", set=long).path)
    moved = [sum(float((tensor**2).sum()) for tensor in factors(run.path, "lora_B").values()) for run in (none, much)]
    assert moved[1] < 0.7 * moved[0]


def test_server_adam_takes_the_step_of_its_equation(config, tmp_path):
    one = ek.train(config, method=ServerAdam, set={"train.rounds": 1}, out=tmp_path / "adam")
    mean = ek.train(config, set={"train.rounds": 1}, out=tmp_path / "mean")
    adapted = tensors(one.path)
    for key, d in factors(mean.path, "lora_B").items():  # B begins at zero, so the mean is the move
        expected = 0.01 * 0.1 * d / (np.sqrt(0.01 * d**2) + 1e-3)
        assert np.allclose(adapted[key], expected, atol=1e-8)


def test_scaffold_begins_as_fedit_and_its_controls_sum_up(config, tmp_path):
    sgd = {"train.optimizer.name": "sgd", "train.optimizer.lr": 0.5}
    after = [[adapter(ek.train(config, method=method, set={**sgd, "train.rounds": rounds}, resume=rounds > 1, out=tmp_path / str(n)).path)
              for rounds in (1, 2)] for n, method in enumerate([Scaffold, FedProx(mu=0.0)])]
    assert after[0][0] == after[1][0]  # the control variates begin at zero
    assert after[0][1] != after[1][1]


@pytest.mark.parametrize("method", [FedProx, ServerAdam, Scaffold])
def test_the_examples_are_short(method):
    assert sum(bool(line.strip()) for line in pathlib.Path(sys.modules[method.__module__].__file__).read_text().splitlines()) <= 40


def test_an_example_keeps_what_every_method_promises():
    assert "two ranks give the same bits" in ek.check_method(Scaffold)


def test_the_small_run_of_a_check_may_have_other_budgets_and_needs_two_rounds():
    assert "every budget is evaluated" in ek.check_method(Louder, set={"evaluate": {"budgets": [1.0]}}, ranks=False)
    for settings in ({"train.rounds": 1}, {"train": {"rounds": 0}}):
        with pytest.raises(ValueError, match="train.rounds is [01], allowed: 2 or more"):
            ek.check_method(Louder, set=settings)


def test_settings_of_a_check_win_over_the_options_of_an_object(caplog):
    """A resume that names the arithmetic again would warn."""
    seen = set()

    class Own(ServerMomentum):
        def aggregate(self, server, state, round, uploads):
            seen.add(self.momentum)
            return super().aggregate(server, state, round, uploads)

    assert "two ranks give the same bits" in ek.check_method(Own(momentum=0.5), set={"method": {"own": {"momentum": 0.1}}})
    assert seen == {0.1} and [record.message for record in caplog.records if "arithmetic" in record.message] == []


class Forgets(ek.Method):
    """Keeps state where no run folder has it."""

    calls = 0

    def aggregate(self, server, state, round, uploads):
        Forgets.calls += 1
        new = super().aggregate(server, state, round, uploads)
        for one in new.adapters.values():
            one.b += np.float32(Forgets.calls)
        return new


def test_a_method_with_state_outside_of_the_run_is_found():
    with pytest.raises(AssertionError, match="any order|same bits"):
        ek.check_method(Forgets, ranks=False)
