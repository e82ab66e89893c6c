#!/usr/bin/env python3
"""Compare the Triton kernels on this machine's GPU with float64, in all variants at short and long lengths.

    python scripts/gpu_check.py                 # exit code 1 if a result differs
    python scripts/gpu_check.py --quick         # fewer lengths
    python scripts/gpu_check.py --times         # also time the kernels, plain PyTorch and torch's softmax attention
    python scripts/gpu_check.py --tiles         # also search for tiles that are faster than the default ones

This needs torch with CUDA, and Triton, but not fairseq. TRITON_INTERPRET=1 runs it on a CPU, with --quick.
"""

import argparse
import itertools
import sys
import traceback
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
# an empty package, because the package's own __init__ imports fairseq
package = types.ModuleType("fairseq_rela")
package.__path__ = [str(ROOT / "fairseq_rela")]
sys.modules["fairseq_rela"] = package

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import triton_oracle as oracle  # noqa: E402

from fairseq_rela.kernels import gpu  # noqa: E402
from fairseq_rela.kernels.rms_norm import rms_norm  # noqa: E402

EPSILON = 1e-8
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
HEADS = 8
# sentences, T, S: as in batches of translation, and of long texts
SHORT = [(64, 37, 50), (32, 128, 128), (3, 1, 40), (9, 16, 16), (16, 32, 30)]
LONG = [(2, 1000, 1024), (1, 2048, 2048)]
# queries, keys, warps and stages to try; each is compiled twelve times, which takes seconds
TILES = {
    torch.bfloat16: [
        (*size, warps, stages)
        for size in ((32, 32), (64, 32), (64, 64), (128, 64))
        for warps in (4, 8)
        for stages in (2, 3)
    ],
    torch.float32: [(16, 16, 2, 2), (32, 32, 4, 2), (32, 32, 4, 3), (64, 32, 8, 2)],
}
TIMED = [(256, 16), (128, 32), (64, 64), (32, 128), (8, 512), (2, 2048), (1, 8192)]


def main():
    """Run the checks that the command line asks for, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="check fewer lengths")
    parser.add_argument("--times", action="store_true", help="also print times and peak memory")
    parser.add_argument("--tiles", action="store_true", help="also try other tiles than the default ones")
    arguments = parser.parse_args()
    device = torch.device("cpu" if gpu.INTERPRETED else "cuda")
    reason = gpu.unavailable(device)
    if reason is not None:
        print(f"gpu_check: the Triton kernels cannot run: {reason}", file=sys.stderr)
        return 2
    import triton

    print(f"{describe(device)}, torch {torch.__version__}, triton {triton.__version__}", flush=True)
    failures = check(device, arguments.quick)
    if device.type == "cuda":
        if arguments.times:
            show_times(device)
        if arguments.tiles:
            show_tiles(device)
    print(f"{failures} failed" if failures else "all passed")
    return 1 if failures else 0


def describe(device):
    """Return the name of the device for readers."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "Triton's interpreter on a CPU"


# --- correctness ---


def check(device, quick):
    """Compare all cases with float64, print their errors, and return the number of failures."""
    print(f"{'kernel':10} {'type':9} {'d_h':>4} {'B':>3} {'T':>5} {'S':>5} options              largest relative error")
    failures = 0
    for case in cases(quick, device):
        try:
            errors = attention_errors(device, *case)
        except Exception:  # go on, to see the results of the other cases
            traceback.print_exc()
            errors = {"failed": float("inf")}
        dtype, head_dim, (bsz, tgt_len, src_len), options = case
        row = f"attention  {name(dtype):9} {head_dim:4} {bsz:3} {tgt_len:5} {src_len:5} {' '.join(options) or '-':20}"
        failures += report(row, errors, TOLERANCE[dtype])
    sizes = (512,) if quick else (48, 512, 1024, 4096)
    for dtype, size, gated in itertools.product(TOLERANCE, sizes, (False, True)):
        try:
            errors = norm_errors(device, dtype, size, gated)
        except Exception:
            traceback.print_exc()
            errors = {"failed": float("inf")}
        row = f"norm       {name(dtype):9} d={size:<5} {'gate' if gated else 'no gate':34}"
        failures += report(row, errors, TOLERANCE[dtype])
    return failures


def cases(quick, device):
    """Yield type, d_h, (B, T, S) and options of each case: all subsets of options at d_h = 64, few at other sizes."""
    everything = ("causal", "padding", "dropout")
    if device.type != "cuda":
        yield from ((dtype, 16, (2, 20, 20), everything) for dtype in TOLERANCE)
        return
    subsets = [tuple(itertools.compress(everything, on)) for on in itertools.product((0, 1), repeat=3)]
    for dtype in TOLERANCE:
        for options, shape in itertools.product(subsets, SHORT[:2] if quick else SHORT):
            yield dtype, 64, shape, options
        for options, shape in itertools.product(subsets[:: 7 if quick else 1], LONG):
            yield dtype, 64, shape, options
        for head_dim in () if quick else (16, 32, 40, 128, 256):
            yield dtype, head_dim, (4, 130, 130), everything
            yield dtype, head_dim, (4, 30, 70), ("padding", "dropout")


