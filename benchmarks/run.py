"""Times kvlint beside its peers on the same trees, in turn, and writes a table, the figures and a plot.

    python benchmarks/run.py --quick          # kvlint and ruff on one tree, three runs
    python benchmarks/run.py                  # all peers but flake8, on three trees
    python benchmarks/run.py --all            # flake8 with bugbear, too (minutes a run)
    python benchmarks/run.py --trees a/ b/    # other trees

The peers are installed into a virtual environment of their own, and the trees are downloaded, both into a cache folder
outside the repository (``--work``). What counts are the ratios to ruff of the same run: seconds differ with the machine
and with what else runs on it. CPU seconds are those of the process and its children.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import time
import venv
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEERS = ("ruff", "semgrep", "ast-grep-cli", "django-upgrade", "pyupgrade")
SLOW_PEERS = ("flake8", "flake8-bugbear")
AST_GREP_RULE = "id: one\nlanguage: python\nrule:\n  pattern: $A.to_legacy_cache()\n"
SEMGREP_RULE = (
    "rules:\n- id: one\n  languages: [python]\n  severity: WARNING\n  message: found\n  pattern: $A.to_legacy_cache()\n"
)
PLAIN = '"""A module that speaks of nothing."""\n\n\ndef add(left: int, right: int) -> int:\n    return left + right\n'


@dataclass(frozen=True, slots=True)
class Tree:
    """Where a tree comes from: a distribution, and the folder in it."""

    name: str
    requirement: str
    binary: bool
    inside: str = ""


TREES = (
    Tree("habana", "optimum-habana==1.14.1", binary=False),
    Tree("peft", "peft==0.13.2", binary=False),
    Tree("models", "transformers==5.24.0", binary=True, inside="transformers/models"),
)


@dataclass(frozen=True, slots=True)
class Sample:
    """One run: seconds on the clock, seconds of CPU, and the peak of the largest process in MiB."""

    wall: float
    cpu: float
    peak: float


@dataclass(slots=True)
class Row:
    """The runs of one tool in one situation on one tree."""

    tree: str
    situation: str
    tool: str
    samples: list[Sample] = field(default_factory=list)

    def median(self, what: str) -> float:
        """The median of a field of the samples."""
        return float(statistics.median(getattr(sample, what) for sample in self.samples))


def main() -> int:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="kvlint and ruff on the first tree, three runs")
    parser.add_argument("--all", action="store_true", help="flake8 with bugbear as well")
    parser.add_argument("--runs", type=int, default=0, help="runs of each tool (5, with --quick 3)")
    parser.add_argument(
        "--trees", nargs="+", type=Path, default=[], help="folders to use instead of the downloaded ones"
    )
    parser.add_argument("--work", type=Path, default=Path.home() / ".cache" / "kvlint-benchmarks")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    given = parser.parse_args()
    runs = given.runs or (3 if given.quick else 5)
    given.work.mkdir(parents=True, exist_ok=True)
    peers = ("ruff",) if given.quick else (*PEERS, *(SLOW_PEERS if given.all else ()))
    tools = Tools(prepare_environment(given.work / "venv", peers), given.work)
    trees = {path.name: path.resolve() for path in given.trees} or fetch_trees(
        given.work, TREES[1:2] if given.quick else TREES
    )
    rows: list[Row] = []
    for name, folder in trees.items():
        rows += cold(tools, name, folder, runs, given.quick, given.all)
        rows += warm(tools, name, folder, runs, given.work)
    rows += small_runs(tools, given.work, runs)
    if not given.quick:
        rows += growth(tools, next(iter(trees.values())), given.work)
    write(given.results, rows, {name: size_of(folder) for name, folder in trees.items()}, tools.python)
    return 0


# -- what is run ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tools:
    """The commands, with the interpreter of the peers' environment."""

    python: Path
    work: Path

    def program(self, name: str) -> str:
        return str(self.python.parent / name)

    def kvlint(self, *arguments: str) -> list[str]:
        return [str(self.python), "-m", "kvlint", *arguments, "--exit-zero"]

    def ruff(self, *arguments: str) -> list[str]:
        return [self.program("ruff"), "check", "--isolated", "--quiet", "--exit-zero", *arguments]

    def cold_commands(self, folder: Path, quick: bool, everything: bool) -> dict[str, list[str]]:
        """One command a tool that looks at the whole tree without any cache."""
        commands = {"kvlint": self.kvlint(str(folder), "--no-cache"), "ruff": self.ruff("--no-cache", str(folder))}
        if quick:
            return commands
        ast_rule, semgrep_rule = self.work / "ast-grep.yml", self.work / "semgrep.yml"
        ast_rule.write_text(AST_GREP_RULE, encoding="utf-8")
        semgrep_rule.write_text(SEMGREP_RULE, encoding="utf-8")
        files = [str(path) for path in sorted(folder.rglob("*.py"))]
        listed = self.work / "files.txt"
        listed.write_text("\n".join(files), encoding="utf-8")
        commands["ast-grep, one rule"] = [self.program("ast-grep"), "scan", "--rule", str(ast_rule), str(folder)]
        commands["semgrep, one rule"] = [
            self.program("semgrep"), "scan", "--quiet", "--metrics=off", "--disable-version-check", "--no-git-ignore",
            "--config", str(semgrep_rule), str(folder),
        ]  # fmt: skip
        commands["django-upgrade --check"] = [
            self.program("django-upgrade"),
            "--check",
            "--target-version",
            "5.0",
            *files,
        ]
        commands["pyupgrade"] = [self.program("pyupgrade"), "--py310-plus", "--exit-zero-even-if-changed", *files]
        if everything:
            commands["flake8, bugbear"] = [
                self.program("flake8"),
                "--isolated",
                "--exit-zero",
                "--select=F,B,E9",
                str(folder),
            ]
        return commands


