"""Write the tables of README.md and docs from the JSON files in benchmarks/results, and that of all keys of a config.

    python benchmarks/tables.py            rewrite the tables
    python benchmarks/tables.py --check    exit 1 if a table is out of date

A table stands between the lines `<!-- table NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import json
import operator
import re
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "active-learning.md",
    ROOT / "docs" / "adversarial-training.md",
    ROOT / "docs" / "few-labels.md",
    ROOT / "docs" / "how-to-choose.md",
    ROOT / "docs" / "large-graphs.md",
    ROOT / "docs" / "performance.md",
    ROOT / "docs" / "augmentation.md",
    ROOT / "docs" / "measuring-robustness.md",
    ROOT / "docs" / "robustness.md",
    ROOT / "docs" / "robustness-readings.md",
    ROOT / "docs" / "solvers.md",
    ROOT / "docs" / "threat-models.md",
    ROOT / "docs" / "training.md",
    ROOT / "docs" / "two-moons.md",
)


def layer(record: dict[str, Any], authors: dict[int, str]) -> str:
    head = ["nodes", "base", "d", "classes", "forward, ms", "forward + backward, ms", "naive dense twin, ms"]
    head += ["authors' code, ms", "peak memory, MB", "float32 − float64"]
    lines = [f"| {' | '.join(head)} |", "|---:" * len(head) + "|"]
    for row in record["rows"]:
        n, base, d, classes = row["case"]
        naive = f"{row['naive_ms']:,.1f}" if "naive_ms" in row else "–"
        lines.append(
            f"| {n:,} | {base:,} | {d} | {classes} | {row['forward_ms']:,.1f} | **{row['both_ms']:,.1f}** | {naive} | "
            f"{authors.get(n, '–')} | {row['peak_mb']:,.0f} | {row['float32_minus_float64']:.0e} |"
        )
    return "\n".join([*lines, "", _provenance(record)])


def _provenance(record: dict[str, Any]) -> str:
    versions = record.get("versions", {})
    return (
        f"<small>commit {record['commit']}, {record['device']}, {record.get('threads', '?')} thread(s), "
        f"torch {versions.get('torch', '?')}, seed {record['config'].get('seed', record.get('seed'))}, "
        f"{record.get('wall_s', record.get('wall_seconds')):.0f} s</small>"
    )


def fails_safely(record: dict[str, Any], _: dict[int, str]) -> str:
    lines = ["| problems | number | solved | failure admitted | **wrong, not admitted** |", "|---|---:|---:|---:|---:|"]
    for name, counts in record["rows"].items():
        wrong = sum(counts.get(key, 0) for key in ("wrong, not admitted", "crashed"))
        cells = (counts.get(key, 0) for key in ("problems", "solved", "admitted failure"))
        lines.append(f"| {name} | {' | '.join(f'{cell:,}' for cell in cells)} | **{wrong:,}** |")
    return "\n".join([*lines, "", _provenance(record)])


def moons(record: dict[str, Any], _: dict[int, str]) -> str:
    lines = [
        "| head | epochs | loss | accuracy | spread / gap of classes | seconds |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in record["rows"]:
        lines.append(
            f"| {row['head']} | {row['epochs']:,} | {row['loss']:.4f} | {row['accuracy']:.1%} | {row['spread']:.3f} | "
            f"{row['seconds']:.0f} |"
        )
    return "\n".join([*lines, "", _provenance(record)])


def demo(record: dict[str, Any], _: dict[int, str]) -> str:
    """Errors in percent; the seconds of a row are those of one run."""
    last = record["rows"][-1]["name"]
    lines = [f"| ten labels a class | test error, % | more than {last} | seconds of training |", "|---|---:|---:|---:|"]
    for row in record["rows"]:
        error, behind = (f"{100 * row[key]['mean']:.2f} ± {100 * row[key]['std']:.2f}" for key in ("error", "behind"))
        seconds = row["seconds"]["mean"]
        lines.append(
            f"| {row['name']} | {error} | {'' if row['name'] == last else behind} | "
            f"{'none' if seconds is None else f'{seconds:.0f}'} |"
        )
    return "\n".join([*lines, "", _provenance(record)])


def active(record: dict[str, Any], _: dict[int, str]) -> str:
    curves: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for name, run in record["runs"].items():
        acquisition, selection, _seed = name.split(" ")
        curves.setdefault((acquisition, selection), []).append(run)
    labels = next(iter(record["runs"].values()))["labels"]
    columns = [m for m in (10, 20, 50, 100, 200, 300) if m in labels]

    def mean(runs: list[dict[str, Any]], at: slice) -> float:
        return sum(sum(run["accuracy"][at]) / len(run["accuracy"][at]) for run in runs) / len(runs)

    whole = slice(None)
    config = record["config"]
    lines = [
        f"{config['dataset']}, {config['nodes']:,} nodes: accuracy in % by number of labels.",
        "",
        f"| function | batch | {' | '.join(map(str, columns))} | mean |",
        "|---|---|" + "---:|" * (len(columns) + 1),
    ]
    for (acquisition, selection), runs in sorted(curves.items(), key=lambda item: -mean(item[1], whole)):
        at = [labels.index(m) for m in columns]
        cells = [f"{100 * mean(runs, slice(i, i + 1)):.1f}" for i in at]
        lines.append(f"| {acquisition} | {selection} | {' | '.join(cells)} | {100 * mean(runs, whole):.1f} |")
    return "\n".join([*lines, "", _provenance(record)])


def large_graph(record: dict[str, Any], _: dict[int, str]) -> str:
    """MNIST beside others first, then how it grows."""
    head = ["", "recall", "search, s", "weights, s", "solve, s", "solve again, s", "accuracy", "peak memory, MB"]
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    names = {
        "mnist": "gll, MNIST",
        "scikit-learn": "scikit-learn LabelSpreading, MNIST",
        "graphlearning": "graphlearning, MNIST",
    }

    def cell(value: Any, form: str) -> str:
        if isinstance(value, dict):
            return "<br>".join(f"{name} {number:{form}}" for name, number in value.items()) or "–"
        return "–" if value is None else f"{value:{form}}"

    for name, row in record["rows"].items():
        title = names.get(name, f"gll, {name}")
        if "skipped" in row or "failed" in row:
            lines.append(f"| {title} | {row.get('skipped') or row['failed']} |" + " |" * (len(head) - 2))
            continue
        search = cell(row.get("search"), ".1f") if "search" in row else f"{row['total']:.1f} in all"
        cells = [cell(row.get("recall"), ".3f"), search, cell(row.get("weights"), ".2f"), cell(row.get("solve"), ".2f")]
        cells += [cell(row.get("again"), ".2f"), cell(row.get("accuracy"), ".1%"), cell(row.get("peak_mb"), ",.0f")]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    commits = sorted({row["commit"] for row in record["rows"].values() if "commit" in row})
    return "\n".join([*lines, "", _provenance(record | {"commit": ", ".join(commits)})])


def large_solvers(record: dict[str, Any], _: dict[int, str]) -> str:
    """Steps and seconds of several solvers on the graph of MNIST."""
    lines = ["| solver | steps | seconds | estimated error |", "|---|---:|---:|---:|"]
    for name, row in record["rows"]["mnist"]["solvers"].items():
        lines.append(f"| `{name}` | {row['steps']} | {row['seconds']:.1f} | {row['error']:.0e} |")
    return "\n".join([*lines, "", _provenance(record)])


def few_labels(record: dict[str, Any], _: dict[int, str]) -> str:
    """One table a dataset: methods by labels a class, the best on average first.

    Bold: within half a percent of the best that needs no prior.
    """
    blocks = []
    for dataset, kind in sorted(
        {(row["dataset"], row["features"]) for row in record["rows"]}, key=lambda at: (at[0].swapcase(), at[1])
    ):
        rows = [row for row in record["rows"] if (row["dataset"], row["features"]) == (dataset, kind)]
        counts = sorted({row["labels"] for row in rows})
        trials = sorted({len(row["accuracy"]) for row in rows})
        number = f"{trials[0]}" if trials[0] == trials[-1] else f"{trials[0]} to {trials[-1]}"
        what = "pixels" if kind == "pixels" else "means of an autoencoder"
        title = f"**{dataset}**, {rows[0]['points']:,} points ({what}), {number} draws of the labels"
        lines = [
            title,
            "",
            f"| labels a class | {' | '.join(map(str, counts))} | s |",
            "|---|" + "---:|" * (len(counts) + 1),
        ]
        cell = {(row["method"], row["labels"]): row for row in rows}
        mean = {place: sum(row["accuracy"]) / len(row["accuracy"]) for place, row in cell.items()}
        best = {c: max(m for (name, at), m in mean.items() if at == c and "prior" not in name) for c in counts}
        overall = {name: [m for (of, _), m in mean.items() if of == name] for name in {row["method"] for row in rows}}
        for method in sorted(overall, key=lambda name: (-sum(overall[name]) / len(overall[name]), name)):
            cells, seconds = [], [row["seconds"] for row in rows if row["method"] == method]
            for count in counts:
                if (method, count) not in cell:
                    cells.append("–")
                    continue
                values, middle = cell[method, count]["accuracy"], mean[method, count]
                spread = (sum((v - middle) ** 2 for v in values) / len(values)) ** 0.5
                bold = "**" if "prior" not in method and middle > best[count] - 0.005 else ""
                cells.append(f"{bold}{100 * middle:.1f}{bold} ± {100 * spread:.1f}")
            lines.append(f"| {method} | {' | '.join(cells)} | {sum(seconds) / len(seconds):.1f} |")
        blocks.append("\n".join(lines))
    return "\n\n".join([*blocks, _provenance(record)])


def calibration(record: dict[str, Any], _: dict[int, str]) -> str:
    """Calibration error by labels a class, as it is and after fitting a temperature."""
    counts = sorted({row["labels"] for row in record["rows"]})
    head = " | ".join(f"{count} labels" for count in counts)
    lines = [f"| data | method | {head} |", "|---|---|" + "---:|" * len(counts)]

    def mean(values: list[float]) -> str:
        return f"{100 * sum(values) / len(values):.1f}" if values else "–"

    for dataset, method in dict.fromkeys((row["dataset"], row["method"]) for row in record["rows"]):
        found = {row["labels"]: row for row in record["rows"] if (row["dataset"], row["method"]) == (dataset, method)}
        cells = [f"{mean(found[c]['ece'])} → **{mean(found[c]['ece_calibrated'])}**" for c in counts]
        lines.append(f"| {dataset} | {method} | {' | '.join(cells)} |".replace("**–**", "–"))
    return "\n".join([*lines, "", _provenance(record)])


def training_step(record: dict[str, Any], _: dict[int, str]) -> str:
    """Milliseconds a training and a testing step, the two ratios, and the paper's ratio."""
    paper = json.loads((RESULTS.parent / "paper" / "training_step.json").read_text())["networks"]
    head = ["network", "batch", "", "GLL, ms", "MLP, ms", "MLP, same images, ms", "GLL ÷ MLP", "paper's GLL ÷ MLP"]
    head += ["**GLL ÷ MLP, same images**", "data, share of the step"]
    lines = [f"| {' | '.join(head)} |", "|---|---:|---|" + "---:|" * (len(head) - 3)]
    for row in record["rows"]:
        theirs = next(r for r in paper[row["network"]]["rows"] if r["batch"] == row["batch"])
        for what, title in (("train", "training"), ("test", "testing")):
            kinds = [row[what][kind] for kind in ("gll", "mlp", "mlp, same")]
            times = [f"{kind['mean_ms']:.2f} ± {kind['std_ms']:.2f}" for kind in kinds]
            gll, mlp, same = (kind["median_ms"] for kind in kinds)
            paper_ratio = theirs[f"{what}_s"]["gll"][0] / theirs[f"{what}_s"]["mlp"][0]
            share = f"{row['pipeline']['gll']['median_ms'] / gll:.1%}" if what == "train" else ""
            name = [row["network"], f"{row['batch']:,}"] if what == "train" else ["", ""]
            cells = [*name, title, *times, f"{gll / mlp:.2f}", f"{paper_ratio:.1f}", f"**{gll / same:.2f}**", share]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", _provenance(record)])


