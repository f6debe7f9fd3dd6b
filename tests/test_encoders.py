"""Encoders: the paper's numbers of parameters and layouts, features that learn, and other people's models beheaded."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gll.nn.encoders import ENCODERS, BasicBlock, PreActBlock, create_encoder, headless

# Parameters with three channels (the paper's table where it has the network), and the weights of the first convolution
# for one channel.
COUNTS = {
    "resnet20": (271_824, 16 * 9),
    "resnet32": (466_256, 16 * 9),
    "resnet44": (660_688, 16 * 9),
    "resnet56": (855_120, 16 * 9),
    "resnet110": (1_730_064, 16 * 9),
    "resnet18": (11_168_832, 64 * 9),
    "preactresnet18": (11_166_016 + 2 * 512, 64 * 9),
    "preactresnet18-paper": (11_171_146, 64 * 9),
    "vgg11": (9_223_232, 64 * 9),
    "vgg13": (9_407_936, 64 * 9),
    "fashion-cnn": (1_975_424 + 2 * 64 * 9, 64 * 9),
    "small-cnn": (320 + 2 * 32 * 9 + 9_248 + 18_496 + 36_928 + 205_000 + 40_200, 32 * 9),
    "digits-cnn": (3 * 16 * 9 + 32 + 16 * 32 * 9 + 64 + 512 * 64 + 64, 16 * 9),
    "mlp": (4 * 64 + 65 * 64 + 65 * 2, 64),
}
SIZES = {"fashion-cnn": 28, "small-cnn": 28, "digits-cnn": 8}


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def images(name: str, n: int, channels: int) -> Tensor:
    size = SIZES.get(name, 32)
    return torch.randn(n, channels) if name == "mlp" else torch.randn(n, channels, size, size)


def test_every_encoder_is_counted() -> None:
    assert set(COUNTS) == set(ENCODERS)


@pytest.mark.parametrize("name", COUNTS)
def test_number_of_parameters(name: str) -> None:
    three, a_channel = COUNTS[name]
    assert count(create_encoder(name)) == three
    assert count(create_encoder(name, in_channels=1)) == three - 2 * a_channel


def test_the_papers_counts_with_one_channel() -> None:
    assert count(create_encoder("fashion-cnn", in_channels=1)) == 1_975_424
    assert count(create_encoder("mlp", in_channels=2)) == 4_482


@pytest.mark.parametrize("name", ENCODERS)
def test_gradients_reach_every_parameter(name: str) -> None:
    encoder = create_encoder(name, in_channels=2)
    z = encoder(images(name, 6, 2))
    assert z.shape == (6, encoder.feature_dim)
    (z * torch.randn_like(z)).sum().backward()
    silent = [n for n, p in encoder.named_parameters() if p.requires_grad and not (p.grad is not None and p.grad.any())]
    assert silent == []


@pytest.mark.parametrize("name", ["resnet20", "resnet110", "resnet18", "preactresnet18", "vgg11", "vgg13"])
def test_depth_and_sizes(name: str) -> None:
    """As many 3x3 convolutions as the name says, less the classifier (VGG: its three linear layers)."""
    encoder = create_encoder(name)
    shapes = list[tuple[int, ...]]()
    for module in encoder.modules():
        if isinstance(module, nn.Conv2d) and module.kernel_size == (3, 3):
            module.register_forward_hook(lambda module, inputs, output: shapes.append(tuple(output.shape[1:])))
    encoder(torch.zeros(2, 3, 32, 32))
    depth = int("".join(c for c in name if c.isdigit()))
    assert len(shapes) == depth - (3 if name.startswith("vgg") else 1)
    expected = [(64, 32), (128, 16), (256, 8), (512, 4)]
    if name in ("resnet20", "resnet110"):
        expected = [(16, 32), (32, 16), (64, 8)]
    if name.startswith("vgg"):
        expected.append((512, 2))
    assert list(dict.fromkeys(shapes)) == [(width, side, side) for width, side in expected]


def normalised(y: Tensor) -> Tensor:
    """Batch normalisation in training mode, with its first weights."""
    mean, var = y.mean((0, 2, 3), keepdim=True), y.var((0, 2, 3), correction=0, keepdim=True)
    return (y - mean) / (var + 1e-5).sqrt()


@pytest.mark.parametrize("shape", [(4, 4, 1), (4, 6, 2), (4, 6, 1)])
def test_basic_block(shape: tuple[int, int, int]) -> None:
    inputs, outputs, stride = shape
    block, x = BasicBlock(*shape), torch.randn(3, inputs, 8, 8)
    y = F.relu(normalised(F.conv2d(x, block.conv1.weight, stride=stride, padding=1)))
    y = normalised(F.conv2d(y, block.conv2.weight, padding=1))
    kept = x
    if inputs != outputs:
        assert isinstance(block.shortcut, nn.Sequential)
        kept = normalised(F.conv2d(x, block.shortcut[0].weight, stride=stride))
    torch.testing.assert_close(block(x), F.relu(y + kept))


@pytest.mark.parametrize("shape", [(4, 4, 1), (4, 6, 2)])
def test_preactivation_block(shape: tuple[int, int, int]) -> None:
    _, _, stride = shape
    block, x = PreActBlock(*shape), torch.randn(3, 4, 8, 8)
    first = F.relu(normalised(x))
    y = F.relu(normalised(F.conv2d(first, block.conv1.weight, stride=stride, padding=1)))
    y = F.conv2d(y, block.conv2.weight, padding=1)
    kept = x if block.shortcut is None else F.conv2d(first, block.shortcut.weight, stride=stride)
    assert (block.shortcut is None) == (stride == 1)
    torch.testing.assert_close(block(x), y + kept)


def test_fashion_cnn_is_the_papers_table() -> None:
    encoder, x = create_encoder("fashion-cnn", in_channels=1), torch.randn(2, 1, 28, 28)
    w = list(encoder.parameters())
    assert [tuple(p.shape) for p in w[::2]] == [(64, 1, 3, 3), (128, 64, 3, 3), (256, 128, 3, 3), (128, 256 * 49)]
    y = F.relu(F.conv2d(x, w[0], w[1], padding=1))
    y = F.max_pool2d(F.relu(F.conv2d(y, w[2], w[3], padding=1)), 2)
    y = F.max_pool2d(F.relu(F.conv2d(y, w[4], w[5], padding=1)), 2)
    torch.testing.assert_close(encoder(x), F.relu(F.linear(y.flatten(1), w[6], w[7])))


def test_small_cnn() -> None:
    encoder, x = create_encoder("small-cnn", in_channels=1).eval(), torch.randn(2, 1, 28, 28)
    w = list(encoder.parameters())
    y = F.max_pool2d(F.relu(F.conv2d(F.relu(F.conv2d(x, w[0], w[1])), w[2], w[3])), 2)
    y = F.max_pool2d(F.relu(F.conv2d(F.relu(F.conv2d(y, w[4], w[5])), w[6], w[7])), 2)
    y = F.relu(F.linear(F.relu(F.linear(y.flatten(1), w[8], w[9])), w[10], w[11]))
    torch.testing.assert_close(encoder(x), y)
    assert not torch.equal(encoder.train()(x), y)  # dropout


def test_the_papers_preactresnet_holds_an_unused_classifier() -> None:
    encoder = create_encoder("preactresnet18-paper")
    unused = [p for p in encoder.parameters() if not p.requires_grad]
    assert sum(p.numel() for p in unused) == 5_130
    assert count(encoder) - 5_130 == 11_166_016
    assert isinstance(list(create_encoder("preactresnet18").layers)[-4], nn.BatchNorm2d)


def test_other_image_sizes() -> None:
    assert create_encoder("small-cnn", 1, image_size=32)(torch.zeros(2, 1, 32, 32)).shape == (2, 200)
    assert create_encoder("resnet20")(torch.zeros(2, 3, 40, 24)).shape == (2, 64)
    assert create_encoder("mlp", 5, width=8, depth=1, feature_dim=3)(torch.zeros(4, 5)).shape == (4, 3)
    assert create_encoder("digits-cnn", 1, feature_dim=7).feature_dim == 7


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: create_encoder("resnet19"), "unknown encoder 'resnet19'; choose one of resnet20"),
        (lambda: create_encoder("resnet20", 0), "in_channels must be a whole number, at least 1"),
        (lambda: create_encoder("resnet20", depth=3), "no option 'depth'; its options: none"),
        (lambda: create_encoder("small-cnn", size=3), "no option 'size'; its options: image_size, dropout"),
        (lambda: create_encoder("small-cnn", image_size=12), "image_size=12 is too small"),
        (lambda: create_encoder("resnet20")(torch.zeros(2, 1, 32, 32)), r"takes \(n, 3, h, w\), got \(2, 1, 32, 32\)"),
        (lambda: create_encoder("small-cnn", 1)(torch.zeros(2, 1, 32, 32)), "28 × 28, got 32 × 32; .*image_size=32"),
        (lambda: create_encoder("vgg11")(torch.zeros(2, 3, 28, 28)), "at least 32 × 32, got 28 × 28; pad"),
        (lambda: create_encoder("mlp", 2)(torch.zeros(2, 2, 1, 1)), r"takes \(n, 2\)"),
    ],
)
def test_refusals(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_images_must_be_scaled_first() -> None:
    with pytest.raises(TypeError, match="floating point"):
        create_encoder("resnet20")(torch.zeros(2, 3, 32, 32, dtype=torch.uint8))


# Other people's models -----------------------------------------------------------------------------------------------


class Model(nn.Module):
    """A body, an inner linear layer, and a classifier by the name and of the form given."""

    def __init__(self, name: str, classifier: nn.Module) -> None:
        super().__init__()
        setattr(self, name, classifier)  # registered first: its name counts, not its place
        self.body, self.name = nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.Tanh()), name

    def forward(self, x: Tensor) -> Tensor:
        return getattr(self, self.name)(self.body(x))


@pytest.mark.parametrize("name", ["fc", "classifier", "head", "heads"])
def test_classifier_by_its_usual_name(name: str) -> None:
    model, x = Model(name, nn.Linear(6, 4)), torch.randn(5, 3, 2, 2)
    encoder = headless(model)
    assert encoder.feature_dim == 6
    torch.testing.assert_close(encoder(x), model.body(x))
    assert model(x).shape == (5, 4)  # the model itself is as it was


def test_only_the_last_layer_of_a_long_classifier_goes() -> None:
    long = nn.Sequential(nn.Dropout(0.0), nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 4))
    model, x = Model("classifier", long), torch.randn(5, 3, 2, 2)
    encoder = headless(model)
    assert encoder.feature_dim == 7
    torch.testing.assert_close(long[3](encoder(x)), model(x))


class Distilled(nn.Module):
    """Laid out as models of timm are: two classifiers, whose mean is the answer, and a way to take them off."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.num_features, self.head_hidden_size = nn.Sequential(nn.Flatten(), nn.Linear(12, 6)), 5, 6
        self.head, self.head_dist = nn.Linear(6, 4), nn.Linear(6, 4)

    def get_classifier(self) -> tuple[nn.Module, nn.Module]:
        return self.head, self.head_dist

    def reset_classifier(self, num_classes: int) -> None:
        make = nn.Identity if num_classes == 0 else nn.Linear
        self.head, self.head_dist = make(6, num_classes), make(6, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        z = self.body(x).tanh()
        return (self.head(z) + self.head_dist(z)) / 2


def test_a_model_that_takes_its_classifiers_off_itself() -> None:
    model, x = Distilled(), torch.randn(5, 3, 2, 2)
    encoder = headless(model)
    assert encoder.feature_dim == 6  # before the classifiers; num_features may be those of the last stage
    torch.testing.assert_close(encoder(x), model.body(x).tanh())
    torch.testing.assert_close((model.head(encoder(x)) + model.head_dist(encoder(x))) / 2, model(x))
    assert isinstance(model.head, nn.Linear)  # the model itself is as it was
    encoder(x).square().sum().backward()
    assert all(p.grad is not None for p in encoder.parameters())
    del model.head_hidden_size  # as in older versions of timm
    with pytest.raises(ValueError, match=r"should give \(5, 5\), but gives \(5, 6\)"):
        headless(model)(x)
    del model.num_features
    with pytest.raises(ValueError, match=r"no num_features; name its classifier .*: body\.1, head, head_dist"):
        headless(model)


def test_a_classifier_that_is_named_is_taken_whatever_the_model_can() -> None:
    class Able(Model):
        def reset_classifier(self, num_classes: int) -> None:
            raise AssertionError

    model, x = Able("fc", nn.Linear(6, 4)), torch.randn(5, 3, 2, 2)
    torch.testing.assert_close(headless(model, classifier="fc")(x), model.body(x))


def test_a_method_of_that_name_with_other_arguments_is_let_be() -> None:
    class Other(Model):
        def reset_classifier(self) -> None:
            self.fc.reset_parameters()

    model, x = Other("fc", nn.Linear(6, 4)), torch.randn(5, 3, 2, 2)
    torch.testing.assert_close(model.fc(headless(model)(x)), model(x))


def test_an_unusual_name() -> None:
    model, x = Model("prediction", nn.Linear(6, 4)), torch.randn(5, 3, 2, 2)
    encoder = headless(model, classifier="prediction")
    torch.testing.assert_close(model.prediction(encoder(x)), model(x))
    # Without a name the last layer of all would be the body's, whose removal the next layer notices.
    with pytest.raises((ValueError, RuntimeError)):
        headless(model)(x)


def test_the_last_layer_of_all() -> None:
    model = nn.Sequential(nn.Linear(5, 3), nn.ReLU(), nn.Linear(3, 2), nn.LogSoftmax(1))
    x = torch.randn(4, 5)
    torch.testing.assert_close(headless(model)(x), F.relu(model[0](x)))  # the softmax has no say


def test_gradients_reach_a_headless_model_and_nothing_is_kept() -> None:
    model = Model("fc", nn.Linear(6, 4))
    encoder = headless(model)
    encoder(torch.randn(5, 3, 2, 2)).square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in encoder.parameters())
    assert encoder.model.get_submodule("fc").seen is None


