"""Tests what hooks may edit, hold, ask for and return, and what the base method's hooks keep beside them."""

import copy
import pathlib
import sys
import tempfile
import threading

import numpy as np
import pytest

import evenkeel_moe as ek
from evenkeel_moe._served import LONGEST_PATH, SOCKET, ServedMethods
from own_method import adapter

QUICK = {"train.rounds": 1, "train.local_epochs": 0.25, "evaluate.every": 0}


def class_of(name, hooks, **settings):
    """A class with hooks that are given as functions."""
    return type(name, (ek.Method,), {**settings, **hooks})


def base_run(config, out, name, **settings):
    return ek.train(config, set={"method.name": name, **{key.replace("__", "."): value for key, value in settings.items()}}, out=out)


# --- state that a base method changes while a hook has read it ---

class CountsFirst(ek.Method):
    """Counts its calls in a client's memory, before the base method's hook keeps the client's own scale there."""

    base, base_options = "a3smoe", {"rescaler": "learn"}

    def upload(self, download, setup, counts, view):
        memory = view.memory
        memory["calls"] = memory.get("calls", np.zeros(1)) + 1
        payload = super().upload(download, setup, counts, view)
        assert view.memory is memory and {"calls", "rescaler"} <= memory.keys()
        return payload


class CountsLast(ek.Method):
    base, base_options = "a3smoe", {"rescaler": "learn"}

    def upload(self, download, setup, counts, view):
        payload = super().upload(download, setup, counts, view)
        view.memory["calls"] = view.memory.get("calls", np.zeros(1)) + 1
        return payload


def test_what_a_base_method_keeps_in_a_memory_outlasts_a_hook_that_read_it_before(config, tmp_path):
    known = base_run(config, tmp_path / "known", "a3smoe", method__a3smoe__rescaler="learn")
    for cls in (CountsFirst, CountsLast):
        own = ek.train(config, method=cls, out=tmp_path / cls.__name__)
        assert adapter(own.path) == adapter(known.path)
        assert own.rounds_list()[-1]["diagnostics"] == known.rounds_list()[-1]["diagnostics"] != {}


class RemembersSteps(ek.Method):
    """Writes to a client's memory before and after the base method's hook of a step."""

    base, steps = "ub-smoe", 0

    def edit_parameters(self, step):
        memory = step.view.memory
        memory["before"] = memory.get("before", np.zeros(1)) + 1
        super().edit_parameters(step)
        memory["after"] = memory.get("after", np.zeros(1)) + 1
        assert memory["before"] == memory["after"] and memory is step.view.memory
        RemembersSteps.steps = max(RemembersSteps.steps, int(memory["after"][0]))


def test_a_memory_lasts_over_the_base_methods_hooks_of_steps(config, tmp_path):
    ek.train(config, method=RemembersSteps, set={"train.accumulation": 1}, out=tmp_path / "run")
    assert RemembersSteps.steps > 2


class EditsInPlace(ek.Method):
    base = "ub-smoe"

    def edit_parameters(self, step):
        held = [(f, f.a, f.b) for f in step.parameters.values()]
        for _, a, b in held:
            a *= np.float32(1)
            b *= np.float32(1)
        super().edit_parameters(step)
        assert all(f.a is a and f.b is b for f, a, b in held)


class Assigns(ek.Method):
    """Puts equal arrays in place of the parameters. What it had read before keeps its values."""

    base, moved = "ub-smoe", 0.0

    def edit_parameters(self, step):
        before = [(f, f.a, f.a.copy()) for f in step.parameters.values()]
        for f, a, _ in before:
            f.a, f.b = a * np.float32(1), f.b * np.float32(1)
        mine = [f.a for f, _, _ in before]
        super().edit_parameters(step)
        assert all((a == old).all() and (one == old).all() for (_, a, old), one in zip(before, mine))
        Assigns.moved += sum(float(np.abs(f.a - old).sum()) for f, _, old in before)


