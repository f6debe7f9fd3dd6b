"""An experiment: a folder of experiments/, read. Its cells are the points of a grid, each with every seed.

    [axes.head]                       an axis: names, and what each sets
    gll = ["model.head=gll"]
    mlp = ["model.head=mlp"]
    [scales.smoke]                    how large: seeds, which points (all, if not said), and what is set for all of them
    seeds = [0]
    only = { head = ["gll"] }
    set = ["train.epochs=1"]
    without = ["mlp"]                 points to leave out, by name
    axes.head.gll = ["base.size=20"]  what is set for some of them

What is set later wins: [run], then the axes in their order, then the scale. Nothing here needs PyTorch.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from gll.names import require_name, require_options
from gll.reproduce.words import has
from gll.train.toml import written

SCALES = ("smoke", "small", "full")
KEYS = ("title", "paper", "kind", "order", "table", "axes", "run", "options", "scales")
TABLE_KEYS = ("rows", "columns", "figures", "digits", "better", "figure", "errors", "quotients")
BETTER = ("lower", "higher", "exact")


class ExperimentError(ValueError):
    """An experiment that cannot be read or run as asked; the message says what to do."""


@final
@dataclass(frozen=True)
class Point:
    """A point of the grid, with a seed.

    Args:
        place: the name on each axis.
        seed: of everything random.
        overrides: `key=value`, later ones win.
    """

    place: tuple[tuple[str, str], ...]
    seed: int
    overrides: tuple[str, ...]

    @property
    def name(self) -> str:
        """As in expected.json."""
        return name_of(dict(self.place))

    def options(self) -> dict[str, Any]:
        """What was set as options.KEY=VALUE: the settings of whatever is not a training run."""
        chosen = [text.removeprefix("options.") for text in self.overrides if text.startswith("options.")]
        found: dict[str, Any] = {}
        for text in chosen:
            key, _, value = text.partition("=")
            try:
                found[key] = tomllib.loads(f"value = {value}")["value"]
            except tomllib.TOMLDecodeError:
                found[key] = value
        return found

    @property
    def data(self) -> str:
        """The data set of a training run, at smoke another than the name on an axis says; "" if none is set."""
        named = [text.partition("=")[2].strip("\"'") for text in self.overrides if text.startswith("data.name=")]
        return named[-1] if named else ""

    def settings(self) -> tuple[str, ...]:
        """What was set for a training run."""
        return tuple(text for text in self.overrides if not text.startswith("options."))


@final
@dataclass(frozen=True)
class Cell:
    """A piece of work that is done once: a training run, a warm-up that several share, a measurement.

    Args:
        experiment, scale: whose it is.
        point: what it is; of a warm-up, that of one of those who share it.
        settings: all that decides what comes out, JSON-able; `key` is its checksum.
        role: "" for what the table shows; else what it is, such as "warm-up".
        needs: the key of the cell that must be done before.
        part: where the work of a point is split among cells, which part this one is; their figures share a row.
        apart: what tells it from others of its role, where they would have the same title; in no key and no folder.
    """

    experiment: str
    scale: str
    point: Point
    settings: Mapping[str, Any] = field(hash=False)
    role: str = ""
    needs: str = ""
    part: str = ""
    apart: str = ""

    @property
    def key(self) -> str:
        """Cells of equal settings are the same cell, whatever they are called. The commit is no part of it."""
        text = json.dumps([self.role, self.point.seed, self.settings], sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def title(self) -> str:
        """To read."""
        return self._called(f"{self.role} ({self.apart})" if self.apart else self.role)

    @property
    def folder(self) -> str:
        """The name of its folder, in ASCII."""
        return folder_name(self._called(self.role), self.key)

    def _called(self, role: str) -> str:
        words = [role, *(value for _, value in self.point.place), self.part, f"seed {self.point.seed}"]
        return ", ".join(word for word in words if word)

    @property
    def path(self) -> str:
        """Where it is at work, below out/reproduce. What others need all experiments share; smoke shares nothing."""
        shared = self.role and self.scale != "smoke"
        return f"{self.role}/{self.key}" if shared else f"{self.experiment}/{self.scale}/{self.folder}"

    @property
    def parts(self) -> list[str]:
        """What it can be asked for by: its role, its name on each axis, its part, "seed 0"."""
        return self.title.split(", ")

    def matches(self, words: Iterable[str]) -> bool:
        """Whether it has every word, or one of those with | between them; see `gll.reproduce.choice`."""
        return all(has(self.parts, word) for word in words if word.strip())


def require_different(cells: Iterable[Cell]) -> None:
    """Refuse two names for one cell: a `set` of a scale goes over the axes, and may take away what tells cells apart.

    Raises:
        ExperimentError: it says which two.
    """
    seen: dict[str, Cell] = {}
    for cell in (cell for cell in cells if not cell.role):
        if (other := seen.setdefault(cell.key, cell)) is not cell:
            raise ExperimentError(
                f"{other.title} and {cell.title} are one cell: their settings are equal; is what tells them apart "
                f"overridden by `set` of [scales.{cell.scale}]? If so, give it in `axes` of that scale"
            )


@final
@dataclass(frozen=True, eq=False)
class Experiment:
    """What config.toml and expected.json of a folder say.

    Args:
        folder: where.
        command: the first line of config.toml.
        about: the rest of its first comment: what to expect.
        text: config.toml, read.
        expected: the paper's values.
    """

    folder: Path
    command: str
    about: str
    text: Mapping[str, Any]
    expected: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def in_paper(self) -> str:
        """Where the paper has it; "none", and maybe why, where it has not; "on table 4: ..." where it asks about it."""
        return str(self.text["paper"]).strip() or "none"

    @property
    def of_paper(self) -> bool:
        """Whether the values of expected.json are the paper's; else they are what somebody expects."""
        return not self.in_paper.startswith("none")

    @property
    def is_in_paper(self) -> bool:
        """Whether it is a table or figure of the paper, not beyond it and no question about one."""
        return self.of_paper and not self.in_paper.startswith("on ")

    @property
    def errors(self) -> tuple[str, ...]:
        """Those of its figures that are errors: all, if config.toml does not say which."""
        return tuple(self.text["table"].get("errors", self.text["table"]["figures"]))

    @property
    def quotients(self) -> tuple[str, ...]:
        """Those of its figures that the paper does not print: in expected.json they are divided from its numbers."""
        return tuple(self.text["table"].get("quotients", ()))

    @property
    def kind(self) -> str:
        return str(self.text["kind"])

    @property
    def scales(self) -> tuple[str, ...]:
        """Those it has, the smallest first."""
        return tuple(scale for scale in SCALES if scale in self.text["scales"])

    @property
    def results_scales(self) -> tuple[str, ...]:
        """Those whose figures mean something: all but smoke."""
        return tuple(scale for scale in self.scales if scale != SCALES[0])

    def points(self, scale: str) -> Iterator[Point]:
        """Every point at this scale, seed by seed: whoever stops early has whole seeds."""
        require_name(f"scale of {self.name}", scale, self.scales)
        at = self.text["scales"][scale]
        only, more, left_out = at.get("only", {}), at.get("axes", {}), self.left_out(scale)
        axes = {
            axis: {name: sets for name, sets in values.items() if name in only.get(axis, values)}
            for axis, values in self.text["axes"].items()
        }
        shared = [*_flat(self.text.get("run", {})), *_flat({"options": self.text.get("options", {})})]
        for seed, *names in itertools.product(at["seeds"], *(values for values in axes.values())):
            place = tuple(zip(axes, names, strict=True))
            if name_of(dict(place)) in left_out:
                continue
            own = [text for axis, name in place for text in axes[axis][name]]
            late = [text for axis, name in place for text in more.get(axis, {}).get(name, ())]
            yield Point(place, seed, (*shared, *own, *at.get("set", ()), *late))

    def places(self) -> Iterator[dict[str, str]]:
        """Every place of the grid, whether a scale asks for it or not."""
        return _grid(self.text["axes"])

    def left_out(self, scale: str) -> dict[str, list[str]]:
        """The places that this scale is without: their names, and the parts of each."""
        names = self.text["scales"][scale].get("without", ())
        return {name_of(place): name_of(place).split(", ") for place in self.places() if name_of(place) in names}

    @contextmanager
    def named(self, point: Point) -> Iterator[None]:
        """What is wrong with the settings of a point is told with the file that says them.

        Raises:
            ExperimentError: in place of another ValueError.
        """
        try:
            yield
        except ValueError as error:
            raise ExperimentError(f"{self.folder / 'config.toml'}: {point.name}: {error}") from None

    def paper(self, name: str, figure: str) -> tuple[float, float | None] | None:
        """The paper's value and its standard deviation (None: not given); None where it has no value."""
        found = self.expected["values"].get(name, {}).get(figure)
        if found is None:
            return None
        return (float(found[0]), float(found[1])) if isinstance(found, list) else (float(found), None)

    def samples(self, scale: str, figure: str) -> tuple[int | None, int | None]:
        """How many samples a figure is of at this scale, ours and the paper's; None where it is not said."""
        said = self.expected.get("samples", {}).get(scale, {}).get(figure)
        return (said[0], said[1]) if isinstance(said, list) else (said, None)


