"""Checks that distrust a robustness number: models that hide their gradient on purpose trip them, honest ones pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import final

import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import connected_components
from sklearn.neighbors import NearestNeighbors
from torch import Tensor, nn

from gll.attacks import checks
from gll.attacks.balls import Ball
from gll.attacks.checks import batch_dependence, deterministic, reaches_all_errors, run_checks, together, zero_gradients
from gll.attacks.errors import Errors
from gll.attacks.evaluate import Evaluation, Outcome, evaluate
from gll.attacks.gradient import FGSM, IFGSM, PGD, input_gradient
from gll.attacks.graph_victim import GraphVictim
from gll.attacks.kinds import is_own, is_stand_in
from gll.attacks.objectives import CrossEntropy, Margin
from gll.attacks.signs import (
    Check,
    losses_disagree,
    single_step_beats_multi_step,
    stand_ins_beat_own_gradient,
    transfer_or_black_box_beats_white_box,
)
from gll.attacks.square import Square
from gll.attacks.store import Cell, Kind, Store
from gll.attacks.threat import Queries, ThreatModel
from gll.data import load
from gll.nn import GraphLearningLayer
from gll.reweight import wnll
from tests.attack_stubs import blobs, chunk_of, honest_mlp

EPS = 0.15


@final
class Masked(nn.Module):
    """The honest model, with something done to its input or its logits."""

    def __init__(self, model: nn.Module, before: Callable[[Tensor], Tensor], after: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self.before, self.after = model, before, after

    def forward(self, images: Tensor) -> Tensor:
        return self.after(self.model(self.before(images)))


def same(x: Tensor) -> Tensor:
    return x


def quantised(x: Tensor) -> Tensor:
    return torch.round(x * 20) / 20


def saturated(z: Tensor) -> Tensor:
    return 1e5 * z


def noisy(x: Tensor) -> Tensor:
    return x + 0.3 * torch.randn_like(x)


def of_the_batch(x: Tensor) -> Tensor:
    return x - x.mean(0) + 0.5


def failed(before: Callable[[Tensor], Tensor] = same, after: Callable[[Tensor], Tensor] = same) -> set[str]:
    x, y = blobs(60)
    checks = run_checks(Masked(honest_mlp(), before, after), x, y, eps=EPS)
    assert [c.name for c in checks] == [
        "zero gradients", "black box or transfer", "single step", "losses disagree", "stand-in", "all errors",
        "deterministic", "batch dependence",
    ]  # fmt: skip
    assert [c.name for c in checks if not c.tested] == ["stand-in"]  # a model without a graph has no other view
    return {c.name for c in checks if not c.passed}


def test_an_honest_model_passes() -> None:
    assert failed() == set()


def test_a_quantised_input() -> None:
    # No gradient at all, so images found without one fool it, and a gradient attack never comes to all errors.
    found = failed(before=quantised)
    assert {"zero gradients", "black box or transfer", "all errors"} <= found
    assert not found & {"single step", "deterministic", "batch dependence"}


def test_an_input_behind_a_threshold() -> None:
    """It has no gradient, not even zero: that is said, and what needs none is tested."""
    x, y = blobs(60)
    model = Masked(honest_mlp(), lambda x: (x > 0.5).to(x.dtype), same)
    found = {c.name: c for c in run_checks(model, x, y, eps=EPS)}
    assert len(found) == 8
    zero, black = found["zero gradients"], found["black box or transfer"]
    assert (zero.figure, zero.passed, zero.tested) == (1.0, False, True)
    assert "no gradient at all" in zero.meaning
    square = evaluate(model, x, y, [Square(EPS, checks.QUERIES)]).outcomes[0]
    assert black.figure == pytest.approx(square.error - square.natural(y.numpy()))
    assert (black.figure > 0.02, black.passed) == (True, False)
    untested = [name for name, check in found.items() if not check.tested]
    assert untested == ["single step", "losses disagree", "stand-in", "all errors"]
    assert found["deterministic"].passed
    assert found["batch dependence"].passed
    with pytest.raises(ValueError, match="a comparison inside"):  # as an attack it is refused all the same
        FGSM(EPS)(model, x, y)


def test_a_saturated_softmax() -> None:
    # The cross-entropy has no gradient, the margin has: only attacks on the first are in the dark.
    found = failed(after=saturated)
    assert {"zero gradients", "losses disagree", "all errors"} <= found
    assert not found & {"deterministic", "batch dependence"}


def test_a_randomised_model() -> None:
    found = failed(before=noisy)
    assert "deterministic" in found
    assert not found & {"zero gradients", "batch dependence"}


def test_a_model_that_looks_at_its_batch() -> None:
    found = failed(before=of_the_batch)
    assert "batch dependence" in found
    assert not found & {"zero gradients", "deterministic"}


def test_figures_are_what_they_say() -> None:
    x, y = blobs(40)
    model = honest_mlp()
    right = model(x).argmax(1) == y
    # The gradient is cut for a known set of samples, of which those classified rightly count.
    cut = torch.arange(40) < 10

    def some(x: Tensor) -> Tensor:
        return torch.where(cut[:, None, None, None], x.detach(), x)

    expected = float((cut & right).sum() / right.sum())
    assert zero_gradients(Masked(model, some, same), x, y).figure == pytest.approx(expected)

    class Doubling(nn.Module):
        """Its second call differs from the first by a known amount."""

        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            p = 0.5 + 0.1 * self.calls
            return torch.tensor([p, 1 - p]).log().expand(len(x), 2)

    assert deterministic(Doubling(), x).figure == pytest.approx(0.1, abs=1e-6)

    class Length(nn.Module):
        """Its answer is the number of images."""

        def forward(self, x: Tensor) -> Tensor:
            p = len(x) / 50
            return torch.tensor([p, 1 - p]).log().expand(len(x), 2)

    check = batch_dependence(Length(), x)
    assert check.figure == pytest.approx(20 / 50, abs=1e-6)
    assert not check.passed
    assert batch_dependence(Length(), x, noise=0.2).passed


def without_a_slope(base: Tensor, known: Tensor, x: Tensor, k: int) -> np.ndarray:
    """Which queries of one graph have none, by what can be reached: nothing is computed but neighbours."""
    m = len(base)
    nodes = nn.functional.normalize(torch.cat([base, x]).flatten(1).double()).numpy()
    near = NearestNeighbors(n_neighbors=k).fit(nodes).kneighbors()[1]
    edges = np.zeros((len(nodes), len(nodes)), dtype=bool)
    np.put_along_axis(edges, near, True, axis=1)
    edges |= edges.T
    part = connected_components(edges[m:, m:])[1]
    seen = np.stack([edges[m:, :m][:, known.numpy() == c].any(1) for c in range(10)], 1)
    # Where one class only can be reached, its probability is 1 whatever the weights are.
    mixed = np.stack([seen[part == p].any(0) for p in part]).sum(1) > 1
    # But a query that is the last neighbour of a node sets its bandwidth, and so weights elsewhere.
    counts = np.concatenate([edges[:m, m:][:, mixed].any(1), mixed])
    last = near[counts, -1]
    mixed[last[last >= m] - m] = True
    return ~mixed


def test_rounding_is_no_gradient() -> None:
    data, k = load("digits"), 5
    base, known = data.train[:200].float() / 255, data.train_labels[:200]
    x, y = data.test[:100].float() / 255, data.test_labels[:100]
    victim = GraphVictim(nn.Flatten(), GraphLearningLayer(10, k=k), base, known)
    right = (victim(x).argmax(1) == y).numpy()
    expected = float(without_a_slope(base, known, x, k)[right].mean())
    assert 0.1 < expected < 0.5
    check = zero_gradients(victim, x, y)
    assert check.figure == zero_gradients(victim.sharpened(), x, y).figure == pytest.approx(expected)
    assert not check.passed
    assert "exactly zero, through the graph, in float64" in check.meaning
    as_used = input_gradient(victim, x, y, CrossEntropy())[0].flatten(1).abs().amax(1)[right]
    assert float((as_used == 0).double().mean()) < expected  # rounding takes the place of some zeros


def test_the_graph_is_looked_at_and_not_its_surrogate() -> None:
    """WNLL lends the slope of a linear layer: the checks ask the graph, and what the layer finds is a stand-in's."""
    x, y = blobs(90, seed=3)
    threat = ThreatModel("60 samples", queries=Queries.ALONE)
    layer, linear = GraphLearningLayer(3, k=4, reweight=wnll), honest_mlp()[1:]
    victim = GraphVictim(nn.Flatten(), layer, x[:60], y[:60], threat=threat, surrogate=linear)
    assert (victim.threat.gradient, victim.through_graph().threat.gradient) == ("surrogate linear", "own")
    x, y, store = x[60:75], y[60:75], Store()
    evaluation = evaluate(victim, x, y, [PGD(0.15, 10)])
    assert evaluation.outcomes[0].error > 0.5
    found = {c.name: c for c in run_checks(victim, x, y, eps=0.15, store=store)}
    assert (found["zero gradients"].figure, found["zero gradients"].passed) == (1.0, False)
    assert not found["all errors"].passed  # the slope of the linear layer leads to all of them
    cell = evaluation.outcomes[0].cell
    assert (is_own(cell), is_stand_in(cell)) == (False, True)
    more = {c.name: c for c in run_checks(victim, x, y, eps=0.15, store=store, evaluations=[evaluation])}
    assert more["losses disagree"] == found["losses disagree"]