def report(row, errors, tolerance):
    """Print the errors of a case, and return whether one is not below the tolerance."""
    failed = not all(value < tolerance for value in errors.values())  # NaN fails
    numbers = "  ".join(f"{key} {value:.1e}" for key, value in errors.items())
    print(f"{row} {numbers}{'  FAILED' if failed else ''}", flush=True)
    return failed


def name(dtype):
    """Return the name of a precision, such as ``float32``."""
    return str(dtype).replace("torch.", "")


def attention_inputs(device, dtype, head_dim, bsz, tgt_len, src_len, options):
    """Return queries, keys and values, the gradient of the context, and the padding mask or None."""
    generator = torch.Generator().manual_seed(1)
    size = HEADS * head_dim if device.type == "cuda" else 2 * head_dim
    if "causal" in options:
        src_len = tgt_len
    q, k = (torch.randint(-2, 3, (n, bsz, size), generator=generator).float() for n in (tgt_len, src_len))
    v, grad = (torch.randn(n, bsz, size, generator=generator) for n in (src_len, tgt_len))
    mask = None
    if "padding" in options:
        lengths = torch.randint(0, src_len + 1, (bsz,), generator=generator)
        mask = torch.arange(src_len)[None] >= lengths[:, None]
        mask[::2] = mask[::2].flip(1)
        mask = mask.to(device)
    return [x.to(device, dtype).requires_grad_() for x in (q, k, v)], grad.to(device), mask


def attention_errors(device, dtype, head_dim, shape, options):
    """Return the relative errors of the context and of three gradients; infinity if a second run gives other bits.

    Queries and keys are small integers, because their scores are exact. Of millions of other scores, some are so close
    to 0 that float32 and float64 differ in their sign, and the gradient passes in only one of them.
    """
    from fairseq_rela.kernels.triton_attention import attend

    inputs, grad, mask = attention_inputs(device, dtype, head_dim, *shape, options)
    num_heads = inputs[0].size(-1) // head_dim
    settings = dict(causal="causal" in options, dropout=0.1 if "dropout" in options else 0.0, seed=2**33 + 5)

    def context_of(*qkv):
        return attend(*qkv, scale=head_dim**-0.5, num_heads=num_heads, key_padding_mask=mask, **settings)

    def results():
        context = context_of(*inputs)
        return [context.detach(), *torch.autograd.grad(context, inputs, grad)]

    got, again = results(), results()
    exact = [x.detach().double().requires_grad_() for x in inputs]
    expected = oracle.attention(*exact, head_dim**-0.5, num_heads, mask, **settings)
    right = [expected.detach(), *torch.autograd.grad(expected, exact, grad.double())]
    errors = {key: oracle.error(a, b) for key, a, b in zip(("z", "dq", "dk", "dv"), got, right)}
    with torch.no_grad():  # the context is continuous, so any queries can be compared
        q, k, v = ((x + 0.3 * torch.randn_like(x)).detach() for x in inputs)
        expected = oracle.attention(q.double(), k.double(), v.double(), head_dim**-0.5, num_heads, mask, **settings)
        errors["z of others"] = oracle.error(context_of(q, k, v), expected)
    if not all(torch.equal(a, b) for a, b in zip(got, again)):
        errors["not repeatable"] = float("inf")
    return errors


def norm_errors(device, dtype, size, gated):
    """Return the relative errors of the norm and of its gradients."""
    from fairseq_rela.kernels.triton_norm import gated_rms_norm

    generator = torch.Generator().manual_seed(1)
    rows = 4001 if device.type == "cuda" else 15
    z, grad = (torch.randn(rows, size, generator=generator).to(device) for _ in range(2))
    scales = torch.ones(rows, 1, device=device)
    scales[1:4, 0] = torch.tensor([0.0, 1e-4, 300.0])
    grad[1:3] *= 1e-3  # comes out 10,000 times as large, which float16 would not hold
    gain, gate = (torch.randn(size, generator=generator).to(device) for _ in range(2))
    inputs = [x.requires_grad_() for x in ((z * scales).to(dtype), gain, *((gate,) if gated else ()))]
    y = gated_rms_norm(*inputs, *(() if gated else (None,)), EPSILON)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    expected = oracle.gated_rms_norm(*exact, *(() if gated else (None,)), EPSILON)
    gradients = torch.autograd.grad(y, inputs, grad.to(dtype))
    right = torch.autograd.grad(expected, exact, grad.to(dtype).double())
    errors = {"y": oracle.error(y, expected)}
    errors.update((key, oracle.error(a, b)) for key, a, b in zip(("dz", "dg", "dw"), gradients, right))
    # other rows are compared separately, because the gradient of the null row is 5,000 times larger
    errors["dz of others"] = oracle.error(gradients[0][4:], right[0][4:])
    return errors


# --- times ---


def time_of(function, repeats=20):
    """Return the median time in milliseconds, with the GPU's caches cleared before each run."""
    import triton

    return triton.testing.do_bench(function, warmup=25, rep=repeats * 5, return_mode="median")