@pytest.mark.parametrize(
    ("model", "name", "message"),
    [
        (nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3)), None, "cannot tell which layer .*: 0"),
        (nn.Sequential(nn.Conv2d(3, 4, 1)), None, "cannot tell .* no linear layer"),
        (nn.Linear(3, 4), None, "cannot tell"),
        (nn.Sequential(nn.Linear(5, 3)), "fc", "'fc' is no layer of this model; its linear layers: 0"),
        (nn.Sequential(nn.ReLU(), nn.Linear(5, 3)), "0", "'0' is a ReLU in this model"),
        (nn.Sequential(nn.ReLU(), nn.LazyLinear(3)), None, "has not seen a batch"),
    ],
)
def test_no_classifier(model: nn.Module, name: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        headless(model, name)


def test_features_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"should give \(2, 4\), but gives \(2, 9, 4\)"):
        headless(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))(torch.zeros(2, 9, 3))


def test_only_modules(as_user: None) -> None:
    with pytest.raises(TypeError, match=r"takes an nn\.Module, got str"):
        headless("resnet50")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "dim"), [("resnet18", 512), ("vgg11", 4096), ("mobilenet_v3_small", 1024), ("vit_b_16", 768)]
)
def test_torchvision(name: str, dim: int) -> None:
    models = pytest.importorskip("torchvision.models")
    encoder = headless(models.get_model(name, weights=None)).eval()
    assert encoder(torch.zeros(1, 3, 224, 224)).shape == (1, encoder.feature_dim) == (1, dim)


@pytest.mark.parametrize(
    ("name", "dim"),
    [
        ("resnet18", 512),
        ("vit_tiny_patch16_224", 192),
        ("convnext_atto", 320),
        ("deit_tiny_distilled_patch16_224", 192),  # two classifiers
        ("resnetv2_50", 2048),  # a convolution as classifier
        ("mobilenetv3_small_050", 1024),  # a layer between pooling and classifier
    ],
)
def test_timm(name: str, dim: int) -> None:
    timm = pytest.importorskip("timm")
    encoder = headless(timm.create_model(name)).eval()
    assert encoder(torch.zeros(1, 3, 224, 224)).shape == (1, encoder.feature_dim) == (1, dim)
