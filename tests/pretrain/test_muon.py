"""Muon compared with a slow float64 implementation; runs with it: bad steps, exact resume, fine-tuning."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from in_process_cli import run_in_process
from tiny_run import digest, records, run, settings, train_settings, write_text

from elmo.errors import ConfigError, ElmoError
from elmo.model.bilm import BiLM
from elmo.model.config import BiLMConfig, CharConfig, HeadConfig, LSTMConfig, WordConfig
from elmo.model.lstm import State
from elmo.pretrain.config import OptimConfig, make_config
from elmo.pretrain.data.stream import Direction, LMBatch
from elmo.pretrain.job import pretrain
from elmo.pretrain.train.muon import MAX_HIGHWAY_DIM, matrix_parameters, newton_schulz, orthogonal_directions
from elmo.pretrain.train.optim import load_optimizer, make_optimizer, set_learning_rate
from elmo.pretrain.train.step import Trainer

MUON = {"optim": {"name": "muon", "lr": 2e-3}}
CHARS = CharConfig(filters=((1, 4), (2, 8)), char_dim=4, max_chars=6, num_highways=1)


def character_model(**lstm: Any) -> BiLM:
    torch.manual_seed(0)
    shape = {"cell_dim": 10, "proj_dim": 4, "num_layers": 2} | lstm
    return BiLM(BiLMConfig(chars=CHARS, lstm=LSTMConfig(**shape), head=HeadConfig(vocab_size=9)))


def random_gradients(model: torch.nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator).to(parameter.device)


# ---- comparison with a slow implementation ----


def slow_newton_schulz(matrix: np.ndarray) -> np.ndarray:
    """One matrix in float64, without transposition: x -> 3.4445 x - 4.7750 (x x^T) x + 2.0315 (x x^T)^2 x."""
    x = matrix / np.sqrt((matrix**2).sum())
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x - 4.7750 * square @ x + 2.0315 * square @ square @ x
    return x


def slow_muon(
    weight: np.ndarray, grads: list[np.ndarray], rates: list[float], *, decay: float, momentum: float = 0.95
) -> np.ndarray:
    """Momentum is a sum here, as in the original definition, not an average; normalisation makes both equal."""
    total = np.zeros_like(weight)
    for grad, rate in zip(grads, rates, strict=True):
        total = momentum * total + grad
        update = 0.2 * math.sqrt(max(weight.shape)) * slow_newton_schulz(grad + momentum * total)
        weight = weight - rate * decay * weight - rate * update
    return weight


def test_three_steps_equal_the_slow_implementation() -> None:
    """Kernels are split into gates. Float32 is compared with float64 at weights of about 1, so 1e-5 is rounding."""
    model = character_model()
    matrices = matrix_parameters(model)
    config = OptimConfig(name="muon", lr=0.01, matrix_lr_ratio=1.5, weight_decay=0.1)
    optimizer = make_optimizer(model, config)
    start = {p: p.detach().double().numpy().copy() for p in matrices}
    grads: dict[Any, list[np.ndarray]] = {p: [] for p in matrices}
    rates = [0.01, 0.02, 0.005]
    for number, rate in enumerate(rates):
        random_gradients(model, number)
        for p in matrices:
            grads[p].append(p.grad.double().numpy().copy())
        set_learning_rate(optimizer, rate)
        optimizer.step()
    for p, count in matrices.items():
        expected = [
            slow_muon(weight, [np.split(g, count, axis=1)[k] for g in grads[p]], [1.5 * r for r in rates], decay=0.1)
            for k, weight in enumerate(np.split(start[p], count, axis=1))
        ]
        np.testing.assert_allclose(p.detach().numpy(), np.concatenate(expected, axis=1), atol=1e-5)


def test_other_parameters_are_updated_bit_for_bit_as_by_adamw() -> None:
    ours, theirs = character_model(), character_model()
    muon = make_optimizer(ours, OptimConfig(name="muon", lr=0.01))
    matrices = matrix_parameters(theirs)
    rest = [p for p in theirs.parameters() if p not in matrices]
    groups = [
        {"params": [p for p in rest if p.dim() > 1], "weight_decay": 0.01},
        {"params": [p for p in rest if p.dim() <= 1], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.98), eps=1e-8, fused=True)
    for number in range(3):
        for model in (ours, theirs):
            random_gradients(model, number)
        muon.step()
        adamw.step()
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert torch.equal(a, b) == (b not in matrices), name


@given(rows=st.integers(1, 12), columns=st.integers(1, 12), count=st.integers(1, 4), seed=st.integers(0, 1000))
@hypothesis_settings(max_examples=40)
def test_singular_values_of_all_shapes_are_near_one(rows: int, columns: int, count: int, seed: int) -> None:
    """The input has singular values of 0.1 to 1 and any scale; the polynomial maps them to about 0.68 to 1.14."""
    generator = torch.Generator().manual_seed(seed)
    matrices = torch.randn(count, rows, columns, generator=generator, dtype=torch.float64)
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    values = 0.1 + 0.9 * torch.rand(count, min(rows, columns), generator=generator, dtype=torch.float64)
    scale = 10.0 ** torch.randint(-4, 5, (count, 1, 1), generator=generator)
    orthogonal = newton_schulz((scale * (u * values[:, None]) @ v).float())
    assert orthogonal.shape == matrices.shape
    singular = torch.linalg.svdvals(orthogonal)
    assert float(singular.min()) > 0.6
    assert float(singular.max()) < 1.25
    product = u.mT @ orthogonal.double() @ v.mT  # diagonal, because the singular vectors stay the same
    torch.testing.assert_close(product, torch.diag_embed(product.diagonal(dim1=1, dim2=2)), atol=1e-4, rtol=0)


def test_zero_matrix_stays_zero() -> None:
    assert torch.equal(newton_schulz(torch.zeros(2, 3, 4)), torch.zeros(2, 3, 4))


def test_each_gate_is_a_separate_matrix() -> None:
    """A change of one gate's gradient changes only that gate, and a gate alone gives the same result."""
    torch.manual_seed(0)
    kernel = torch.randn(8, 4 * 10)
    all_gates = orthogonal_directions([kernel], [4])[0]
    for gate in range(4):
        columns = slice(10 * gate, 10 * gate + 10)
        alone = orthogonal_directions([kernel[:, columns]], [1])[0]
        torch.testing.assert_close(all_gates[:, gate], alone[:, 0])
        other = kernel.clone()
        other[:, columns] = torch.randn(8, 10)
        changed = (orthogonal_directions([other], [4])[0] - all_gates).abs().amax(dim=(0, 2))
        assert [bool(value > 1e-3) for value in changed] == [k == gate for k in range(4)]


