"""Settings every test shares: one thread, so that parallel tests do not fight, and repeatable examples."""

import hypothesis
import torch

torch.set_num_threads(1)
hypothesis.settings.register_profile("whatwhere", deadline=None, max_examples=25, derandomize=True)
hypothesis.settings.load_profile("whatwhere")