def assigns_all(self, step):
    step.parameters = {site: ek.Factors(f.a.copy(), f.b.copy()) for site, f in step.parameters.items()}
    ek.Method.edit_parameters(self, step)


def test_parameters_that_a_hook_assigns_do_not_undo_the_base_methods_edit(config, tmp_path):
    known = base_run(config, tmp_path / "known", "ub-smoe")
    for cls in (EditsInPlace, Assigns, class_of("AssignsAll", {"edit_parameters": assigns_all}, base="ub-smoe")):
        assert adapter(ek.train(config, method=cls, out=tmp_path / cls.__name__).path) == adapter(known.path), cls
    assert Assigns.moved > 0


def test_assigned_gradients_count_without_the_base_methods_hook(config, tmp_path):
    def doubles(self, step):
        for gradients in step.gradients.values():
            gradients.b = gradients.b * np.float32(2)

    def doubles_in_place(self, step):
        for gradients in step.gradients.values():
            gradients.b *= np.float32(2)

    sgd = {**QUICK, "train.optimizer.name": "sgd", "train.optimizer.lr": 0.5}
    one, two = (ek.train(config, method=class_of("Doubles", {"edit_gradients": hook}), set=sgd, out=tmp_path / hook.__name__)
                for hook in (doubles, doubles_in_place))
    assert adapter(one.path) == adapter(two.path) != adapter(ek.train(config, set=sgd, out=tmp_path / "plain").path)


class CountsMaps(ek.Method):
    """Reads all of a step again after the base method's hook, and counts the pieces of shared memory that are mapped."""

    mapped = []

    def edit_gradients(self, step):
        assert step.gradients and step.parameters
        super().edit_gradients(step)
        CountsMaps.mapped.append(pathlib.Path("/proc/self/maps").read_text().count("memfd:evenkeel-method"))


def test_what_is_read_again_takes_no_more_memory_in_every_step(config, tmp_path):
    ek.train(config, method=CountsMaps, out=tmp_path / "run", set={"train.rounds": 1, "train.local_epochs": 2.0})
    assert len(CountsMaps.mapped) > 10 and len(set(CountsMaps.mapped[1:])) == 1, CountsMaps.mapped


def of_its_own(state, *groups):
    """A new state with some groups of another."""
    made = ek.ServerState()
    for name in groups:
        setattr(made, name, getattr(state, name))
    return made


@pytest.mark.parametrize("name", ["ffa-lora", "fedex-lora"])
def test_a_state_that_a_hook_makes_keeps_fixed_factors_and_the_changes_of_the_base(config, tmp_path, name):
    def initialize(self, server):
        return of_its_own(ek.Method.initialize(self, server), "adapters", "extras", "memory")

    def aggregate(self, server, state, round, uploads):
        old = of_its_own(state, "adapters", "extras", "memory")
        new = of_its_own(ek.Method.aggregate(self, server, old, round, uploads), "adapters", "base_delta", "extras", "memory")
        assert new.fixed == {} and new.base_change == {}  # as long as they are not set
        return new

    own = ek.train(config, method=class_of("Own", {"initialize": initialize, "aggregate": aggregate}, base=name), out=tmp_path / "own")
    assert adapter(own.path) == adapter(base_run(config, tmp_path / "known", name).path)


class ReadsTheChange(ek.Method):
    """Reads every group of states and payloads of a method without adapters."""

    base, read = "flora", 0

    def all_of(self, one, *groups):
        ReadsTheChange.read += sum(len(getattr(one, name)) for name in groups)

    def broadcast(self, state, client, round):
        self.all_of(state, "adapters", "base_delta", "fixed", "base_change")
        payload = super().broadcast(state, client, round)
        self.all_of(payload, "adapters", "base_delta")
        return payload

    def diagnostics(self, state):
        self.all_of(state, "adapters", "base_delta", "fixed", "base_change")
        return super().diagnostics(state)