def outcome(
    kind: Kind, wrong: list[int], objective: str = "CrossEntropy", eps: float = 0.1, samples: int = 10, **more: object
) -> Outcome:
    settings = {"eps": eps, "norm": {"name": "LInf", "scale": 1.0}, "objective": objective, "n": len(wrong), **more}
    return Outcome(Cell(f"{kind}", settings, kind, None, samples), (chunk_of(samples, wrong, linf=eps),))


def evaluation_of(*outcomes: Outcome) -> Evaluation:
    return Evaluation(outcomes[0].clean * 0, outcomes)


def of(*outcomes: Outcome) -> list[Errors]:
    return [Errors.of(evaluation_of(*outcomes))]


def test_black_box_beside_the_best_attack_on_the_own_gradient() -> None:
    white, black = outcome(Kind.MULTI, [0]), outcome(Kind.BLACK_BOX, list(range(4, 10)))
    weaker = outcome(Kind.SINGLE, [])
    check = transfer_or_black_box_beats_white_box(of(weaker, white, black))
    assert (check.figure, check.passed) == (pytest.approx(0.5), True)  # six against one: chance explains that
    white = outcome(Kind.MULTI, [])
    check = transfer_or_black_box_beats_white_box(of(white, black))
    assert (check.figure, check.passed) == (0.6, False)
    assert "images is +60.0% beside that of attacks on the model's own" in check.meaning
    assert transfer_or_black_box_beats_white_box(of(white, outcome(Kind.TRANSFER, [1, 2]))).passed
    # A white-box attack at a smaller radius counts; at a larger one it does not.
    far, near = (outcome(Kind.MULTI, [4, 5, 6], eps=eps) for eps in (0.2, 0.05))
    assert not transfer_or_black_box_beats_white_box(of(white, black, far)).passed
    assert transfer_or_black_box_beats_white_box(of(white, black, near)).passed
    # One that knows no ball is of no help to either side.
    cw = replace(black, cell=replace(black.cell, kind=Kind.MULTI, settings={"eps": None, "norm": "L2"}))
    assert not transfer_or_black_box_beats_white_box(of(white, black, cw)).passed


