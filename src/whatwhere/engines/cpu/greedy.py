"""Sparse codes of signals without pooling, by locally greedy coordinate descent (Moreau, Oudre and
Vayatis 2018).

    min  λ/2 ‖M ⊙ (Σ d_b ∗ z_b - v)‖² + Σ|z|

With 1/λ = ρ, g = Dᵀ M² (v - D z) and n = ‖M ⊙ d‖², the best step of one coefficient, the others
fixed, is δ with

    n δ = max(g - ρ, min(g + ρ, -n z)),      for z ≥ 0   n δ = max(g - ρ, -n z)

and changes g by -δ ⟨d, d'⟩ where waveforms overlap, which depends on their distance alone (`gram`).
Where a waveform reaches beyond an end, or a sample is masked, the product is computed. A sweep
visits segments of two waveforms' length; in each it takes the largest step, in n |δ|, until none is
above half of the signal's largest. A signal is finished once a sweep lowers its cost by at most the
share `tolerance`, all steps together would do no better, and the duality gap shows that the minimum
is near.

Near the minimum, coefficients wait for each other where waveforms overlap. So if the code is to be
exact, a sweep takes only a few steps of a segment, and after it the coefficients that are not 0 are
fitted among themselves, which takes little time, since they are few (`refit`).

Where waveforms resemble each other or the code is dense, a sweep still gains little. So a signal
has a budget of steps; `GreedyEngine` says what follows.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.functional import conv1d, pad

from whatwhere.engines.cpu.layout import round_up
from whatwhere.engines.jit import Array, allocating_jit, cached_jit, jit
from whatwhere.engines.jit.simd import LANES, load, noinline, splat, store, total
from whatwhere.engines.jit.vector_math import absolute, fma, maximum, minimum, where
from whatwhere.engines.reference.ista import known_features
from whatwhere.engines.threads import chunks, solver_pool
from whatwhere.latents import Latents, PoolingParams
from whatwhere.model import Problem
from whatwhere.model.solution import Solution, Stats

# The budget of a signal in steps of single coefficients: about the time of 300 steps of all of
# them, or of half a second
STEPS_PER_SAMPLE = 50
STEPS_TIMES_WAVEFORMS = 5e7
# A larger tolerance, as in training, asks for a rough code: no gap is computed, and coefficients
# need not be fitted among themselves
LOOSE = 1e-3
LARGEST_GAP = 3  # times the tolerance: a finished cost is at most this share above its minimum
ROUNDING = 8  # steps below this many units in the last place of the largest g are noise
SEGMENT_STEPS = 4  # steps of a segment in a sweep; their choices are fitted before more are made
# Coefficients that are not 0 are fitted among themselves, more exactly than all others
REFIT_ROUNDS = 500
REFIT_LEVEL = 0.2  # share of the level of the sweep
OVERLAPS_PER_PLACE = 16  # a code with more is dense: then steps of all coefficients cost no more
NO_ENERGY = 1e-12  # of a waveform inside the signal, as a share of all of it: it explains nothing


class Waveforms(NamedTuple):
    """The waveforms d [C, B, K], their products at all distances gram [B, B, ≥ 2K - 1], both flat,
    and their sizes."""

    d: Array
    gram: Array
    channels: int
    maps: int
    length: int


class Signal(NamedTuple):
    """Memory for one signal. Coefficient j of map b is at b · places + K + j, and covers the
    samples K + j + k.

    Parameters
    ----------
    g, z, n
        [B places]
    r, w
        [C samples]  M² (v - D z) and M²; 0 beyond the ends
    regular
        [places]  whether M = 1 in all samples that a waveform covers
    best, at
        [segments]  the largest n |δ|, and its coefficient, -1 where g has changed since
    gain
        [segments]  Σ n δ²/2, what the steps of all coefficients would gain if waveforms were
        orthogonal
    lanes
        [2 LANES]  work
    """

    g: Array
    z: Array
    n: Array
    r: Array
    w: Array
    regular: Array
    best: Array
    gain: Array
    at: Array
    lanes: Array


class Rule(NamedTuple):
    """The arguments of a descent.

    Parameters
    ----------
    rho
        ρ = 1/λ
    low
        -ρ if coefficients may be negative, otherwise far below it
    tolerance
        the share of the cost that a sweep gains at the end
    sweeps
        the largest number of sweeps
    budget
        the largest number of steps of single coefficients
    """

    rho: float
    low: float
    tolerance: float
    sweeps: int
    budget: int


class Overlaps(NamedTuple):
    """The products of the waveforms of some coefficients, as far as they overlap.

    Parameters
    ----------
    begin
        [n + 1]  where each coefficient's begin
    other
        the number of the other coefficient
    value
        the product
    """

    begin: Array
    other: Array
    value: Array


class Codes(NamedTuple):
    """What the descent left: the solution, and which signals [N] are finished."""

    solution: Solution
    finished: torch.Tensor


def solve(problem: Problem) -> Codes:
    """Return the codes of all signals; threads share them."""
    images = problem.images
    mask = problem.mask
    C, B, _, K = problem.model.filters[0].shape
    N, T = len(images), images.shape[3]
    d = problem.model.filters[0][:, :, 0].transpose(0, 1)
    gram = pad(conv1d(d, d, padding=K - 1), (0, round_up(2 * K - 1) - (2 * K - 1)))
    waveforms = Waveforms(d.transpose(0, 1).flatten().numpy(), gram.flatten().numpy(), C, B, K)
    rho = 1 / problem.lam
    most = problem.spec.steps
    rule = Rule(
        rho,
        low=-1e30 if problem.model.spec.nonnegative else -rho,
        tolerance=problem.spec.tolerance,
        sweeps=most,
        budget=max(STEPS_PER_SAMPLE * C * T, int(STEPS_TIMES_WAVEFORMS / (B * K))),
    )
    start = known_features(problem)
    p = images.new_empty(N, *problem.sized.regions[0].grid)  # every place is written below
    v = images[:, :, 0].contiguous().numpy()
    weights = None if mask is None else mask.square().expand_as(images)[:, :, 0].numpy()
    trace = np.zeros((N, most + 1, 3))
    taken = np.zeros(N, np.int64)
    finished = np.zeros(N, np.bool_)

    def work(chunk: slice) -> None:
        signal = _new_signal(waveforms, T, v.dtype)
        z = signal.z.reshape(B, -1)[:, K : 2 * K + T - 1]
        w = signal.w.reshape(C, -1)[:, 2 * K - 1 : 2 * K - 1 + T]
        for n in range(chunk.start, chunk.stop):
            if n == chunk.start or weights is not None:
                w[:] = 1 if weights is None else weights[n]
                prepare(signal, waveforms)
            signal.at[:] = -1
            signal.z[:] = 0
            if start is not None:
                z[:] = start[n, :, 0].numpy()
                signal.z[signal.n == 0] = 0
            taken[n], finished[n] = descend(signal, waveforms, rule, v[n], trace[n])
            p[n, :, 0] = torch.from_numpy(z)

    with solver_pool() as pool:
        list(pool.map(work, chunks(0, N)))
    # sweeps are steps of 1; then the end is repeated
    point = np.minimum(np.arange(taken.max() + 1)[:, None], taken)
    reconstruction, penalty, nonzeros = torch.from_numpy(trace[np.arange(N), point]).movedim(2, 0)
    stats = Stats(
        reconstruction.to(p),
        penalty.to(p),
        nonzeros.long(),
        torch.from_numpy(np.diff(point, axis=0)).to(p),
    )
    solution = Solution(Latents(p, pooling_params(problem)), stats, engine="greedy")
    return Codes(solution, torch.from_numpy(finished))


def _new_signal(waveforms: Waveforms, length: int, dtype: np.dtype) -> Signal:
    """Zeroed memory for a signal of this length."""
    _, _, C, B, K = waveforms
    segment = 2 * round_up(K)
    segments = -(-(length + 3 * K + LANES) // segment)
    places = segments * segment
    sizes = 3 * [B * places] + 2 * [C * (places + K + LANES)] + [2 * LANES]
    g, z, n, r, w, lanes = (np.zeros(size, dtype) for size in sizes)
    best, gain, at = np.zeros(segments), np.zeros(segments), np.full(segments, -1)
    return Signal(g, z, n, r, w, np.zeros(places, np.bool_), best, gain, at, lanes)


def pooling_params(problem: Problem) -> tuple[PoolingParams, ...]:
    """Return the pooling variables that are given; otherwise any, because those of regions of one
    element have no influence."""
    if problem.latents.pooling_params:
        return problem.latents.pooling_params[:1]
    shape = len(problem.images), 2, *problem.sized.regions[0].grid
    return (
        PoolingParams(
            *(problem.images.new_full((1,), value).expand(shape) for value in (0.0, 1.0))
        ),
    )


@jit
def product(waveforms: Waveforms, w: Array, at: int, first: int, second: int, lag: int) -> float:
    """⟨M d_first, M d_second⟩, the second one `lag` samples later; `at` is the first sample of the
    first."""
    noinline()
    d, _, C, B, K = waveforms
    samples, result = len(w) // C, 0.0
    for c in range(C):
        one, other = (c * B + first) * K, (c * B + second) * K - lag
        for k in range(max(0, lag), min(K, K + lag)):
            result += w[c * samples + at + k] * d[one + k] * d[other + k]
    return result


@cached_jit
def prepare(source: str) -> Callable[..., None]:
    def prepare(signal: Signal, waveforms: Waveforms) -> None:
        """Note where products are regular, and n: 0 where a waveform has no energy inside the
        signal."""
        source  # noqa: B018
        _, gram, C, B, K = waveforms
        places, samples, width = len(signal.regular), len(signal.w) // C, len(gram) // (B * B)
        irregular = -1  # the last irregular sample
        for i in range(1 - K, places):
            for c in range(C):
                if signal.w[c * samples + i + K - 1] != 1:
                    irregular = i + K - 1
            if i >= 0:
                signal.regular[i] = irregular < i
        for b in range(B):
            whole = gram[(b * B + b) * width + K - 1]
            for i in range(places):
                n = whole if signal.regular[i] else product(waveforms, signal.w, i, b, b, 0)
                signal.n[b * places + i] = n if n > NO_ENERGY * whole else 0

    return prepare


@jit
def residual(signal: Signal, waveforms: Waveforms, v: Array) -> float:
    """r = M² (v - D z); returns ‖M ⊙ (v - D z)‖²."""
    noinline()
    r, (d, _, C, B, K) = signal.r, waveforms
    places, samples, squares = len(signal.regular), len(signal.w) // C, 0.0
    for c in range(C):
        for i in range(samples):
            t = i - (2 * K - 1)
            r[c * samples + i] = v[c, t] if 0 <= t < v.shape[1] else 0
    for b in range(B):
        for first in range(0, places, LANES):
            if total(absolute(load(signal.z, b * places + first))) == 0:
                continue  # as nearly everywhere
            for i in range(first, first + LANES):
                z = signal.z[b * places + i]
                if z != 0:
                    for c in range(C):
                        for k in range(K):
                            r[c * samples + i + k] -= z * d[(c * B + b) * K + k]
    for i in range(len(r)):
        squares += signal.w[i] * r[i] * r[i]
        r[i] *= signal.w[i]
    return squares


@jit
def correlate(signal: Signal, waveforms: Waveforms) -> None:
    """g = Dᵀ r."""
    noinline()
    g, r, (d, _, C, B, K) = signal.g, signal.r, waveforms
    places, samples = len(signal.regular), len(signal.w) // C
    for b in range(0, B, 2):
        # two waveforms at a time, at two places: each sample is loaded once for both, and a single
        # sum would wait for its last product
        other = min(b + 1, B - 1)
        for i in range(0, places, 2 * LANES):
            left = splat(g, 0)
            right = splat(g, 0)
            other_left = splat(g, 0)
            other_right = splat(g, 0)
            for c in range(C):
                for k in range(K):
                    at = c * samples + i + k
                    here = load(r, at)
                    next_to_it = load(r, at + LANES)
                    tap = d[(c * B + b) * K + k]
                    left = fma(tap, here, left)
                    right = fma(tap, next_to_it, right)
                    tap = d[(c * B + other) * K + k]
                    other_left = fma(tap, here, other_left)
                    other_right = fma(tap, next_to_it, other_right)
            store(g, b * places + i, left)
            store(g, b * places + i + LANES, right)
            store(g, other * places + i, other_left)
            store(g, other * places + i + LANES, other_right)


@jit
def search(signal: Signal, rule: Rule, segment: int) -> None:
    """Find the largest step n |δ| in a segment, and its coefficient."""
    noinline()
    g, lanes, places = signal.g, signal.lanes, len(signal.regular)
    length = places // len(signal.best)
    best, number, squares = splat(g, 0), splat(g, 0), splat(g, 0)
    for b in range(len(g) // places):
        for i in range(0, length, LANES):
            at = b * places + segment * length + i
            slope, n = load(g, at), load(signal.n, at)
            change = maximum(slope - rule.rho, minimum(slope - rule.low, -(n * load(signal.z, at))))
            size = where(n > 0, absolute(change), 0.0)
            number = where(size > best, splat(g, b * length + i), number)
            best, squares = maximum(best, size), fma(size, size, squares)
    store(lanes, 0, best)
    store(lanes, LANES, number)
    lane = 0
    for other in range(1, LANES):
        if lanes[other] > lanes[lane]:
            lane = other
    b, i = divmod(int(lanes[LANES + lane]), length)
    signal.best[segment], signal.at[segment] = lanes[lane], b * places + segment * length + i + lane
    signal.gain[segment] = (
        total(squares) / signal.n[signal.at[segment]] / 2 if lanes[lane] > 0 else 0
    )


@jit
def move(signal: Signal, waveforms: Waveforms, at: int, delta: float) -> None:
    """Update g for the change of one coefficient, and mark its segments to be searched again."""
    noinline()
    g, (_, gram, _, B, K) = signal.g, waveforms
    places, width = len(signal.regular), len(gram) // (B * B)
    first, i = divmod(at, places)
    for b in range(B):
        near = b * places + i - (K - 1)
        if signal.regular[i]:
            for m in range(0, width, LANES):
                products = load(gram, (first * B + b) * width + m)
                store(g, near + m, load(g, near + m) - delta * products)
        else:
            for lag in range(1 - K, K):
                g[near + K - 1 + lag] -= delta * product(waveforms, signal.w, i, first, b, lag)
    for segment in range(
        (i - K + 1) * len(signal.at) // places, (i + K - 1) * len(signal.at) // places + 1
    ):
        signal.at[segment] = -1


@jit
def step(signal: Signal, waveforms: Waveforms, rule: Rule, at: int) -> tuple[float, float, int]:
    """Take the best step of one coefficient. Returns the changes of ½ ‖M ⊙ (v - D z)‖², Σ|z| and
    the number of z ≠ 0."""
    noinline()
    slope, z, n = signal.g[at], signal.z, signal.n[at]
    old, change = z[at], max(slope - rule.rho, min(slope - rule.low, -n * z[at]))
    new = old + change / n if change != -n * old else 0.0
    z[at] = new
    delta = z[at] - old
    move(signal, waveforms, at, delta)
    return delta * (n * delta / 2 - slope), abs(new) - abs(old), int(new != 0) - int(old != 0)


@jit
def _search_changed(signal: Signal, rule: Rule) -> tuple[float, float]:
    """Search the segments where g has changed. Returns the largest n |δ| of all, and what all steps
    would gain."""
    largest, gain = 0.0, 0.0
    for s in range(len(signal.best)):
        if signal.at[s] < 0:
            search(signal, rule, s)
        largest, gain = max(largest, signal.best[s]), gain + signal.gain[s]
    return largest, gain


@allocating_jit
def _active_coefficients(signal: Signal) -> Array:
    """Return the coefficients that are not 0, in the order of time."""
    places = len(signal.regular)
    chosen = np.empty(np.count_nonzero(signal.z), np.int64)
    count = 0
    for i in range(places):
        for at in range(i, len(signal.z), places):
            if signal.z[at] != 0:
                chosen[count] = at
                count += 1
    return chosen


@allocating_jit
def _overlaps_of(signal: Signal, waveforms: Waveforms, chosen: Array, most: int) -> Overlaps:
    """Return the products of the waveforms of these coefficients, which are in the order of time;
    none at all if there are more than `most`."""
    _, gram, _, B, K = waveforms
    places, width = len(signal.regular), len(gram) // (B * B)
    begin = np.zeros(len(chosen) + 1, np.int64)
    earliest = 0
    latest = 0
    for n in range(len(chosen)):
        while chosen[earliest] % places <= chosen[n] % places - K:
            earliest += 1
        while latest < len(chosen) and chosen[latest] % places < chosen[n] % places + K:
            latest += 1
        begin[n + 1] = begin[n] + latest - earliest
    if begin[-1] > most:
        return Overlaps(begin, np.zeros(0, np.int64), np.zeros(0))
    other = np.empty(begin[-1], np.int64)
    value = np.empty(begin[-1])
    earliest = 0
    for n in range(len(chosen)):
        first, i = divmod(chosen[n], places)
        while chosen[earliest] % places <= i - K:
            earliest += 1
        for k in range(begin[n + 1] - begin[n]):
            second, j = divmod(chosen[earliest + k], places)
            other[begin[n] + k] = earliest + k
            if signal.regular[i] or signal.regular[j]:
                value[begin[n] + k] = gram[(first * B + second) * width + K - 1 + j - i]
            else:
                value[begin[n] + k] = product(waveforms, signal.w, i, first, second, j - i)
    return Overlaps(begin, other, value)


@allocating_jit
def refit(
    signal: Signal, waveforms: Waveforms, rule: Rule, level: float
) -> tuple[float, float, int, int]:
    """Steps of the coefficients that are not 0, until none of them is above `level`. Returns what
    `step` returns, and the number of coefficients.

    These coefficients depend on each other most, and among them, a step changes the slopes of only
    a few neighbours, not of all waveforms at all places near it. Their changes are added to g
    at the end.
    """
    noinline()
    chosen = _active_coefficients(signal)
    overlaps = _overlaps_of(signal, waveforms, chosen, OVERLAPS_PER_PLACE * len(signal.regular))
    if len(overlaps.value) < overlaps.begin[-1]:
        return 0.0, 0.0, 0, 0
    count = len(chosen)
    z = np.empty(count)
    slope = np.empty(count)
    for n in range(count):
        z[n] = signal.z[chosen[n]]
        slope[n] = signal.g[chosen[n]]

    errors = 0.0
    for _ in range(REFIT_ROUNDS):
        largest = 0.0
        for n in range(count):
            own = signal.n[chosen[n]]
            change = max(slope[n] - rule.rho, min(slope[n] - rule.low, -own * z[n]))
            if abs(change) <= level:
                continue
            largest = max(largest, abs(change))
            delta = change / own
            errors += delta * (change / 2 - slope[n])
            z[n] = z[n] + delta if change != -own * z[n] else 0.0
            for k in range(overlaps.begin[n], overlaps.begin[n + 1]):
                slope[overlaps.other[k]] -= delta * overlaps.value[k]
        if largest == 0:
            break

    sizes = 0.0
    more = 0
    for n in range(count):
        old = signal.z[chosen[n]]
        signal.z[chosen[n]] = z[n]
        new = signal.z[chosen[n]]
        sizes += abs(new) - abs(old)
        more -= int(new == 0)
        if new != old:
            move(signal, waveforms, chosen[n], new - old)
    return errors, sizes, more, count


@jit
def _duality_gap(signal: Signal, rule: Rule, error: float) -> float:
    """Return how far ½ ‖M ⊙ (v - D z)‖² + ρ Σ|z| is above its minimum, at most; `error` is its
    first term.

    With r = M ⊙ (v - D z) and a scale s ≤ 1 such that no ⟨M d, s r⟩ exceeds ρ, the minimum is at
    least s ⟨r, M ⊙ v⟩ - s²/2 ‖r‖². Since v = (v - D z) + D z, the product ⟨r, M ⊙ v⟩ is
    ‖r‖² + ⟨g, z⟩.
    """
    noinline()
    penalty = 0.0
    slope = 0.0
    explained = 0.0  # ⟨g, z⟩
    for i in range(len(signal.z)):
        penalty += abs(signal.z[i])
        explained += signal.g[i] * signal.z[i]
        # where coefficients may not be negative, a negative slope is no constraint
        slope = max(slope, signal.g[i], -signal.g[i] if rule.low == -rule.rho else 0.0)
    scale = min(1.0, rule.rho / slope) if slope > 0 else 1.0
    least = scale * (2 * error + explained) - scale * scale * error
    return error + rule.rho * penalty - least


@jit
def _compute_again(signal: Signal, waveforms: Waveforms, v: Array) -> float:
    """Compute r and g from z again, because rounding errors of many small changes add up. Returns ½
    ‖M ⊙ (v - D z)‖²."""
    noinline()
    squares = residual(signal, waveforms, v)
    correlate(signal, waveforms)
    signal.at[:] = -1
    return squares / 2


@cached_jit
def descend(source: str) -> Callable[..., tuple[int, bool]]:
    def descend(
        signal: Signal, waveforms: Waveforms, rule: Rule, v: Array, trace: Array
    ) -> tuple[int, bool]:
        """Make all sweeps for one signal v [C, T], from z on. Writes `trace` [sweeps + 1, 3];
        returns the sweeps taken, and whether the signal is finished."""
        source  # noqa: B018
        # what the start costs, and the largest slope, to which rounding is relative
        error = residual(signal, waveforms, v) / 2
        penalty = 0.0
        nonzeros = 0
        slope = 0.0
        correlate(signal, waveforms)
        for i in range(len(signal.z)):
            penalty += abs(signal.z[i])
            nonzeros += signal.z[i] != 0
            slope = max(slope, abs(signal.g[i]))
        floor = ROUNDING * slope * np.finfo(signal.g.dtype).eps
        largest, _ = _search_changed(signal, rule)
        trace[0, 0] = error / rule.rho
        trace[0, 1] = penalty
        trace[0, 2] = nonzeros
        taken = 0
        steps = 0
        finished = False
        is_exact = rule.tolerance <= LOOSE
        segment_steps = SEGMENT_STEPS if is_exact else rule.budget
        while taken < rule.sweeps and steps < rule.budget and not finished:
            # steps below half of the largest can wait: those that are taken may make them needless
            level = max(largest / 2, floor)
            gained = 0.0
            for s in range(len(signal.best)):
                if signal.at[s] < 0:
                    search(signal, rule, s)
                last = steps + segment_steps
                while signal.best[s] > level and steps < min(last, rule.budget):
                    errors, sizes, more = step(signal, waveforms, rule, signal.at[s])
                    error += errors
                    penalty += sizes
                    nonzeros += more
                    gained -= errors + rule.rho * sizes
                    steps += 1
                    search(signal, rule, s)
            if is_exact:
                errors, sizes, more, count = refit(signal, waveforms, rule, REFIT_LEVEL * level)
                error += errors
                penalty += sizes
                nonzeros += more
                gained -= errors + rule.rho * sizes
                steps += count
            largest, possible = _search_changed(signal, rule)
            taken += 1
            trace[taken, 0] = error / rule.rho
            trace[taken, 1] = penalty
            trace[taken, 2] = nonzeros
            # a sweep that the budget cut short may have gained little for that reason
            if steps < rule.budget:
                cost = error + rule.rho * penalty
                little = max(gained, possible) <= rule.tolerance * cost
                if largest <= floor or (little and rule.tolerance > LOOSE):
                    finished = True
                elif little:
                    most = LARGEST_GAP * rule.tolerance * cost
                    if _duality_gap(signal, rule, error) <= most:
                        error = _compute_again(signal, waveforms, v)
                        finished = _duality_gap(signal, rule, error) <= most
                        largest, _ = _search_changed(signal, rule)
        # rounding errors of many small changes add up: the last sum is computed again
        trace[taken, 0] = residual(signal, waveforms, v) / 2 / rule.rho
        return taken, finished

    return descend