def training(record: dict[str, Any], _: dict[int, str]) -> str:
    """Test errors of runs, mean ± standard deviation over seeds, with the paper's beside them."""
    paper = json.loads((RESULTS.parent / "paper" / "training.json").read_text())["errors"]
    lines = ["| config | tested by | error, % | seeds | paper, % | epochs | warm-up | training, s |",
             "|---|---|---:|---:|---:|---:|---|---:|"]  # fmt: skip
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in record["rows"]:
        for place, test in enumerate(row["tests"]):
            groups.setdefault((row["name"], test["head"], test["mode"]), []).append(row | test | {"first": place == 0})
    for (name, head, mode), rows in groups.items():
        errors = [100 * row["error"] for row in rows]
        spread = f" ± {statistics.stdev(errors):.2f}" if len(errors) > 1 else ""
        first, warm = rows[0]["first"], rows[0]["warmup"]
        own = f"{paper[name]:g}" if first and name in paper else "–"
        before = f"{warm['epoch']} epochs, γ = {warm['gamma']:g}" if warm else "–"
        alone = [t["error"] for row in rows for t in row["before"] if (t["head"], t["mode"]) == (head, mode)]
        before += f"; alone {100 * statistics.fmean(alone):.2f} %" if alone else ""
        seconds = f"{statistics.fmean(row['seconds'] for row in rows):.0f}" if first else ""
        config = f"`{name}`" if first else ""
        cells = [config, f"{head}, {mode}", f"{statistics.fmean(errors):.2f}{spread}", f"{len(rows)}", own]
        lines.append(f"| {' | '.join(cells)} | {rows[0]['epochs']} | {before} | {seconds} |")
    where = {key: ", ".join(sorted({row[key] for row in record["rows"]})) for key in ("commit", "device", "torch")}
    note = (
        f"<small>commits {where['commit']}, {where['device']}, torch {where['torch']}; several runs at a time</small>"
    )
    return "\n".join([*lines, "", note])


