"""Training: a config in, a run directory out.

| file | what |
|---|---|
| `config.py` | everything a run depends on, as frozen dataclasses read from TOML |
| `runs.py`, `checkpoint.py` | the run directory and its checkpoints |
| `loop.py` | the training loop: read this one first |
| `model.py`, `evaluate.py` | encoder and head from a config; the test |
| `pretrain.py` | contrastive warm-up |
| `distributed.py` | several processes |
"""
