"""What a person does with the page, in Chromium; every test also holds that no error and no
request occurs."""

import io
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from pages.opened import STEPS, Opened
from whatwhere import models
from whatwhere.data import load
from whatwhere.explorer import page as export
from whatwhere.explorer.command import answers
from whatwhere.explorer.settings import ExplorerSettings
from whatwhere.html.server import PageServer
from whatwhere.inference import infer
from whatwhere.latents import PoolingParams
from whatwhere.model import DeconvNet
from whatwhere.model import load as load_model
from whatwhere.model.solution import Solution
from whatwhere.spec import InferenceSpec, Recipe
from whatwhere.spec.penalty import Power

pytestmark = pytest.mark.browser
SETTINGS = InferenceSpec(
    lam=0.5, penalty=Power(alpha=0.5), steps=STEPS
)  # those of the page, with fewer steps
COLUMNS = 10  # regions of layer 2 along an axis


@pytest.fixture(scope="module")
def model() -> DeconvNet:
    return load_model(models.path("mnist")).to(torch.float64)


def solve(model: DeconvNet, image: int) -> Solution:
    return infer(
        model,
        load("digits", split="test")[image : image + 1].double(),
        SETTINGS,
        engine="reference",
    )


def ink(pixels: np.ndarray) -> np.ndarray:
    """The values that a grey picture of the light scheme shows, from 0 to 1."""
    return (255 - pixels[:, :, 0]) / (255 - 0x1C)


def explain(model: DeconvNet, p: torch.Tensor, theta: tuple[PoolingParams, ...]) -> np.ndarray:
    sized = model.at(28, 28)
    return sized.reconstruct(p, sized.weights(theta))[0, 0].clamp(0, 1).numpy()


def test_the_page_shows_what_the_reference_engine_finds(opened: Opened, model: DeconvNet) -> None:
    solution = solve(model, 0)
    # three figures are shown
    assert opened.number("#cost") == pytest.approx(float(solution.stats.cost[-1]), rel=5e-3)
    assert opened.number("#nonzeros") == int(solution.stats.nonzeros[-1])
    truth = explain(model, solution.features, solution.latents.pooling_params)
    np.testing.assert_allclose(ink(opened.pixels("#reconstruction")), truth, atol=0.01)


def test_drawing_is_explained_and_the_cost_falls(opened: Opened) -> None:
    opened.tab.locator("#clear").click()
    opened.settle()
    assert opened.number("#nonzeros") == 0
    box = opened.box("#draw")
    x, top, side = box["x"] + box["width"] / 2, box["y"], box["height"]
    opened.drag((x, top + 0.2 * side), (x, top + 0.8 * side), steps=12)
    opened.settle()
    drawn = ink(opened.pixels("#draw"))
    assert drawn[8:20, 13:15].min() > 0.9
    assert drawn[:, :9].max() < 0.01
    end = opened.number("#cost")
    opened.tab.locator("#scrub").fill("0")
    opened.settle()
    assert end < 0.8 * opened.number("#cost")
    assert ink(opened.pixels("#reconstruction")).max() < 0.01, (
        "before the first step nothing is explained"
    )
    opened.tab.locator("#undo").click()
    opened.settle()
    assert ink(opened.pixels("#draw")).max() < 0.01


def select_first(opened: Opened) -> int:
    """Select the strongest feature; its region."""
    opened.tab.locator("#active .tile").first.click()
    return int(opened.address()["selected"])


def place_on_screen(opened: Opened, region: int) -> tuple[float, float]:
    """The centre of a region's Gaussian: layer 2 covers 40 pixels from -6.5 on, 4 for each region,
    2 for each of z."""
    row, column = region // COLUMNS % COLUMNS, region % COLUMNS
    mu_x, mu_y = (float(opened.tab.locator(f"#mu-{axis}").input_value()) for axis in "xy")
    box = opened.box("#code")
    scale = box["width"] / 40
    return box["x"] + scale * (4 * column + 2 + 2 * mu_x), box["y"] + scale * (
        4 * row + 2 + 2 * mu_y
    )