def test_matrices_of_equal_shape_are_not_mixed_up_in_a_batch() -> None:
    """With 2P = H = F, gates and highways are all 8 x 8 and go through Newton-Schulz together."""
    torch.manual_seed(0)
    kernel, highway, wide, tall = torch.randn(8, 32), torch.randn(8, 8), torch.randn(4, 8), torch.randn(8, 4)
    batched = orthogonal_directions([kernel, highway, wide, tall], [4, 1, 1, 1])
    for update, matrix, count in zip(batched, (kernel, highway, wide, tall), (4, 1, 1, 1), strict=True):
        torch.testing.assert_close(update, orthogonal_directions([matrix], [count])[0])


# ---- which parameters ----


def matrix_names(model: BiLM) -> dict[str, int]:
    matrices = matrix_parameters(model)
    return {name: matrices[p] for name, p in model.named_parameters() if p in matrices}


@pytest.mark.parametrize(("num_filters", "is_updated"), [(MAX_HIGHWAY_DIM, True), (MAX_HIGHWAY_DIM + 1, False)])
def test_wide_highways_are_left_to_adamw(num_filters: int, is_updated: bool) -> None:
    chars = CharConfig(filters=((1, num_filters),), char_dim=4, max_chars=6, num_highways=1)
    model = BiLM(BiLMConfig(chars=chars, lstm=LSTMConfig(cell_dim=10, proj_dim=4), head=HeadConfig(vocab_size=9)))
    names = matrix_names(model)
    assert any("highways" in name for name in names) == is_updated
    assert "token_encoder.project.weight" in names
    optimizer = make_optimizer(model, OptimConfig(name="muon"))
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(list(model.parameters()))


