"""`gll embed` and `gll predict`: a trained run applied to files, folders and data sets."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner, Result

from gll.cli import app
from gll.data.readers import DataError
from gll.train.apply import Trained, embed, predict
from gll.train.config import from_toml
from gll.train.evaluate import evaluate
from gll.train.inputs import read_inputs
from gll.train.loop import new_run, train
from gll.train.model import build, load_data
from gll.train.pretrain import warm_up
from gll.train.runs import Run, RunError
from tests.tiny_runs import WARM, digits, tiny

CLASSES = ("cross", "dot", "ring")


def pictures(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Crosses, dots and rings of 8 × 8 pixels, one after the other, in so much noise that no answer is certain."""
    rng = np.random.default_rng(seed)
    i, j = np.mgrid[:8, :8] - 3.5
    r = np.hypot(i, j)
    shapes = np.stack([(abs(i) < 1) | (abs(j) < 1), r < 1.5, (r > 2) & (r < 3.6)]) * 45.0
    y = np.arange(n) % 3
    return (shapes[y] + rng.uniform(0, 210, (n, 8, 8))).astype(np.uint8), y


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, and two runs on it: a graph head and an MLP."""
    folder = tmp_path_factory.mktemp("apply")
    (x, y), (test, answer) = pictures(90, 0), pictures(30, 1)
    np.savez(folder / "shapes.npz", x_train=x, y_train=y, x_test=test, y_test=answer, classes=np.array(CLASSES))
    for head in ("gll", "mlp"):
        config = from_toml(
            f'name = "{head}"\ndevice = "cpu"\nout = "{folder / head}"\n[data]\nname = "{folder / "shapes.npz"}"\n'
            f'labels = "5 each"\n[model]\nhead = "{head}"\n[base]\nsize = 6\n'
            "[train]\nepochs = 1\nsteps = 4\nbatch = 30\nlr = 0.003\n[test]\nk = 8\ninductive = true"
        )
        train(new_run(config))
    return folder


@pytest.fixture(scope="module")
def gll_run(made: Path) -> Trained:
    return Trained.open(made / "gll", device="cpu")


def shell(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "200"})


def save(folder: Path, images: np.ndarray, mode: str = "L") -> list[Path]:
    folder.mkdir(parents=True)
    for n, image in enumerate(images):
        Image.fromarray(image).convert(mode).save(folder / f"{n}.png")
    return sorted(folder.iterdir())


@pytest.mark.parametrize("inductive", [False, True])
def test_predictions_are_those_of_the_runs_own_test(made: Path, gll_run: Trained, inductive: bool) -> None:
    found = predict(gll_run, [f"{made}/shapes.npz:test"], inductive=inductive)
    scores = evaluate(gll_run.model, gll_run.data, gll_run.run.split, gll_run.run.config)
    (score,) = [s for s in scores if s.mode == ("inductive" if inductive else "transductive")]
    assert abs(scores[0].loss - scores[1].loss) > 0.01  # else this test could not tell one from the other
    assert found.errors(found.new) == round(score.error * 30)
    # The loss of that test, from the probabilities of the true classes: the first or the second of three.
    truth = found.samples.truth.numpy()
    p = np.where(found.first == truth, found.probability, found.next_probability)
    third = (found.first != truth) & (found.second != truth)
    p = np.where(third, 1 - found.probability - found.next_probability, p)
    assert -np.log(p).mean() == pytest.approx(score.loss, rel=1e-4)


def test_the_mlp_answers_too(made: Path) -> None:
    trained = Trained.open(made / "mlp", device="cpu")
    found = predict(trained, [f"{made}/shapes.npz:test"])
    (score,) = evaluate(trained.model, trained.data, trained.run.split, trained.run.config)
    assert found.errors(found.new) == round(score.error * 30)
    x = trained.data.test
    expected = trained.model.head(trained.features(x)).softmax(1).max(1).values
    np.testing.assert_allclose(found.probability, expected.detach().numpy(), rtol=1e-5)


def test_inductive_answers_do_not_depend_on_the_other_images(gll_run: Trained) -> None:
    x = gll_run.data.test
    together = gll_run.log_probabilities(x, inductive=True)
    alone = torch.cat([gll_run.log_probabilities(row[None], inductive=True) for row in x[:4]])
    torch.testing.assert_close(alone, together[:4], rtol=1e-4, atol=1e-5)


def test_own_training_images_are_not_put_into_the_graph_twice(
    gll_run: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    classify = type(gll_run.model.head).classify

    def spy(self: object, z: torch.Tensor, labelled: torch.Tensor, *args: object, **options: torch.Tensor) -> object:
        others = options["unlabelled_features"]
        sizes.append((len(z), len(labelled), 0 if others is None else len(others)))
        return classify(self, z, labelled, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(type(gll_run.model.head), "classify", spy)
    name = gll_run.run.config.data.name
    found = predict(gll_run, [name])
    predict(gll_run, [f"{name}:test"])
    assert sizes == [(120, 15, 0), (30, 15, 75)]
    assert (found.new.sum(), found.hidden.sum()) == (30, 75)  # and 15 that it was told


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of images, called photos, and a run on it, in one folder."""
    folder = tmp_path_factory.mktemp("own")
    for part, n, seed in (("train", 45, 3), ("test", 15, 4)):
        x, y = pictures(n, seed)
        for c, name in enumerate(CLASSES):
            save(folder / "photos" / part / name / "deeper", x[y == c])
    with contextlib.chdir(folder):
        config = from_toml(
            'name = "p"\ndevice = "cpu"\nout = "run"\n[data]\nname = "photos"\nlabels = "4 each"\n[base]\nsize = 3\n'
            "[train]\nepochs = 1\nsteps = 1\nbatch = 12\n[test]\nk = 5"
        )
        train(new_run(config))
    return folder