def test_single_step_is_compared_with_steps_on_the_same_objective() -> None:
    one, many = outcome(Kind.SINGLE, [0, 1, 2, 3]), outcome(Kind.MULTI, [5])
    other = outcome(Kind.MULTI, [0, 1, 2, 3, 4], "Margin")
    check = single_step_beats_multi_step(of(one, many, other))
    assert (check.figure, check.passed) == (pytest.approx(0.3), False)
    assert single_step_beats_multi_step(of(one, outcome(Kind.MULTI, [0, 1, 2, 3]), other)).passed


def test_single_step_is_compared_with_the_best_of_many() -> None:
    one, weak, long = outcome(Kind.SINGLE, [0, 1, 2, 3]), outcome(Kind.MULTI, [0]), outcome(Kind.MULTI, [0, 1, 2, 4, 5])
    assert not single_step_beats_multi_step(of(one, weak)).passed
    assert single_step_beats_multi_step(of(one, weak, long)).figure == pytest.approx(-0.1)


@pytest.mark.parametrize(("wrong", "n", "passed"), [(1, 16, True), (4, 16, True), (5, 16, False), (5, 5, False)])
def test_a_few_samples_fail_nothing(wrong: int, n: int, passed: bool) -> None:
    """One kind of attack that finds nothing is beaten by five samples; a single step is no better from three on."""
    kinds = {Kind.MULTI: [], Kind.SINGLE: list(range(wrong)), Kind.BLACK_BOX: list(range(wrong))}
    known = {kind: outcome(kind, some, samples=n) for kind, some in kinds.items()}
    margin = outcome(Kind.MULTI, kinds[Kind.SINGLE], "Margin", samples=n)
    seen = outcome(Kind.MULTI, kinds[Kind.SINGLE], every_class=5, samples=n)
    for check in (
        transfer_or_black_box_beats_white_box(of(known[Kind.MULTI], known[Kind.BLACK_BOX])),
        losses_disagree(of(known[Kind.MULTI], margin)),
        stand_ins_beat_own_gradient(of(known[Kind.MULTI], seen)),
    ):
        assert check.figure == pytest.approx(wrong / n)
        assert check.passed == passed
    step = single_step_beats_multi_step(of(known[Kind.MULTI], known[Kind.SINGLE]))
    assert (step.figure, step.passed) == (pytest.approx(wrong / n), wrong < 3)
    assert ("too few to tell" in step.meaning) == step.passed
    # Nor do few samples hide a sign on many, where its share is smaller.
    many = of(outcome(Kind.MULTI, [], samples=100), outcome(Kind.BLACK_BOX, [0, 1, 2, 3, 4], samples=100))
    few = of(outcome(Kind.MULTI, [], samples=10), outcome(Kind.BLACK_BOX, [0, 1], samples=10))
    assert transfer_or_black_box_beats_white_box(few).passed
    assert transfer_or_black_box_beats_white_box([*few, *many]).figure == pytest.approx(0.05)
    assert not transfer_or_black_box_beats_white_box([*few, *many]).passed


