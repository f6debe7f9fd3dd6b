"""Every mean that is worse than the paper's has one reason, and no reason is left over."""

from __future__ import annotations

from pathlib import Path

import pytest

from gll.reproduce.experiment import Experiment, ExperimentError, load_experiment
from gll.reproduce.kinds import kind_of
from gll.reproduce.records import add_records
from gll.reproduce.tables import states_of
from gll.reproduce.worse import read_reasons, reasons, worse_than_paper

CONFIG = """
title = "heads"
paper = "table 4: errors"
kind = "train"
order = 1
table = { rows = ["head"], figures = ["error"], better = "lower", digits = 1 }
[axes.head]
gll = ["model.head=gll"]
mlp = ["model.head=mlp"]
linear = ["model.head=linear"]
[scales.small]
seeds = [0]
[scales.full]
seeds = [0]
set = ["train.epochs=500"]
"""
REASON = """
[[reason]]
experiment = "heads"
places = ["gll"]
explained = "yes"
why = "by the steps: {ours heads; mlp; error} is another's"
"""
MORE = {"versions": {"torch": "2"}, "device": "cpu", "wall_s": 1.0, "date": "1", "commit": "c", "more": {}}


def made(
    folder: Path, small: tuple[float, ...], full: tuple[float, ...] = (), paper: str = "table 4: errors"
) -> Experiment:
    """An experiment with an error for each of its heads; the paper has 9, with a deviation of 0.5."""
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(CONFIG.replace("table 4: errors", paper))
    theirs = ", ".join(f'"{head}": {{"error": [9.0, 0.5]}}' for head in ("gll", "mlp", "linear"))
    (folder / "expected.json").write_text(f'{{"values": {{{theirs}}}}}')
    experiment = load_experiment(folder)
    for scale, errors in (("small", small), ("full", full)):
        cells = kind_of(experiment).cells(experiment, scale)
        records = [
            {"key": c.key, "cell": c.title, "seed": c.point.seed, "scale": scale, "values": {"error": e}, **MORE}
            for c, e in zip(cells, errors, strict=False)
        ]
        add_records(folder / "results.json", records)
    return experiment


def told(experiment: Experiment, text: str) -> tuple[str, str]:
    path = experiment.folder.parent / "reasons.toml"
    path.write_text(text)
    numbers = {"ours": lambda name, place, figure: f"<{name}|{place}|{figure}>"}
    return reasons({"heads": states_of(experiment)}, path, numbers)


def test_what_is_worse_is_above_the_papers_deviation_at_the_largest_scale(tmp_path: Path) -> None:
    experiment = made(tmp_path / "a" / "heads", (9.6, 9.4, 30.0), full=(9.6, 3.0, 9.2))
    found = [(w.place, w.ours, w.said) for w in worse_than_paper({"heads": states_of(experiment)})]
    assert found == [("gll", (9.6,), "**9.6** (9.0 ± 0.5)")], "linear is worse at small alone"
    ablation = made(tmp_path / "b" / "heads", (30.0, 30.0, 30.0), paper="on table 4: why")
    beyond = made(tmp_path / "c" / "heads", (30.0, 30.0, 30.0), paper="none: beyond the paper")
    assert not list(worse_than_paper({"a": states_of(ablation), "b": states_of(beyond)}))


def test_a_row_says_what_is_worse_and_why_with_numbers_from_the_records(tmp_path: Path) -> None:
    count, rows = told(made(tmp_path / "heads", (12.0, 3.0)), REASON)
    assert count == "1 mean; explained: 1 yes."
    assert rows.splitlines()[2:] == [
        "| table 4 | gll: **12.0** (9.0 ± 0.5) | **yes** | by the steps: <heads|mlp|error> is another's |"
    ]


def test_a_mean_without_a_reason_and_a_reason_without_a_mean_are_errors(tmp_path: Path) -> None:
    both = made(tmp_path / "both" / "heads", (12.0, 12.0))
    with pytest.raises(ExperimentError, match=r"has no reason: heads: mlp, error \*\*12\.0\*\* \(9\.0 ± 0\.5\)"):
        told(both, REASON)
    assert told(both, REASON.replace('["gll"]', '["gll", "mlp"]'))[0] == "2 means; explained: 2 yes."
    assert (
        told(both, REASON + REASON.replace("gll", "mlp").replace("yes", "no"))[0] == "2 means; explained: 1 yes, 1 no."
    )
    with pytest.raises(ExperimentError, match="not needed, or the second of its kind: gll"):
        told(made(tmp_path / "none" / "heads", (3.0, 3.0)), REASON)
    with pytest.raises(ExperimentError, match="not needed, or the second of its kind: gll"):
        told(made(tmp_path / "twice" / "heads", (12.0, 3.0)), REASON + REASON)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"yes"', '"maybe"', "unknown word of `explained` in .*'maybe'; choose one of yes, in part, no"),
        ("why =", "because =", "unknown key of a reason in .*'because'"),
        ('explained = "yes"\n', "", "has no explained"),
    ],
)
def test_a_reason_that_cannot_be_read_is_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "reasons.toml"
    path.write_text(REASON.replace(old, new))
    with pytest.raises(ValueError, match=said):
        read_reasons(path)
    assert read_reasons(tmp_path / "none.toml") == []