@pytest.mark.parametrize(
    ("name", "new", "hidden", "told"),
    [
        ("photos", 15, 33, 12),
        ("./photos/", 15, 33, 12),
        ("{here}/photos", 15, 33, 12),
        ("link", 15, 33, 12),
        ("elsewhere", 15, 33, 12),
        ("photos/test", 15, 0, 0),
        ("photos:test", 15, 0, 0),
        ("photos/train", 0, 33, 12),
        ("{here}/photos:train", 0, 33, 12),
        ("bare.npz", 0, 33, 12),
        ("labelled.npz", 0, 33, 12),
    ],
)
def test_the_runs_own_images_are_recognised(
    photos: Path, monkeypatch: pytest.MonkeyPatch, name: str, new: int, hidden: int, told: int
) -> None:
    monkeypatch.chdir(photos)
    trained = Trained.open(Path("run"), device="cpu")
    if name == "link" and not Path("link").exists():
        Path("link").symlink_to("photos")
    if name == "elsewhere":
        shutil.copytree("photos", "elsewhere")
    x, y = trained.data.train.numpy(), trained.data.train_labels.numpy()
    np.savez("bare.npz", images=x)
    np.savez("labelled.npz", images=x, labels=np.array(CLASSES)[y])
    found = predict(trained, [name.format(here=photos)])
    assert (found.new.sum(), found.hidden.sum()) == (new, hidden)
    own, labels = found.samples.own, found.samples.labels
    assert int((labels >= 0).sum()) == told
    assert set(own[labels >= 0].tolist()) == (set(trained.run.split.labelled.tolist()) if told else set())
    mine = own >= 0
    assert torch.equal(found.samples.x[mine], trained.data.train[own[mine]])
    assert torch.equal(found.samples.truth[mine], trained.data.train_labels[own[mine]])
    assert len(set(own[mine].tolist())) == hidden + told  # each once
    arrays = embed(trained, [name.format(here=photos)])
    assert (arrays["labels"] != "").sum() == told if told else "labels" not in arrays


def test_a_name_in_other_case_is_the_same_data(tmp_path: Path) -> None:
    config = from_toml(
        f'name = "d"\ndevice = "cpu"\nout = "{tmp_path / "run"}"\n[data]\nname = "Digits"\nlabels = "4 each"\n'
        '[model]\nhead = "mlp"\n[train]\nepochs = 1\nsteps = 1\nbatch = 20\n[test]\nevery = 0'
    )
    train(new_run(config))
    trained = Trained.open(tmp_path / "run", device="cpu")
    found = read_inputs(["digits:train"], trained.run, trained.data)
    assert int((found.labels >= 0).sum()) == 40
    assert torch.equal(found.own, torch.arange(1442))


