"""Studies: several arms over several seeds, run and compared by the program."""

from __future__ import annotations

import json
import os
import pathlib
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence

from ._paths import PathLike, local_path
from ._process import run_program, text_of
from ._row_files import RowFiles, Rows, called, settings_with_data
from ._served import MethodLike, ServedMethods, check_without_options
from ._toml import set_flags
from .errors import EvenkeelError
from .records import Records, selected_scores
from .run import Report, Run, report_page

if TYPE_CHECKING:
    import pandas

__all__ = ["Study"]


def _difference(difference: Mapping[str, Any], measure: str) -> Dict[str, Any]:
    low, high = difference["interval_t"] or (None, None)
    bca_low, bca_high = difference["interval_bca"] or (None, None)
    return {"budget": difference["budget"], "measure": measure, "n": len(difference["seeds"]), "difference": difference["mean"],
            "deviation": difference["deviation"], "low": low, "high": high, "bca_low": bca_low, "bca_high": bca_high,
            **{key: difference[key] for key in ("p", "p_holm", "shown", "detectable")}}


def _differs_in(arm: Mapping[str, Any]) -> str:
    """The text of the column differs_in of the CSV file."""
    return "; ".join(f"{one['what']}: {one['value']} ({arm['compared_with']}: {one['reference_value']})" for one in arm["function_differences"])


class Study:
    """The folder of a study.

    ek.Study("study.toml", out="studies/first").run() plans it, runs what is left and returns it; ek.Study.open("studies/first")
    reads one that is there.
    """

    def __init__(self, file: PathLike, *, out: PathLike, data: Optional[Rows] = None, test_data: Optional[Rows] = None,
                 columns: Optional[Mapping[str, Any]] = None, methods: Sequence[MethodLike] = ()) -> None:
        """file: the study's TOML file. out: its folder, which run() makes. data, test_data, columns: rows of your own for every arm, as
        train() takes them; they are written into `out`/rows. methods: those in Python that arms name, as classes or "FILE.py:CLASS"; their
        options are keys of the arms. Raises TypeError for an object with other options than the defaults."""
        check_without_options(methods)
        self.file: Optional[pathlib.Path] = local_path(file)
        self.path = local_path(out)
        self._data, self._test_data, self._columns, self._methods = data, test_data, columns, methods

    @classmethod
    def open(cls, path: PathLike, methods: Sequence[MethodLike] = ()) -> Study:
        """methods: as above, for run(). Raises EvenkeelError when the folder holds no study."""
        check_without_options(methods)
        study = cls.__new__(cls)
        study.file, study.path = None, local_path(path)
        study._data = study._test_data = study._columns = None
        study._methods = methods
        _ = study.state
        return study

    def __repr__(self) -> str:
        return f"Study({str(self.path)!r})"

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def state(self) -> Dict[str, Any]:
        """study.json: name, reference, endpoint, seeds, arms, and runs with arm, seed, folder and state."""
        file = self.path / "study.json"
        if not file.is_file():
            raise EvenkeelError(f"{self.path} holds no study: study.json is missing", 1, "io")
        state: Dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return state

    def run(self, *, jobs: Optional[int] = None, set: Optional[Mapping[str, Any]] = None, only: Sequence[str] = (),
            base: Optional[PathLike] = None) -> Study:
        """Runs what is not done yet. A study that was stopped goes on.

        jobs: runs at once. set: keys to change in every arm. only: "ARM:SEED", these runs alone. base: the folder that the study's base
        model was moved to. Raises as train().
        """
        if isinstance(only, str):
            raise TypeError(f"only is one text, allowed: a list of texts, as [{only!r}]")
        file = self.file if self.file is not None else self.path / "study.toml"
        with ServedMethods(self._methods) as served, \
                RowFiles(self.path, self._columns, lambda out, _: (out / "study.json").is_file(), called(self._data)) as rows:
            settings = rows.settings_of(settings_with_data(self._data, self._test_data, set))
            rows.check_used()
            words = ["study", os.fspath(file), "--out", os.fspath(self.path), "--resume", "--quiet", "--while-read", *set_flags(settings), *served.words]
            words += ["--jobs", str(jobs)] if jobs is not None else []
            words += ["--base", os.fspath(base)] if base is not None else []
            for label in only:
                words += ["--only", label]
            run_program(words, lambda _: None)
        return self

    def runs_list(self) -> Records:
        """A record per run: arm, seed, folder, state."""
        return Records(self.state["runs"])

    def runs(self, arm: Optional[str] = None) -> List[Run]:
        """The runs that are done, of one arm or of all."""
        return [Run(self.path / run["folder"]) for run in self.runs_list() if run["state"] == "done" and arm in (None, run["arm"])]

    def report(self) -> Dict[str, Any]:
        """What `evenkeel report DIR --format json` says: means over seeds, intervals, paired differences and costs."""
        report: Dict[str, Any] = json.loads(text_of(["report", os.fspath(self.path), "--format", "json", "--quiet"]))
        return report

    def values_list(self, served_by: str = "run", rank_eval_mode: Optional[str] = None) -> Records:
        """A record per arm, seed, budget, task and measure, of the runs that are done. Costs have no task, those of a whole run no budget
        and no top_k: None. served_by, rank_eval_mode: which scores, as in Run.evaluations_list()."""
        values = Records(self.report()["values"])
        costs = [value for value in values if not value["task"]]
        return Records([*selected_scores(Records(value for value in values if value["task"]), served_by, rank_eval_mode), *costs])

    @property
    def values(self) -> pandas.DataFrame:
        """values_list() as a data frame, to make tables and figures of. Needs pandas."""
        return self.values_list().frame()

    def differences_list(self, served_by: str = "run", rank_eval_mode: Optional[str] = None) -> Records:
        """A record per arm and budget: its paired difference to the reference in the study's endpoint, mean over tasks.

        Keys: served_by, arm, rank_eval_mode, reference (the arm that it is compared with), budget, measure (the
        endpoint), n (pairs of seeds), difference (mean over seeds, arm minus reference), deviation, low and high (95 % interval over seeds,
        t), bca_low and bca_high (by bootstrap), p, p_holm, shown (p_holm below 0.05), detectable, and differs_in: what besides the
        method differs in what they train or score, such as "gating: renormalised (fedit: not renormalised)"; "" if nothing.
        None where too few seeds are done. served_by, rank_eval_mode: as in Run.evaluations_list().
        """
        report = self.report()
        return selected_scores(Records(
            {"served_by": result["served_by"], "arm": arm["arm"], "rank_eval_mode": arm["rank_eval_mode"], "reference": arm["compared_with"],
             **_difference(difference, report["endpoint"]), "differs_in": _differs_in(arm)}
            for result in report["served"] for arm in result["arms"] for difference in arm["differences"]), served_by, rank_eval_mode)

    @property
    def differences(self) -> pandas.DataFrame:
        """differences_list() as a data frame. Needs pandas."""
        return self.differences_list().frame()

    def page(self) -> Report:
        """The page of the comparison. A notebook shows it."""
        return report_page([self])
