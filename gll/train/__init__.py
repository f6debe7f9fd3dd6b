"""Training: a config in, a run directory out.

| file | what |
|---|---|
| `loop.py` | the training loop: read this one first |
| `config.py`, `toml.py`, `unused.py` | all that a run depends on, frozen; how it is read; what is not used |
| `model.py`, `own_encoder.py`, `evaluate.py` | encoder and head from a config, or of the user's own; the test |
| `ahead.py` | images of the next steps |
| `optimize.py`, `finite.py` | optimizers and learning rates; numbers that are not finite |
| `runs.py`, `checkpoint.py`, `board.py` | the run directory, its checkpoints, TensorBoard |
| `progress.py`, `interrupt.py`, `commands.py` | what one sees, Ctrl-C, `gll train` and `gll evaluate` |
| `pretrain.py`, `contrastive.py`, `watch.py` | contrastive warm-up |
| `adversarial.py`, `against.py` | training on attacked images; what the attack makes larger |
| `distributed.py` | several processes |
| `compare.py`, `curves.py`, `records.py`, `apply.py` | reading runs, using what they trained |
"""
