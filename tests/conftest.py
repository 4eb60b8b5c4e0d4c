"""Settings every test shares: one thread, so that parallel tests do not fight, Ctrl-C, and repeatable examples."""

import signal

import hypothesis
import torch

signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell ignores for what it runs in the background
torch.set_num_threads(1)
hypothesis.settings.register_profile("whatwhere", deadline=None, max_examples=25, derandomize=True)
hypothesis.settings.load_profile("whatwhere")
