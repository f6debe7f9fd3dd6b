"""Other people's networks as encoders: a model of torchvision, timm or the user's own without its classifier.

encoder = headless(torchvision.models.resnet50())
encoder = headless(timm.create_model("convnext_tiny"))
encoder = headless(mine, classifier="decoder.last")
"""

from __future__ import annotations

import copy
from typing import Any, final

from torch import Tensor, nn

# How torchvision and timm call their classifiers.
CLASSIFIERS = ("fc", "classifier", "head", "heads", "last_linear", "linear", "output")


@final
class _Place(nn.Identity):
    """Stands where the classifier was, and remembers what it is given."""

    seen: Tensor | None = None

    def forward(self, input: Tensor) -> Tensor:
        self.seen = input
        return input


@final
class Headless(nn.Module):
    """A model without its classifier, as `headless` makes it. Its features are what the classifier was given: what came
    after it, such as a softmax, has no say. Of a model that took its classifier off itself they are what it gives.

    Differentiable in: its input and its parameters.
    """

    def __init__(self, model: nn.Module, place: str, feature_dim: int) -> None:
        super().__init__()
        self.model, self.place, self.feature_dim = model, place, feature_dim

    def forward(self, x: Tensor) -> Tensor:
        """Features (n, feature_dim)."""
        features = self.model(x)
        if self.place:
            place = self.model.get_submodule(self.place)
            assert isinstance(place, _Place)
            features, place.seen = place.seen, None
        got = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        if got != (len(x), self.feature_dim):
            raise ValueError(
                f"without its classifier this model should give ({len(x)}, {self.feature_dim}), but gives {got}; name "
                "the right layer (headless(model, classifier=...)), and switch auxiliary outputs off"
            )
        assert isinstance(features, Tensor)
        return features


def headless(module: nn.Module, classifier: str | None = None) -> Headless:
    """A copy of a model with its last linear layer, the classifier, taken off.

    Args:
        module: any model that ends with a linear layer: of torchvision, timm, or your own. It is left as it is.
        classifier: dotted name of that layer. By default models of timm take it off themselves (`reset_classifier`),
            also where there are two or it is a convolution; in others it is looked for: the last linear layer under one
            of the usual names (fc, classifier, head, heads, ...), else the last layer of all, if it is linear.

    Raises:
        ValueError: no such layer, or none that can be told to be the classifier; the message lists the candidates.

    Differentiable in: nothing; the encoder is, in its input and its parameters.

    >>> import torch
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    >>> encoder = headless(model)
    >>> encoder.feature_dim, encoder(torch.zeros(5, 1, 8, 8)).shape
    (32, torch.Size([5, 32]))
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"headless takes an nn.Module, got {type(module).__name__}")
    if classifier is None and callable(getattr(module, "reset_classifier", None)):
        made = _reset(module)
        if made is not None:
            return made
    name = _classifier_name(module) if classifier is None else classifier
    linear = dict(module.named_modules()).get(name)
    if not isinstance(linear, nn.Linear) or name == "":
        found = "is no layer of" if linear is None else f"is a {type(linear).__name__} in"
        raise ValueError(f"{name!r} {found} this model; {_linear_layers(module)}")
    if linear.in_features < 1:
        raise ValueError(f"{name!r} has not seen a batch yet and knows no size: run the model once first")
    model = copy.deepcopy(module)
    parent, _, last = name.rpartition(".")
    model.get_submodule(parent).register_module(last, _Place())
    return Headless(model, name, linear.in_features)


def _reset(module: nn.Module) -> Headless | None:
    """A copy of a model of timm without its classifier, by timm's own means; None where the method is not timm's."""
    model: Any = copy.deepcopy(module)
    try:
        model.reset_classifier(0)
    except TypeError:  # another method of that name, which takes other arguments
        return None
    size = getattr(model, "head_hidden_size", None) or getattr(model, "num_features", None)
    if not isinstance(size, int):
        raise ValueError(
            f"this {type(module).__name__} has a reset_classifier, as models of timm have, but no num_features; name "
            f"its classifier (headless(model, classifier=...)); {_linear_layers(module)}"
        )
    return Headless(model, "", size)


def _classifier_name(module: nn.Module) -> str:
    linear = [name for name, layer in module.named_modules() if isinstance(layer, nn.Linear)]
    usual = [name for name in linear if name.partition(".")[0] in CLASSIFIERS]
    if usual:
        return usual[-1]
    with_weights = [
        name for name, layer in module.named_modules() if next(layer.parameters(recurse=False), None) is not None
    ]
    if linear and linear[-1] == with_weights[-1] != "":
        return linear[-1]
    raise ValueError(
        f"cannot tell which layer of this {type(module).__name__} is its classifier: name it "
        f"(headless(model, classifier=...)); {_linear_layers(module)}"
    )


def _linear_layers(module: nn.Module) -> str:
    names = [name for name, layer in module.named_modules() if isinstance(layer, nn.Linear) and name]
    return f"its linear layers: {', '.join(names[-8:])}" if names else "it has no linear layer inside"
