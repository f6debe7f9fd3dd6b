"""The command line: arguments and options of every command. The work is done elsewhere, imported when it is needed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from gll.data_commands import app as data_app
from gll.option_names import EpsUnits, MetricName, NormName, QueriesName, ScaleName, UnreachedName
from gll.terminal import problems_told, said_by, warned_once

app = typer.Typer(
    help="Graph learning layers: spread a few labels over a similarity graph, with exact gradients.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
app.add_typer(data_app, name="data")
console = Console()

RunArgument = Annotated[Path, typer.Argument(help="A run directory.")]
ImagesArgument = Annotated[
    list[str],
    typer.Argument(help="Image files, folders of images, .npz files, or data sets such as digits or mnist:test."),
]
ConvertOption = Annotated[
    bool, typer.Option("--convert", help="Crop, scale and colour image files as the run's images are.")
]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda, ...")]
RootOption = Annotated[Path | None, typer.Option("--data-root", help="Where data sets lie, if not as in the run.")]
EncoderOption = Annotated[
    str | None,
    typer.Option(metavar="MODULE:NAME", help="The run's encoder, where it is code: it is executed only if named here."),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace a file that exists.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON in place of a table.")]


def _overrides(help_: str) -> Any:
    return typer.Argument(metavar="[KEY=VALUE]...", help=help_)


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


def _refuse_early(command: str, config: Path | None, overrides: list[str] | None, resume: Path | None) -> None:
    """Say what is wrong with the text of a config, before PyTorch is imported, which takes seconds."""
    from gll.train.config import load_config
    from gll.train.toml import ConfigError

    with problems_told(command, ConfigError):
        if config is not None and resume is None:
            load_config(config, overrides or [])


@app.command()
def train(
    config: Annotated[Path | None, typer.Argument(help="A config (TOML), such as one in configs/.")] = None,
    overrides: Annotated[list[str] | None, _overrides("In place of what it says: train.lr=0.1 seed=3")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="DIR", help="Go on with a run that was stopped.")] = None,
    encoder: EncoderOption = None,
    keys: Annotated[bool, typer.Option("--keys", help="Show all keys of a config, and do nothing else.")] = False,
) -> None:
    """Train an encoder with a head, as a config says, into a run directory."""
    if keys:
        from gll.train.keys import listing

        print(listing())
        return
    _refuse_early("train", config, overrides, resume)
    from gll.train.commands import run_train

    with warned_once("UnreachedWarning"):
        raise typer.Exit(run_train(config, overrides or [], resume, encoder, console))


@app.command()
def pretrain(
    config: Annotated[Path | None, typer.Argument(help="A config (TOML) with warmup.epochs above 0.")] = None,
    overrides: Annotated[list[str] | None, _overrides("In place of what it says: warmup.gamma=choose")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="DIR", help="Go on with a warm-up that was stopped.")] = None,
    encoder: EncoderOption = None,
) -> None:
    """Warm an encoder up on all samples, labelled or not, without a head, into a run directory."""
    _refuse_early("pretrain", config, overrides, resume)
    from gll.train.pretrain_command import run_pretrain

    with warned_once("UnreachedWarning"):
        raise typer.Exit(run_pretrain(config, overrides or [], resume, encoder, console))


@app.command()
def evaluate(
    run: RunArgument,
    overrides: Annotated[list[str] | None, _overrides("Test in other ways: test.inductive=true")] = None,
    encoder: EncoderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Test what a run has trained, on its data. Nothing is written."""
    from gll.train.commands import run_evaluate

    with warned_once("UnreachedWarning"):
        raise typer.Exit(run_evaluate(run, overrides or [], as_json, encoder, console))


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run directories, or folders with runs in them.")],
    out: Annotated[Path, typer.Option(help="The picture: .png, .svg or .pdf.")] = Path("out/compare.png"),
    as_json: JsonOption = False,
) -> None:
    """Put runs beside each other: a table, mean ± standard deviation over seeds, and curves of loss and error."""
    from gll.train import compare as work
    from gll.train.curves import draw

    with problems_told("compare", OSError, ValueError) as errors:
        found = work.compare(runs)
        draw(found, out)
    if as_json:
        print(json.dumps(found.as_dict(), indent=1))
    else:
        work.print_comparison(found, console)
    for note in found.notes:
        errors.print(said_by("compare (note)", note, "yellow"))
    errors.print(Text(f"wrote {out}"))


def _teller(errors: Console) -> Callable[[str], None]:
    return lambda text: errors.print(Text(text))


