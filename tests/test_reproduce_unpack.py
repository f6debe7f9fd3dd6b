"""`gll reproduce --unpack`: what it takes and what it leaves, and that a file made to do harm does none."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gll.cli import app
from gll.reproduce import unpack as unpacking
from gll.reproduce.experiment import Experiment, load_experiment
from gll.reproduce.records import claimed, read_records
from gll.reproduce.state import note_begin
from tests.test_reproduce import CONFIG
from tests.test_reproduce_carry import begin, checkpoint, invoked, machine, pack, work_on
from tests.test_reproduce_list import files
from tests.test_reproduce_work import COUNTS, said

Member = tuple[str, bytes | dict[str, Any]]
FIRST: Member = ("pack.json", {"format": "gll.pack 1"})
PROGRESS = {"wall_s": 5.0, "commits": ["abc"]}


@pytest.fixture
def home(tmp_path: Path) -> Experiment:
    """With a cell that was begun."""
    experiment = machine(tmp_path / "home", COUNTS, "counts")
    begin(experiment, work_on(experiment).cells[0], 7.0, 100)
    return experiment


def written(path: Path, *members: Member | tarfile.TarInfo) -> Path:
    """A file as it should not be, or should."""
    with tarfile.open(path, "w:gz") as tar:
        for one in members:
            if isinstance(one, tarfile.TarInfo):
                tar.addfile(one)
            else:
                content = one[1] if isinstance(one[1], bytes) else json.dumps(one[1]).encode()
                info = tarfile.TarInfo(one[0])
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return path


def link(name: str, to: str, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, to
    return info


def unpack(experiment: Experiment, file: Path) -> tuple[int, str]:
    found = invoked(experiment.folder.parent.parent, "--unpack", str(file))
    return found.exit_code, said(found)


def contents(folder: Path) -> dict[str, str]:
    """Of a cell's folder, without its lock."""
    found = {str(Path(path).relative_to(folder)): text for path, text in files(folder).items()}
    return {path: text for path, text in found.items() if path != ".lock"}


# What does harm -------------------------------------------------------------------------------------------------------

INSIDE = "work/counts/small/CELL"


@pytest.mark.parametrize(
    "member",
    [
        ("../evil.json", b"1"),
        ("/evil.json", b"1"),
        (f"{INSIDE}/../../../../evil.json", b"1"),
        ("work/../../evil.json", b"1"),
        (f"{INSIDE}/./run/evil.json", b"1"),
        (f"{INSIDE}//evil.json", b"1"),
        (f"{INSIDE}/.lock", b"1"),
        (f"{INSIDE}/a\\..\\evil.json", b"1"),
        ("C:/evil.json", b"1"),
        (f"{INSIDE}/C:evil.json", b"1"),
        (f"{INSIDE}/run/evil\n.json", b"1"),
        ("evil.json", b"1"),
        ("work/evil.json", b"1"),
        ("experiments/counts/config.toml", b"1"),
        ("experiments/counts/arrays/deeper/evil.npz", b"1"),
        ("experiments/evil.json", b"1"),
        ("pack.json/evil", b"1"),
        link(f"{INSIDE}/run", "../../../..", tarfile.SYMTYPE),
        link(f"{INSIDE}/run/evil", "/etc/passwd", tarfile.SYMTYPE),
        link(f"{INSIDE}/run/evil", "pack.json", tarfile.LNKTYPE),
        link(f"{INSIDE}/run", "", tarfile.DIRTYPE),
        link(f"{INSIDE}/run/evil", "", tarfile.FIFOTYPE),
        link(f"{INSIDE}/run/evil", "", tarfile.CHRTYPE),
        (f"{INSIDE}/progress.json", b"2"),  # for the second time
        (f"{INSIDE}/progress.json/evil", b"2"),  # in a file
    ],
    ids=lambda member: ascii(member.name if isinstance(member, tarfile.TarInfo) else member[0]),
)
def test_a_file_that_would_do_harm_is_refused(
    home: Experiment, tmp_path: Path, member: Member | tarfile.TarInfo
) -> None:
    """Though the rest of it is as it should be: nothing is taken, nothing is left behind."""
    cell = work_on(home).cells[1]
    if isinstance(member, tarfile.TarInfo):
        member.name = member.name.replace("CELL", cell.folder)
    else:
        member = (member[0].replace("CELL", cell.folder), member[1])
    good = (f"work/{cell.path}/progress.json", PROGRESS)
    file = written(tmp_path / "a.tar.gz", FIRST, good, member)
    before = files(tmp_path)
    code, text = unpack(home, file)
    assert code == 1, text
    assert "othing was taken" in text
    assert files(tmp_path) == before
    assert not (tmp_path / "home" / "work" / cell.path).exists()


