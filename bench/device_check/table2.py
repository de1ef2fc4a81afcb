"""Computes the share of a federated round that is not training steps, and the hours of the paper's Table 2."""

METHODS, ROUNDS = 7, 10  # one seed; each run is scored once, after its last round
BUDGETS = {"1/8": 1, "1/4": 2, "1/2": 4, "1": 8}  # experts per token
# Rows of the eight test sets.
ROWS = {"boolq": 3270, "piqa": 1838, "siqa": 1954, "hellaswag": 10042, "winogrande": 1267, "arc_e": 2376, "arc_c": 1172, "obqa": 500}


def parts_of_round(seconds, events):
    """Returns the seconds of a round by part, and the share of everything but steps.

    `seconds` are those of its line in rounds.jsonl. `events` are names of events with their times. "commit" lies between
    the end of the aggregation and the event of the commit; the first step and what precedes it are counted out twice, so
    it is a lower limit.
    """
    steps, move = seconds["steps"], seconds.get("move", 0.0)
    parts = {"broadcast": seconds["broadcast"], "move": move, "steps": steps, "prepare": seconds["train"] - steps - move,
             "encode": seconds["upload"], "aggregate": seconds["aggregate"]}
    parts["decode and rest"] = seconds["round"] - sum(parts.values())
    begun = next(time for name, time in events if name == "progress")
    committed = next(time for name, time in events if name == "round")
    parts["commit"] = max(0.0, committed - begun - seconds["round"])
    parts["load"] = begun
    whole = seconds["round"] + parts["commit"]
    return parts | {"share but steps": 1 - steps / whole}


def seconds_per_row(run):
    return run["seconds"] / run["rows"]


def evaluation_seconds(evaluate):
    """Returns the seconds that each budget takes on all test sets, by the seconds of each set if they were measured."""
    result = {}
    for budget, top_k in BUDGETS.items():
        run = next((run for shape, run in evaluate["runs"].items() if shape.split("x")[1] == str(top_k)), None)
        if run is None:
            raise ValueError(f"no evaluation with {top_k} experts per token was measured")
        of_tasks = run["seconds_of_tasks"]
        if set(ROWS) <= set(of_tasks):
            measured = run["rows"] / len(of_tasks)
            result[budget] = sum(of_tasks[task] * rows / measured for task, rows in ROWS.items())
        else:
            result[budget] = seconds_per_row(run) * sum(ROWS.values())
    return result


def hours(measured_round, evaluate):
    """Returns the hours of Table 2: each method loads, trains ten rounds and scores the test sets at four budgets.

    The rounds of every method count as those of UB-SMoE; what servers with singular values take longer is not in them.
    """
    parts = measured_round["parts"]
    of_round = measured_round["record"]["round"] + parts["commit"]
    scoring = evaluation_seconds(evaluate)
    one = parts["load"] + ROUNDS * of_round + sum(scoring.values())
    return {"seconds_of_round": of_round, "seconds_of_evaluation": scoring, "seconds_of_method": one, "hours": METHODS * one / 3600,
            "real_questions": set(ROWS) <= set(evaluate["tasks"])}


def sentence(told):
    scoring = sum(told["seconds_of_evaluation"].values())
    return (f"Table 2: {told['hours']:.2f} hours ({METHODS} methods x ({ROUNDS} rounds x {told['seconds_of_round']:.0f} s + "
            f"{scoring:.0f} s for {sum(ROWS.values()):,} questions at {len(BUDGETS)} budgets))"
            + ("" if told["real_questions"] else "; questions of the built-in sets in the place of the real ones"))