def test_few_zero_gradients_fail_nothing() -> None:
    x, y = blobs(24)
    for some, passed in ((2, True), (3, False)):
        cut = torch.zeros(24, dtype=torch.bool)
        cut[torch.nonzero(honest_mlp()(x).argmax(1) == y)[:some, 0]] = True

        def partly(x: Tensor, cut: Tensor = cut) -> Tensor:
            return torch.where(cut[:, None, None, None], x.detach(), x)

        check = zero_gradients(Masked(honest_mlp(), partly, same), x, y)
        assert check.figure > 0.08
        assert f"{check.figure:.1%} of the samples that are classified rightly have" in check.meaning
        assert check.passed == passed


def test_a_line_names_what_it_compares() -> None:
    weak, plain = outcome(Kind.MULTI, [0]), outcome(Kind.MULTI, [0, 1], steps=9)
    margin = replace(outcome(Kind.MULTI, [3, 4, 5, 6], "Margin"), of_checks=True)
    said = losses_disagree(of(weak, plain, margin)).meaning
    assert (
        "(40.0% by multi-step, eps 0.1, Margin, of the checks against 20.0% by multi-step, eps 0.1, CrossEntropy, "
        "9 steps; L∞, ε = 0.1, 10 samples)" in said
    )


def test_what_a_longer_attack_has_found_counts_in_the_checks() -> None:
    """Two short attacks differ by chance; where IFGSM, on cross-entropy, has found more, no loss is at fault."""
    short = [outcome(Kind.MULTI, [0]), outcome(Kind.MULTI, list(range(8)), "Margin")]
    own, longer = evaluation_of(*short), evaluation_of(outcome(Kind.MULTI, [*range(8), 15], samples=20))
    assert not losses_disagree([Errors.of(own)]).passed
    found = together(own, [longer])
    assert losses_disagree([Errors.of(found[0])]).figure == 0
    assert [len(o.success) for o in found[0].outcomes] == [10, 10, 10]  # the first of them are the same
    assert found[1:] == [longer]  # which has more samples to look at
    equal = evaluation_of(outcome(Kind.MULTI, list(range(8))))
    assert len(together(own, [equal])) == 1
    # In another graph, or of other samples, nothing is known of these.
    threat = ThreatModel("10 samples").as_dict()
    apart = evaluation_of(replace(equal.outcomes[0], cell=replace(equal.outcomes[0].cell, threat=threat)))
    other = Evaluation(equal.labels + 1, equal.outcomes)
    for unlike in (apart, other):
        found = together(own, [unlike])
        assert (len(found[0].outcomes), found[1:]) == (2, [unlike])