def test_dragging_an_ellipse_changes_the_reconstruction_where_it_should_and_nowhere_else(
    opened: Opened,
) -> None:
    region = select_first(opened)
    before, mu = opened.pixels("#reconstruction"), opened.number("#mu-x-value")
    x, y = place_on_screen(opened, region)
    opened.drag((x, y), (x - 9 if mu > 0 else x + 9, y))
    opened.settle()
    changed = (opened.pixels("#reconstruction") != before).any(2)
    row, column = region // COLUMNS % COLUMNS, region % COLUMNS
    reach = np.zeros((28, 28), bool)  # its 2×2 of z₂, 6×6 of p₁, 12×12 of z₁ and 16×16 pixels
    reach[max(0, 4 * row - 12) : 4 * row + 4, max(0, 4 * column - 12) : 4 * column + 4] = True
    assert changed[reach].sum() > 20
    assert not changed[~reach].any()
    assert abs(opened.number("#mu-x-value") - mu) > 0.2
    assert opened.address()["actions"].startswith(f"w,2,{region},")


def test_dragging_the_rim_changes_the_precision_and_scrolling_the_strength(opened: Opened) -> None:
    region = select_first(opened)
    opened.tab.locator("#gamma-x").fill("0")  # γ = 1: σ is one element of z, 2 pixels
    opened.settle()
    x, y = place_on_screen(opened, region)
    scale = opened.box("#code")["width"] / 40
    mu, strength = opened.number("#mu-x-value"), opened.number("#amplitude-value")
    opened.drag((x + 2 * scale, y), (x + scale, y))
    opened.settle()
    assert opened.number("#gamma-x-value") == pytest.approx(4, rel=0.35)  # half as wide
    assert opened.number("#mu-x-value") == mu
    opened.tab.mouse.move(x, y)
    opened.tab.mouse.wheel(0, -100)
    opened.settle()
    assert opened.number("#amplitude-value") == pytest.approx(1.08 * strength, rel=0.02)


def test_scrubbing_shows_an_earlier_step(opened: Opened, model: DeconvNet) -> None:
    opened.tab.locator("#scrub").fill("7")
    opened.settle()
    assert opened.text("#step-label") == f"step 7 of {STEPS}"
    stats = solve(model, 0).stats
    assert opened.number("#cost") == pytest.approx(float(stats.cost[7]), rel=5e-3)
    assert opened.number("#nonzeros") == int(stats.nonzeros[7])
    opened.tab.locator("#step-on").click()
    opened.settle()
    assert opened.text("#step-label") == f"step 8 of {STEPS}"
    assert opened.address()["step"] == "8"
    opened.tab.locator("#scrub").fill(str(STEPS - 2))
    opened.tab.locator("#play").click()
    opened.tab.locator("#step-label", has_text=f"step {STEPS} of {STEPS}").wait_for()


def test_what_of_a_is_drawn_with_where_of_b(opened: Opened, model: DeconvNet) -> None:
    opened.follow("image=e0&other=e1")
    a, b = solve(model, 0), solve(model, 1)
    swapped = explain(model, a.features, b.latents.pooling_params)
    own = explain(model, a.features, a.latents.pooling_params)
    assert np.abs(swapped - own).max() > 0.1, "nothing to tell apart"
    opened.until(lambda: bool(np.abs(ink(opened.pixels("#pair-ab")) - swapped).max() < 0.02))
    np.testing.assert_allclose(ink(opened.pixels("#pair-ab")), swapped, atol=0.02)
    opened.tab.locator("#blend").fill("0")
    opened.settle()
    np.testing.assert_allclose(ink(opened.pixels("#pair-ab")), own, atol=0.02)
    opened.tab.locator("#swap").click()
    opened.settle()
    assert opened.address()["image"] == "e1"
    assert opened.tab.locator("#nearest .tile").count() == 8


def test_a_link_shows_the_same_thing(opened: Opened, browser: Any, page_file: Path) -> None:
    box = opened.box("#draw")
    opened.drag((box["x"] + 20, box["y"] + 20), (box["x"] + 60, box["y"] + 20))
    opened.settle()
    region = select_first(opened)
    opened.tab.locator("#mu-y").fill("0.31")
    opened.tab.locator("#continue").click()
    opened.settle()
    opened.tab.locator("#amplitude").fill("0.015")
    opened.settle()
    shown = [
        opened.pixels("#reconstruction"),
        opened.text("#cost"),
        opened.text("#amplitude-value"),
    ]
    link = "&".join(f"{name}={value}" for name, value in opened.address().items())
    with Opened(browser, page_file.as_uri(), link, fast_timers=True) as other:
        assert [other.text("#cost"), other.text("#amplitude-value")] == shown[1:]
        assert np.abs(other.pixels("#reconstruction") - shown[0]).max() <= 1
        assert other.text("#step-label") == f"step {2 * STEPS + 1} of {2 * STEPS + 1}"
        assert int(other.address()["selected"]) == region
        # a link followed inside the page
        other.tab.evaluate("location.hash = 'steps=10&image=e5&view=tiles'")
        other.tab.locator("#step-label", has_text="step 10 of 10").wait_for()
        assert other.tab.locator("#view").input_value() == "tiles"