def test_matrices_of_a_character_model() -> None:
    layers = {f"stacks.{d}.layers.{k}" for d in range(2) for k in range(2)}
    highway = "token_encoder.chars.highways.0"
    assert matrix_names(character_model()) == {
        **{f"{layer}.kernel": 4 for layer in layers},
        **{f"{layer}.projection": 1 for layer in layers},
        f"{highway}.transform.weight": 1,
        f"{highway}.carry.weight": 1,
        "token_encoder.project.weight": 1,
    }


def test_matrices_of_a_tied_word_model_of_one_direction_without_projection() -> None:
    shape = BiLMConfig(
        chars=None,
        words=WordConfig(num_words=9, word_dim=6),
        lstm=LSTMConfig(cell_dim=6, proj_dim=6, num_layers=1),
        bidirectional=False,
        head=HeadConfig(vocab_size=9, tied=True),
    )
    assert matrix_names(BiLM(shape)) == {"stacks.0.layers.0.kernel": 4}


# ---- bad steps and skipped parameters ----


def test_found_inf_leaves_weights_momentum_and_averages_unchanged() -> None:
    model = character_model()
    optimizer = make_optimizer(model, OptimConfig(name="muon", lr=0.01, weight_decay=0.1))
    for bad in (False, True, False):
        random_gradients(model, 1)
        weights = [p.detach().clone() for p in model.parameters()]
        state = [{k: v.clone() for k, v in values.items()} for values in optimizer.state.values()]
        if bad:
            model.stacks[0].layers[0].kernel.grad[0, 0] = math.nan
            model.head.weight.grad[0, 0] = math.inf
        optimizer.found_inf = torch.tensor(float(bad))  # type: ignore[attr-defined]
        optimizer.step()
        same = [torch.equal(a, b) for a, b in zip(weights, model.parameters(), strict=True)]
        assert all(same) if bad else not any(same)
        for before, after in zip(state, optimizer.state.values(), strict=False):
            assert bad == all(torch.equal(before[name], after[name]) for name in before)


def test_found_inf_of_zero_changes_nothing_in_the_step() -> None:
    without, with_zero = character_model(), character_model()
    for model, found_inf in ((without, None), (with_zero, torch.tensor(0.0))):
        optimizer = make_optimizer(model, OptimConfig(name="muon", lr=0.01))
        random_gradients(model, 0)
        optimizer.found_inf = found_inf  # type: ignore[attr-defined]
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(without.parameters(), with_zero.parameters(), strict=True))


def test_parameters_without_a_gradient_are_not_changed() -> None:
    model = character_model()
    optimizer = make_optimizer(model, OptimConfig(name="muon", lr=0.01))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    random_gradients(model, 0)
    for name, parameter in model.named_parameters():
        if not name.startswith("head."):
            parameter.grad = None
    optimizer.step()
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name]) == (not name.startswith("head.")), name
    assert len(optimizer.state) == 2


# ---- saving and loading ----


def test_loaded_state_is_exact_and_new_settings_take_effect(tmp_path: Path) -> None:
    model = character_model()
    optimizer = make_optimizer(model, OptimConfig(name="muon", lr=0.01))
    random_gradients(model, 0)
    optimizer.step()
    torch.save(optimizer.state_dict(), tmp_path / "state.pt")
    other = character_model()
    other.load_state_dict(model.state_dict())
    changed = make_optimizer(other, OptimConfig(name="muon", lr=0.01, momentum=0.9, weight_decay=0.5))
    load_optimizer(changed, torch.load(tmp_path / "state.pt", weights_only=True))
    assert (changed.param_groups[0]["momentum"], changed.param_groups[1]["weight_decay"]) == (0.9, 0.5)
    loaded = make_optimizer(other, OptimConfig(name="muon", lr=0.01))
    load_optimizer(loaded, torch.load(tmp_path / "state.pt", weights_only=True))
    for trained, its_optimizer in ((model, optimizer), (other, loaded)):
        random_gradients(trained, 1)
        its_optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_a_state_with_other_matrices_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = character_model()
    optimizer = make_optimizer(model, OptimConfig(name="muon"))
    random_gradients(model, 0)
    optimizer.step()
    monkeypatch.setattr("elmo.pretrain.train.muon.MAX_HIGHWAY_DIM", 11)  # the highways of the model have 12 filters
    other = make_optimizer(model, OptimConfig(name="muon"))
    with pytest.raises(ConfigError, match="of an earlier version, in which Muon"):
        load_optimizer(other, optimizer.state_dict())


