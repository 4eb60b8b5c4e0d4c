"""The loop over images and steps, called from Python."""

from typing import Any, NamedTuple

from whatwhere.engines.cpu.records import Network, Settings, Step, Target
from whatwhere.engines.cpu.start import copy, copy_latents, first_gradient, start_pooling
from whatwhere.engines.cpu.steps import (
    line_search_norms,
    propagate,
    record_objective,
    update_latents,
)
from whatwhere.engines.jit import Array, cached_jit
from whatwhere.engines.jit.vector_math import formulas


class Images(NamedTuple):
    """What belongs to N images.

    images  [N, H W C];  masks  the same, or [N, 0] without a mask
    packed  [N, …]  p, μ and γ of all layers, read at point 0, written at the last
    rates   [N]  what the β_U of the schedule are multiplied by
    beta    [N, T]  read, or written where `settings.own_step`;  norms [N, 2]  ‖g‖² and ‖M ⊙ R g‖²
            at the last point
    trace   [N, T + 1, 3]  reconstruction, penalty, non-zeros;  fista [N]  FISTA's t
    """

    images: Array
    masks: Array
    packed: Array
    rates: Array
    beta: Array
    norms: Array
    trace: Array
    fista: Array


class Memory(NamedTuple):
    """Memory for one image, or for each image if they advance in several calls.

    states  [1 or N, …]  the state;  codes  [1 or N, …]  p and the previous p, which momentum needs
    """

    states: Array
    codes: Array


@cached_jit
def advance(source: str) -> Any:
    def advance(
        points: tuple[int, int],
        all: Images,
        memory: Memory,
        network: Network,
        settings: Settings,
        sizes: Any,
    ) -> None:
        """Advance every image from point to point; point t is the state before step t.

        `settings` is one record; `sizes` are the schedule (see `Step`) and what the fitted μ and γ
        of every layer are multiplied by, [layers, 2].
        """
        source  # noqa: B018
        schedule, scales = sizes
        length, config, top = (
            memory.codes.shape[1] // 2,
            settings[0],
            network.layers[len(network.layers) - 1],
        )
        for n in range(len(all.images)):
            state, code = (
                memory.states[n % len(memory.states)],
                memory.codes[n % len(memory.states)],
            )
            target = Target(all.images[n], all.masks[n])
            for t in range(points[0], points[1] + 1):
                if t == 0:
                    if config.from_zero:
                        state[top.features : top.features + length] = 0
                    else:
                        copy_latents(all.packed[n], state, network.layers, True)
                    start_pooling(state, network, target, config, scales)
                    copy(state, top.features, code, 0, length)
                    all.fista[n] = 1
                else:
                    step = Step(t, all.beta[n, t - 1], schedule, all.rates[n])
                    all.fista[n] = update_latents(
                        state, code, network.layers, config, step, all.fista[n]
                    )
                if t == 0 and config.from_zero:
                    all.trace[n, 0, 0] = (
                        config.lam / 2 * first_gradient(state, network.layers, target)
                    )
                else:
                    last = t == all.beta.shape[1]
                    if last and config.momentum:
                        copy(code, t % 2 * length, state, top.features, length)
                    record_objective(state, network, target, config, all.trace[n, t])
                    if last:
                        copy_latents(all.packed[n], state, network.layers, False)
                        continue
                    propagate(state, network)
                if config.line_search:
                    squares, gained = line_search_norms(state, network, target.mask)
                    all.norms[n, 0], all.norms[n, 1] = squares, gained
                    if config.own_step:
                        all.beta[n, t] = formulas.line_search(squares, config.lam * gained)

    return advance
