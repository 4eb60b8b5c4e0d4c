"""Plans of inference: which phases are run, one after the other. The paper's joint-inference table is three of them."""

from functools import cache

from whatwhere.spec import Phase

ONE_PHASE = (Phase(layer=2, update_pooling=(1, 2)),)
ONE_PHASE_WITHOUT_U1 = (Phase(layer=2, update_pooling=(2,)),)
TWO_PHASES = (Phase(layer=1, update_pooling=(1,)), Phase(layer=2, update_pooling=(2,)))


@cache
def joint(depth: int) -> tuple[Phase, ...]:
    """One phase from the top, the pooling variables of every layer moving: the default for a model of any depth."""
    return (Phase(layer=depth, update_pooling=tuple(range(1, depth + 1))),)