def show_times(device):
    """Print times in milliseconds from the projected q, k and v to the input of the output projection."""
    head_dim, dtype = 64, torch.bfloat16
    print(f"\nmilliseconds, {name(dtype)}, {HEADS} heads of {head_dim}, with the norm; peak memory in MiB")
    print(f"{'B':>4} {'T':>5} {'dropout':>7}  {'what':34} {'forward':>9} {'f + b':>9} {'MiB':>8}")
    for (bsz, length), dropout in itertools.product(TIMED, (0.0, 0.1)):
        inputs, grad, _ = attention_inputs(device, dtype, head_dim, bsz, length, length, ())
        grad = grad.to(dtype)
        for label, function in candidates(inputs, dropout).items():
            try:
                row = measure(function, inputs, grad)
            except torch.cuda.OutOfMemoryError:
                row = "out of memory"
            print(f"{bsz:4} {length:5} {dropout:7}  {label:34} {row}", flush=True)


def measure(function, inputs, grad):
    """Return the times of forward, and of forward and backward, and the peak memory, as text."""

    def both():
        torch.autograd.grad(function(), inputs, grad)

    with torch.no_grad():
        forward = time_of(function)
    whole = time_of(both)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    both()
    memory = (torch.cuda.max_memory_allocated() - before) / 2**20
    return f"{forward:9.4f} {whole:9.4f} {memory:8.1f}"


def candidates(inputs, dropout):
    """Return what to time: the kernels, plain PyTorch in the same precision, and softmax attention without a norm."""
    from fairseq_rela.kernels.triton_attention import attend
    from fairseq_rela.kernels.triton_norm import gated_rms_norm

    q, k, v = inputs
    size, dtype, scale = q.size(-1), q.dtype, (q.size(-1) // HEADS) ** -0.5
    gain = torch.ones(size, device=q.device, requires_grad=True)
    gate = torch.full((size,), 0.05, device=q.device, requires_grad=True)

    def split(x):
        return x.view(x.size(0), -1, size // HEADS).transpose(0, 1)

    def merge(x):
        return x.transpose(0, 1).reshape(q.shape)

    def fused():
        context = attend(q, k, v, scale=scale, num_heads=HEADS, dropout=dropout)
        return gated_rms_norm(context, gain, gate, EPSILON, dtype)

    def plain():
        weights = F.dropout(torch.relu_(torch.bmm(split(q) * scale, split(k).transpose(1, 2))), dropout)
        return rms_norm(merge(torch.bmm(weights, split(v))).float(), gain, gate, EPSILON).to(dtype)

    def softmax():
        weights = F.dropout(torch.softmax(torch.bmm(split(q) * scale, split(k).transpose(1, 2)), -1), dropout)
        return merge(torch.bmm(weights, split(v)))

    def flash():
        heads = [x.view(x.size(0), x.size(1), HEADS, -1).permute(1, 2, 0, 3) for x in (q, k, v)]
        context = F.scaled_dot_product_attention(*heads, dropout_p=dropout)
        return context.permute(2, 0, 1, 3).reshape(q.shape)

    return {
        "ReLA-g, these kernels": fused,
        "ReLA-g, plain, same precision": plain,
        "softmax, plain, no norm": softmax,
        "softmax, torch's fused, no norm": flash,
    }


def show_tiles(device):
    """Print the times of the default tiles and of the fastest of some others, for each kernel and length."""
    from fairseq_rela.kernels import triton_attention
    from fairseq_rela.kernels.triton_attention import KERNELS, Tiles, _launch

    default = triton_attention.default_tiles
    print("\nmilliseconds of the default tiles, and of the fastest (queries, keys, warps, stages)")
    for dtype, dropout, (bsz, length) in itertools.product(TILES, (0.0, 0.1), TIMED[1:6]):
        (q, k, v), grad, _ = attention_inputs(device, dtype, 64, bsz, length, length, ())
        options = 0.125, HEADS, False, round(dropout * 65536), 1
        for kernel in KERNELS:
            function = getattr(triton_attention, f"_{kernel}")
            operands = (q, k, v) if kernel == "context" else (q, k, v, grad)
            outputs = tuple(torch.empty_like(k) for _ in range(2 if kernel == "grad_kv" else 1))
            if kernel == "context":
                outputs = (torch.empty_like(grad),)
            times = {}
            for tiles in TILES[dtype]:
                triton_attention.default_tiles = lambda *_, tiles=tiles: Tiles(*tiles)
                try:
                    times[tiles] = time_of(lambda: _launch(function, kernel, operands, None, outputs, options), 5)  # noqa: B023
                except Exception:  # the tiles need more shared memory than the GPU has
                    continue
            triton_attention.default_tiles = default
            usual = time_of(lambda: _launch(function, kernel, operands, None, outputs, options))  # noqa: B023
            best = min(times, key=times.get)
            row = f"{kernel:8} {name(dtype):9} dropout {dropout} B {bsz:3} T {length:5}"
            print(f"{row}  {usual:8.4f}  {times[best]:8.4f} {best}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