def test_a_malformed_address_falls_back_to_the_defaults(opened: Opened) -> None:
    hostile = "image=e99999&lambda=NaN&alpha=-7&layer=9&feature=-1&selected=1e9&actions=w,2,x~p,1e9,3~q&view=<b>"  # noqa: E501
    opened.follow(hostile)
    address = opened.address()
    assert address["image"] == "e0"
    assert "lambda" not in address
    assert "actions" not in address
    assert opened.number("#nonzeros") > 0


def test_names_and_labels_are_shown_as_text(opened: Opened) -> None:
    assert opened.text("#model-name").startswith("</script>")
    assert "</script>" in opened.tab.locator("#examples .tile").first.get_attribute("title")
    assert opened.tab.evaluate("window.hacked") is None


def test_inference_continues_from_an_edit(opened: Opened) -> None:
    select_first(opened)
    found = opened.number("#cost")
    opened.tab.locator("#amplitude").fill("0")
    opened.settle()
    spoiled = opened.number("#cost")
    assert spoiled > found
    opened.tab.locator("#continue").click()
    opened.settle()
    assert opened.number("#cost") < spoiled
    opened.tab.locator("#discard-edits").click()
    opened.settle()
    assert opened.number("#cost") == found


def test_edits_are_discarded_at_once_without_inference(browser: Any, page_file: Path) -> None:
    with Opened(
        browser, page_file.as_uri(), f"steps={STEPS}", fast_timers=True, held_reports=True
    ) as opened:
        select_first(opened)
        found, steps = opened.number("#cost"), opened.text("#step-label")
        opened.tab.locator("#step-back").click()
        opened.tab.locator("#amplitude").fill("0")
        opened.settle()
        assert opened.text("#edited") == "edited by hand"
        opened.tab.evaluate("window.reportsToPass = 0")  # no inference can end from here on
        opened.tab.locator("#discard-edits").click()
        opened.settle()
        assert (opened.number("#cost"), opened.text("#step-label")) == (found, steps)
        assert opened.text("#edited") == ""
        assert opened.tab.locator("#discard-edits").is_disabled()
        assert "actions" not in opened.address()


def test_features_are_added_and_deleted_with_the_keyboard_alone(opened: Opened) -> None:
    opened.tab.wait_for_function("Number(document.querySelector('#nonzeros').textContent) > 0")
    opened.settle()
    count = opened.number("#nonzeros")
    opened.tab.locator("#code").focus()
    opened.tab.keyboard.press("n")
    opened.settle()
    mu = opened.number("#mu-x-value")
    opened.tab.keyboard.press("ArrowLeft" if mu > 0 else "ArrowRight")
    opened.settle()
    assert abs(opened.number("#mu-x-value") - mu) == pytest.approx(0.05, abs=0.011)
    opened.tab.keyboard.press("Delete")
    opened.settle()
    assert opened.number("#nonzeros") == count - 1
    opened.tab.locator("#legend .swatch").nth(7).press("Enter")
    opened.tab.locator("#add").press("Enter")
    opened.tab.locator("#add").press("Enter")
    opened.settle()
    assert opened.number("#nonzeros") == count
    assert opened.text("#element-title").startswith("Feature of map 8 of layer 2")


def test_max_pooling_is_shown_next_to_gaussian_pooling(opened: Opened, model: DeconvNet) -> None:
    opened.tab.locator("#compare-panel summary").click()
    opened.tab.locator("#max-cost", has_text="features").wait_for()
    from pages.test_engine_js import with_kind

    truth = solve(with_kind(model, "max"), 0)
    assert f"{int(truth.stats.nonzeros[-1])} features" in opened.text("#max-cost")
    drawn = explain(model, truth.features, truth.latents.pooling_params)
    np.testing.assert_allclose(ink(opened.pixels("#max-reconstruction")), drawn, atol=0.02)


