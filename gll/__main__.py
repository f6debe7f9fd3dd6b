"""`python -m gll`, which `torchrun -m gll train ...` needs."""

from gll.cli import app

app(prog_name="gll")
