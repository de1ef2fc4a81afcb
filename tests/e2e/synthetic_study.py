"""Makes folders of studies with any number of seeds out of one trained run per arm: copies of its records with other seeds and scores."""

import json
import pathlib
import random

from tiny import lines, sealed


def score_of(record, draws, run_level, **fixed):
    """Returns a record of evaluations.jsonl with scores drawn around those of its run."""
    if "accuracy" not in record:
        return {**record, "log_likelihood": record["log_likelihood"] + run_level + draws.gauss(0, 0.1)}
    share = lambda centre: min(1.0, max(0.0, centre + 0.04 * run_level + draws.gauss(0, 0.01)))
    grown = 0.02 * record["round"] + 0.05 * record["budget"]
    return {**record, "accuracy": share(0.4 + grown), "accuracy_valid": share(0.45 + grown), "accuracy_likelihood": share(0.5 + grown),
            "invalid_rate": share(0.1), "log_likelihood": record["log_likelihood"] + run_level + draws.gauss(0, 0.1), **fixed}


def synthetic_run(template, folder, seed, level, spread=0.5, settings=(), **fixed):
    """Writes a run folder with the records of `template`, another seed and other scores. `settings` are lines of the config and
    what replaces them; `fixed` are keys of every score.
    """
    folder.mkdir(parents=True)
    draws = random.Random(f"{folder.parent.name} {seed}")
    run_level = level + draws.gauss(0, spread)
    config = (template / "config.toml").read_text()
    for before, now in [*settings, *[(line, f"seed = {seed}") for line in config.splitlines() if line.startswith("seed = ")][:1]]:
        assert before in config, before
        config = config.replace(before, now, 1)
    manifest = json.loads((template / "manifest.json").read_text())
    (folder / "config.toml").write_text(config)
    (folder / "manifest.json").write_text(sealed({**manifest, "config": config}) + "\n")
    rounds = [{**record, "loss": record["loss"] * (1 + 0.05 * draws.random())} for record in lines(template / "rounds.jsonl")]
    scores = [score_of(record, draws, run_level, **fixed) for record in lines(template / "evaluations.jsonl")]
    for name, records in (("rounds.jsonl", rounds), ("evaluations.jsonl", scores)):
        (folder / name).write_text("".join(sealed(record) + "\n" for record in records))
    return folder


def synthetic_study(folder, templates, seeds, levels=(), endpoint="log_likelihood", **fixed):
    """Writes a finished study. `templates` are run folders by arm, the first is the reference; `levels` are added to the scores of the
    arms in their order. Returns the folder.
    """
    folder = pathlib.Path(folder)
    for place, (arm, template) in enumerate(templates.items()):
        for seed in seeds:
            synthetic_run(template, folder / arm / f"seed-{seed}", seed, levels[place] if levels else 0.4 * place, **fixed)
    runs = [{"arm": arm, "seed": seed, "folder": f"{arm}/seed-{seed}", "state": "done", "config": "0" * 64, "seconds": 1.5}
            for arm in templates for seed in seeds]
    (folder / "study.json").write_text(sealed({
        "version": 1, "name": folder.name, "reference": next(iter(templates)), "endpoint": endpoint, "seeds": list(seeds),
        "arms": [{"name": arm, "set": []} for arm in templates], "common": [], "free": [], "pinned": [], "runs": runs}) + "\n")
    return folder
