import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'asepr[train]'")

from asepr.errors import TrainingError  # noqa: E402
from asepr.trainer_plugin.exchange.codecs import Memory, make_codec, pack, unpack  # noqa: E402

BITS = {"int8": 8, "int4": 4, "int2": 2, "int1": 1}
SIZED = ("none", "bf16", "fp16", *BITS, "topk:0.1", "topk:0.01", "topk:1")
ALL = (*SIZED, "threshold:0.1")
SHAPES = [(0, 5), (1, 1), (3, 1), (7, 13), (5, 0)]


def pass_through(spec: str, rows: torch.Tensor, key: int = 0) -> torch.Tensor:
    out = torch.full_like(rows, math.nan)
    codec = make_codec(spec)
    codec.decode(codec.encode(rows, key, Memory()), out, Memory())
    return out


@pytest.mark.parametrize("spec", ALL)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_codec_keeps_shape_and_says_its_size(spec: str, shape: tuple[int, int], dtype: torch.dtype):
    rows = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=dtype)
    codec = make_codec(spec)
    message = codec.encode(rows, 3, Memory())
    assert (message.dtype, message.dim()) == (torch.uint8, 1)
    predicted = codec.num_bytes(*shape, rows.element_size())
    assert predicted == (None if spec.startswith("threshold") else len(message))
    out = torch.full_like(rows, math.nan)
    codec.decode(message, out, Memory())
    assert out.isfinite().all()
    # One value is its row's least and greatest at once: only bfloat16 limits it.
    if shape == (1, 1):
        assert (out - rows).abs() <= rows.abs() / 2**7


@pytest.mark.parametrize("spec", ALL)
def test_same_key_same_message(spec: str):
    rows = torch.randn(20, 9, generator=torch.Generator().manual_seed(2))
    messages = [make_codec(spec).encode(rows, key, Memory()) for key in (5, 5, 6)]
    assert torch.equal(messages[0], messages[1])
    assert torch.equal(messages[0], messages[2]) == (spec not in BITS)


@pytest.mark.parametrize("spec", BITS)
def test_random_rounding_is_unbiased_and_within_one_step(spec: str):
    generator = torch.Generator().manual_seed(4)
    rows = torch.randn(6, 16, generator=generator, dtype=torch.float64)
    rows[1] *= 1000
    rows[2] += 100
    rows[3] = rows[3].relu()
    rows[4] = 0.1
    rows[5] = torch.arange(16)
    draws = 4000
    codec, out = make_codec(spec), torch.empty_like(rows)
    total = torch.zeros_like(rows)
    # Of one row: bfloat16 has 8 bits, so the levels may begin up to 2**-7 below and each step be as much wider.
    low, high = rows.amin(1, keepdim=True), rows.amax(1, keepdim=True)
    step = ((high - low + low.abs() / 2**7) / (2 ** BITS[spec] - 1)) * (1 + 2**-7) + 1e-6
    for key in range(draws):
        codec.decode(codec.encode(rows, key, Memory()), out, Memory())
        assert ((out - rows).abs() <= step).all()
        total += out
    # A value between two levels has a deviation of at most half a step; five deviations of the mean.
    assert ((total / draws - rows).abs() <= 5 * step / 2 / math.sqrt(draws) + 1e-5 * rows.abs()).all()


@pytest.mark.parametrize("spec", BITS)
@pytest.mark.parametrize("value", [0.0, 0.5, -3.0])
def test_rows_of_one_value_are_exact(spec: str, value: float):
    rows = torch.full((4, 10), value)
    assert torch.equal(pass_through(spec, rows), rows)


def test_half_precision_is_that_of_numpy():
    values = np.array([[0.1, -70000.0, 1e-9, 65504.0]], dtype=np.float32)
    found = pass_through("fp16", torch.from_numpy(values)).numpy()
    np.testing.assert_array_equal(found, values.clip(-65504, 65504).astype(np.float16).astype(np.float32))
    bits = pass_through("bf16", torch.from_numpy(values)).numpy().view(np.uint32)
    assert not (bits & 0xFFFF).any()
    np.testing.assert_allclose(bits.view(np.float32), values, rtol=2**-8)


@pytest.mark.parametrize("spec", ["topk:0.1", "threshold:0.1"])
def test_error_feedback_reaches_rows_that_stand_still(spec: str):
    rows = torch.randn(10, 10, generator=torch.Generator().manual_seed(5))
    codec, sender, receiver, out = make_codec(spec), Memory(), Memory(), torch.empty(10, 10)
    errors = []
    for _ in range(10):
        codec.decode(codec.encode(rows, 0, sender), out, receiver)
        assert torch.equal(sender.held, receiver.held)
        errors.append(float((out - rows).abs().max()))
    assert errors == sorted(errors, reverse=True)
    if spec.startswith("topk"):
        kept = torch.topk(rows.abs().view(-1), 10).values.min()
        assert errors[0] <= kept
        assert errors[-1] == 0
    else:
        assert errors[-1] <= sender.threshold


def test_topk_sends_the_largest_changes():
    codec, memory, out = make_codec("topk:0.25"), Memory(), torch.empty(1, 8)
    receiver = Memory()
    first = torch.tensor([[5.0, 1, 0, -6, 2, 0, 0, 0]])
    codec.decode(codec.encode(first, 0, memory), out, receiver)
    assert out.tolist() == [[5, 0, 0, -6, 0, 0, 0, 0]]
    codec.decode(codec.encode(first + torch.eye(8)[0] * 0.5, 0, memory), out, receiver)
    assert out.tolist() == [[5, 1, 0, -6, 2, 0, 0, 0]]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([1, 2, 4, 8]), st.integers(0, 50), st.integers(0, 2**32))
def test_packing_is_undone(bits: int, size: int, seed: int):
    levels = torch.from_numpy(np.random.default_rng(seed).integers(0, 2**bits, size).astype(np.uint8))
    packed = pack(levels, bits)
    assert len(packed) == math.ceil(size * bits / 8)
    assert torch.equal(unpack(packed, bits, size), levels)


def test_one_bit_takes_a_25th_of_float32():
    assert 1000 * 256 * 4 / make_codec("int1").num_bytes(1000, 256, 4) > 25


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("int3", "codec must be one of none, bf16, .*, threshold:SHARE, got 'int3'"),
        ("topk", r"share must be in \(0, 1\], got ''; write topk:0.1"),
        ("topk:0", r"share must be in \(0, 1\], got '0'"),
        ("threshold:x", r"share must be in \(0, 1\], got 'x'"),
    ],
)
def test_codecs_that_are_not(spec: str, message: str):
    with pytest.raises(TrainingError, match=message):
        make_codec(spec)
