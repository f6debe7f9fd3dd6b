"""Draws the figures of the documentation:  python docs/figures/make.py  (from the root of the repository)."""

import io
from pathlib import Path

import matplotlib
import numpy as np
import torch
from matplotlib.colors import LinearSegmentedColormap
from PIL import Image
from sklearn.datasets import load_sample_image, make_moons

import gll
from gll.data import geometry, operations
from gll.data.augment import augmentation_from_name

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
BLUE, ORANGE = "#0072b2", "#d55e00"  # told apart by colour-blind readers too
FADE = LinearSegmentedColormap.from_list("fade", [ORANGE, "#dddddd", BLUE])
plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "figure.dpi": 120})


def save(figure: plt.Figure, name: str) -> None:
    """A PNG of 128 colours: a third of the bytes, and nobody sees it."""
    buffer = io.BytesIO()
    figure.savefig(buffer, bbox_inches="tight")
    plt.close(figure)
    Image.open(buffer).convert("RGB").quantize(128).save(HERE / name, optimize=True)
    print(f"{name}: {(HERE / name).stat().st_size:,} bytes")


def tau() -> None:
    """How far a label reaches: on a chain, and on two moons."""
    figure, ((chain_axis, *first), second) = plt.subplots(2, 2, figsize=(8.5, 5.6), layout="constrained")

    n = 101
    chain = gll.Graph(gll.Topology(n, torch.arange(n - 1), torch.arange(1, n)), torch.ones(n - 1, dtype=torch.float64))
    ends = gll.Labels(torch.tensor([0, n - 1]), torch.eye(2, dtype=torch.float64))
    for i, value in enumerate((0.0, 0.001, 0.01, 0.1)):
        u = gll.solve(gll.Laplace(tau=value), chain, ends).value
        chain_axis.plot(u[:, 0], color=BLUE, alpha=1 - 0.22 * i, label=f"τ = {value:g}")
        chain_axis.plot(u[:, 1], color=ORANGE, alpha=1 - 0.22 * i, linestyle="--")
    chain_axis.set(
        title="a chain, labelled at both ends",
        xlabel="node",
        ylabel="u, one curve a class",
        ylim=(-0.05, 1.4),
        yticks=[0, 0.5, 1],
    )
    chain_axis.legend(frameon=False, loc="upper center", ncols=2)

    x, y = (torch.from_numpy(a) for a in make_moons(500, noise=0.1, random_state=1))
    base = torch.cat([torch.nonzero(y == c)[:5, 0] for c in (0, 1)])
    labels = gll.Labels(base, torch.eye(2, dtype=torch.float64)[y[base]])
    graph = gll.knn_graph(x, k=10)
    for axis, value in zip((*first, *second), (0.0, 0.01, 0.1), strict=True):
        u = gll.solve(gll.Laplace(tau=value), graph, labels).value
        points = axis.scatter(*x.T, c=u[:, 0] - u[:, 1], s=12, cmap=FADE, vmin=-1, vmax=1)
        axis.scatter(
            *x[base].T, marker="*", s=110, c=[(BLUE, ORANGE)[c] for c in y[base]], edgecolors="black", linewidths=0.6
        )
        axis.set(title=f"two moons, τ = {value:g}", xticks=[], yticks=[], aspect="equal")
        axis.spines[:].set_visible(False)
    figure.colorbar(points, ax=second, label="u(blue) − u(orange)", shrink=0.8)
    save(figure, "tau.png")


def cube(seed: int) -> tuple[torch.Tensor, gll.Graph, gll.Labels]:
    """8,000 points of a cube, blue on the left and orange on the right, with one label a class."""
    torch.manual_seed(seed)
    x = torch.rand(8000, 3, dtype=torch.float64)
    centres = torch.tensor([[0.25, 0.5, 0.5], [0.75, 0.5, 0.5]], dtype=torch.float64)
    labelled = torch.cdist(centres, x).argmin(1)
    return x, gll.knn_graph(x, k=10), gll.Labels(labelled, torch.eye(2, dtype=torch.float64))


def right(x: torch.Tensor, solution: gll.Solution) -> float:
    return (solution.classes == (x[:, 0] > 0.5).long()).double().mean().item()