def test_a_file_that_is_cut_off_or_damaged_is_refused(home: Experiment, tmp_path: Path) -> None:
    cell = work_on(home).cells[1]
    begin(home, cell, 3.0, 20_000)
    file, _ = pack(home)
    shutil.rmtree(work_on(home).folder(cell))
    whole = file.read_bytes()
    middle = len(whole) // 2
    for damaged in (
        whole[:middle],
        whole[:-4],
        whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
        whole[:-8] + bytes([whole[-8] ^ 1]) + whole[-7:],  # the checksum at its end
        gzip.decompress(whole),
        b"",
        b"no archive",
    ):
        file.write_bytes(damaged)
        before = files(tmp_path)
        code, text = unpack(home, file)
        assert (code, "cannot be unpacked" in text or "was not written by" in text) == (1, True), text
        assert files(tmp_path) == before
    file.write_bytes(whole)
    assert unpack(home, file)[0] == 0
    assert unpack(home, tmp_path / "none.tar.gz") == (1, f"gll reproduce: there is no file {tmp_path / 'none.tar.gz'}")


@pytest.mark.parametrize(
    "first",
    [
        ("pack.json", {"format": "gll.pack 2"}),
        ("pack.json", {}),
        ("pack.json", []),
        ("pack.json", b"\xff"),
        ("experiments/counts/results.json", {}),
    ],
)
def test_a_file_of_another_kind_is_refused(home: Experiment, tmp_path: Path, first: Member) -> None:
    before = files(tmp_path / "home")
    code, text = unpack(home, written(tmp_path / "a.tar.gz", first))
    assert (code, "was not written by gll reproduce --pack, or by another version" in text) == (1, True)
    assert files(tmp_path / "home") == before


