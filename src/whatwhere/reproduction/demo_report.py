"""The page of the demo: errors of the classifier, reconstructions, filters."""

from __future__ import annotations

from whatwhere.data import Images
from whatwhere.inference import infer
from whatwhere.reproduction.demo import EXPLORER, Demo, score_text

TITLE = "whatwhere: the demo"
LEAD = "Two layers of features learned from digits without their labels, and what a linear classifier makes of them."
SHOWN = 36  # reconstructed digits


def demo_page(demo: Demo, test: Images) -> str:
    """The page as one HTML file; it needs no other file, and links to the explorer."""
    from whatwhere.figures import Section, report
    from whatwhere.figures.sections import error_section, filter_section, plane_section, reconstruction_section

    shown = test[:SHOWN]
    solution = infer(demo.model, shown, demo.recipe.inference, demo.recipe.plan, engine=demo.engine)
    sections = [
        error_section(
            {score.name: (score.score.error, *score.score.interval) for score in demo.scores},
            f"The same linear SVM on {len(test):,} test digits, which were used neither for training nor for choosing "
            "settings: from the pixels, and from the features of each layer. C was chosen on a sixth of the training "
            "digits. A line is the 95 % interval.",
            {score.name: score_text(score) for score in demo.scores},
        ),
        reconstruction_section(demo.model, shown, solution.latents, len(shown)),
        filter_section(demo.model),
    ]
    if demo.model.spec.depth > 1:
        sections.append(plane_section(demo.model))
    explain = "Draw a digit, watch inference explain it, and move the explanation with the mouse."
    sections.append(Section("Explore it", explain, links={"Open the explorer": EXPLORER}))
    return report(TITLE, sections, LEAD, facts(demo))


def facts(demo: Demo) -> dict[str, str]:
    """The settings and the time, by name."""
    recipe = demo.recipe
    maps = " and ".join(str(layer.maps) for layer in recipe.model.layers)
    return {
        "model": f"{recipe.model.depth} layers of {maps} maps",
        "training": ", ".join(
            f"layer {k}: {sum(report.images for report in demo.history if report.layer == k):,} digits, "
            f"{spec.steps} steps each at λ {spec.lam_value:g}"
            for k, learning in enumerate(recipe.learning, start=1)
            for spec in [learning.inference]
        ),
        "inference": f"λ {recipe.inference.lam_value:g}, {recipe.inference.steps} steps, {demo.engine} engine",
        "time": f"{demo.seconds:.0f} s, of which {demo.learning_seconds:.0f} s of learning",
    }