def augmentation(record: dict[str, Any], _: dict[int, str]) -> str:
    """Milliseconds a batch, beside Pillow; on a GPU also how long the CPU is busy."""
    cuda = "cpu_ms" in record["rows"][0]
    head = ["augmentation", "images", "gll, ms", *(["of it CPU, ms", "peak memory, MB"] if cuda else [])]
    head += ["Pillow one by one, ms", "times faster", "bytes that differ"]
    lines = [f"| {' | '.join(head)} |", "|---|---|" + "---:|" * (len(head) - 2)]
    for row in record["rows"]:
        n, c, h, w = row["shape"]
        own = [f"{row['cpu_ms']:.1f}", f"{row['peak_mb']:,.0f}"] if cuda else []
        cells = [f"{n:,} of {c} × {h} × {w}", f"**{row['ms']:,.1f}**", *own, f"{row['pillow_ms']:,.0f}"]
        faster = row["pillow_ms"] / row["ms"]
        cells += [f"{faster:,.0f}" if faster >= 10 else f"{faster:.1f}", f"{row['different_bytes']:,}"]
        lines.append(f"| `{row['name']}` | {' | '.join(cells)} |")
    return "\n".join([*lines, "", _provenance(record)])


def robustness(record: dict[str, Any], _: dict[int, str]) -> str:
    """Errors under attack beside the paper's; then at other radii; then the checks."""
    from gll.attacks.signs import judged_again
    from gll.attacks.tables import checks_compared, compared, strong_radii
    from gll.words import counted

    rows, name = record["rows"], record["config"]["data"]
    paper = json.loads((RESULTS.parent / "paper" / "robustness.json").read_text())["errors"].get(name, {})
    eps, unit, c = rows[0]["table_eps"], rows[0]["unit"], rows[0]["table_c"]
    seconds = f"{min(r['wall_s'] for r in rows):,.0f} to {max(r['wall_s'] for r in rows):,.0f} s of attacks each"
    title = f"**{name}**, {rows[0]['samples']:,} test samples, ε = {eps:g} in normalised units"
    title += f" ({eps * unit:.3f} of the range), CW with c = {c:g}; errors in percent."
    lines = [title, "", compared(rows, paper).markdown()]
    for other in strong_radii(rows):
        if abs(other - rows[0]["table_eps_pixels"]) > 1e-6:
            lines += ["", f"The same at ε = {other:g} of the range.", "", compared(rows, {}, other).markdown()]
    again = [judged_again(row) for row in rows]
    judged = [{**row, "checks": checks} for row, checks in zip(rows, again, strict=True) if checks is not None]
    left = f" Left out: {counted(again.count(None), 'run')} with older checks." if None in again else ""
    lines += ["", f"Figures of the checks; bold where one failed.{left}", "", checks_compared(judged).markdown()]
    where = sorted({row["environment"]["commit"] for row in rows})
    device = ", ".join(sorted({row["environment"]["gpu"] or "CPU" for row in rows}))
    lines += ["", f"<small>commits {', '.join(where)}, {device}, {seconds}</small>"]
    return "\n".join(lines)