def test_more_than_the_disk_has_is_refused(home: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"work/{work_on(home).cells[1].path}/run/zeros"
    file = written(tmp_path / "a.tar.gz", FIRST, (name, bytes(5_000_000)))
    assert file.stat().st_size < 10_000
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(unpacking.shutil, "disk_usage", lambda _: usage._replace(free=4_000_000))
    before = files(tmp_path)
    code, text = unpack(home, file)
    assert (code, "has 5,000,000 bytes, more than the disk has free" in text) == (1, True), text
    assert files(tmp_path) == before


def test_results_that_are_not_whole_change_nothing(home: Experiment, tmp_path: Path) -> None:
    work_on(home, "seed 1").run()
    results = json.loads((home.folder / "results.json").read_text())
    progress = (f"work/{work_on(home).cells[1].path}/progress.json", PROGRESS)
    for changed, message in (
        ({"experiment": "other"}, "holds records of other, not of counts"),
        ({"date": None}, "has no date"),
        ({"values": None}, "has no values"),
    ):
        record = {k: v for k, v in {**results["records"][0], **changed}.items() if v is not None}
        content = {**results, "records": [record]}
        file = written(tmp_path / "a.tar.gz", FIRST, ("experiments/counts/results.json", content), progress)
        before = files(tmp_path / "home")
        code, text = unpack(home, file)
        assert (code, message in text) == (1, True), text
        assert files(tmp_path / "home") == before


# What is taken --------------------------------------------------------------------------------------------------------


def test_results_and_arrays_come_home(home: Experiment, tmp_path: Path) -> None:
    there = machine(tmp_path / "there", COUNTS, "counts")
    strange = machine(tmp_path / "there", COUNTS.replace("digits-cnn", "resnet20"), "strange")
    for experiment in (there, strange):
        assert work_on(experiment, "first").run() == []
    (there.folder / "arrays").mkdir()
    name = f"{work_on(there).cells[0].folder}.npz"
    (there.folder / "arrays" / name).write_text("an array")
    file, _ = pack(there)
    code, text = unpack(home, file)
    assert code == 0, text
    assert "counts: 2 records taken" in text
    assert "strange: no experiment of this name is here" in text
    assert read_records(home.folder / "results.json") == read_records(there.folder / "results.json")
    assert (home.folder / "arrays" / name).read_text() == "an array"
    begin(there, work_on(there).cells[1], 1.0, 10)
    going, _ = pack(there)
    text = unpack(home, going)[1]
    assert text.index("taken; --resume goes on") < text.index("1 experiment: nothing new"), "what is new comes first"
    again = unpack(home, file)[1]
    assert ("1 experiment: nothing new" in again, "taken" in again) == (True, False), again


def test_what_is_further_along_stays(home: Experiment, tmp_path: Path) -> None:
    """By where it is, not by how long it took there; what takes its place leaves nothing of the old."""
    cell, here = work_on(home).cells[1], work_on(home).folder(work_on(home).cells[1])
    there = machine(tmp_path / "there", COUNTS, "counts")
    begin(home, cell, 9.0, 10)
    begin(there, cell, 1.0, 10)
    for ours, theirs, taken in ((3, 2, False), (3, 3, False), (3, 4, True), (0, 1, True)):
        (here / "old.json").write_text("{}")
        checkpoint(here, "train", ours, epoch=ours, step=0)
        checkpoint(work_on(there).folder(cell), "train", theirs, epoch=theirs, step=0)
        before, (file, _) = contents(here), pack(there)
        code, text = unpack(home, file)
        assert code == 0, text
        if taken:
            assert f"counts (small): {cell.title} taken; --resume goes on" in text
            assert "to see what to type next: gll reproduce counts --list" in text
            assert contents(here) == contents(work_on(there).folder(cell))
        else:
            assert "left out: it is as far here, or further along" in text
            assert contents(here) == before


def test_seconds_are_kept_where_there_is_nothing_to_go_on_from(home: Experiment, tmp_path: Path) -> None:
    """As of a measurement of times, which starts again."""
    there = machine(tmp_path / "there", COUNTS, "counts")
    cell = work_on(there).cells[1]
    begin(there, cell, 41.0, 10)
    file, _ = pack(there)
    assert f"{cell.title} taken" in unpack(home, file)[1]
    assert work_on(home, *cell.parts).run() == []
    assert read_records(home.folder / "results.json")[cell.key]["wall_s"] >= 41


def test_what_is_finished_or_at_work_here_stays(home: Experiment, tmp_path: Path) -> None:
    there = machine(tmp_path / "there", COUNTS, "counts")
    cells = work_on(there).cells
    for cell in cells[:2]:
        begin(there, cell, 1.0, 10)
        checkpoint(work_on(there).folder(cell), "train", 9, epoch=9, step=0)
    file, _ = pack(there)
    shutil.rmtree(work_on(home).folder(cells[0]))
    assert work_on(home, "first", "seed 0").run() == []
    with claimed(work_on(home).folder(cells[1])):
        note_begin(work_on(home).folder(cells[1]))
        before = files(tmp_path / "home")
        code, text = unpack(home, file)
    assert code == 0, text
    assert "left out: it is finished here" in text
    assert "is at work on it here" in text
    assert files(tmp_path / "home") == before
    shutil.rmtree(tmp_path / "home" / "work")
    assert "left out: it is finished here" in unpack(home, file)[1], "by results.json alone"


def test_cells_that_are_not_known_here_are_left_out(home: Experiment, tmp_path: Path) -> None:
    there = machine(tmp_path / "there", COUNTS.replace("digits-cnn", "resnet20"), "counts")
    begin(there, work_on(there).cells[0], 1.0, 10)
    file, _ = pack(there)
    before = files(tmp_path / "home")
    code, text = unpack(home, file)
    assert (code, "no such cell is here" in text) == (0, True)
    strange = machine(tmp_path / "strange", COUNTS, "strange")
    work_on(strange, "first").run()
    code, text = unpack(home, pack(strange)[0])
    assert (code, "strange: no experiments of these names are here" in text) == (0, True)
    assert files(tmp_path / "home") == before


@pytest.mark.parametrize(
    ("progress", "record", "message"),
    [
        (None, None, "its progress.json is damaged"),
        (b"{", None, "its progress.json is damaged"),
        ({"wall_s": "long", "commits": []}, None, "its progress.json is damaged"),
        (b'{"wall_s": NaN, "commits": []}', None, "its progress.json is damaged"),
        ({"wall_s": 1.0}, None, "its progress.json is damaged"),
        ({**PROGRESS, "error": "bad"}, None, "its progress.json is damaged"),
        ({**PROGRESS, "error": {"text": "bad"}}, None, "its progress.json is damaged"),
        (PROGRESS, {"key": "0123456789abcdef", "wall_s": 1.0}, "but its record is not among the results"),
        (PROGRESS, b"{", "but its record is not among the results"),
    ],
)
def test_a_cell_that_is_not_sound_is_left_out(
    home: Experiment, tmp_path: Path, progress: Any, record: Any, message: str
) -> None:
    cell = work_on(home).cells[1]
    pairs = (("progress.json", progress), ("record.json", record), ("run/state.bin", b"1"))
    members = [(f"work/{cell.path}/{name}", content) for name, content in pairs if content is not None]
    before = files(tmp_path / "home")
    code, text = unpack(home, written(tmp_path / "a.tar.gz", FIRST, *members))
    assert (code, message in text) == (0, True), text
    assert files(tmp_path / "home") == before


def test_a_warm_up_must_have_its_own_record(tmp_path: Path) -> None:
    experiment = machine(tmp_path, CONFIG)
    warm = work_on(experiment).cells[0]
    assert warm.role
    for key, said_of_it in (("0" * 16, "its record is that of another cell"), (warm.key, "taken; --resume goes on")):
        pairs = {"progress.json": PROGRESS, "record.json": {"key": key, "wall_s": 1.0}}
        members = [(f"work/{warm.path}/{name}", content) for name, content in pairs.items()]
        code, text = unpack(experiment, written(tmp_path / "a.tar.gz", FIRST, *members))
        assert (code, said_of_it in text) == (0, True), text
        assert (tmp_path / "work" / warm.path / "record.json").is_file() == (key == warm.key)
    assert not (experiment.folder / "results.json").exists(), "it has too little in it to stand there"


def test_what_was_here_comes_back_where_it_cannot_be_replaced(
    home: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, here = work_on(home).cells[0], work_on(home).folder(work_on(home).cells[0])
    there = machine(tmp_path / "there", COUNTS, "counts")
    begin(there, cell, 1.0, 10)
    checkpoint(work_on(there).folder(cell), "train", 9, epoch=9, step=0)
    file, _ = pack(there)
    before, real = contents(here), shutil.move

    def move(source: Path, target: Path) -> None:
        if target == here / "run":
            monkeypatch.setattr(unpacking.shutil, "move", real)
            raise OSError("the disk is full")
        real(source, target)

    monkeypatch.setattr(unpacking.shutil, "move", move)
    code, text = unpack(home, file)
    assert (code, "the disk is full" in text) == (1, True)
    assert contents(here) == before


# In words -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--pack", "a.tar.gz", "--unpack", "a.tar.gz"], "--pack and --unpack are done one after the other"),
        (["--merge", "elsewhere", "--unpack", "a.tar.gz"], "--merge and --unpack are done one after the other"),
        (["counts", "--unpack", "a.tar.gz"], "--unpack takes the results of all experiments, and runs none"),
        (["counts", "--pack", "a.tar.gz", "--resume", "--jobs", "2"], "leave out --resume and --jobs"),
        (["--pack", "a.tar.gz", "--tables"], "--pack only packs what is there, and runs nothing: leave out --tables"),
        (
            ["counts", "--pack", "a.tar.gz", "--list"],
            "--list only looks, and runs and writes nothing: leave out --pack",
        ),
        (["--check", "--pack", "a.tar.gz"], "--check only looks, and writes nothing"),
        (["--pack", "a.tar.gz", "--scale", "smoke"], "smoke is always run anew, and never packed"),
        (["counts", "--limit-mb", "5"], "--limit-mb says how large the file of --pack may be: give both"),
        (["--pack", "nowhere/a.tar.gz"], "the folder nowhere does not exist"),
    ],
)
def test_options_that_make_no_sense_together(home: Experiment, words: list[str], message: str) -> None:
    root = home.folder.parent.parent
    before = files(root)
    found = CliRunner().invoke(app, ["reproduce", *words, "--experiments", str(root / "experiments")])
    assert (found.exit_code, message in said(found)) == (1, True), found.output
    assert files(root) == before
    assert not load_experiment(home.folder).folder.joinpath("results.json").exists()
