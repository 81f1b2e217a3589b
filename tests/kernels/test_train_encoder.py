"""The token encoder in training through the compiled CPU kernels: values and all gradients are those of PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from compiled_kernels import needs_kernels, num_threads
from torch import Tensor

from elmo.kernels.api import find_kernel, kernels_set_to
from elmo.kernels.cpu.abi import has_dtype
from elmo.kernels.cpu.train_encoder import CHUNK_WORDS, TrainingEncoder, supports
from elmo.model.bilm import BiLM
from elmo.model.config import BiLMConfig, CharConfig, LSTMConfig, WordConfig
from elmo.model.token_encoder import TokenEncoder

RELATIVE = 1e-5  # of the largest value: sums of float32 in another order
Encode = Callable[[TokenEncoder, Tensor], Tensor]


pytestmark = needs_kernels


def make_config(P: int, word_dim: int = 0, filters: tuple[tuple[int, int], ...] = (), **chars: object) -> BiLMConfig:
    return BiLMConfig(
        chars=CharConfig(filters=filters, **chars) if filters else None,  # type: ignore[arg-type]
        words=WordConfig(num_words=12, word_dim=word_dim) if word_dim else None,
        lstm=LSTMConfig(cell_dim=8, proj_dim=P, num_layers=1),
    )


# the sizes fill panels of vectors or do not, coincide, or are one; without projection where all widths add up to P
CONFIGS = {
    "bytes": make_config(70, filters=((1, 32), (2, 33), (3, 70), (5, 130)), num_highways=1),
    "two highways": make_config(7, filters=((1, 3), (4, 61)), num_highways=2, num_chars=30, max_chars=9, char_dim=5),
    "no highway": make_config(20, filters=((2, 64), (3, 64)), num_highways=0, num_chars=9, max_chars=6),
    "no projection": make_config(128, filters=((1, 64), (2, 64)), num_highways=1, max_chars=8),
    "filters alone": make_config(5, filters=((3, 5),), num_highways=0, num_chars=4, max_chars=3, char_dim=70),
    "tanh": make_config(33, filters=((1, 16), (3, 17)), num_highways=1, activation="tanh", max_chars=12),
    "many characters": make_config(16, filters=((1, 20), (2, 44)), num_highways=1, num_chars=9000, max_chars=14),
    "all sizes equal": make_config(16, filters=((16, 16),), num_highways=1, num_chars=16, max_chars=16, char_dim=16),
    "one": make_config(1, filters=((1, 1),), num_highways=1, num_chars=1, max_chars=3, char_dim=1, activation="tanh"),
    "words": make_config(30, word_dim=13),
    "words alone": make_config(13, word_dim=13),
    "both": make_config(24, word_dim=63, filters=((1, 1), (3, 22)), num_highways=2, max_chars=10),
    "both, no projection": make_config(100, word_dim=35, filters=((1, 10), (2, 55)), num_highways=1, max_chars=7),
}


def make_model(config: BiLMConfig, seed: int = 0) -> BiLM:
    """A model whose weights are multiples of 1/8, so that convolutions are exact and equal windows really are equal."""
    torch.manual_seed(seed)
    model = BiLM(config)
    with torch.no_grad():
        for parameter in model.token_encoder.parameters():
            parameter.uniform_(-1, 1).mul_(8 * max(parameter.shape[-1], 16) ** -0.25).round_().div_(8)
    return model


def make_rows(config: BiLMConfig, num_words: int, seed: int = 0) -> Tensor:
    """Rows of ids (N, W): words of all lengths, of one character, one that fills its row, one that is all padding."""
    generator = torch.Generator().manual_seed(seed)
    columns = []
    if config.chars:
        C = config.chars.max_chars
        ids = torch.randint(1, config.chars.num_chars + 1, (num_words, C), generator=generator)
        lengths = torch.randint(1, C + 1, (num_words, 1), generator=generator)
        lengths[:3, 0] = torch.tensor([1, C, 0])[:num_words]
        columns.append(ids * (torch.arange(C) < lengths))
    if config.words:
        columns.append(torch.randint(0, config.words.num_words + 1, (num_words, 1), generator=generator))
    return torch.cat(columns, dim=1).int()


def results(encode: Encode, network: TokenEncoder, rows: Tensor) -> dict[str, Tensor]:
    """The vectors and the gradient of every parameter."""
    network.zero_grad(set_to_none=True)
    vectors = encode(network, rows)
    d_vectors = torch.randn(vectors.shape, generator=torch.Generator().manual_seed(1))
    (vectors.float() * d_vectors).sum().backward()
    gradients = {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
    return {"vectors": vectors.detach(), **gradients}


def plain(network: TokenEncoder, rows: Tensor) -> Tensor:
    vectors: Tensor = network(rows)
    return vectors


def compiled(dtype: str = "float32") -> TrainingEncoder:
    if not has_dtype(dtype):
        pytest.skip(f"this processor has no {dtype} products")
    return TrainingEncoder(dtype)


def assert_close(actual: dict[str, Tensor], expected: dict[str, Tensor], relative: float = RELATIVE) -> None:
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        error = (actual[name] - value).abs().max() / value.abs().max().clamp(min=1e-6)
        assert error <= relative, f"{name}: {error}"


@pytest.mark.parametrize("kernels", ["", "avx2"])
@pytest.mark.parametrize("num_words", [1, 3, 50, 211])
@pytest.mark.parametrize("name", CONFIGS)
def test_vectors_and_gradients_equal_plain_pytorch(name: str, num_words: int, kernels: str) -> None:
    network, rows = make_model(CONFIGS[name]).token_encoder, make_rows(CONFIGS[name], num_words)
    with kernels_set_to(kernels):
        encode = TrainingEncoder("float32")
        for _ in range(2):  # the second time in the memory of the first
            assert_close(results(encode, network, rows), results(plain, network, rows))


@pytest.mark.parametrize("seed", range(12))
def test_random_sizes_equal_plain_pytorch(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)

    def between(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator))

    config = make_config(
        between(1, 150),
        between(0, 1) * between(1, 80),
        tuple((between(1, 5), between(1, 140)) for _ in range(between(1, 3))),
        num_chars=between(1, 300), char_dim=between(1, 40), max_chars=between(5, 20), num_highways=between(0, 2),
        activation=("relu", "tanh")[between(0, 1)],
    )  # fmt: skip
    network, rows = make_model(config, seed).token_encoder, make_rows(config, between(1, 300), seed)
    assert_close(results(compiled(), network, rows), results(plain, network, rows))


def test_the_first_of_equal_windows_gets_the_gradient() -> None:
    config = make_config(4, filters=((2, 4),), num_highways=0, num_chars=4, max_chars=6, char_dim=1)
    network = make_model(config).token_encoder
    assert network.chars is not None
    with torch.no_grad():
        network.chars.table.copy_(torch.tensor([[1.0], [1.0], [0.5], [0.5]]))  # different characters, equal vectors
        for parameter in network.chars.convolutions.parameters():
            parameter.fill_(1.0)
    rows = torch.tensor([[3, 1, 1, 2, 4, 0], [4, 2, 2, 1, 2, 2]]).int()
    assert_close(results(compiled(), network, rows), results(plain, network, rows))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["bytes", "two highways", "both"])
def test_any_number_of_threads_gives_the_same_bits(name: str, dtype: str) -> None:
    network, rows = make_model(CONFIGS[name]).token_encoder, make_rows(CONFIGS[name], 400)
    encode = compiled(dtype)
    with num_threads(1):
        expected = {key: value.clone() for key, value in results(encode, network, rows).items()}
    for count in (2, 3, 5):
        with num_threads(count):
            actual = results(encode, network, rows)
        assert all(torch.equal(actual[key], expected[key]) for key in expected)


def test_bfloat16_is_as_close_as_autocast() -> None:
    config = make_config(64, filters=((1, 32), (2, 32), (3, 64), (4, 128)), num_highways=1)
    torch.manual_seed(0)
    network, rows = TokenEncoder(config), make_rows(config, 300)
    exact = results(plain, network, rows)

    def autocast(network: TokenEncoder, rows: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return plain(network, rows)

    def errors(values: dict[str, Tensor]) -> Tensor:
        return torch.stack([(values[key] - exact[key]).norm() / exact[key].norm() for key in exact])

    ours, theirs = errors(results(compiled("bfloat16"), network, rows)), errors(results(autocast, network, rows))
    assert (ours <= 1.5 * theirs + 1e-3).all()
    assert ours.max() < 0.03  # eight bits of mantissa, and the relus of a few words change sides


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["bytes", "tanh", "both"])
def test_weights_that_are_not_finite_give_vectors_that_are_not_finite(name: str, bad: float) -> None:
    model, rows = make_model(CONFIGS[name]), make_rows(CONFIGS[name], 60)
    encode, network, found = compiled(), model.token_encoder, 0
    for parameter in network.parameters():
        flat = parameter.data.view(-1)
        for place in (0, len(flat) // 2, len(flat) - 1):
            before = flat[place].clone()
            flat[place] = bad
            expected, actual = results(plain, network, rows), results(encode, network, rows)
            if not expected["vectors"].isfinite().all():
                found += 1
                assert not actual["vectors"].isfinite().all()
            flat[place] = before
    assert found > 10


def test_gradients_that_are_not_finite_stay_visible() -> None:
    network, rows = make_model(CONFIGS["bytes"]).token_encoder, make_rows(CONFIGS["bytes"], 20)
    vectors = compiled()(network, rows)
    d_vectors = torch.zeros_like(vectors)
    d_vectors[3, 5] = float("nan")
    vectors.backward(d_vectors)
    for parameter in network.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isnan().any()


def test_a_second_backward_pass_is_an_error() -> None:
    network, rows = make_model(CONFIGS["bytes"]).token_encoder, make_rows(CONFIGS["bytes"], 5)
    loss = compiled()(network, rows).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="second backward pass"):
        loss.backward()


def test_weights_that_change_before_the_backward_pass_are_an_error() -> None:
    network, rows = make_model(CONFIGS["bytes"]).token_encoder, make_rows(CONFIGS["bytes"], 5)
    loss = compiled()(network, rows).sum()
    with torch.no_grad():
        next(network.parameters()).add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_two_forward_passes_before_their_backward_passes_do_not_share_memory() -> None:
    network, encode = make_model(CONFIGS["bytes"]).token_encoder, compiled()
    rows = [make_rows(CONFIGS["bytes"], 40, seed) for seed in range(2)]
    expected = [{k: v.clone() for k, v in results(encode, network, each).items()} for each in rows]
    network.zero_grad(set_to_none=True)
    weights = torch.randn(40, 70, generator=torch.Generator().manual_seed(1))
    losses = [(encode(network, each) * weights).sum() for each in rows]
    for loss in losses:
        loss.backward()
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[0][name] + expected[1][name])


def test_frozen_parameters_get_no_gradient() -> None:
    network, rows = make_model(CONFIGS["bytes"]).token_encoder, make_rows(CONFIGS["bytes"], 5)
    assert network.project is not None
    network.requires_grad_(False)
    network.project.requires_grad_(True)
    actual = results(compiled(), network, rows)
    assert_close(actual, results(plain, network, rows))
    assert actual.keys() == {"vectors", "project.weight", "project.bias"}


@pytest.mark.parametrize("num_words", [0, 7, CHUNK_WORDS + 3])
def test_without_gradients_the_vectors_are_the_same(num_words: int) -> None:
    network, rows, encode = make_model(CONFIGS["both"]).token_encoder, make_rows(CONFIGS["both"], num_words), compiled()
    expected = encode(network, rows)
    with torch.inference_mode():
        vectors = encode(network, rows)
    assert torch.equal(vectors, expected)
    assert expected.requires_grad
    assert not vectors.requires_grad


@pytest.mark.parametrize("unknown", [262, -1])
def test_unknown_characters_are_refused(unknown: int) -> None:
    rows = torch.full((1, 50), unknown).int()
    with pytest.raises(IndexError, match="the model has 0 to 261"):
        compiled()(make_model(CONFIGS["bytes"]).token_encoder, rows)


def test_rows_shorter_than_a_filter_are_refused() -> None:
    with pytest.raises(ValueError, match="rows of 4 characters"):
        compiled()(make_model(CONFIGS["bytes"]).token_encoder, torch.ones(2, 4).int())


@pytest.mark.parametrize("choice", ["off", "torch"])
def test_the_lookup_finds_plain_pytorch_on_request(choice: str) -> None:
    with kernels_set_to(choice):
        assert find_kernel("token_encoder", "cpu", "float32", make_model(CONFIGS["bytes"])) is None


def test_weights_of_another_dtype_are_not_supported() -> None:
    assert supports(make_model(CONFIGS["bytes"])) is None
    assert "float32" in (supports(make_model(CONFIGS["bytes"]).double()) or "")
