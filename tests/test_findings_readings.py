"""What pages say of readings of the paper's protocol is true of the record of `benchmarks/paper_attacks.py`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.page_claims import ROOT, paper, require_true

ROWS: list[dict[str, Any]] = json.loads((ROOT / "benchmarks/results/paper-attacks.json").read_text("utf-8"))["rows"]
TEXT = "as in the paper's text"


def linear(title: str) -> dict[str, Any]:
    """Of the linear layer's training of seed 0, read so."""
    (row,) = (
        row
        for row in ROWS
        if row["head"] == "linear"
        and row["training name"] == TEXT
        and not row["seed"]
        and row["reading"]["title"] == title
    )
    return row


def by_graph(attack: str) -> dict[str, float]:
    """Errors of WNLL by the gradient of its graph, of each training."""
    return {
        row["training name"]: row[attack]
        for row in ROWS
        if row["head"] == "WNLL" and row["reading"]["title"] == "plain" and row["reading"]["gradient"] == "exact"
    }


def from_to(errors: list[float]) -> tuple[float, float]:
    return round(min(errors), 1), round(max(errors), 1)


CLAIMS: dict[str, Callable[[], bool]] = {
    "[five others](robustness-readings.md#readings) have 2.6 to 3.8, as the paper's": lambda: (
        len(by_graph("FGSM")) == 5
        and from_to([*by_graph("FGSM").values()]) == (2.6, 3.8)
        and 2.6 < paper("adversarial", "mnist, WNLL, natural", "FGSM") < 3.8
    ),
    "of the five others that by these settings has 10.4; those by other settings have 2.6 to 3.9, below the": lambda: (
        by_graph("IFGSM")[TEXT] == pytest.approx(10.4, abs=0.051)
        and from_to([error for name, error in by_graph("IFGSM").items() if name != TEXT]) == (2.6, 3.9)
        and paper("adversarial", "mnist, WNLL, natural", "IFGSM") > 3.9
    ),
    "Why the paper's settings leave twice its error, by the graph, is not explained": lambda: (
        round(by_graph("IFGSM")[TEXT] / paper("adversarial", "mnist, WNLL, natural", "IFGSM")) == 2
    ),
    "another training of ours has 7.6; with all 30, by steps of 0.01 in place of 0.05, 11.3": lambda: (
        (round(linear("plain")["after"]["5"], 1), linear("α = 0.01")["IFGSM"]) == (7.6, 11.25)
        and linear("plain")["reading"]["alpha"] == 0.05
        and linear("α = 0.01")["reading"]["alpha"] == 0.01
    ),
    "of 23 readings; 35.0 as the text has it": lambda: (
        sum(row["head"] == "linear" for row in ROWS) == 23 and round(linear("plain")["IFGSM"], 1) == 35.0
    ),
    "nearest of all to the paper's linear layer, 11.25 (8.48), and leave WNLL at 30.55 (4.64)": lambda: (
        (
            [row["IFGSM"] for row in ROWS if row["reading"]["title"] == "α = 0.01"],
            [paper("adversarial", f"mnist, {head}, natural", "IFGSM") for head in ("linear", "WNLL")],
        )
        == ([11.25, 30.55], [8.48, 4.64])
        and min(
            (row for row in ROWS if row["head"] == "linear"),
            key=lambda row: sum(
                abs(row[figure] - paper("adversarial", "mnist, linear, natural", figure))
                for figure in ("FGSM", "IFGSM")
            ),
        )["reading"]["title"]
        == "α = 0.01"
    ),
    "[23 readings of a linear layer](robustness-readings.md#readings), some of WNLL and GLL": lambda: (
        [sum(row["head"] == head for row in ROWS) > 1 for head in ("linear", "WNLL", "GLL")] == [True] * 3
        and sum(row["head"] == "linear" for row in ROWS) == 23
    ),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_what_the_page_says_is_true_of_the_record(claim: str) -> None:
    require_true(claim, CLAIMS[claim])