def test_copies_stand_for_the_training_images_one_by_one(made: Path, gll_run: Trained, tmp_path: Path) -> None:
    data = gll_run.data
    split = gll_run.run.split
    told, other = int(split.labelled[0]), int(split.unlabelled[0])
    alike = replace(data, train=data.train.index_copy(0, torch.tensor([other]), data.train[[told]]))
    np.savez(tmp_path / "new.npz", images=data.train[[told, told, told]].numpy())
    found = read_inputs([str(tmp_path / "new.npz")], gll_run.run, alike)
    assert found.own.tolist() == [*sorted([told, other]), min(told, other)]
    assert (found.labels >= 0).tolist() == [i == told for i in found.own.tolist()]


def test_image_files_are_read_as_the_data_was(made: Path, gll_run: Trained, tmp_path: Path) -> None:
    files = save(tmp_path / "ring", gll_run.data.test[:6, 0].numpy())
    found = read_inputs([str(tmp_path)], gll_run.run, gll_run.data)
    assert torch.equal(found.x, gll_run.data.test[:6])
    assert found.ids == tuple(str(file) for file in files)
    assert found.truth.tolist() == [2] * 6  # the folder is called as a class
    one = read_inputs([str(files[3]), str(files[1])], gll_run.run, gll_run.data)
    assert torch.equal(one.x, gll_run.data.test[[3, 1]])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda p: save(p, np.zeros((1, 9, 12), np.uint8)),
            "has images of 9 × 12 pixels, but the run was trained on images of 8 × 8 pixels .*--convert",
        ),
        (lambda p: save(p, np.tile(np.uint8([255, 0, 0]), (1, 8, 8, 1)), "RGB"), "has coloured images of 8 × 8 pixels"),
        (
            lambda p: np.savez(p.with_suffix(".npz"), images=np.zeros((2, 5, 5), np.uint8)),
            "has images of 5 × 5 .*make them so",
        ),
        (lambda p: np.savez(p.with_suffix(".npz"), features=np.zeros((2, 5))), "has points of 5 dimensions"),
        (lambda p: p.mkdir(), "has no images"),
        (lambda p: None, "there is no file, folder or data set"),
    ],
)
def test_what_does_not_fit_is_said(gll_run: Trained, tmp_path: Path, make: object, message: str) -> None:
    path = tmp_path / "new"
    make(path)  # type: ignore[operator]
    path = path.with_suffix(".npz") if path.with_suffix(".npz").exists() else path
    with pytest.raises(DataError, match=message):
        read_inputs([str(path)], gll_run.run, gll_run.data)


def test_convert_scales_and_colours(gll_run: Trained, tmp_path: Path) -> None:
    image = gll_run.data.test[0, 0].numpy()
    large = image.repeat(4, 0).repeat(4, 1)
    save(tmp_path / "large", large[None], "RGB")
    found = read_inputs([str(tmp_path / "large")], gll_run.run, gll_run.data, convert=True)
    assert abs(found.x[0, 0].int() - torch.from_numpy(image).int()).float().mean() < 20
    save(tmp_path / "mixed", image[None])
    both = [str(tmp_path / "large"), str(tmp_path / "mixed")]
    with pytest.raises(DataError, match=r"2 different sizes.*--convert brings them all to the run's 8 × 8"):
        read_inputs(both, gll_run.run, gll_run.data)
    assert torch.equal(read_inputs(both, gll_run.run, gll_run.data, convert=True).x[1, 0], torch.from_numpy(image))


def test_images_are_padded_as_in_training(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "mlp", tmp_path / "run")
    text = (tmp_path / "run" / "config.toml").read_text()
    assert "pad = 0" in text
    (tmp_path / "run" / "config.toml").write_text(text.replace("pad = 0", "pad = 12"))
    config = from_toml((tmp_path / "run" / "config.toml").read_text())
    x = np.full((2, 8, 8), 7, np.uint8)
    np.savez(tmp_path / "images.npz", images=x, ids=np.array(["a", "b"]))
    found = read_inputs([str(tmp_path / "images.npz")], Run.open(tmp_path / "run"), load_data(config))
    assert found.x.shape == (2, 1, 12, 12)
    assert found.x.sum() == x.sum()
    assert torch.equal(found.x[:, 0, 2:10, 2:10], torch.from_numpy(x))
    assert found.ids == ("a", "b")
    save(tmp_path / "large", np.full((1, 16, 16), 7, np.uint8))
    scaled = read_inputs([str(tmp_path / "large")], Run.open(tmp_path / "run"), load_data(config), convert=True)
    assert torch.equal(scaled.x[0], found.x[0])  # to 8 × 8, then a border


