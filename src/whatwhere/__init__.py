"""whatwhere: what is in images, and where, learned without labels.

import whatwhere as ww

model = ww.DeconvNet(ww.ModelSpec.paper(), seed=0)
solution = ww.infer(model, images, ww.InferenceSpec(lam=5.0))   # .latents .stats .features
"""

from whatwhere.lazy import attach_stub

__version__ = "0.3.0"

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
__all__ += ["__version__"]