@pytest.mark.parametrize(("queries", "known"), [(Queries.JOINT, 1), (Queries.ALONE, 2)])
def test_fewer_samples_than_a_chunk_make_a_graph_of_their_own(queries: Queries, known: int) -> None:
    """Ten of a hundred at a time, and twenty: the first ten of these were asked beside ten others."""
    threat = ThreatModel("5 samples", queries=queries).as_dict()
    made = [outcome(Kind.MULTI, [0], samples=n) for n in (10, 20)]
    own, longer = (evaluation_of(replace(o, cell=replace(o.cell, threat=threat, chunk=100))) for o in made)
    assert len(together(own, [longer])[0].outcomes) == known
    equal = evaluation_of(*own.outcomes)
    assert len(together(own, [equal])[0].outcomes) == 2


def test_ifgsm_in_an_evaluation_is_known_to_the_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks' PGD on cross-entropy is made too short to find anything."""
    monkeypatch.setattr(checks, "probes", lambda eps, **_: (
        FGSM(eps), PGD(eps, 1, step_size=1e-4, random_start=False), PGD(eps, 20, objective=Margin()), Square(eps, 5),
    ))  # fmt: skip
    x, y = blobs(40)
    found = {c.name: c for c in run_checks(honest_mlp(), x, y, eps=EPS)}
    assert not found["losses disagree"].passed
    known = evaluate(honest_mlp(), x, y, [IFGSM(EPS, EPS / 5)], chunk=16)
    found = {c.name: c for c in run_checks(honest_mlp(), x, y, eps=EPS, evaluations=[known])}
    assert found["losses disagree"].passed
    assert "% by ifgsm, eps 0.15, CrossEntropy, 25 steps; L∞" in found["losses disagree"].meaning
    assert "Margin, 20 steps, of the checks against" in found["losses disagree"].meaning


def test_objectives_that_find_more() -> None:
    plain, margin = outcome(Kind.MULTI, []), outcome(Kind.MULTI, list(range(1, 7)), "Margin")
    check = losses_disagree(of(plain, margin))
    assert (check.figure, check.passed) == (pytest.approx(0.6), False)
    assert "rate this model too well; judge it by all attacks" in check.meaning
    assert losses_disagree(of(outcome(Kind.MULTI, [0, 1, 2, 3]), margin)).passed


@pytest.mark.parametrize("more", [{"every_class": 5}, {"neighbours": "fixed"}, {"asks": True, "source": "a probe"}])
def test_what_only_a_stand_in_finds_raises_a_figure(more: dict[str, object]) -> None:
    """The strongest sign of a hidden gradient must not make another check look better."""
    own, kind = outcome(Kind.MULTI, [0]), Kind.TRANSFER if "source" in more else Kind.MULTI
    black, seen = outcome(Kind.BLACK_BOX, [1, 2, 3]), outcome(kind, list(range(9)), "Margin", **more)
    check = stand_ins_beat_own_gradient(of(own, black, seen))
    assert (check.figure, check.passed, check.tested) == (pytest.approx(0.8), False, True)
    assert "the error by way of another gradient is +80.0% beside that by the model's own (90.0%" in check.meaning
    assert "L∞, ε = 0.1, 10 samples" in check.meaning
    before = transfer_or_black_box_beats_white_box(of(own, black)).figure
    assert transfer_or_black_box_beats_white_box(of(own, black, seen)).figure >= before == pytest.approx(0.2)
    assert stand_ins_beat_own_gradient(of(own, outcome(kind, [0], **more))).passed
    assert losses_disagree(of(own, outcome(Kind.MULTI, [0], "Margin"), seen)).figure == 0  # the loss is not at fault