def spikes() -> None:
    """Laplace and Poisson with one label per class."""
    x, graph, labels = cube(seed=0)
    figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.3), layout="constrained")
    for axis, equation in zip(axes, (gll.Laplace(), gll.Poisson()), strict=True):
        solution = gll.solve(equation, graph, labels)
        u, guess = solution.value[:, 0], solution.classes
        for c, colour in enumerate((BLUE, ORANGE)):
            node = labels.index[c]
            axis.scatter(x[guess == c, 0], u[guess == c], s=1.5, color=colour, alpha=0.6)
            axis.scatter(x[node, 0], u[node], s=120, marker="*", color=colour, edgecolors="black", zorder=3)
        axis.axhline(0.5 if isinstance(equation, gll.Laplace) else 0.0, color="black", linewidth=0.8, linestyle=":")
        share = right(x, solution)
        axis.set(title=f"{type(equation).__name__}: {share:.0%} of the points right", xlabel="first coordinate")
    axes[0].set_ylabel("u, column of the blue class")
    save(figure, "spikes.png")

    draws = [cube(seed) for seed in range(20)]  # one picture proves nothing: the caption gives these numbers
    for equation in (gll.Laplace(), gll.Poisson()):
        score = [right(x, gll.solve(equation, graph, labels)) for x, graph, labels in draws]
        print(f"{type(equation).__name__}: {sum(score) / 20:.0%} right, {min(score):.0%} to {max(score):.0%}, 20 draws")


def augmentation() -> None:
    """Every operation on one photograph, and what three policies make of it."""
    photo = Image.fromarray(load_sample_image("flower.jpg")).crop((100, 0, 527, 427)).resize((32, 32))
    image = torch.from_numpy(np.array(photo)).permute(2, 0, 1)[None]
    half = torch.tensor([16])
    shown = {
        "the image": image,
        "brightness 0.4": operations.brightness(image, 0.4),
        "contrast 0.3": operations.contrast(image, 0.3),
        "color 0.1": operations.color(image, 0.1),
        "sharpness 0.05": operations.sharpness(image, 0.05),
        "sharpness 4": operations.sharpness(image, 4.0),
        "autocontrast": operations.autocontrast(image // 2 + 40),
        "equalize": operations.equalize(image),
        "posterize 2": operations.posterize(image, 2),
        "solarize 128": operations.solarize(image, 128),
        "invert": operations.invert(image),
        "hue 0.3": operations.hue(image, 0.3),
        "grayscale": operations.grayscale(image),
        "rotate 30": geometry.rotate(image, 30.0),
        "shear x 0.3": geometry.shear_x(image, 0.3),
        "shear y −0.3": geometry.shear_y(image, -0.3),
        "translate x 0.3": geometry.translate_x(image, 0.3),
        "translate y −0.3": geometry.translate_y(image, -0.3),
        "flip": geometry.horizontal_flip(image),
        "crop": geometry.crop(image, 16, 16, padding=8),
        "resized crop": geometry.resized_crop(image, half // 2, half // 3, half, half),
        "cutout": geometry.cutout(image, 15, 8, 11),
    }
    columns = 11
    figure, axes = plt.subplots(5, columns, figsize=(11, 5.6), layout="constrained")
    for axis, (title, changed) in zip(axes[:2].flat, shown.items(), strict=True):
        axis.imshow(changed[0].permute(1, 2, 0))
        axis.set_title(title, fontsize=7.5)
    generator = torch.Generator().manual_seed(0)
    for row, (name, source) in zip(
        axes[2:], {"strong": image, "simclr": image, "grey": operations.grayscale(image)}.items(), strict=True
    ):
        images = source.repeat(columns, 1, 1, 1)
        for axis, changed in zip(row, augmentation_from_name(name)(images, generator), strict=True):
            axis.imshow(changed.permute(1, 2, 0))
        row[0].set_ylabel(f"“{name}”")
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
        axis.spines[:].set_visible(False)
    save(figure, "augmentation.png")


if __name__ == "__main__":
    tau()
    spikes()
    augmentation()