def test_the_change_of_the_base_can_be_read_where_a_method_has_no_adapters(config, tmp_path):
    own = ek.train(config, method=ReadsTheChange, out=tmp_path / "own")
    assert adapter(own.path) == adapter(base_run(config, tmp_path / "known", "flora").path) and ReadsTheChange.read > 0


@pytest.mark.parametrize("base, options", [("a3smoe", {"rescaler": "learn"}), ("ub-smoe", {})])
def test_a_trained_tensor_of_the_router_that_a_hook_reads_is_still_trained(config, tmp_path, base, options):
    def prepare(self, download, view):
        setup = ek.Method.prepare(self, download, view)
        assert bool(setup.extra_trainables) == view.client.trains and isinstance(setup.modulation, dict)
        return setup

    own = ek.train(config, method=class_of("Reads", {"prepare": prepare}, base=base, base_options=options), out=tmp_path / "own")
    known = base_run(config, tmp_path / "known", base, **{f"method__{base}__{key}": value for key, value in options.items()})
    assert adapter(own.path) == adapter(known.path)
    assert own.rounds_list()[-1]["diagnostics"] == known.rounds_list()[-1]["diagnostics"]


# --- edits without an effect ---

class EditsWhatIsRead(ek.Method):
    """Tries every edit that the program would not see."""

    needs_individuals = True

    def refused(self, *edits):
        for edit in edits:
            with pytest.raises((ValueError, TypeError, AttributeError), match="read-only|the program would not see the change"):
                edit()

    def refused_factors(self, adapters):
        site, factors = next(iter(adapters.items()))
        self.refused(lambda: factors.a.__imul__(0), lambda: setattr(factors, "b", factors.b * 0), lambda: setattr(factors, "scaling", 0.0),
                     lambda: adapters.pop(site), lambda: adapters.update({site: ek.Factors()}), adapters.clear)
        for edited in (copy.copy(factors), copy.deepcopy(adapters)[site]):
            edited.a = edited.a * 0
        assert factors.a.shape == edited.a.shape

    def refused_in_loss(self, step):
        self.refused_factors(step.parameters)
        self.refused_factors(step.gradients)
        self.refused(lambda: setattr(step, "gradients", {}), lambda: step.extra_parameters.update(x=1))

    def refused_state(self, state):
        self.refused_factors(state.adapters)
        self.refused(lambda: state.memory.update(x=1), lambda: state.memory["kept"].__iadd__(1), lambda: setattr(state, "extras", {}),
                     lambda: state.base_delta.update(x=1), lambda: setattr(state, "fixed", {}))

    def initialize(self, server):
        state = super().initialize(server)
        state.memory["kept"] = np.ones(1)
        return state

    def broadcast(self, state, client, round):
        self.refused_state(state)
        return super().broadcast(state, client, round)

    def diagnostics(self, state):
        self.refused_state(state)
        return super().diagnostics(state)

    def prepare(self, download, view):
        self.refused_factors(download.adapters)
        self.refused(lambda: setattr(download, "base_delta", {}), lambda: download.extras.update(x=1))
        return super().prepare(download, view)

    def upload(self, download, setup, counts, view):
        self.refused_factors(download.adapters)
        self.refused_factors(setup.adapters)
        layer = next(iter(counts))
        self.refused(lambda: setup.notes.update(x=1), lambda: setattr(setup, "trainable", "b"), lambda: counts[layer].counts.fill(0),
                     lambda: setattr(counts[layer], "tokens", 0), counts.clear)
        return super().upload(download, setup, counts, view)

    def check_upload(self, upload, client):
        self.refused_factors(upload.adapters)
        super().check_upload(upload, client)

    def extra_loss(self, step):
        self.refused_in_loss(step)
        routing = next(iter(step.routing[-1].values()))
        self.refused(lambda: routing.counts.fill(0), lambda: routing.logits.__isub__(1), lambda: setattr(routing, "tokens", 0),
                     lambda: step.routing[-1].clear())

    def penalty(self, step):
        self.refused_in_loss(step)

    def edit_gradients(self, step):
        setup, received = step.setup, step.download
        self.refused_factors(setup.adapters)
        self.refused_factors(received.adapters)
        self.refused(lambda: setattr(received, "extras", {}), lambda: received.extras.update(x=1), lambda: setup.modulation.update(x=1),
                     lambda: setattr(setup, "adapters", {}), *(lambda name=name: setattr(setup, name, getattr(setup, name)) for name in
                     ("trainable", "top_k", "gate_norm", "num_candidates", "mode", "raw_gates")))
        factors = next(iter(step.gradients.values()))
        self.refused(lambda: setattr(factors, "scaling", 2.0), lambda: step.view.fixed.clear())

    def aggregate(self, server, state, round, uploads):
        for upload in uploads:
            self.refused_factors(upload.adapters)
        uploads.sum(lambda upload, weight: self.refused_factors(upload.adapters))
        self.refused(lambda: state.base_change.update(x=1), lambda: server.start.update(x=1))
        return super().aggregate(server, state, round, uploads)