def test_features_go_straight_into_gll_fit(made: Path, gll_run: Trained, tmp_path: Path) -> None:
    out = tmp_path / "features.npz"
    result = shell("embed", made / "gll", f"{made}/shapes.npz", "-o", out, "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "120 rows of 64 features, 15 labels, 120 truth" in result.stdout
    with np.load(out, allow_pickle=False) as file:
        arrays = dict(file)
    torch.testing.assert_close(torch.from_numpy(arrays["features"][90:]), gll_run.features(gll_run.data.test))
    split = gll_run.run.split
    expected = np.full(120, "", dtype="<U5")
    expected[split.labelled] = np.array(CLASSES)[gll_run.data.train_labels[split.labelled]]
    assert arrays["labels"].tolist() == expected.tolist()
    assert json.loads(str(arrays["about"]))["encoder"] == "digits-cnn"
    result = shell("fit", out, "--metric", "cosine", "--neighbors", "5", "--quiet", "--out", tmp_path / "fitted.npz")
    assert result.exit_code == 0, result.output
    with np.load(tmp_path / "fitted.npz", allow_pickle=False) as file:
        assert (file["predictions"] == arrays["truth"]).mean() > 0.7
        assert file["ids"].tolist() == arrays["ids"].tolist()
    result = shell("embed", made / "gll", "digits", "-o", out)
    assert result.exit_code == 1
    assert "exists: add --force" in result.stderr


def test_classes_of_another_data_set_go_by_their_names(gll_run: Trained, tmp_path: Path) -> None:
    x, _ = pictures(3, 2)
    path = tmp_path / "other.npz"
    np.savez(path, images=x, labels=np.array(["ring", "", "square"]))
    found = read_inputs([str(path)], gll_run.run, gll_run.data)
    assert found.truth.tolist() == [2, -1, -1]
    assert "digits:train:0" in embed(gll_run, ["digits:train"])["ids"]


def test_a_warm_up_alone_has_features(tmp_path: Path) -> None:
    more = ["warmup.gamma=1.0", "model.head=gll", 'warmup.keep="last"']
    with_graph = tiny(tmp_path / "a", *WARM, *more)
    with_mlp = tiny(tmp_path / "b", *WARM, "warmup.gamma=1.0", "model.head=mlp")
    for config in (with_graph, with_mlp):
        run = new_run(config)
        with pytest.raises(RunError, match="has no trained model"):  # nothing is there yet
            Trained.open(run.directory, device="cpu")
        data = load_data(config)
        warm_up(build(config, data).encoder, data, run.split, config, run)
    trained = Trained.open(tmp_path / "a" / "run", device="cpu")
    stored = trained.run.load("warmup")
    assert stored is not None
    for key, value in trained.model.encoder.state_dict().items():
        assert torch.equal(value, stored[0][f"encoder.{key}"])
    found = predict(trained, [f"{digits()}:test"])
    assert found.errors(found.new) < 40
    without_head = Trained.open(tmp_path / "b" / "run", device="cpu")
    assert without_head.features(without_head.data.test).shape == (100, 64)
    with pytest.raises(RunError, match="only warmed up: its mlp head has learned nothing yet"):
        predict(without_head, [f"{digits()}:test"])


def test_the_command_prints_a_table_or_csv(made: Path, tmp_path: Path) -> None:
    result = shell("predict", made / "gll", f"{made}/shapes.npz:test", "--rows", "2", "-o", tmp_path / "all.csv")
    assert result.exit_code == 0, result.output
    assert "28 more images" in result.stderr
    assert "\n1 more image: " in "\n" + shell("predict", made / "gll", f"{made}/shapes.npz:test", "--rows", "29").stderr
    assert "of 30 images of known class, new to the run (" in result.stderr
    # A long name is folded; classes are not.
    assert len([line for line in result.stdout.splitlines() if set(line.split()) & set(CLASSES)]) == 2
    again = shell("predict", made / "gll", f"{made}/shapes.npz:test", "--csv")
    assert again.stdout == (tmp_path / "all.csv").read_text()
    rows = list(csv.DictReader(io.StringIO(again.stdout)))
    assert len(rows) == 30
    assert all(float(row["probability"]) >= float(row["runner_up_probability"]) for row in rows)
    assert {row["class"] for row in rows} <= set(CLASSES)
    result = shell("predict", made / "gll", "digits:valid")
    assert result.exit_code == 1
    assert "there is no file, folder or data set 'digits:valid'" in result.stderr
    assert shell("predict", tmp_path, "digits").exit_code == 1
