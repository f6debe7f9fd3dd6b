"""What the first lines of `adversarial` and the pages say of worst cases, CW and short trainings, by the records."""

from __future__ import annotations

import re
import statistics
from pathlib import Path

from gll.reproduce.experiment import load_experiment, name_of
from gll.reproduce.natural import after_longer, table
from gll.reproduce.protocol import groups
from gll.reproduce.tables import Shown, beside_paper

ROOT = Path(__file__).resolve().parent.parent
ADVERSARIAL, MORE_C, LENGTH = (
    load_experiment(ROOT / "experiments" / n) for n in ("adversarial", "more-c", "attack-length")
)
SCALES = {scale: Shown(ADVERSARIAL, scale) for scale in ("small", "full")}
SAID = " ".join(ADVERSARIAL.about.split())


def means(scale: str, data: str, training: str, figure: str) -> dict[str, float]:
    """By head."""
    shown = SCALES[scale]
    places = [place for place in shown.places if (place["data"], place["training"]) == (data, training)]
    return {p["head"]: statistics.fmean(found) for p in places if (found := shown.values(p, figure))}


def ends(scale: str, data: str, *trainings: str) -> tuple[float, float]:
    """How many times FGSM the worst case is, from the least head to the most."""
    found = [
        error / means(scale, data, training, "FGSM")[head]
        for training in trainings
        for head, error in means(scale, data, training, "worst case").items()
    ]
    return min(found), max(found)


def test_how_many_times_fgsm_the_worst_case_is() -> None:
    natural = " to ".join(f"{end:.0f}" for end in ends("full", "mnist", "natural"))
    robust, short = (" to ".join(f"{end:.1f}" for end in ends(s, "mnist", "robust")) for s in ("full", "small"))
    fashion = " to ".join(f"{end:.1f}" for end in ends("small", "fashionmnist", "natural", "robust"))
    assert f"the worst case is {natural} times what FGSM finds after natural training, for every head" in SAID
    assert f"and {robust} times after robust training ({short} after the 15 epochs of *small*)" in SAID
    assert f"it is {fashion} times that on FashionMNIST" in SAID
    assert all(len(means("full", "mnist", training, "worst case")) == 3 for training in ("natural", "robust"))
    page = " ".join((ROOT / "docs" / "robustness.md").read_text(encoding="utf-8").split())
    assert "many times the error under FGSM, for every head, after robust training still about three times" in page
    assert {round(end) for end in ends("full", "mnist", "robust")} == {3}
    assert ends("full", "mnist", "natural")[0] > 8


def test_natural_errors_are_the_papers_where_it_is_said() -> None:
    def words(scale: str, data: str, training: str) -> set[str | None]:
        shown = SCALES[scale]
        return {
            beside_paper(ADVERSARIAL, name_of(p), "natural", shown.values(p, "natural"), shown.samples(p, "natural"))
            for p in shown.places
            if (p["data"], p["training"]) == (data, training) and shown.values(p, "natural")
        }

    assert "natural errors as in the paper on MNIST, and after natural training on FashionMNIST" in SAID
    places = (("full", "mnist", "natural"), ("full", "mnist", "robust"), ("small", "fashionmnist", "natural"))
    assert [words(*place) for place in places] == [{"agree"}] * 3
    assert "higher" in words("small", "fashionmnist", "robust")  # of 1,000 samples the linear layer at the limit
    for head, error in means("small", "fashionmnist", "robust", "test").items():
        assert beside_paper(ADVERSARIAL, f"fashionmnist, {head}, robust", "natural", [error], 10_000) == "higher"
    above = {
        round(error - ADVERSARIAL.expected["values"][f"fashionmnist, {head}, robust"]["natural"])
        for head, error in means("small", "fashionmnist", "robust", "natural").items()
    }
    (points,) = above
    assert f"after robust training there {points} points higher, which longer ones explain" in SAID


def test_cw_of_all_samples_is_higher() -> None:
    shown = Shown(MORE_C, "full")
    told = {}
    for place, record in shown.found:
        error, name = record["values"]["c = 20"], name_of(place)
        assert beside_paper(ADVERSARIAL, name, "CW", [error], 10_000) == "higher"
        told[place["head"]] = (error, ADVERSARIAL.expected["values"][name]["CW"])
    (few,) = SCALES["full"].values({"data": "mnist", "head": "GLL", "training": "natural"}, "CW")
    (error, paper), linear = told["GLL"], "{:.2f} (paper {:.2f})".format(*told["linear"])
    of_gll = f"{few:.2f} of 1,000 samples and {error:.2f} of all 10,000 (`more-c`; paper {paper:.2f})"
    assert f"it errs more, {of_gll}, and so does a linear layer of all 10,000, {linear}" in SAID
    (ours,) = SCALES["full"].values({"data": "mnist", "head": "linear", "training": "natural"}, "CW")
    of_fewer = beside_paper(ADVERSARIAL, "mnist, linear, natural", "CW", [ours], 1000)
    assert of_fewer == "agree", "a thousand samples of another training would not show it"


def test_an_answer_by_a_short_training_has_the_longer_one_beside_it() -> None:
    length, scales = Shown(LENGTH, LENGTH.scales[-1]), list(SCALES.values())
    (group,) = groups(scales, "fashionmnist", "natural")
    (error,) = (r["values"]["worst case"] for p, r in length.found if p == {"head": "linear", "training": "100 epochs"})
    level = "**no difference that 250 samples and one seed could show**"
    told = after_longer(group, length)
    unknown = "the worst case of a GLL of 100 epochs is not known"
    assert told == f"; {level} beside a linear layer of 100 epochs ({error:.1f}); {unknown}"
    weak = [r["values"] for p, r in length.found if p == {"head": "GLL", "training": "100 epochs, weak attacks"}]
    assert [values["worst case"] for values in weak] == [None], "attacked by the paper's attacks alone"
    assert after_longer(groups(scales, "mnist", "natural")[0], length) == after_longer(group, None) == ""
    for page in ("README.md", "docs/robustness.md"):
        assert f"**so far weaker** beside a linear layer{told}" in (ROOT / page).read_text(encoding="utf-8")
    place, record = next((p, r) for p, r in length.found if p["head"] == "linear" and p["training"] == "100 epochs")
    twin = {**record, "values": {**record["values"], "worst case": 20.0}}
    length.found.append(({**place, "head": "GLL"}, twin))
    longer = f"; after 100 epochs a GLL has 20.0; **so far yes** beside a linear layer of 100 epochs ({error:.1f})"
    assert after_longer(group, length) == longer
    worst = Shown(load_experiment(ROOT / "experiments" / "worst-case"), "full")
    rows = [line for line in table(worst, scales, length).splitlines() if longer in line]
    assert [re.split(r" *\| *", row)[1] for row in rows] == ["FashionMNIST"]