@app.command()
def attack(
    run: RunArgument,
    attacks: Annotated[
        str,
        typer.Option(
            help="Sets and names with commas between. paper: fgsm, ifgsm, cw-paper. strong (long, see --samples): pgd, "
            "pgd-margin, pgd-dlr, pgd-targets, fixed, every-class, features, surrogate, square, probe, transfer, "
            "autoattack, cw. In no set: autoattack-rand."
        ),
    ] = "paper",
    eps: Annotated[str, typer.Option(help="Every ε, such as 0.1,0.2; by default the paper's for this data.")] = "",
    eps_units: Annotated[
        EpsUnits, typer.Option(help="Of --eps: the range from black to white is 1, or the standard deviation is.")
    ] = EpsUnits.PIXELS,
    norm: Annotated[
        NormName,
        typer.Option(case_sensitive=False, help="Of ε: the largest change of a pixel, or the length of the change."),
    ] = NormName.LINF,
    c: Annotated[str, typer.Option("--c", help="Every c of CW in the paper's form, such as 10,20.")] = "",
    samples: Annotated[int, typer.Option(min=0, help="Test samples, drawn at random; 0: all.")] = 0,
    base: Annotated[int, typer.Option(min=0, help="Training samples in the graph; 0: the paper's number.")] = 0,
    chunk: Annotated[int, typer.Option(min=0, help="Samples attacked at a time; 0: the paper's number.")] = 0,
    queries: Annotated[
        QueriesName, typer.Option(help="Attacked samples share a graph, or each has one of its own.")
    ] = QueriesName.JOINT,
    inductive: Annotated[
        bool, typer.Option("--inductive", help="Each sample is joined to a base that was solved without it.")
    ] = False,
    transfer: Annotated[
        list[Path] | None, typer.Option(metavar="RUN", help="A run to transfer attacks from; may be repeated.")
    ] = None,
    head_at_test: Annotated[
        str | None, typer.Option(help="gll or wnll: classify by a graph in place of the run's own head.")
    ] = None,
    gradient_of: Annotated[
        str,
        typer.Option(
            help="Whose gradient the attacks follow: own, mlp, gll; or graph: of a WNLL head, that of its graph "
            "in place of the linear layer's, by which it was trained."
        ),
    ] = "own",
    steps: Annotated[int, typer.Option(min=1, help="Of PGD, in the strong set.")] = 40,
    restarts: Annotated[int, typer.Option(min=1, help="Of PGD, in the strong set.")] = 2,
    square_queries: Annotated[int, typer.Option(min=1, help="Of Square, in the strong set.")] = 1000,
    poison: Annotated[str, typer.Option(help="Flip so many labels of the base, such as 1,2,5,10.")] = "",
    out: Annotated[Path | None, typer.Option(help="Folder for results; by default attack in that of the run.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the results in that folder.")] = False,
    keep_images: Annotated[
        bool, typer.Option("--keep-images", help="Keep all attacked images, not only the first few.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of samples, base and random starts.")] = 0,
    device: DeviceOption = "auto",
    data_root: RootOption = None,
    encoder: Annotated[
        list[str] | None, typer.Option(metavar="MODULE:NAME", help="A run's encoder, if it is code; may be repeated.")
    ] = None,
) -> None:
    """Attack a run, and say how far the error can be trusted: tables, curves and images, into a folder."""
    from gll.attacks.command import run_attack
    from gll.attacks.target import Request, numbers, whole_numbers

    with problems_told("attack", ValueError):
        request = Request(
            run, attacks, numbers("--eps", eps), eps_units is EpsUnits.NORMALISED, numbers("--c", c), samples, base,
            chunk, queries is QueriesName.JOINT, inductive, tuple(transfer or ()), head_at_test, gradient_of, steps,
            restarts, square_queries, whole_numbers("--poison", poison), out, resume, seed, device,
            data_root, tuple(encoder or ()), keep_images, norm.value,
        )  # fmt: skip
    raise typer.Exit(run_attack(request, console))


@app.command()
def predict(
    run: RunArgument,
    images: ImagesArgument,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Write all rows to this .csv file.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print all rows as CSV in place of a table.")] = False,
    rows: Annotated[int, typer.Option(min=0, help="Rows of the table.")] = 20,
    inductive: Annotated[
        bool, typer.Option("--inductive", help="Answer every image by itself, not all of them on one graph.")
    ] = False,
    convert: ConvertOption = False,
    device: DeviceOption = "auto",
    data_root: RootOption = None,
    encoder: EncoderOption = None,
    force: ForceOption = False,
) -> None:
    """Say the class of images, how sure that is, and the runner-up."""
    from gll.files import complete_file
    from gll.train import apply as work

    with problems_told("predict", OSError, ValueError, RuntimeError) as errors:
        if out is not None:
            work.check_output(out, ".csv", force)
        trained = work.Trained.open(run, device=device, root=data_root, encoder=encoder, tell=_teller(errors))
        found = work.predict(trained, images, inductive=inductive, convert=convert)
        if out is not None:
            with complete_file(out) as part:
                part.write_text(found.csv(), encoding="utf-8")
    if as_csv:
        print(found.csv(), end="")
    else:
        console.print(found.table(rows))
    for line in found.remarks(None if as_csv else rows):
        errors.print(Text(line))
    if out is not None:
        errors.print(Text(f"wrote {out}"))