def test_run_in_two_calls_has_bit_identical_metrics(tmp_path: Path) -> None:
    text = write_text(tmp_path / "text.txt")
    constant = {"optim": {"warmup": 0.0, "decay": "none"}}
    run(text, tmp_path / "one_call", MUON, constant)
    run(text, tmp_path / "two_calls", MUON, constant, train_settings(max_steps=17))
    run(text, tmp_path / "two_calls", MUON, constant)
    one, two = ([r for r in records(tmp_path / name) if "forward" in r] for name in ("one_call", "two_calls"))
    assert len(two) == 40
    assert two == one


def test_run_interrupted_by_an_error_ends_bit_identical(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = write_text(tmp_path / "text.txt")
    run(text, tmp_path / "uninterrupted", MUON)
    update = Trainer.update

    def failing_update(self: Trainer, inputs: Any, step: int) -> Any:
        if step == 26:
            raise ElmoError("interrupted")
        return update(self, inputs, step)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "update", failing_update)
        with pytest.raises(ElmoError, match="interrupted"):
            run(text, tmp_path / "interrupted", MUON)
    run(text, tmp_path / "interrupted", MUON)
    assert digest(tmp_path / "interrupted") == digest(tmp_path / "uninterrupted")


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"bidirectional": False}},
        {"model": {"chars": None, "words": {"num_words": 1, "word_dim": 6}}, "objective": {"tied": True}},
        {"model": {"lstm": {"cell_dim": 6}}, "train": {"accumulate": 2}},
        {"objective": {"softmax": "adaptive", "cutoffs": [20]}, "train": {"head_only_steps": 5}},
    ],
)
def test_other_kinds_of_models_learn(changes: dict[str, Any], tmp_path: Path) -> None:
    result = run(write_text(tmp_path / "text.txt"), tmp_path / "run", MUON, {"optim": {"lr": 0.01}}, changes)
    losses = [r["forward"] for r in records(tmp_path / "run") if "forward" in r]
    assert np.mean(losses[-5:]) < np.mean(losses[:5])
    assert result.report is not None


def test_adamw_run_is_not_resumed_with_muon(tmp_path: Path) -> None:
    text = write_text(tmp_path / "text.txt")
    run(text, tmp_path / "run", train_settings(max_steps=2))
    with pytest.raises(ElmoError, match="optimizer adamw -> muon"):
        run(text, tmp_path / "run", MUON)


# ---- settings and command line ----


@pytest.mark.parametrize("wrong", [{"momentum": 1.0}, {"momentum": -0.1}, {"matrix_lr_ratio": 0.0}])
def test_wrong_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        OptimConfig(name="muon", **wrong)


def test_the_command_line_trains_and_fine_tunes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = write_text(tmp_path / "text.txt")
    pretrain(settings(text), tmp_path / "run")
    common = ["--max-steps", "5", "--rows", "4", "--device", "cpu", "--workers", "1", "--json"]
    common += ["--set", "train.steps=5", "--set", "objective.num_samples=16", "--set", "optim.name=muon"]
    model = str(tmp_path / "run" / "model")
    done = run_in_process(capsys, "finetune", model, str(text), "--out", str(tmp_path / "tuned"), *common)
    assert done.returncode == 0, done.stderr
    assert 'name = "muon"' in (tmp_path / "tuned" / "config.toml").read_text()
    common += ["--set", "optim.lr=2e-3", "--set", "optim.matrix_lr_ratio=0.5", "--preset", "tiny"]
    done = run_in_process(capsys, "pretrain", str(text), "--out", str(tmp_path / "new"), *common)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["step"] == 5
    assert "matrix_lr_ratio = 0.5" in (tmp_path / "new" / "config.toml").read_text()