def test_a_graph_whose_gradient_is_hidden() -> None:
    """Where all neighbours have one class, the layer's own gradient is zero, and only other views see a way."""
    x, y = blobs(90, seed=3)
    threat = ThreatModel("60 samples", queries=Queries.ALONE)
    victim = GraphVictim(nn.Flatten(), GraphLearningLayer(3, k=4), x[:60], y[:60], threat=threat)
    checks = {c.name: c for c in run_checks(victim.sharpened(), x[60:], y[60:], eps=0.15)}
    assert checks["stand-in"].tested
    assert not checks["stand-in"].passed
    assert "30 samples, each query alone beside a base of 60" in checks["stand-in"].meaning
    assert checks["stand-in"].figure > 0.3


def test_nothing_is_passed_where_no_image_may_move() -> None:
    x, y = blobs(6)
    with pytest.raises(ValueError, match="checks need an ε above 0, got 0"):
        run_checks(honest_mlp(), x, y, eps=0.0)


def test_batch_dependence_in_errors() -> None:
    x, y = blobs(60)
    checks = run_checks(Masked(honest_mlp(), of_the_batch, same), x, y, eps=EPS)
    whole, half = (FGSM(EPS)(Masked(honest_mlp(), of_the_batch, same), *part) for part in ((x, y), (x[:30], y[:30])))
    rest = FGSM(EPS)(Masked(honest_mlp(), of_the_batch, same), x[30:], y[30:])
    said = f"is {whole.error:.1%} with 60 of them at a time, {(half.error + rest.error) / 2:.1%} with 30"
    assert said in checks[-1].meaning


def test_errors_that_stay_below_all() -> None:
    check = reaches_all_errors({0.1: 0.2, 1.0: 0.9, 0.3: 0.95})
    assert (check.figure, check.passed) == (0.95, False)  # what was found at 0.3 is allowed at 1
    assert "grows with ε to 95.0% (20.0% at 0.1, 95.0% at 0.3, 95.0% at 1)" in check.meaning
    assert reaches_all_errors({0.1: 0.5, 0.3: 1.0, 1.0: 29 / 30}).passed
    few = [reaches_all_errors({1.0: (30 - held) / 30}, 30).passed for held in (1, 2, 3)]
    assert few == [True, True, False]


def test_nothing_to_compare_is_an_error() -> None:
    with pytest.raises(ValueError, match="no two attacks with the same ball"):
        single_step_beats_multi_step(of(outcome(Kind.MULTI, [0])))


def test_the_attacks_of_the_checks_are_kept(tmp_path: Path) -> None:
    x, y = blobs(20)
    store = Store.open(tmp_path / "checks", {}, resume=False)
    first = run_checks(honest_mlp(), x, y, eps=EPS, store=store)
    assert {cell.attack for cell in store.cells()} == {"fgsm", "pgd", "square"}

    class Fails(nn.Module):
        """Answers, but cannot be attacked: nothing of the checks' attacks is computed again."""

        def __init__(self) -> None:
            super().__init__()
            self.model = honest_mlp()
            self.calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            out: Tensor = self.model(x)
            return out

    model = Fails()
    assert run_checks(model, x, y, eps=EPS, store=store) == first
    assert model.calls == 6  # one gradient, two calls, the whole and two halves


def test_a_check_is_a_line_of_json() -> None:
    check = Check("a", 0.5, False, "half of them")
    expected = {"name": "a", "figure": 0.5, "passed": False, "meaning": "half of them", "tested": True, "enough": True}
    assert check.as_dict() == expected
    assert Ball("LInf", 0.1).pixels == 0.1