def test_edits_that_the_program_would_not_see_are_refused(config, fedit, tmp_path):
    assert adapter(ek.train(config, method=EditsWhatIsRead, out=tmp_path / "run").path) == adapter(fedit)


def edits_uploads(self, server, state, round, uploads):
    for upload in uploads:
        for factors in upload.adapters.values():
            factors.a.mul_(0)
    return ek.Method.aggregate(self, server, state, round, uploads)


def edits_parameters(self, step):
    import torch

    with torch.no_grad():
        next(iter(step.parameters.values())).a.mul_(0)


def edits_state(self, state, client, round):
    next(iter(state.adapters.values())).b.add_(1)


def edits_counts(self, download, setup, counts, view):
    next(iter(counts.values())).counts.add_(1)


@pytest.mark.parametrize("hook, edit, group", [
    ("aggregate", edits_uploads, "Upload.adapters"), ("penalty", edits_parameters, "LossStep.parameters"),
    ("broadcast", edits_state, "FixedState.adapters"), ("upload", edits_counts, "counts")])
def test_edits_of_tensors_of_torch_are_refused_too(config, tmp_path, hook, edit, group):
    pytest.importorskip("torch")
    own = class_of("Edits", {hook: edit}, library="torch", needs_individuals=True)
    with pytest.raises(ek.EvenkeelError, match=f"hook {hook} of .*TypeError: a tensor of {group} was edited") as raised:
        ek.train(config, method=own, set=QUICK, out=tmp_path / "run")
    assert raised.value.exit_code == 1


class DeletesNotes(ek.Method):
    """Deletes its notes after every step. The program's own count of steps goes on."""

    numbers = []

    def edit_gradients(self, step):
        assert "mine" not in step.setup.notes and "other" not in step.setup.notes
        step.setup.notes["mine"] = step.setup.notes["other"] = np.ones(1)

    def edit_parameters(self, step):
        DeletesNotes.numbers.append(step.number)
        del step.setup.notes["mine"]
        super().edit_parameters(step)
        assert "mine" not in step.setup.notes
        step.setup.notes.clear()


def test_deleted_notes_are_gone(config, tmp_path):
    known = base_run(config, tmp_path / "known", "fedit", train__accumulation=1)
    own = ek.train(config, method=DeletesNotes, set={"train.accumulation": 1}, out=tmp_path / "run")
    assert adapter(own.path) == adapter(known.path)
    assert set(DeletesNotes.numbers) >= {0, 1}


# --- parts of sums, and threads ---

