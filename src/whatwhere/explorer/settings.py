"""How much the explorer's page carries, and when its images are drawn as strokes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ExplorerSettings:
    """What the page of a model carries.

    Parameters
    ----------
    examples
        example images at most
    example_bytes
        bytes of their pixels at most, before compression: larger images come in smaller numbers
    part
        examples whose codes come together: few, so that the first come soon
    code_steps
        steps of inference for the codes of the examples
    page_steps
        steps of the page at its start: twice as many leave half as many features
    ground
        brightness below which a pixel is ground
    ink
        brightness above which a pixel is ink
    mostly
        share of ground from which on images are strokes
    few
        share of pixels between ground and ink up to which they are
    """

    examples: int = 1_000
    example_bytes: int = 2_000_000
    part: int = 50
    code_steps: int = 100
    page_steps: int = 200
    ground: float = 0.1
    ink: float = 0.9
    mostly: float = 0.6
    few: float = 0.2
