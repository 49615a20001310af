"""What surrounds the training loop: the run folder, the progress report, the yardstick matches. Used by `train.py`."""
