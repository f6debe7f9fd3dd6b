"""`gll reproduce`: every table and figure of the paper by one command (docs/reproduce.md says how it works).

`experiment.py` reads what a folder of experiments/ says, and lists its cells; `kinds.py` names what a cell can be;
`work.py` runs those that are not finished, and `state.py` says how they stand; `records.py` keeps what came out;
`tables.py` has it beside the paper, and `show.py` on a terminal; `choice.py` is --only.
"""
