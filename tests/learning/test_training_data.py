"""Streams of images: the same batches whatever the pieces, and errors that say what the stream
did."""

import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import tiny_training as tiny
from raising import Containing, raises
from whatwhere.data import load
from whatwhere.errors import InvalidSetting
from whatwhere.learning import StreamError
from whatwhere.learning.latent_store import LatentStore
from whatwhere.learning.training_data import (
    IterableStream,
    SizedStream,
    TrainingData,
    open_stream,
    stream_recipe,
)
from whatwhere.model import DeconvNet
from whatwhere.model.deconvnet import NegativeImages
from whatwhere.spec import EveryBatch, LayerSpec, ModelSpec


def numbered(count: int) -> torch.Tensor:
    """Image i holds the number i."""
    return torch.arange(count, dtype=torch.float32).view(-1, 1, 1, 1).expand(-1, 1, 4, 5)


def numbers(images: torch.Tensor) -> list[int]:
    return images[:, 0, 0, 0].int().tolist()


def test_a_sized_source_starts_again_after_its_last_image():
    stream = SizedStream(numbered(5))
    assert numbers(stream.read(3, 14)) == [3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3]


@pytest.mark.parametrize("sizes", [[1] * 20, [20], [7, 7, 6], [3, 11, 1, 5]])
def test_the_pieces_that_a_stream_comes_in_do_not_matter(sizes):
    stream = IterableStream(numbered(20).split(sizes))
    assert numbers(stream.first_images())[0] == 0
    assert [numbers(stream.read(start, start + 4)) for start in range(0, 20, 4)] == [
        list(range(start, start + 4)) for start in range(0, 20, 4)
    ]


@pytest.mark.parametrize("sizes", [[1] * 20, [20], [7, 7, 6]])
def test_what_was_learned_before_a_resume_is_skipped(sizes):
    assert numbers(IterableStream(numbered(20).split(sizes)).read(9, 13)) == [9, 10, 11, 12]


def test_batches_with_labels_and_arrays_are_taken():
    labelled = IterableStream([(numbered(3), torch.zeros(3)), [numbered(2), torch.zeros(2)]])
    assert numbers(labelled.read(0, 5)) == [0, 1, 2, 0, 1]
    assert numbers(IterableStream([np.ones((2, 1, 4, 5), np.float32)]).read(0, 2)) == [1, 1]


def test_bytes_in_a_stream_are_scaled_and_single_pictures_taken():
    pictures = (np.arange(40, dtype=np.uint8) * 6).reshape(2, 1, 4, 5)
    expected = torch.from_numpy(pictures).float() / 255
    for batches in ([pictures], [torch.from_numpy(pictures)], [(one[0], 7) for one in pictures]):
        torch.testing.assert_close(IterableStream(batches).read(0, 2), expected)


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], "The stream ended after 0 images; expected 4 or more"),
        ([numbered(3)], "The stream ended after 3 images; expected 4 or more"),
        ([numbered(3), None], "The stream gave a NoneType after 3 images"),
        ([numbered(3), []], "The stream gave a list after 3 images"),
        ([numbered(3)[:0]], r"The stream gave a tensor of shape \[0, 1, 4, 5\] after 0 images"),
        ([numbered(3)[:, 0]], r"The stream gave a tensor of shape \[3, 4, 5\] after 0 images"),
        (
            [numbered(3), numbered(3)[:, :, :2]],
            r"a tensor of shape \[3, 1, 2, 5\] after 3 images; .* all of one shape",
        ),
    ],
)
def test_a_bad_stream_is_an_error_that_says_what_it_gave(batches, message):
    with pytest.raises(StreamError, match=message):
        IterableStream(batches).read(0, 4)