def tables() -> dict[str, str]:
    """Every table by its name."""
    sys.path.insert(0, str(RESULTS.parent))
    from _attacked import against, attacked, known
    from _attacked_words import noise
    from _other_runs import attack_times, efforts, graph_at_test, poisoning, schedules, transfers, uneven_labels
    from _paper_attacks import readings
    from layer import AUTHORS_MS

    from gll.train import keys

    found = known()
    makers: dict[str, tuple[Callable[[dict[str, Any], dict[int, str]], str], dict[int, str]]] = {
        "layer-cpu": (layer, AUTHORS_MS["cpu"]),
        "layer-cpu-large": (layer, AUTHORS_MS["cpu"]),
        "layer-cuda": (layer, AUTHORS_MS["cuda"]),
        "fails-safely": (fails_safely, {}),
        "demo": (demo, {}),
        "moons": (moons, {}),
        "large-graph": (large_graph, {}),
        "large-solvers": (large_solvers, {}),
        "few-labels": (few_labels, {}),
        "few-labels-large": (few_labels, {}),
        "few-labels-uneven": (uneven_labels, {}),
        "calibration": (calibration, {}),
        "training-step": (training_step, {}),
        "training-step-augment": (training_step, {}),
        "training-step-bf16": (training_step, {}),
        "active-mnist": (active, {}),
        "active-fashion": (active, {}),
        "training": (training, {}),
        "robustness-digits": (robustness, {}),
        "robustness-mnist": (robustness, {}),
        "robustness-fashionmnist": (robustness, {}),
        "robustness-cifar10": (robustness, {}),
        "robustness-digits-against": (against, {}),
        "augment-cpu": (augmentation, {}),
        "augment-cuda": (augmentation, {}),
        "attack-times": (attack_times, {}),
        "poisoning": (poisoning, {}),
        "schedules": (schedules, {}),
        "graph-at-test": (graph_at_test, {}),
        "paper-attacks-robust": (lambda record, _: readings(record), {}),
        "transfers-fashion": (transfers, {}),
        "effort-fashion": (lambda record, _: efforts(record, found), {}),
        "effort-mnist-natural": (lambda record, _: efforts(record, found), {}),
    }
    made = {"keys": keys.markdown()}  # not measured, but made from the code
    made |= attacked(found) | dict.fromkeys(("paper-attacks", "attacked-noise"), "Not measured yet.")
    if (RESULTS / "paper-attacks.json").exists():
        record = _with_more(RESULTS / "paper-attacks.json")
        made |= {"paper-attacks": readings(record), "attacked-noise": noise(found, record)}
    for name, (maker, authors) in makers.items():
        file = RESULTS / f"{name.replace('large-solvers', 'large-graph')}.json"
        if file.exists():
            made[name] = maker(_with_more(file), authors)
    return made


