"""Writes rules/api/timeline.json and contracts.json from the wheels of every stable transformers release since 4.36.0.

    python scripts/build_timeline.py                     # downloads each wheel with pip, keeps none
    python scripts/build_timeline.py --wheels FOLDER     # takes wheels from FOLDER, downloads what is missing into it
    python scripts/build_timeline.py --only contracts    # writes one of the two files
    python scripts/build_timeline.py --check             # exit status 1 where a file is not what it would write

The result depends on the wheels alone: the same releases give the same bytes.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from packaging.version import Version  # noqa: E402

from kvlint import contracts_build, timeline_build  # noqa: E402
from kvlint.timeline_build import Merged, Record  # noqa: E402

OLDEST = Version("4.36.0")
FOLDER = ROOT / "rules" / "api"
KINDS = ("timeline", "contracts")


def main() -> int:
    """Runs the script; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, help="folder of wheels to use and to fill")
    parser.add_argument("--offline", action="store_true", help="use the wheels of the folder only, ask no index")
    parser.add_argument("--output", type=Path, default=FOLDER, help="folder to write into")
    parser.add_argument("--only", choices=KINDS, help="write one of the files")
    parser.add_argument("--processes", type=int, default=2, help="processes that read wheels")
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 where a file differs")
    options = parser.parse_args()
    if options.offline and options.wheels is None:
        parser.error("--offline needs --wheels FOLDER")
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.wheels or Path(scratch)
        versions = versions_in(folder) if options.offline else released_versions()
        kinds = [options.only] if options.only else KINDS
        texts = build(versions, folder, options.processes, kinds)
    span = f"{versions[0]} to {versions[-1]}, {len(versions)} releases"
    status = 0
    for kind, text in texts.items():
        path = options.output / f"{kind}.json"
        if options.check:
            same = path.is_file() and path.read_text(encoding="utf-8") == text
            print(f"{path} is {'up to date' if same else 'out of date'}")
            status |= not same
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
            print(f"{path}: {len(text.encode()) / 1000:.0f} kB, {span}")
    return status


def build(versions: Sequence[str], folder: Path, processes: int, kinds: Sequence[str]) -> dict[str, str]:
    """Texts of the files of these kinds: the wheels of *versions* (oldest first) are read in *processes* processes."""
    size = max(1, -(-len(versions) // processes))
    chunks = [versions[start : start + size] for start in range(0, len(versions), size)]
    texts: dict[str, str] = {}
    with ProcessPoolExecutor(processes) as pool:
        for kind in kinds:
            merged = Merged()
            for records in pool.map(read_releases, chunks, [folder] * len(chunks), [kind] * len(chunks)):
                for record in records:
                    merged.add(record)
            texts[kind] = merged.dump() if kind == "timeline" else contracts_build.dump(merged)
    return texts


def read_releases(versions: Sequence[str], folder: Path, kind: str) -> list[Record]:
    """Records of neighbouring releases; files that did not change in between are parsed once."""
    files: timeline_build.ParsedFiles = {}
    calls: contracts_build.ParsedContracts = {}
    records = []
    for version in versions:
        path = wheel(version, folder)
        if kind == "timeline":
            records.append(timeline_build.read_wheel(path, files))
        else:
            records.append(contracts_build.read_wheel(path, calls))
        print(f"read {version}: {kind}", file=sys.stderr, flush=True)
    return records


def wheel(version: str, folder: Path) -> Path:
    """The wheel of a release in *folder*, downloaded with pip where it is missing."""
    path = folder / f"transformers-{version}-py3-none-any.whl"
    if not path.is_file():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
        subprocess.run([*command, f"transformers=={version}"], check=True)
    return path


def released_versions() -> list[str]:
    """Stable releases that the package index offers, oldest first, from 4.36.0."""
    command = [sys.executable, "-m", "pip", "index", "versions", "transformers"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.search(r"Available versions: (.*)", listed)
    if found is None:
        raise SystemExit("pip index versions transformers printed no versions")
    return _stable(found[1].split(", "))


def versions_in(folder: Path) -> list[str]:
    """Stable releases whose wheels lie in *folder*, oldest first."""
    return _stable(path.name.split("-")[1] for path in folder.glob("transformers-*-py3-none-any.whl"))


def _stable(texts: Iterable[str]) -> list[str]:
    versions = sorted(Version(text.strip()) for text in texts)
    return [str(version) for version in versions if version >= OLDEST and not version.is_prerelease]


if __name__ == "__main__":
    sys.exit(main())