@pytest.mark.parametrize(("count", "batch_size"), [(1, 4), (9, 4), (1234, 5), (2001, 2)])
def test_every_layer_learns_from_its_own_images_in_batches_of_nearly_one_size(count, batch_size):
    recipe = stream_recipe(
        tiny.stream_recipe(batch_size=batch_size), SizedStream(tiny.images()), count
    )
    data = open_stream(recipe, SizedStream(tiny.images()), count, DeconvNet(recipe.model))
    ranges = [
        data.rows(layer, epoch, batch)
        for layer in (1, 2)
        for epoch in range(1, recipe.learning[0].epochs + 1)
        for batch in range(data.batch_count(epoch))
    ]
    assert [start for start, _ in ranges] == [0, *(stop for _, stop in ranges[:-1])]
    assert ranges[-1][1] == 2 * count
    sizes = {stop - start for start, stop in ranges}
    assert max(sizes) <= batch_size
    assert max(sizes) - min(sizes) <= 1


def test_settings_that_do_not_fit_a_stream_are_errors():
    by_epoch, by_batch = tiny.recipe(), tiny.stream_recipe()
    with raises(InvalidSetting, given=Containing("an iterable of batches with update")):
        stream_recipe(by_epoch, IterableStream([]), 4)
    with raises(InvalidSetting, given="an iterable of batches without image_count"):
        stream_recipe(by_batch, IterableStream([]), None)
    with raises(InvalidSetting, given={"image_count": 4, "update": "epoch"}):
        stream_recipe(by_epoch, SizedStream(tiny.images()), 4)
    with raises(InvalidSetting, given={"image_count": 0}):
        stream_recipe(by_batch, SizedStream(tiny.images()), 0)
    with raises(InvalidSetting, given={"direction_memory": 1.0}):
        EveryBatch(direction_memory=1)
    with raises(InvalidSetting, given={"update": "never"}):
        replace(by_batch.learning[0], update="never")
    with raises(InvalidSetting, expected="the same for every layer"):
        replace(by_epoch, learning=(by_epoch.learning[0], by_batch.learning[1]))


# What training reads: signals and masks, batch by batch -------------------------------------------


BATCHES = [slice(0, 2), slice(2, 4)]


def make(images: torch.Tensor) -> TrainingData:
    model = DeconvNet(ModelSpec(layers=(LayerSpec(maps=3, filter_size=3),), channels=3))
    return TrainingData(
        model, images, BATCHES, LatentStore(2, torch.device("cpu"), None, in_memory=True)
    )


@pytest.mark.parametrize("keep", [True, False])
def test_unknown_pixels_are_masked_in_their_batch(keep: bool) -> None:
    images = torch.rand(4, 3, 8, 8)
    images[0, 1, 2, 3] = torch.nan
    data = make(images).checked(keep=keep)
    expected = torch.ones(2, 3, 8, 8)
    expected[0, 1, 2, 3] = 0
    target = data.read(0)
    assert target.mask is not None
    assert torch.equal(target.mask, expected)
    assert target.v[0, 1, 2, 3] == 0
    assert data.read(1).mask is None
    assert torch.equal(data.read(1).v, images[2:])


def test_images_that_the_model_cannot_explain_raise_before_anything_is_done() -> None:
    images = torch.rand(4, 3, 8, 8)
    images[3, 0, 0, 0] = -1
    with raises(NegativeImages, lowest=-1.0):
        make(images).checked(keep=False)


def test_a_picture_that_changes_during_a_stream_stops_it_and_what_was_learned_is_saved(tmp_path):
    """With the picture as it was, the run continues as if nothing had happened."""
    folder, out = tmp_path / "pictures", tmp_path / "run"
    folder.mkdir()
    pixels = (255 * tiny.images(6)[:, 0].numpy()).astype(np.uint8)
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(folder / f"{number}.png")
    recipe = tiny.stream_recipe(epochs=1)
    undisturbed = tiny.train(recipe, load(folder))
    changing = folder / "5.png"
    before = changing.read_bytes()
    status = changing.stat()

    def change(report) -> None:
        Image.fromarray(255 - pixels[5]).save(changing)
        os.utime(changing, (1, 1))  # clocks of disks are coarse

    with pytest.raises(StreamError, match=r"5\.png changed after you loaded it"):
        tiny.train(recipe, load(folder), out, on_batch=change)
    changing.write_bytes(before)
    os.utime(changing, ns=(status.st_atime_ns, status.st_mtime_ns))
    resumed = tiny.train(recipe, load(folder), out, resume=True)
    assert tiny.same_filters(resumed.model, undisturbed.model)
