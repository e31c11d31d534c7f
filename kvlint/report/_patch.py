"""A patch that ``git apply`` and ``patch -p1`` take, made of bytes: line ends and encodings stay as they are."""

from __future__ import annotations

from difflib import unified_diff

NO_NEWLINE = b"\n\\ No newline at end of file\n"


def patch(path: str, old: bytes, new: bytes) -> bytes:
    """The difference between two contents of the file that is called *path*; empty where there is none."""
    before, after = lines(old), lines(new)
    # Latin-1 turns every byte into one character and back, so that the comparison works on any encoding.
    diff = unified_diff(before, after, "a", "b", n=3, lineterm="\n")
    body = [line.encode("latin-1") for line in list(diff)[2:]]
    if not body:
        return b""
    name = path.lstrip("/")
    header = f"--- {quoted('a/' + name)}\n+++ {quoted('b/' + name)}\n".encode("utf-8", "surrogateescape")
    return header + b"".join(line if line.endswith(b"\n") else line + NO_NEWLINE for line in body)


def lines(data: bytes) -> list[str]:
    """Lines with their ends; only a newline ends one."""
    parts = data.decode("latin-1").split("\n")
    kept = [part + "\n" for part in parts[:-1]]
    return kept + ([parts[-1]] if parts[-1] else [])


def quoted(name: str) -> str:
    """A file name as git writes it: in quotes where it holds a quote, a backslash or a control character."""
    if any(char in '"\\' or char < " " or char == "\x7f" for char in name):
        escaped = "".join(
            "\\" + char if char in '"\\' else f"\\{ord(char):03o}" if char < " " or char == "\x7f" else char
            for char in name
        )
        return f'"{escaped}"'
    return f"{name}\t" if " " in name else name
