"""The command ``kvlint server``: findings and fixes in an editor."""

from __future__ import annotations

import click

from kvlint.errors import UsageProblem


@click.command("server", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--stdio", is_flag=True, help="Speak on standard input and output (this is what it does anyway).")
def server(stdio: bool) -> None:
    """Serve an editor over the Language Server Protocol, on standard input and output.

    Findings while one types, fixes, and what is known of a name. It needs the extra "lsp"; docs/editors.md shows how
    to set up VS Code, Neovim, Helix and PyCharm.
    """
    try:
        import pygls.lsp.server
    except ImportError as problem:
        raise UsageProblem(
            f"the server needs {problem.name or 'pygls'}, of the extra lsp: pip install 'kvlint[lsp]'"
        ) from None
    assert pygls is not None
    from kvlint.server.app import run

    run()
