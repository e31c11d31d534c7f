"""``kvlint server``: findings, fixes and explanations in an editor, over the Language Server Protocol.

Two processes. One speaks with the editor (`app`, on pygls) and holds the open documents (`documents`); it parses
nothing. The other one (`session`, reached through `worker`) holds settings and the modules of the project and lints:
a file that takes it too long, or that kills it, costs that one answer, and a new one is started.
"""

from __future__ import annotations