def test_a_feature_shows_its_filters_and_16_of_its_activations(
    opened: Opened, model: DeconvNet
) -> None:
    select_first(opened)
    feature = int(opened.address()["feature"])
    assert opened.tab.locator("#filters figure").count() == 8
    shown = opened.pixels("#filters figure >> nth=0 >> canvas")
    below = int(np.flatnonzero(model.connectivity[1][:, feature].numpy())[0])
    plane, largest = model.filters[1][below, feature], model.filters[1][:, feature].max()
    np.testing.assert_allclose(ink(shown), (plane / largest).numpy(), atol=0.01)
    opened.tab.locator("#samples canvas[aria-label^='In example']").first.wait_for()
    count = opened.tab.locator("#samples canvas").count()
    assert 0 < count <= 16
    assert re.match(f"{count} activations?, drawn at random", opened.text("#samples-title"))
    assert opened.text("#occurrence-count").endswith("% of 30 examples")


def test_the_signal_is_shown_on_its_way_down_and_lower_layers_can_be_moved(opened: Opened) -> None:
    opened.tab.locator("#signal-panel summary").click()
    opened.tab.locator("#signal h4", has_text="z₁").wait_for()
    assert opened.tab.locator("#signal h4").count() == 5
    opened.tab.locator("#layer").select_option("1")
    opened.settle()
    before = opened.pixels("#reconstruction")
    opened.tab.locator("#active .tile").first.click()
    opened.tab.locator("#mu-y").fill("0.5" if opened.number("#mu-y-value") < 0 else "-0.5")
    opened.settle()
    assert opened.tab.locator("#amplitude").is_disabled()
    assert (opened.pixels("#reconstruction") != before).any()


def test_a_picture_file_becomes_the_image(opened: Opened) -> None:
    picture = Image.new("L", (280, 280), 255)  # dark ink on a bright ground
    picture.paste(0, (120, 40, 160, 240))
    content = io.BytesIO()
    picture.save(content, "PNG")
    file = {"name": "<img src=x>.png", "mimeType": "image/png", "buffer": content.getvalue()}
    opened.tab.locator("#file").set_input_files(file)
    opened.until(lambda: opened.address().get("image", "e0") != "e0")
    drawn = ink(opened.pixels("#draw"))
    assert drawn[6:22, 13:15].min() > 0.95
    assert drawn[:, :10].max() < 0.05


def test_a_file_that_is_no_picture_gives_a_message(opened: Opened) -> None:
    before = opened.pixels("#draw")
    for name, kind in (("<b>notes.txt", "text/plain"), ("broken.png", "image/png")):
        opened.tab.locator("#file").set_input_files(
            {"name": name, "mimeType": kind, "buffer": b"no picture"}
        )
        opened.tab.locator("#file-message", has_text=name).wait_for()
        assert opened.text("#file-message").startswith(f"{name} is not a picture")
    assert (opened.pixels("#draw") == before).all()


def test_the_number_of_active_features_is_the_true_one_where_not_all_are_drawn(
    opened: Opened, model: DeconvNet
) -> None:
    opened.follow("lambda=20&alpha=1")
    digit = load("digits", split="test")[:1].double()
    spec = InferenceSpec(lam=20.0, steps=STEPS)
    count = int(infer(model, digit, spec, engine="reference").stats.nonzeros[-1])
    assert count > 150
    opened.tab.locator("#active-count", has_text=str(count)).wait_for()
    assert opened.text("#active-count") == f"{count} active features of layer 2"
    assert opened.text("#active-note") == "The 48 largest are shown."
    assert opened.text("#feature-count") == f"{count} features"
    assert f"{count} active features" in opened.tab.locator("#code").get_attribute("aria-label")


