"""The classifier: gradients reach every parameter and are finite differences, even of empty images."""

import torch

from tiny_finetuning import RECIPE, bars, model
from whatwhere.finetuning import SparseCodeClassifier
from whatwhere.finetuning.classifier import usual_length
from whatwhere.nn import SparseCode2d
from whatwhere.spec import DescriptorSpec


def network(dropout: float = 0.0) -> SparseCodeClassifier:
    coder, images = SparseCode2d.from_model(model().to(torch.float64), 2), bars(4)[0].double()
    return SparseCodeClassifier.for_images(coder, RECIPE.descriptor, images, classes=2, dropout=dropout)


def test_gradients_are_finite_differences() -> None:
    tested, images = network(), bars(2)[0].double()
    names = [name for name, _ in tested.named_parameters()]
    generator = torch.Generator().manual_seed(0)
    away = {"filters": 0.05, "momentum": 0.3}  # from the kinks at 0
    values = []
    for name, p in tested.named_parameters():
        noise = torch.randn(p.shape, generator=generator, dtype=p.dtype) if "head" in name else 0.0
        values.append(p + noise + next((shift for part, shift in away.items() if part in name), 0.0))

    def scores(*parameters: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(tested, dict(zip(names, parameters, strict=True)), (images,))

    inputs = tuple(value.detach().requires_grad_() for value in values)
    assert torch.autograd.gradcheck(scores, inputs, eps=1e-7, atol=1e-5, rtol=1e-3, fast_mode=True)


def test_gradients_of_empty_images_are_finite() -> None:
    tested = network()
    torch.nn.init.normal_(tested.head.weight)
    tested(torch.zeros(2, 1, 8, 8, dtype=torch.float64)).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in tested.parameters())


def test_dropout_is_for_training_alone() -> None:
    tested, images = network(dropout=0.5), bars(2)[0].double()
    torch.nn.init.normal_(tested.head.weight)
    assert not torch.equal(tested.train()(images), tested(images))
    assert torch.equal(tested.eval()(images), tested(images))


def test_the_usual_length_is_that_of_the_patches() -> None:
    features = torch.zeros(1, 1, 4, 4)
    features[0, 0] = 2.0
    spec = DescriptorSpec(patch=(4,), cell=2)
    assert usual_length(features, spec, 1) == 4.0  # four cells of root mean square 2
    assert usual_length(features, DescriptorSpec(raw=True), 1) == 8.0