def cold(tools: Tools, name: str, folder: Path, runs: int, quick: bool, everything: bool) -> list[Row]:
    """Every tool in turn, without caches. Tools that rewrite work on a copy of the tree."""
    copy = fresh_copy(folder, tools.work / "copy")
    commands = tools.cold_commands(copy, quick, everything)
    rows = {tool: Row(name, "cold", tool) for tool in commands}
    for turn in range(runs):
        for tool, command in commands.items():
            if tool == "pyupgrade":
                if turn:
                    continue
                fresh_copy(folder, copy)
            rows[tool].samples.append(timed(command))
            if tool == "pyupgrade":
                fresh_copy(folder, copy)
    return list(rows.values())


def warm(tools: Tools, name: str, folder: Path, runs: int, work: Path) -> list[Row]:
    """Nothing changed since the last run; then one file that has changed."""
    copy = fresh_copy(folder, work / "copy")
    environment = {"XDG_CACHE_HOME": str(work / "warm-cache"), "RUFF_CACHE_DIR": str(work / "ruff-cache")}
    commands = {"kvlint": tools.kvlint(str(copy)), "ruff": tools.ruff(str(copy))}
    rows = {(tool, kind): Row(name, kind, tool) for tool in commands for kind in ("warm", "one file changed")}
    for command in commands.values():
        timed(command, environment)
    changed = sorted(copy.rglob("*.py"))
    for turn in range(runs):
        for tool, command in commands.items():
            rows[tool, "warm"].samples.append(timed(command, environment))
        with changed[turn % len(changed)].open("a", encoding="utf-8") as file:
            file.write(f"\n# changed {turn}\n")
        for tool, command in commands.items():
            rows[tool, "one file changed"].samples.append(timed(command, environment))
    return list(rows.values())


def small_runs(tools: Tools, work: Path, runs: int) -> list[Row]:
    """What a commit hook costs: ten files that hold nothing of interest, beside a bare interpreter."""
    folder = work / "small"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    files = []
    for number in range(10):
        path = folder / f"module{number}.py"
        path.write_text(PLAIN, encoding="utf-8")
        files.append(str(path))
    commands = {
        "python -c pass": [str(tools.python), "-c", "pass"],
        "python -c 'import click'": [str(tools.python), "-c", "import click"],
        "kvlint": tools.kvlint(*files),
        "ruff": tools.ruff("--no-cache", *files),
    }
    rows = {tool: Row("-", "ten files", tool) for tool in commands}
    for _ in range(max(runs, 5)):
        for tool, command in commands.items():
            rows[tool].samples.append(timed(command))
    return list(rows.values())


def growth(tools: Tools, folder: Path, work: Path) -> list[Row]:
    """kvlint on one, two, four and eight copies of a tree: seconds and memory by bytes."""
    rows = []
    many = work / "many"
    shutil.rmtree(many, ignore_errors=True)
    copies = 0
    for times in (1, 2, 4, 8):
        while copies < times:
            shutil.copytree(folder, many / f"copy{copies}", ignore=shutil.ignore_patterns("*.ipynb", ".git"))
            copies += 1
        row = Row(f"{times}x", "growth", "kvlint")
        row.samples.append(timed(tools.kvlint(str(many), "--no-cache")))
        rows.append(row)
    shutil.rmtree(many, ignore_errors=True)
    return rows


