"""evenkeel: federated LoRA fine-tuning of sparse mixture-of-experts language models across unequal clients.

    import evenkeel_moe as ek

    run = ek.train("configs/demo.toml", set={"method.name": "fedit"}, out="runs/first", on_round=print)
    run.evaluations                       # a data frame
    run.report()                          # charts, in a notebook
    ek.generate("Is water wet?", run=run)

Every function drives the program `evenkeel` in a process of its own (docs/json-lines.md). numpy, pandas and safetensors are used where
they are installed. Functions may be called from any thread; Ctrl-C reaches those of the main thread.
"""

from typing import TYPE_CHECKING, Any, List

from ._objects import Client, Factors, LocalSetup, Loss, Payload, RoundView, RoutingCounts, Server, ServerState, Step, Uploads, View
from ._version import __version__
from .errors import EvenkeelError, MissingPackage
from .method import Method

if TYPE_CHECKING:
    from ._program import program_path
    from .checking import check_method
    from .commands import (evaluate, export, fetch_smollm2, generate, list_configs, list_keys, list_methods, list_models, list_tables, list_tasks,
                           score)
    from .records import Records
    from .run import Report, Run
    from .study import Study
    from .training import Evaluation, Round, train

# The rest is imported when it is first used: the host of a method needs none of it, and a run waits for its host.
_LATER = {"program_path": "_program", "check_method": "checking", "Records": "records", "Report": "run", "Run": "run", "Study": "study",
          "Evaluation": "training", "Round": "training", "train": "training"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"{__name__}.{_LATER.get(name, 'commands')}"), name)
    globals()[name] = value
    return value


def __dir__() -> List[str]:
    return sorted({*globals(), *__all__})


__all__ = ["Client", "Evaluation", "EvenkeelError", "Factors", "LocalSetup", "Loss", "Method", "MissingPackage", "Payload", "Records", "Report",
           "Round", "RoundView", "RoutingCounts", "Run", "Server", "ServerState", "Step", "Study", "Uploads", "View", "__version__",
           "check_method", "evaluate", "export", "fetch_smollm2", "generate", "list_configs", "list_keys", "list_methods", "list_models", "list_tables", "list_tasks",
           "program_path", "score", "train"]
