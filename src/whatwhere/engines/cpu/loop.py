"""The loop over images and steps, called from Python."""

from collections.abc import Callable
from typing import NamedTuple

from whatwhere.engines.cpu.records import Network, Settings, Step, Target
from whatwhere.engines.cpu.start import copy, copy_latents, first_gradient, start_pooling
from whatwhere.engines.cpu.steps import (
    line_search_norms,
    propagate,
    record_objective,
    update_latents,
)
from whatwhere.engines.jit import Array, cached_jit, inline_jit
from whatwhere.engines.jit.vector_math import formulas


class Images(NamedTuple):
    """The data of N images.

    Parameters
    ----------
    images
        [N, H W C];  masks  the same, or [N, 0] without a mask
    packed
        [N, …]  p, μ and γ of all layers, read at point 0, written at the last
    rates
        [N]  factors of the schedule's β_U
    beta
        [N, T]  read, or written where `settings.own_step`;  norms [N, 2]  ‖g‖² and ‖M ⊙ R g‖² at
        the last point
    trace
        [N, T + 1, 3]  reconstruction, penalty, non-zeros;  fista [N]  FISTA's t
    tape
        [N, T, …]  what back-propagation needs of the state before each step, and its p; [N, T, 0]
        if it is not kept
    """

    images: Array
    masks: Array
    packed: Array
    rates: Array
    beta: Array
    norms: Array
    trace: Array
    fista: Array
    tape: Array


class Memory(NamedTuple):
    """Memory for one image, or for each image if they advance in several calls.

    Parameters
    ----------
    states
        [1 or N, …]  the state;  codes  [1 or N, …]  p and the previous p, which momentum needs
    """

    states: Array
    codes: Array


@cached_jit
def advance(source: str) -> Callable[..., None]:
    def advance(
        points: tuple[int, int],
        all: Images,
        memory: Memory,
        network: Network,
        settings: Settings,
        sizes: tuple[Array, Array],
    ) -> None:
        """Advance every image from point to point; point t is the state before step t.

        `settings` is one record; `sizes` are the schedule (see `Step`) and what the fitted μ and γ
        of every layer are multiplied by, [layers, 2].
        """
        source  # noqa: B018
        schedule, scales = sizes
        length = memory.codes.shape[1] // 2
        config = settings[0]
        top = network.layers[len(network.layers) - 1]
        for n in range(len(all.images)):
            state = memory.states[n % len(memory.states)]
            code = memory.codes[n % len(memory.states)]
            target = Target(all.images[n], all.masks[n])
            for t in range(points[0], points[1] + 1):
                if t == 0:
                    _load_features(state, network.layers, config, all.packed[n], length)
                    start_pooling(state, network, target, config, scales)
                    copy(state, top.features, code, 0, length)
                    all.fista[n] = 1
                else:
                    step = Step(t, all.beta[n, t - 1], schedule, all.rates[n])
                    all.fista[n] = update_latents(
                        state, code, network.layers, config, step, all.fista[n]
                    )
                if t == 0 and config.from_zero:
                    squares = first_gradient(state, network.layers, target)
                    all.trace[n, 0, 0] = config.lam / 2 * squares
                else:
                    last = t == all.beta.shape[1]
                    if last and config.momentum:
                        copy(code, t % 2 * length, state, top.features, length)
                    record_objective(state, network, target, config, all.trace[n, t])
                    if last:
                        copy_latents(all.packed[n], state, network.layers, False)
                        continue
                    propagate(state, network)
                if all.tape.shape[2] > 0:
                    kept = all.tape.shape[2] - length
                    copy(state, 0, all.tape[n, t], 0, kept)
                    copy(code, t % 2 * length, all.tape[n, t], kept, length)
                if config.line_search:
                    search_line(state, network, target, config, all.norms[n], all.beta[n, t:])

    return advance


@inline_jit
def _load_features(
    state: Array, layers: Array, settings: Settings, packed: Array, length: int
) -> None:
    """Load the latents that are known, or p = 0."""
    if settings.from_zero:
        top = layers[len(layers) - 1]
        state[top.features : top.features + length] = 0
    else:
        copy_latents(packed, state, layers, True)


@inline_jit
def search_line(
    state: Array, network: Network, target: Target, settings: Settings, norms: Array, beta: Array
) -> None:
    """‖g‖² and ‖M ⊙ R g‖² into `norms`; if the image has its own step, β into `beta`."""
    squares, gained = line_search_norms(state, network, target.mask)
    norms[0] = squares
    norms[1] = gained
    if settings.own_step:
        beta[0] = formulas.line_search(squares, settings.lam * gained)