def timed(command: Sequence[str], environment: dict[str, str] | None = None) -> Sample:
    """Runs a command; its output is thrown away. Raises RuntimeError where it fails in another way than by findings."""
    variables = {**os.environ, **(environment or {})}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    variables.pop("PYTHONPATH", None)
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=variables)
    assert process.stderr is not None
    error = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise RuntimeError(f"{command[0]} ended with {process.returncode}: {error.decode(errors='replace')[-500:]}")
    scale = 1024 if sys.platform != "darwin" else 1024 * 1024
    return Sample(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / scale)


# -- what it needs --------------------------------------------------------------------------------------------------


def prepare_environment(folder: Path, peers: Sequence[str]) -> Path:
    """The interpreter of an environment with the peers, matplotlib and this kvlint."""
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, *peers, "matplotlib"], check=True)
    subprocess.run([*install, "--force-reinstall", "--no-deps", str(ROOT)], check=True)
    subprocess.run([*install, str(ROOT)], check=True)
    return python


def fetch_trees(work: Path, wanted: Sequence[Tree]) -> dict[str, Path]:
    """Downloads and unpacks what is not there yet."""
    return {tree.name: fetch(work / "trees" / tree.name, tree) for tree in wanted}


def fetch(folder: Path, tree: Tree) -> Path:
    if not folder.is_dir():
        download = folder.with_name(f"{tree.name}.download")
        shutil.rmtree(download, ignore_errors=True)
        kind = "--only-binary=:all:" if tree.binary else "--no-binary=:all:"
        options = ["--no-deps", "--no-build-isolation"] if not tree.binary else ["--no-deps"]
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", *options, kind, "-d", str(download), tree.requirement],
            check=True,
        )
        archive = next(path for path in download.iterdir() if path.suffix in (".gz", ".whl", ".zip"))
        unpack(archive, folder)
        shutil.rmtree(download)
    return folder / tree.inside if tree.inside else folder


def unpack(archive: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    if archive.suffix == ".gz":
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
    else:
        with zipfile.ZipFile(archive) as zipped:
            zipped.extractall(folder)


def fresh_copy(folder: Path, copy: Path) -> Path:
    """The Python files of a tree, copied anew; a part of a package stays one."""
    shutil.rmtree(copy, ignore_errors=True)
    top = folder
    while (top.parent / "__init__.py").is_file():
        top = top.parent
    around = [path / "__init__.py" for path in folder.parents if path.is_relative_to(top)]
    for path in (*around, *folder.rglob("*.py")):
        target = copy / path.relative_to(top.parent)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return copy / folder.relative_to(top.parent)


def size_of(folder: Path) -> tuple[int, int]:
    """Files and bytes."""
    files = list(folder.rglob("*.py"))
    return len(files), sum(path.stat().st_size for path in files)


# -- what it shows --------------------------------------------------------------------------------------------------


def write(folder: Path, rows: Sequence[Row], sizes: dict[str, tuple[int, int]], python: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    name = date.today().isoformat()
    figures = [{**asdict(row), "samples": [asdict(sample) for sample in row.samples]} for row in rows]
    (folder / f"{name}.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    (folder / f"{name}.md").write_text(report(name, rows, sizes), encoding="utf-8")
    script = "import sys; sys.path.insert(0, sys.argv[1]); import plot; plot.draw(sys.argv[2], sys.argv[3])"
    arguments = [str(ROOT / "benchmarks"), str(folder / f"{name}.json"), str(folder / f"{name}.png")]
    subprocess.run([str(python), "-c", script, *arguments], check=True)
    print(report(name, rows, sizes))


def report(name: str, rows: Sequence[Row], sizes: dict[str, tuple[int, int]]) -> str:
    """The Markdown page: medians, and ratios to ruff in the same situation."""
    lines = [f"# Speed, {name}", ""]
    lines += [
        "Medians; the ratio is to ruff in the same situation on the same tree, by CPU seconds and by the clock.",
        "",
    ]
    lines += [f"* {tree}: {files:,} files, {size / 1e6:.1f} MB" for tree, (files, size) in sizes.items()]
    lines += ["", "| tree | situation | tool | wall s | CPU s | peak MiB | CPU / ruff | wall / ruff |"]
    lines += ["| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for row in rows:
        base = next(
            (item for item in rows if (item.tree, item.situation, item.tool) == (row.tree, row.situation, "ruff")), None
        )
        cpu = f"{row.median('cpu') / base.median('cpu'):.1f}" if base and base.median("cpu") else ""
        wall = f"{row.median('wall') / base.median('wall'):.1f}" if base and base.median("wall") else ""
        lines.append(
            f"| {row.tree} | {row.situation} | {row.tool} | {row.median('wall'):.2f} | {row.median('cpu'):.2f} | "
            f"{row.median('peak'):.0f} | {cpu} | {wall} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
