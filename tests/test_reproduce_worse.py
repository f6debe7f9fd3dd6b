"""Every mean that is worse than the paper's has one reason, and no reason is left over."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gll.cli import app
from gll.reproduce.experiment import Experiment, ExperimentError, load_all, load_experiment
from gll.reproduce.tables import Shown, states_of
from gll.reproduce.worse import problems, read_reasons, table_of_reasons, worse_than_paper
from tests.test_reproduce_findings import CONFIG as ONE
from tests.test_reproduce_findings import with_errors

LINEAR = 'linear = ["model.head=linear"]\n[scales.small]'
CONFIG = ONE.replace("seeds = [0, 1]", "seeds = [0]").replace("[scales.small]", LINEAR)
REASON = """
[[reason]]
experiment = "heads"
places = ["gll"]
figures = ["error"]
explained = "yes"
why = "by the steps: {ours heads; mlp; error} is another's"
"""


def made(
    folder: Path, small: tuple[float, ...], full: tuple[float, ...] = (), paper: str = "table 4: errors"
) -> Experiment:
    """An experiment with an error for each of its heads; the paper has 9, with a deviation of 0.5."""
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(CONFIG.replace("a table", paper))
    theirs = ", ".join(f'"{head}": {{"error": [9.0, 0.5]}}' for head in ("gll", "mlp", "linear"))
    (folder / "expected.json").write_text(f'{{"values": {{{theirs}}}}}')
    experiment = load_experiment(folder)
    with_errors(experiment, "small", small)
    with_errors(experiment, "full", full)
    return experiment


def states(*experiments: Experiment) -> dict[str, dict[str, Shown]]:
    return {one.name: states_of(one) for one in experiments}


def written(experiment: Experiment, text: str) -> Path:
    path = experiment.folder.parent / "reasons.toml"
    path.write_text(text)
    return path


def told(experiment: Experiment, text: str) -> tuple[str, str]:
    numbers = {"ours": lambda name, place, figure: f"<{name}|{place}|{figure}>"}
    return table_of_reasons(states(experiment), written(experiment, text), numbers)


def wrong(experiment: Experiment, text: str) -> list[str]:
    return [said.partition("reasons.toml ")[2] for said in problems(states(experiment), written(experiment, text))]


def test_what_is_worse_is_above_the_papers_deviation_at_the_largest_scale(tmp_path: Path) -> None:
    experiment = made(tmp_path / "a" / "heads", (9.6, 9.4, 30.0), full=(9.6, 3.0, 9.2))
    found = [(w.place, w.ours, w.said) for w in worse_than_paper(states(experiment))]
    assert found == [("gll", (9.6,), "**9.6** (9.0 ± 0.5)")], "linear is worse at small alone"
    ablation = made(tmp_path / "b" / "heads", (30.0, 30.0, 30.0), paper="on table 4: why")
    beyond = made(tmp_path / "c" / "heads", (30.0, 30.0, 30.0), paper="none: beyond the paper")
    assert not [*worse_than_paper(states(ablation)), *worse_than_paper(states(beyond))]


def test_the_noise_of_so_many_samples_is_not_worse(tmp_path: Path) -> None:
    experiment = made(tmp_path / "heads", (10.0,))
    for samples, count in (
        ({"small": {"error": 1000}}, 0),
        ({"small": {"error": 100_000}}, 1),
        ({"small": {"error": [100_000, 1000]}}, 0),  # the paper's is of few
        ({"full": {"error": 1000}}, 1),  # known of another scale
        ({}, 1),
    ):
        text = json.dumps({"samples": samples, "values": {"gll": {"error": [9.0, 0.1]}}})
        (experiment.folder / "expected.json").write_text(text)
        assert len(list(worse_than_paper(states(load_experiment(experiment.folder))))) == count


def test_a_row_says_what_is_worse_and_why_with_numbers_from_the_records(tmp_path: Path) -> None:
    experiment = made(tmp_path / "heads", (12.0, 3.0))
    count, rows = told(experiment, REASON)
    assert count == "1 of 2 errors; explained: 1 yes."
    why = "by the steps: <heads|mlp|error> is another's"
    assert rows.splitlines()[2:] == [f"| table 4 | gll: **12.0** (9.0 ± 0.5) | **yes** | {why} |"]
    assert wrong(experiment, REASON) == []
    assert "| table 9 | gll" in told(experiment, f'{REASON}paper = "table 9"')[1]
    assert told(made(tmp_path / "none" / "heads", (3.0,)), "")[0] == "none."


def test_the_count_is_of_errors_alone(tmp_path: Path) -> None:
    """Times and numbers of parameters, which are no errors, would make the share of the worse ones small."""
    experiment = made(tmp_path / "heads", (12.0, 3.0))
    config = experiment.folder / "config.toml"
    text = config.read_text()
    config.write_text(text.replace('figures = ["error"]', 'figures = ["error"], errors = []'))
    assert told(load_experiment(experiment.folder), REASON)[0] == "1 of 0 errors; explained: 1 yes."
    config.write_text(text.replace('figures = ["error"]', 'figures = ["error"], errors = ["time"]'))
    with pytest.raises(ExperimentError, match=r"figure in errors of \[table\] 'time'"):
        load_experiment(experiment.folder)


def test_a_mean_without_a_reason_and_a_reason_without_a_mean_are_named(tmp_path: Path) -> None:
    """And the table is written all the same: what has no reason is said to be unexplained."""
    both = made(tmp_path / "both" / "heads", (12.0, 12.0))
    missing = "has no reason for what is worse than the paper's: heads: mlp, error **12.0** (9.0 ± 0.5)"
    assert wrong(both, REASON) == [missing]
    count, rows = told(both, REASON)
    assert count == "2 of 2 errors; explained: 1 yes, 1 no."
    assert rows.endswith("| mlp: **12.0** (9.0 ± 0.5) | **no** | *no reason is given yet (`reasons.toml`)* |")
    for more in (REASON.replace('["gll"]', '["gll", "mlp"]'), REASON + REASON.replace('"gll"', '"mlp"')):
        assert (wrong(both, more), told(both, more)[0]) == ([], "2 of 2 errors; explained: 2 yes.")
    vain = "has a reason that is not needed, or the second of its kind: heads: gll, error"
    assert wrong(made(tmp_path / "none" / "heads", (3.0, 3.0)), REASON) == [vain]
    assert wrong(made(tmp_path / "twice" / "heads", (12.0, 3.0)), REASON + REASON) == [vain]
    other = REASON.replace('["error"]', '["time"]')
    assert wrong(made(tmp_path / "other" / "heads", (12.0, 3.0)), other) == [
        missing.replace("mlp", "gll"),
        vain.replace("error", "time"),
    ]


def test_check_fails_and_tables_warn_where_a_reason_is_missing(tmp_path: Path) -> None:
    experiment = made(tmp_path / "experiments" / "heads", (12.0, 3.0))
    where = ["--experiments", str(experiment.folder.parent)]
    assert CliRunner().invoke(app, ["reproduce", "--tables", *where]).exit_code == 0
    assert CliRunner().invoke(app, ["reproduce", "--check", *where]).exit_code == 0, "no file of reasons is wanted"
    written(experiment, "")
    for option, code in (("--tables", 0), ("--check", 1)):
        found = CliRunner().invoke(app, ["reproduce", option, *where])
        said = " ".join(found.output.split())
        assert (found.exit_code, "has no reason for what is worse" in said) == (code, True), found.output


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"yes"', '"maybe"', "unknown word of `explained` in .*'maybe'; choose one of yes, in part, if read other"),
        ("why =", "because =", "unknown key of a reason in .*'because'"),
        ('explained = "yes"\n', "", "has no explained"),
        ('figures = ["error"]\n', "", "has no figures"),
        ('["gll"]', '"gll"', "should be a list of names: places"),
        ('["gll"]', "[]", "should be a list of names: places"),
        ('"by the steps: {ours heads; mlp; error} is another\'s"', "3", "should be text: why"),
    ],
)
def test_a_reason_that_cannot_be_read_is_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "reasons.toml"
    assert old in REASON
    path.write_text(REASON.replace(old, new))
    with pytest.raises(ValueError, match=said):
        read_reasons(path)
    assert read_reasons(tmp_path / "none.toml") == []


@pytest.mark.parametrize(
    ("number", "said"),
    [("{ours heads; mlp}", "is not {WORD EXPERIMENT; PLACE; FIGURE}"), ("{theirs heads; mlp; error}", "'theirs'")],
)
def test_a_number_that_cannot_be_written_is_named(tmp_path: Path, number: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        told(made(tmp_path / "heads", (12.0,)), REASON.replace("{ours heads; mlp; error}", number))


def test_all_that_is_worse_than_the_papers_has_its_reason() -> None:
    """Of this project's own records: a new one cannot go unexplained, nor an old reason stay."""
    folder = Path(__file__).resolve().parent.parent / "experiments"
    assert problems(states(*load_all(folder).values()), folder / "reasons.toml") == []
