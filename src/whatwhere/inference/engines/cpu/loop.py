"""The loop over images and steps, called from Python."""

from __future__ import annotations

from typing import Any

from whatwhere.inference.engines.cpu.features import copy
from whatwhere.inference.engines.cpu.start import copy_latents, first_gradient, start_pooling
from whatwhere.inference.engines.cpu.steps import (
    Settings,
    line_search_norms,
    propagate,
    record_objective,
    secant_norms,
    update_latents,
)
from whatwhere.inference.engines.jit import Array, cached_jit
from whatwhere.inference.step_size import KEPT_GROWTH, SECANT_RANGE


@cached_jit
def advance(source: str) -> Any:
    def advance(
        first: int, last: int, steps: int, images: Array, masks: Array, packed: Array, states: Array, codes: Array,
        layers: Array, filters: Array, settings: Settings, schedule: Array, scales: Array, rates: Array, beta: Array,
        norms: Array, trace: Array, fista: Array,
    ) -> None:  # fmt: skip
        """Advance every image from point `first` to point `last`; point t is the state before step t.

        images  [N, H W C];  masks  the same, or [N, 0] without a mask
        packed  [N, …]  p, μ and γ of all layers, read at point 0, written at the last
        states  [1 or N, …]  memory for the state of one image, or of each image if they advance in several calls
        codes   [1 or N, …]  memory for p and the previous p, which momentum needs
        schedule  see `update_latents`;  scales [layers, 2]  what the fitted μ and γ of a layer are multiplied by
        rates   [N]  what the β_U of the schedule are multiplied by
        beta    [N, T]  read, or written where `settings.own_step`;  norms [N, 2]  ‖g‖² and ‖M ⊙ R g‖² at the last point
        trace   [N, T + 1, 3]  reconstruction, penalty, non-zeros;  fista [N]  FISTA's t
        """
        source  # noqa: B018
        length, config, top = codes.shape[1] // 2, settings[0], layers[len(layers) - 1]
        for n in range(len(images)):
            state, code = states[n % len(states)], codes[n % len(states)]
            for t in range(first, last + 1):
                if t == 0:
                    if config.from_zero:
                        state[top.features : top.features + length] = 0
                    else:
                        copy_latents(packed[n], state, layers, True)
                    bounds, power = (config.gamma_min, config.gamma_max), config.moment_power
                    start_pooling(state, filters, layers, images[n], masks[n], scales, bounds, power, config.fast_fit)
                    copy(state, top.features, code, 0, length)
                    fista[n] = 1
                else:
                    size, rate = beta[n, t - 1], rates[n]
                    fista[n] = update_latents(state, code, layers, config, schedule, rate, size, fista[n], t)
                if t == 0 and config.from_zero:
                    trace[n, 0, 0] = config.lam / 2 * first_gradient(state, layers, images[n], masks[n])
                else:
                    if t == steps and config.momentum:
                        copy(code, t % 2 * length, state, top.features, length)
                    record_objective(state, filters, layers, images[n], masks[n], config, trace[n, t])
                    if t == steps:
                        copy_latents(packed[n], state, layers, False)
                        continue
                    propagate(state, filters, layers)
                if config.line_search and t % config.search_every == 0:
                    norms[n, 0], norms[n, 1] = line_search_norms(state, filters, layers, masks[n])
                    if config.own_step:
                        beta[n, t] = norms[n, 0] / (config.lam * norms[n, 1]) if norms[n, 1] > 0 else 0
                elif config.own_step and not config.secant:
                    beta[n, t] = beta[n, t - 1]
                    if t > 1 and beta[n, t - 2] > 0:
                        beta[n, t] = min(beta[n, t - 1], KEPT_GROWTH * beta[n, t - 2])
                if config.secant:
                    changed, below = secant_norms(state, code, layers, masks[n])
                    if t > 0:
                        size = changed / (config.lam * below) if changed > 0 and below > 0 else beta[n, t - 1]
                        beta[n, t] = min(max(size, beta[n, 0] / SECANT_RANGE), beta[n, 0] * SECANT_RANGE)

    return advance