def name_of(place: Mapping[str, str]) -> str:
    """A point as it is called in expected.json.

    >>> name_of({"network": "resnet18", "head": "gll"})
    'resnet18, gll'
    """
    return ", ".join(place.values())


def folder_name(title: str, key: str) -> str:
    """The folder of a cell, and the beginning of the names of its arrays.

    >>> folder_name("ResNet18, 2%, τ = 0.1, seed 0", "0123456789abcdef")
    'resnet18-2pc-tau-0-1-seed-0-01234567'
    """
    words = title.lower().replace("%", "pc").replace("τ", "tau").replace("γ", "gamma")
    plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in words)
    return f"{'-'.join(part for part in plain.split('-') if part)}-{key[:8]}"


def load_experiment(folder: Path) -> Experiment:
    """Read the folder of an experiment.

    Raises:
        ExperimentError: a file cannot be read, or says something unknown.
    """
    try:
        file = folder / "config.toml"
        source = file.read_text(encoding="utf-8")
        text = tomllib.loads(source)
        _check(folder.name, text)
        file = folder / "expected.json"
        expected = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {"values": {}}
        _check_expected(text, expected)
    except (OSError, ValueError) as error:
        raise ExperimentError(f"experiment {folder.name}: {file}: {error}") from None
    comment = itertools.takewhile(lambda line: line.startswith("#"), source.splitlines())
    command, _, about = "\n".join(line.lstrip("# ").rstrip() for line in comment).partition("\n")
    return Experiment(folder, command, about.strip(), text, expected)


