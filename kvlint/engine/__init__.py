"""The second engine: what a project's files say together. Data in, data out; no syntax tree leaves ``lower``."""
