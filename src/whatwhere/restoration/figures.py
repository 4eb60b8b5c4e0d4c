"""Draw the noise that was estimated: the variance of a pixel against its brightness."""

from matplotlib.figure import Figure

from whatwhere.errors import InvalidSetting
from whatwhere.figures import style
from whatwhere.restoration.noise import NoiseEstimate


@style.styled
def draw_noise(noise: NoiseEstimate) -> Figure:
    """Draw the estimate as a line through the groups of blocks that it was fitted to.

    Groups above the line have texture, which only adds to the variance of the noise.

    >>> noisy = 0.5 + 0.1 * torch.randn(1, 96, 96)
    >>> noise = ww.restoration.estimate_noise(noisy)
    >>> ww.restoration.figures.draw_noise(noise).savefig("noise.png")
    """
    if not noise.points:
        raise InvalidSetting(
            "noise without the points that it was fitted to",
            "noise that was estimated from pictures of at least 48 × 48 pixels",
        )
    brightness, variance, count = zip(*noise.points, strict=True)
    largest = max(count)
    figure = Figure(figsize=(style.COLUMN, 0.75 * style.COLUMN), layout="constrained")
    axes = figure.add_subplot()
    sizes = [4 + 40 * number / largest for number in count]
    axes.scatter(brightness, variance, sizes, style.CURVES[0], label="blocks of equal brightness")
    ends = [min(brightness), max(brightness)]
    line = [noise.variance_at(x) for x in ends]
    axes.plot(ends, line, color=style.CURVES[1], label=noise.summary())
    axes.set_ylim(0, 1.5 * max(*line, sorted(variance)[len(variance) // 2]))
    axes.set_xlabel("brightness")
    axes.set_ylabel("variance")
    axes.set_title(f"Noise of {noise.source}")
    axes.legend()
    return figure