def load_all(root: Path) -> dict[str, Experiment]:
    """Every experiment in a folder, by name, in the paper's order."""
    found = [load_experiment(file.parent) for file in sorted(root.glob("*/config.toml"))]
    if not found:
        raise ExperimentError(
            f"there are no experiments in {root}: give the folder by --experiments, or use a checkout"
        )
    return {one.name: one for one in sorted(found, key=lambda one: (one.text["order"], one.name))}


def _check(name: str, text: Mapping[str, Any]) -> None:
    """Refuse what is unknown in config.toml."""
    require_options("experiment", name, text, KEYS)
    missing = [key for key in KEYS if key not in text and key not in ("run", "options")]
    if missing:
        raise ValueError(f"it has no {missing[0]}")
    require_options("table of", name, text["table"], TABLE_KEYS)
    for key in ("rows", "figures"):
        _require_names(f"{key} of [table]", text["table"].get(key))
    for key in ("errors", "quotients"):
        for figure in text["table"].get(key, []):
            require_name(f"figure in {key} of [table]", figure, text["table"]["figures"])
    if "better" in text["table"]:
        require_name("better", text["table"]["better"], BETTER)
    axes = text["axes"]
    shown = [*text["table"]["rows"], *text["table"].get("columns", [])]
    if sorted(shown) != sorted(axes):
        raise ValueError(f"rows and columns of its table are {shown}, but its axes are {list(axes)}")
    for scale, at in text["scales"].items():
        require_name("scale", scale, SCALES)
        require_options("scale", scale, at, ("seeds", "only", "without", "set", "axes", "about"))
        seeds = at.get("seeds")
        if not isinstance(seeds, list) or not seeds or not all(type(seed) is int and seed >= 0 for seed in seeds):
            raise ValueError(f"seeds of scale {scale} must be a list of whole numbers such as [0, 1, 2], got {seeds!r}")
        for axis, names in [*at.get("only", {}).items(), *at.get("axes", {}).items()]:
            require_name("axis", axis, axes)
            for value in names:
                require_name(axis, value, axes[axis])
    places = _places(text)
    for left in (name for at in text["scales"].values() for name in at.get("without", ())):
        require_name("place to leave out", left, places)


def _check_expected(text: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Refuse values of the paper that belong to no cell."""
    if not isinstance(expected.get("values"), dict):
        raise ValueError('it has no "values", the paper\'s; {"values": {}} says that there are none')
    places = _places(text)
    for place, values in expected["values"].items():
        require_name("place in expected.json", place, places)
        require_options("place", place, values, text["table"]["figures"])
    for scale, samples in expected.get("samples", {}).items():
        require_name("scale of the samples in expected.json", scale, SCALES)
        require_options("samples", scale, samples, text["table"]["figures"])


def _places(text: Mapping[str, Any]) -> set[str]:
    return {name_of(place) for place in _grid(text["axes"])}


def _grid(axes: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    return (dict(zip(axes, names, strict=True)) for names in itertools.product(*axes.values()))


def _require_names(what: str, names: object) -> None:
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{what} must be a list of names, got {names!r}")


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """A table of TOML as `key=value`."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}={written(tuple(value) if isinstance(value, list) else value)}"