@app.command()
def embed(
    run: RunArgument,
    images: ImagesArgument,
    out: Annotated[Path, typer.Option("-o", "--out", help="The .npz file to write.")],
    convert: ConvertOption = False,
    device: DeviceOption = "auto",
    data_root: RootOption = None,
    encoder: EncoderOption = None,
    force: ForceOption = False,
) -> None:
    """Write the features of images, made by a run's encoder, to a file that `gll fit` reads."""
    from gll.train import apply as work

    with problems_told("embed", OSError, ValueError, RuntimeError) as errors:
        work.check_output(out, ".npz", force)
        trained = work.Trained.open(run, device=device, root=data_root, encoder=encoder, tell=_teller(errors))
        arrays = work.embed(trained, images, convert=convert)
        work.write_features(arrays, out)
    n, d = arrays["features"].shape
    known = {key: int((arrays[key] != "").sum()) for key in ("labels", "truth") if key in arrays}
    more = "".join(f", {count:,} {key}" for key, count in known.items())
    console.print(Text(f"wrote {out}: {n:,} rows of {d} features{more}"), soft_wrap=True)


@app.command()
def fit(
    features: Annotated[Path, typer.Argument(help="Points: an .npz or .npy array, or a sparse matrix of SciPy's.")],
    labels: Annotated[
        Path | None,
        typer.Option(
            help="Labels: a CSV with the header index,label (or id,label, for an array 'ids' in FEATURES), or one "
            "label a line for every point (empty or -1: none); or an .npy or .npz array. By default the array 'labels' "
            "or 'y' in FEATURES."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write predictions and probabilities to this .npz file.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write a page (HTML) to this file.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the fitted classifier to this file.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
    key: Annotated[str | None, typer.Option(help="Name of the array in FEATURES.")] = None,
    method: Annotated[str, typer.Option(help="How labels are spread: auto, laplace, poisson, wnll, ...")] = "auto",
    neighbors: Annotated[int, typer.Option(min=1, help="Neighbours of every point.")] = 10,
    metric: Annotated[MetricName, typer.Option(help="precomputed: FEATURES are similarities.")] = MetricName.EUCLIDEAN,
    class_prior: Annotated[
        str | None,
        typer.Option(help="Wanted shares of the classes: 3,4,3 or cat=3,dog=4 or a CSV with the header label,share."),
    ] = None,
    calibrate: Annotated[bool, typer.Option("--calibrate", help="Fit a temperature on hidden labels.")] = False,
    unreached: Annotated[
        UnreachedName, typer.Option(help="What points get that no label reaches; raise stops.")
    ] = UnreachedName.UNIFORM,
    device: Annotated[str, typer.Option(help="cpu, cuda, ...")] = "cpu",
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of what is drawn at random.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print warnings and errors only.")] = False,
) -> None:
    """Spread a few labels over all points, from files, and say how it went."""
    from gll import fit as work
    from gll.summary import fit_tables

    request = work.Request(
        features, labels, key, out, report, save, force, not quiet,
        method, neighbors, metric.value, class_prior, calibrate, unreached.value, device, seed,
    )  # fmt: skip
    with problems_told("fit", OSError, ValueError) as errors:
        try:
            outcome = work.fit(request, tell=lambda text: None if quiet else errors.print(said_by("fit", text, "bold")))
            for note in outcome.notes:
                errors.print(said_by("fit (note)", note, "yellow"))
            if not quiet:
                console.print(*fit_tables(outcome), Text(outcome.model.description_), sep="\n")
            written = work.write(outcome)
        except KeyboardInterrupt:
            errors.print(said_by("fit", "interrupted; no file was left half written"))
            raise typer.Exit(130) from None
    if not quiet:
        console.print(Text(f"wrote {', '.join(map(str, written))}" if written else "nothing written: give --out"))


@app.command()
def doctor(
    file: Annotated[Path, typer.Argument(help="An .npz file with an array of features and, if you like, labels.")],
    k: Annotated[int, typer.Option("--neighbors", "--k", min=1, help="Neighbours of every point.")] = 10,
    cosine: Annotated[bool, typer.Option("--cosine", help="Scale rows to length one first.")] = False,
    features: Annotated[str | None, typer.Option(help="Name of the feature array.")] = None,
    labels: Annotated[str | None, typer.Option(help="Name of the label array (-1 or empty: no label).")] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what one should know about a set of features before building a graph from it."""
    from gll.doctor import examine, load_npz
    from gll.features import Metric
    from gll.summary import doctor_table

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
    console.print(doctor_table(report, file.name))
    for line in report.advice:
        console.print(f"• {line}", highlight=False)


@app.command()
def demo(
    epochs: Annotated[int, typer.Option(min=2, help="Epochs of 10 steps, of every run.")] = 40,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds: labels, initial weights and augmentation.")] = 5,
    out: Annotated[Path, typer.Option(help="Folder for runs, pictures and figures.")] = Path("out/demo"),
    threads: Annotated[
        int, typer.Option(min=1, help="CPU threads; two gain little, and lose much on a busy machine.")
    ] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what an earlier demo has left in OUT.")] = False,
) -> None:
    """Train MLP, WNLL and GLL heads on handwritten digits with ten labels a class, and compare them over seeds."""
    from gll.demo import run_demo

    with problems_told("demo", OSError, ValueError):
        run_demo(epochs=epochs, seeds=seeds, out=out, threads=threads, resume=resume, console=console)


@app.command()
def moons(
    epochs: Annotated[int, typer.Option(min=1, help="Training epochs of each of the six models.")] = 2000,
    paper: Annotated[bool, typer.Option("--paper", help="The paper's 150,000 epochs (hours on a CPU).")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the picture and the figures.")] = Path("out/moons"),
    seed: Annotated[int, typer.Option(help="Seed of the encoder's initial weights.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 2,
) -> None:
    """Train a small encoder on two moons through the layer, for several τ and with softmax, and draw what it learns."""
    from gll.moons import run_moons

    run_moons(epochs=150_000 if paper else epochs, out=out, seed=seed, threads=threads, console=console)


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="Experiments (see --list), or names of the paper: 'table 4', 'figures 6 to 8', B.3.",
        ),
    ] = None,
    scale: Annotated[
        ScaleName | None, typer.Option(help="Seconds; minutes a cell on a GPU; the paper's.", show_default="smoke")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every experiment that has this scale.")] = False,
    show: Annotated[
        bool, typer.Option("--list", help="Show all experiments, or the cells of NAME; runs nothing.")
    ] = False,
    results: Annotated[bool, typer.Option("--show", help="What has been run of NAME, beside the paper's.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with cells that were stopped.")] = False,
    device: DeviceOption = "auto",
    seconds: Annotated[float | None, typer.Option(min=1, help="Stop cleanly after so many seconds.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes; each takes a cell at a time.")] = 1,
    only: Annotated[str, typer.Option(help="Cells with these parts: 'resnet18 | vgg11, 2%, seed 0'.")] = "",
    tables: Annotated[bool, typer.Option("--tables", help="Write the pages with tables again.")] = False,
    figures: Annotated[bool, typer.Option("--figures", help="Draw the figures again, and then --tables.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Only look: exit with 1 if such a page is out of date.")
    ] = False,
    merge: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Take results from another folder of experiments.")
    ] = None,
    pack: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.tar.gz", help="Pack what unfinished cells, of NAME or all, need to go on elsewhere."
        ),
    ] = None,
    limit_mb: Annotated[
        float | None, typer.Option(min=0.001, help="With --pack: no larger; the most work for each MB goes first.")
    ] = None,
    unpack: Annotated[
        Path | None,
        typer.Option(metavar="FILE.tar.gz", help="Take results and unfinished cells that --pack has packed."),
    ] = None,
    experiments: Annotated[
        Path | None, typer.Option(help="The folder of experiments; else experiments/ here or in the checkout.")
    ] = None,
    work: Annotated[Path, typer.Option(help="Folder of cells at work.")] = Path("out/reproduce"),
) -> None:
    """Run a table or figure of the paper, or go on with it, and show what is new beside the paper's."""
    from gll.reproduce import command
    from gll.reproduce.words import typed

    with problems_told("reproduce", OSError, ValueError):
        words = typed(only)
        request = command.Request(
            tuple(names or ()), scale and scale.value, every, show, resume, device, seconds, jobs, words, tables,
            figures, check, merge, pack, limit_mb, unpack, command.find_experiments(experiments), work, results,
        )  # fmt: skip
        code = command.run_reproduce(request, console)
    raise typer.Exit(code)