def test_a_served_page_opens_before_the_codes_of_its_examples_are_inferred(
    browser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, digits = load_model(models.path("mnist")), load("digits", split="test")
    explorer = export.Explorer(
        model,
        Recipe.paper(),
        digits,
        name="x",
        engine="reference",
        settings=ExplorerSettings(examples=6, code_steps=5, part=4),
    )
    looked = threading.Event()
    codes = explorer.codes
    monkeypatch.setattr(explorer, "codes", lambda part: (looked.wait(60), codes(part))[1])
    with PageServer(answers(explorer)) as server:
        threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()
        with Opened(browser, server.url, fast_timers=True) as opened:
            opened.tab.locator("#legend .swatch").first.click()
            assert opened.text("#occurrence-count") == "in – % of 0 examples"
            pending = opened.tab.locator(".examples-pending")
            assert pending.all_inner_texts() == ["inferring examples: 0 of 6"] * 2
            looked.set()
            opened.tab.locator("#occurrence-count", has_text="of 6 examples").wait_for()
            for line in pending.all():
                line.wait_for(state="hidden")
            opened.tab.locator("#nearest .tile").nth(5).wait_for()
            assert {url.removeprefix(server.url) for url in opened.requests if "codes" in url} == {
                "codes/0",
                "codes/1",
            }
        server.shutdown()


def test_the_tour_has_five_steps(opened: Opened) -> None:
    opened.tab.locator("#start-tour").click()
    for stop in range(1, 6):
        assert opened.text("#tour-count") == f"{stop} of 5"
        assert opened.tab.locator(".toured").count() == 1
        opened.tab.keyboard.press("Enter")
    assert opened.tab.locator("#tour").is_hidden()


def test_a_phone_shows_it_all_without_scrolling_sideways_and_draws_by_touch(
    browser: Any, page_file: Path
) -> None:
    size = {"width": 390, "height": 844}
    touch = {"viewport": size, "has_touch": True, "is_mobile": True}
    with Opened(browser, page_file.as_uri(), fast_timers=True, **touch) as opened:
        assert opened.tab.evaluate("document.documentElement.scrollWidth") <= 390
        cut_off = opened.tab.locator("h2:visible, h3:visible").evaluate_all(
            "all => all.filter(e => e.scrollWidth > e.clientWidth && e.clientWidth > 0)"
            ".map(e => e.innerText)"
        )
        assert cut_off == []
        opened.tab.locator("#clear").click()
        opened.settle()
        box = opened.box("#draw")
        opened.tab.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        opened.settle()
        assert ink(opened.pixels("#draw"))[13:15, 13:15].max() > 0.9


def test_every_control_has_a_name(opened: Opened) -> None:
    nameless = opened.tab.evaluate(
        """() => [...document.querySelectorAll('button, input, select, canvas, progress')].filter(e =>
            !(e.getAttribute('aria-label') ?? (e.title || e.textContent.trim()))
            && !e.labels?.length && !e.closest('[aria-hidden]') && e.getAttribute('aria-hidden') !== 'true'
        ).map(e => e.id || e.outerHTML)"""  # noqa: E501
    )
    assert nameless == []


def test_words_follow_the_model(opened: Opened, model: DeconvNet) -> None:
    assert opened.text("#input-note").startswith("Draw, choose")
    assert "% of the ink" in opened.text("#explained")
    count = int(opened.number("#nonzeros"))
    assert opened.text("#feature-count") == f"{count} features"
    digits = load("digits", split="test")
    assert export.are_strokes(model, digits)
    greys = np.random.default_rng(0).integers(0, 256, (20, 28, 28), dtype=np.uint8)
    assert not export.are_strokes(model, load(greys)), "a picture of greys is no stroke"


def test_maps_and_features_are_told_apart(opened: Opened) -> None:
    assert "with 16 and 48 feature maps," in opened.text("#about")
    select_first(opened)
    number = int(opened.address()["feature"]) + 1
    assert opened.text("#feature-title") == f"Feature map {number} of layer 2"
    assert opened.text("#element-title").startswith(f"Feature of map {number} of layer 2, row ")
    swatch = opened.tab.locator("#legend .swatch").first
    assert swatch.get_attribute("aria-label") == "Feature map 1"
    words = opened.text("#code-panel")
    assert "a hue for every feature map" in words


def test_a_page_of_pictures_says_nothing_of_ink_or_digits(browser: Any, tmp_path: Path) -> None:
    greys = np.random.default_rng(0).integers(0, 256, (3, 28, 28), dtype=np.uint8)
    page = export.Explorer(
        load_model(models.path("mnist")), Recipe.paper(), load(greys), name="x", engine="reference"
    ).page()
    file = tmp_path / "page.html"
    file.write_text(page, encoding="utf-8")
    with Opened(browser, file.as_uri(), fast_timers=True) as opened:
        opened.tab.locator("#start-tour").click()
        shown = opened.tab.locator("body").inner_text()
        assert not re.search(r"\b(ink|digits?|Draw (a|here))\b", shown)
        assert "brightness that is missing" in shown


def test_numbers_never_cover_each_other_and_more_are_shown_when_zoomed(opened: Opened) -> None:
    opened.follow("lambda=20&alpha=1")
    opened.tab.evaluate(
        """() => {
          const proto = CanvasRenderingContext2D.prototype, fill = proto.fillText, erase = proto.fillRect;
          window.numbers = [];
          proto.fillRect = function (...a) {
            if (this.canvas.id === 'code') window.numbers = [];
            return erase.apply(this, a);
          };
          proto.fillText = function (text, x, y) {
            if (this.canvas.id === 'code') {
              const half = this.measureText(text).width / 2, scale = this.getTransform().a;
              window.numbers.push([x * scale, y * scale, half * scale]);
            }
            return fill.call(this, text, x, y);
          };
        }"""  # noqa: E501
    )
    counts = []
    for _ in range(3):
        opened.tab.locator("#zoom-in").click()
        opened.settle()
        numbers = opened.tab.evaluate("window.numbers")
        counts.append(len(numbers))
        for n, (x, y, half) in enumerate(numbers):
            for other_x, other_y, other_half in numbers[:n]:
                apart = abs(x - other_x) >= half + other_half or abs(y - other_y) >= 11
                assert apart, "two numbers overlap"
    assert counts[0] < counts[1] < counts[2]
    assert opened.text("#zoom-value") == "8 ×"
    for _ in range(3):
        opened.tab.locator("#zoom-out").click()
    opened.settle()


def test_the_strip_of_active_features_ends_at_a_row(opened: Opened) -> None:
    opened.follow("lambda=20&alpha=1")
    opened.tab.locator("#active .tile").nth(47).wait_for()
    tops, height = opened.tab.locator("#active").evaluate(
        "list => [[...list.children].map(t => t.offsetTop - list.offsetTop), list.clientHeight]"
    )
    rows = sorted(set(tops))
    assert len(rows) > 3
    assert rows[2] < height <= rows[3], "three whole rows are seen"


def test_the_pair_says_what_it_waits_for(opened: Opened) -> None:
    assert opened.text("#pair-empty").startswith("Choose a second image, B")
    assert opened.tab.locator("#pair-empty").is_visible()
    opened.follow("steps=300&image=e0")
    # inference may end before a test looks, so the page records what it showed
    opened.tab.evaluate(
        """() => {
          const status = document.getElementById("pair-status");
          const picture = document.getElementById("pair-b");
          window.shown = [];
          const note = () => window.shown.push([status.textContent, picture.matches(".waiting")]);
          for (const one of [status, picture])
            new MutationObserver(note).observe(one, {childList: true, attributes: true});
        }"""
    )
    opened.tab.locator("#random-other").click()
    opened.until(lambda: opened.tab.evaluate("window.shown.at(-1)") == ["", False])
    shown = opened.tab.evaluate("window.shown")
    assert any(words.startswith("Inferring the features of B") and waits for words, waits in shown)
    assert shown[-1] == ["", False]


def test_progress_is_shown_while_inference_runs(browser: Any, page_file: Path) -> None:
    with Opened(browser, page_file.as_uri(), fast_timers=True, held_reports=True) as opened:
        bar = opened.tab.locator("#inference-progress")
        pale = opened.tab.locator("#reconstruction.waiting, #coloured.waiting, #residual.waiting")
        assert not bar.is_visible()

        opened.tab.evaluate("window.reportsToPass = 1")  # where drawing begins
        opened.tab.locator("#examples .tile").nth(1).click()
        bar.wait_for(state="visible")
        opened.until(lambda: pale.count() == 3)
        assert pale.count() == 3
        assert float(str(bar.evaluate("bar => bar.value"))) == 0

        opened.tab.wait_for_timeout(100)  # the page shows a step at most every 70 ms
        opened.tab.evaluate("window.reportsToPass = 3")
        opened.until(lambda: pale.count() == 0)
        assert pale.count() == 0
        assert bar.is_visible()
        assert 0 < float(str(bar.evaluate("bar => bar.value"))) < 1

        opened.tab.evaluate("window.reportsToPass = Infinity")
        opened.settle()
        bar.wait_for(state="hidden")


def test_no_half_of_the_page_is_empty_and_headings_do_not_wrap(opened: Opened) -> None:
    bottoms = opened.tab.locator("main > .column").evaluate_all(
        "all => all.map(one => one.lastElementChild.getBoundingClientRect().bottom + scrollY)"
    )
    assert min(bottoms) > 0.75 * max(bottoms)
    heights = opened.tab.locator("h2:visible, h3:visible").evaluate_all(
        "all => all.map(one => one.getBoundingClientRect().height)"
    )
    assert max(heights) < 32
    width = opened.tab.evaluate("document.documentElement.scrollWidth")
    assert width <= 1280
