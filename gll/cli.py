"""The command line: `gll demo`, `gll doctor FILE.npz`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(
    help="Graph learning layers: spread a few labels over a similarity graph, with exact gradients.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
console = Console()


def _version(show: bool | None) -> None:
    if show:
        import gll

        console.print(f"gll {gll.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool | None, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = None,
) -> None:
    """Graph learning layers: spread a few labels over a similarity graph, with exact gradients."""


@app.command()
def demo(
    epochs: Annotated[int, typer.Option(min=1, help="Training epochs of each of the six models.")] = 2000,
    paper: Annotated[bool, typer.Option("--paper", help="The paper's 150,000 epochs (hours on a CPU).")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the picture and the figures.")] = Path("out/demo"),
    seed: Annotated[int, typer.Option(help="Seed of the encoder's initial weights.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 2,
) -> None:
    """Train a small encoder on two moons through the layer, for several τ and with softmax, and draw what it learns."""
    from gll.demo import run_demo

    run_demo(epochs=150_000 if paper else epochs, out=out, seed=seed, threads=threads, console=console)


@app.command()
def doctor(
    file: Annotated[Path, typer.Argument(help="An .npz file with an array of features and, if you like, labels.")],
    k: Annotated[int, typer.Option(min=1, help="Neighbours of every point.")] = 25,
    cosine: Annotated[bool, typer.Option("--cosine", help="Scale rows to length one first.")] = False,
    features: Annotated[str | None, typer.Option(help="Name of the feature array.")] = None,
    labels: Annotated[str | None, typer.Option(help="Name of the label array (integers, -1 for unlabelled).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of a table.")] = False,
) -> None:
    """Say what one should know about a set of features before building a graph from it."""
    from gll.doctor import examine, load_npz
    from gll.features import Metric

    try:
        x, y = load_npz(file, features, labels)
        with console.status(f"building the graph of {len(x):,} points"):
            report = examine(x, y, k=k, metric=Metric.COSINE if cosine else Metric.EUCLIDEAN)
    except (OSError, ValueError) as error:
        console.print(f"[red]gll doctor:[/red] {error}", highlight=False)
        raise typer.Exit(1) from None
    if as_json:
        print(json.dumps(report.as_dict(), indent=1))
        return
    table = Table(title=f"{file.name}: {report.points:,} points in {report.dimensions} dimensions, {report.dtype}")
    table.add_column("finding")
    table.add_column("value", justify="right")
    r = report
    rows = [
        ("rows with NaN or infinity", f"{r.rows_not_finite:,}"),
        ("rows of zeros", f"{r.zero_rows:,}"),
        ("constant dimensions", f"{r.constant_dimensions:,}"),
        ("exact duplicates (largest group)", f"{r.duplicates:,} ({r.largest_group_of_copies:,})"),
        (f"edges at k = {r.k} (of weight zero)", f"{r.edges:,} ({r.vanished_edges:,})"),
        ("components (largest, isolated points)", f"{r.components:,} ({r.largest_component:,}, {r.isolated_points:,})"),
        ("degree: min, median, max", f"{r.degree_min:.3g}, {r.degree_median:.3g}, {r.degree_max:.3g}"),
        ("bandwidth: min, median, max", f"{r.bandwidth_min:.3g}, {r.bandwidth_median:.3g}, {r.bandwidth_max:.3g}"),
    ]
    if r.labelled:
        rows += [
            ("labels (classes)", f"{r.labelled:,} ({r.classes:,})"),
            ("components without a label", f"{r.components_without_label:,}"),
            ("points no label reaches", f"{r.unreached:,}"),
            ("condition estimate", f"{r.condition:.1e}" if r.condition > 0 else "nothing to solve"),
        ]
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for line in r.advice:
        console.print(f"• {line}", highlight=False)
