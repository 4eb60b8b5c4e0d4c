"""whatwhere as a solver of RoseCDL's benchmark of convolutional dictionary learning (benchopt 1.6
or later): link this file into its folder `solvers`.

    git clone https://github.com/tomMoral/RoseCDL
    ln -s $PWD/benchmarks/learning/benchopt_solver.py RoseCDL/benchmark/solvers/whatwhere.py
    benchopt run RoseCDL/benchmark --config RoseCDL/benchmark/configs/test.yml -s whatwhere

The benchmark gives signals X [N, channels, T], atoms to start from and the weight of ℓ1, and
evaluates the atoms by its own codes ≥ 0.
"""

from typing import ClassVar

import numpy as np
import torch
from benchopt import BaseSolver
from benchopt.stopping_criterion import SufficientProgressCriterion

import whatwhere as ww
from whatwhere.spec import EveryEpoch, InferenceSpec, LearningSpec, LineSearch


class Solver(BaseSolver):
    """Epochs of a few accelerated steps from the codes of the epoch before, and a step of the
    filters."""

    name = "whatwhere"
    stopping_criterion = SufficientProgressCriterion(patience=10, strategy="iteration")
    parameters: ClassVar = {"steps": [10]}
    requirements: ClassVar = ["pip::whatwhere"]

    def get_next(self, stop_val):
        """Each evaluation takes longer than an epoch."""
        return max(stop_val + 1, stop_val * 3 // 2)

    def skip(self, X, D_init, reg, window, has_outliers):
        if D_init.ndim != 3:
            return True, "atoms of signals with channels only"
        return False, None

    def set_objective(self, X, D_init, reg, window, has_outliers):
        atoms, channels, length = D_init.shape
        spec = ww.ModelSpec.signals(atoms, length, channels=channels, pool_size=1, pool_stride=1)
        self.signals = torch.as_tensor(np.asarray(X), dtype=torch.float32)[:, :, None]
        filters = torch.as_tensor(np.asarray(D_init), dtype=torch.float32).movedim(0, 1)
        filters = filters / filters.square().sum((0, 2), keepdim=True).sqrt().clamp_min(1e-12)
        self.start = ww.DeconvNet(spec, seed=0).with_filters(1, filters[:, :, None])
        self.inference = InferenceSpec(
            lam=1 / float(reg),
            steps=self.steps,
            step=LineSearch(momentum=True),
            pooling_step=0.0,
        )

    def warm_up(self):
        """Compile the kernels, which is not counted."""
        self.run(1)

    def run(self, n_iter):
        update = EveryEpoch(reset_at=(), direction_memory=0.5)
        learning = LearningSpec(
            inference=self.inference, epochs=max(n_iter, 0), update=update, tangent=True
        )
        recipe = ww.Recipe(
            model=self.start.spec,
            learning=(learning,),
            inference=self.inference,
            batch_size=len(self.signals),
        )
        self.model = ww.train(self.signals, recipe, start=self.start).model

    def get_result(self):
        atoms = self.model.filters[0][:, :, 0].movedim(1, 0)
        return {"D": atoms.cpu().double().numpy()}