# ---- on the GPU ----


def gpu_trainer() -> Trainer:
    torch.manual_seed(1)
    shape = BiLMConfig(
        chars=CharConfig(filters=((1, 16), (2, 16), (3, 32)), char_dim=8, num_highways=1),
        lstm=LSTMConfig(cell_dim=64, proj_dim=32),
        head=HeadConfig(vocab_size=500),
    )
    rows = torch.randint(1, 200, (600, 50), dtype=torch.int32)
    train = {"rows": 16, "steps": 8, "max_steps": 100, "reset": 0.5}
    config = make_config({"objective": {"num_samples": 64}, "train": train}, MUON)
    return Trainer(BiLM(shape).cuda(), rows.cuda(), config)


def gpu_batch(seed: int) -> LMBatch:
    rng = np.random.default_rng(seed)

    def direction() -> Direction:
        inputs, targets = rng.integers(600, size=(16, 8)), rng.integers(500, size=(16, 8))
        return Direction(inputs.astype(np.int32), targets.astype(np.int32), rng.random((16, 8)) < 0.2, None)

    return LMBatch(direction(), direction())


@pytest.mark.gpu
def test_update_on_the_gpu_equals_the_cpu_without_synchronization() -> None:
    """bfloat16 has 8 significant bits and updates have entries of about 0.2: the tolerance is a few roundings."""
    on_cpu, on_gpu = character_model(cell_dim=64, proj_dim=32), character_model(cell_dim=64, proj_dim=32).cuda()
    before = [p.detach().clone() for p in on_cpu.parameters()]
    optimizers = [make_optimizer(model, OptimConfig(name="muon", lr=0.01)) for model in (on_cpu, on_gpu)]
    optimizers[1].found_inf = torch.zeros((), device="cuda")  # type: ignore[attr-defined]
    for model, optimizer in zip((on_cpu, on_gpu), optimizers, strict=True):
        random_gradients(model, 0)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            optimizer.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    for a, b, start in zip(on_cpu.parameters(), on_gpu.parameters(), before, strict=True):
        torch.testing.assert_close(a, b.cpu(), rtol=0, atol=5e-4)
        assert float((a - start).abs().max()) > 1e-3


@pytest.mark.gpu
def test_step_with_non_finite_loss_on_the_gpu_changes_nothing() -> None:
    trainer = gpu_trainer()
    assert not trainer.step(gpu_batch(0), 0).skipped
    weights = [p.detach().clone() for p in trainer.parameters]
    state = [{k: v.clone() for k, v in values.items()} for values in trainer.optimizer.state.values()]
    good = trainer.state
    trainer.state = State(good.h.clone(), good.c.clone())
    trainer.state.c[0, 0, 0, 0] = math.nan
    assert trainer.step(gpu_batch(1), 1).skipped
    assert all(torch.equal(a, b) for a, b in zip(weights, trainer.parameters, strict=True))
    for before, after in zip(state, trainer.optimizer.state.values(), strict=True):
        assert all(torch.equal(before[name], after[name]) for name in before)
    trainer.state = good
    assert not trainer.step(gpu_batch(2), 2).skipped


@pytest.mark.gpu
@pytest.mark.parametrize(("first", "second"), [("cpu", "cuda"), ("cuda", "cpu")])
def test_run_is_resumed_on_another_device(first: str, second: str, tmp_path: Path) -> None:
    text = write_text(tmp_path / "text.txt")
    run(text, tmp_path / "run", MUON, train_settings(max_steps=10, device=first))
    assert run(text, tmp_path / "run", MUON, train_settings(max_steps=20, device=second)).train.step == 20