def _with_more(file: Path) -> dict[str, Any]:
    """A record, with rows measured anew (FILE-again.json), and of libraries not installed then (FILE-peers.json)."""
    record: dict[str, Any] = json.loads(file.read_text())
    again = file.with_name(f"{file.stem}-again.json")
    if again.exists():
        # Rows that were measured anew after a change: they take the place of the old ones.
        newer = json.loads(again.read_text())
        key = operator.itemgetter("dataset", "features", "method", "labels")
        fresh = {key(row): row for row in newer["rows"]}
        record["rows"] = [fresh.get(key(row), row) for row in record["rows"]]
        names = ", ".join(sorted({row["method"] for row in newer["rows"]}))
        record["commit"] = f"{record['commit']} ({names}: {newer['commit']})"
        record["wall_s"] += newer["wall_s"]
    more = file.with_name(f"{file.stem}-peers.json")
    if more.exists():
        other = json.loads(more.read_text())
        record["rows"] += other["rows"]
        whose = ", ".join(sorted({row["method"].split()[0] for row in other["rows"]}))
        record["commit"] = f"{record['commit']} ({whose}: {other['commit']})"
        record["wall_s"] += other["wall_s"]
    return record


def rewritten(text: str, made: dict[str, str]) -> str:
    def fill(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in made:
            raise SystemExit(f"no results for the table '{name}': run its benchmark with --json first")
        return f"<!-- table {name} -->\n\n{made[name]}\n\n<!-- end -->"

    return re.sub(r"<!-- table (\S+) -->.*?<!-- end -->", fill, text, flags=re.DOTALL)


def main() -> None:
    check = "--check" in sys.argv[1:]
    made = tables()
    for page in PAGES:
        old = page.read_text()
        new = rewritten(old, made)
        if old == new:
            continue
        if check:
            raise SystemExit(f"{page.name} is out of date: run python benchmarks/tables.py")
        page.write_text(new)
        print(f"wrote {page.name}")


if __name__ == "__main__":
    main()