class Sums(ek.Method):
    """Integers are summed as float64, and parts read what they need, from threads too."""

    def aggregate(self, server, state, round, uploads):
        new, errors = super().aggregate(server, state, round, uploads), []

        def read(upload):
            try:
                assert upload.adapters.keys() == new.adapters.keys() == server.sites.keys()
            except BaseException as error:
                errors.append(error)

        def part(upload, weight):
            threads = [threading.Thread(target=read, args=(upload,)) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return np.array([upload.steps, 1, True])

        total = uploads.sum(part)
        assert not errors and total.dtype == np.float64 and total[1] == len(uploads) and total[0] == uploads.sum(lambda upload, _: upload.steps)
        return new


def test_parts_of_a_sum_are_numbers_of_any_type_and_read_uploads_from_threads(config, fedit, tmp_path):
    assert adapter(ek.train(config, method=Sums, out=tmp_path / "run").path) == adapter(fedit)


class ReadsInThreads(ek.Method):
    def aggregate(self, server, state, round, uploads):
        new, groups = super().aggregate(server, state, round, uploads), []
        threads = [threading.Thread(target=lambda: groups.append((new.adapters, len(state.adapters)))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(groups) == 8 and all(group is new.adapters and size == len(group) for group, size in groups)
        return new


def test_threads_of_a_hook_read_one_group(config, fedit, tmp_path):
    assert adapter(ek.train(config, method=ReadsInThreads, out=tmp_path / "run").path) == adapter(fedit)


def asks(question):
    """A class whose part of a sum asks a question."""
    def aggregate(self, server, state, round, uploads):
        ask = {"sum": lambda: uploads.sum(lambda upload, weight: np.float64(weight)), "mean": lambda: uploads.mean(next(iter(state.adapters)), "a"),
               "super": lambda: ek.Method.aggregate(self, server, state, round, uploads), "exit": lambda: sys.exit(3),
               "program": lambda: (setattr(uploads._call, "is_in_part", False), uploads.sum(lambda upload, weight: np.float64(weight)))}[question]
        uploads.sum(lambda upload, weight: (ask(), np.float64(weight))[1])

    return class_of("Asks", {"aggregate": aggregate}, seconds=20.0)


@pytest.mark.parametrize("question, text", [
    ("sum", "a part of a sum asks for a sum, a mean or the base method's hook"), ("mean", "a part of a sum asks for a sum"),
    ("super", "a part of a sum asks for a sum"), ("program", "\"sum\", which a part of a sum cannot ask for"), ("exit", "SystemExit: 3")])
def test_a_part_of_a_sum_that_cannot_be_computed_ends_the_run_in_one_line(config, tmp_path, question, text):
    with pytest.raises(ek.EvenkeelError, match=f"hook aggregate of round 1: .*{text}") as raised:
        ek.train(config, method=asks(question), set=QUICK, out=tmp_path / "run")
    assert raised.value.exit_code == 1


# --- results that a client cannot train with ---

def prepares(change):
    def prepare(self, download, view):
        setup = ek.Method.prepare(self, download, view)
        change(setup)
        return setup
    return {"prepare": prepare}


def sends(change):
    def broadcast(self, state, client, round):
        payload = ek.Method.broadcast(self, state, client, round)
        for factors in payload.adapters.values():
            change(factors)
        return payload
    return {"broadcast": broadcast}


def first_lacks(name):
    return lambda setup: setattr(next(iter(setup.adapters.values())), name, None)


def ranks(values):
    return sends(lambda f: f.a.ndim == 3 and setattr(f, "ranks", np.asarray(values(len(f.a), f.a.shape[-2]))))


def trains_b_and_assigns_a(self, step):
    for factors in step.parameters.values():
        factors.a = np.zeros(3, "f4")


@pytest.mark.parametrize("hooks, texts", [
    (prepares(lambda setup: setup.extra_trainables.update(x=np.zeros(3, "i8"))),
     ["hook prepare of", "extra_trainables.x is Long, allowed: float32, float64"]),
    (prepares(lambda setup: setup.extra_trainables.update(x=np.zeros(3, "f2"))), ["hook prepare of", "extra_trainables.x is Half"]),
    (prepares(first_lacks("a")), ["hook prepare of", ".a is None, allowed: arrays as a and b"]),
    (prepares(first_lacks("b")), ["hook prepare of", ".b is None"]),
    (prepares(lambda setup: setattr(setup, "trainable", "core")), ["hook prepare of client", ".core is None, allowed: arrays as a, b and core"]),
    (prepares(lambda setup: setup.adapters.clear()), ["hook prepare of client", "adapters is empty, allowed: one site or more"]),
    (sends(lambda factors: setattr(factors, "a", None)), ["prepare of the base method of", ".a is None"]),
    (sends(lambda factors: [setattr(factors, name, None) for name in "ab"]), ["hook broadcast of", "has no factor, allowed: a, b, core"]),
    (ranks(lambda experts, rank: np.full(experts, rank + 1)), ["hook broadcast of", ".ranks has values of 4 to 4, allowed: 0 to 3"]),
    (ranks(lambda experts, rank: np.full(experts, -1)), ["hook broadcast of", ".ranks has values of -1 to -1"]),
    (ranks(lambda experts, rank: np.full(2, rank)), ["hook broadcast of", ".ranks has shape [2]"]),
    (ranks(lambda experts, rank: np.full(experts, 1.0)), ["hook broadcast of", "and type Double, expected", "int64"]),
    ({**prepares(lambda setup: setattr(setup, "trainable", "b")), "edit_parameters": trains_b_and_assigns_a},
     ["hook edit_parameters of client", ".a is not trained, expected None"]),
])
def test_what_a_client_cannot_train_with_is_refused_by_the_name_of_the_hook(config, tmp_path, hooks, texts):
    with pytest.raises(ek.EvenkeelError) as raised:
        ek.train(config, method=class_of("Mistaken", hooks), set=QUICK, out=tmp_path / "run")
    assert raised.value.exit_code == 1 and all(text in str(raised.value) for text in texts), raised.value


# --- without the program ---

def test_losses_can_be_summed_and_other_terms_are_refused():
    one, two = ek.Loss(1.0, extras={"x": np.ones(1)}), ek.Loss(2.0, extras={"y": np.ones(1)})
    total = sum([one, two])
    assert total.value == 3 and total.extras.keys() == {"x", "y"} and (0 + one) is one is (one + None)
    for term in (1.0, "a", np.ones(2)):
        for add in (lambda: one + term, lambda: term + one):
            with pytest.raises(TypeError, match="unsupported operand|can only concatenate"):
                add()
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="unsupported operand"):
        torch.ones(()) + one


@pytest.fixture
def long_folder(monkeypatch, tmp_path):
    """A temporary folder whose path is too long for a socket."""
    folder = tmp_path / ("d" * 100)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_a_long_path_of_temporary_files_is_no_obstacle(config, long_folder, tmp_path):
    with ServedMethods([Sums]) as served:
        assert len(served.path) <= LONGEST_PATH and served.path.endswith(SOCKET) and pathlib.Path(served.path).is_socket()
    assert not pathlib.Path(served.path).exists() and not [*long_folder.iterdir()]
    ek.train(config, method=Sums, set=QUICK, out=tmp_path / "run")


def test_without_a_short_path_a_message_says_what_to_set(long_folder, monkeypatch):
    made = tempfile.TemporaryDirectory

    def only_long(*arguments, **options):
        if options.get("dir") == "/tmp":
            raise OSError(30, "Read-only file system")
        return made(*arguments, **options)

    monkeypatch.setattr(tempfile, "TemporaryDirectory", only_long)
    with pytest.raises(ek.EvenkeelError, match=f"TMPDIR is {long_folder}, too long .*Read-only file system.* set TMPDIR to a shorter path"):
        ServedMethods([Sums]).__enter__()
