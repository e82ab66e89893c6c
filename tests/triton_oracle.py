"""The expected results of the Triton kernels, in float64 by autograd, with dropout by the published generator."""

import torch

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
LOW = 0xFFFFFFFF


def philox(counter, key, rounds):
    """Return Philox4x32 (Salmon et al. 2011): four int64 tensors of 32-bit words, from four such and two keys."""
    a, b, c, d = counter
    for step in range(rounds):
        first, second = ((key[i] + step * KEY_STEPS[i]) & LOW for i in range(2))
        high_a, low_a = _product(a, MULTIPLIERS[0])
        high_c, low_c = _product(c, MULTIPLIERS[1])
        a, b, c, d = high_c ^ b ^ first, low_c, high_a ^ d ^ second, low_a
    return a, b, c, d


def _product(x, constant):
    """Return the high and low 32 bits of a product that is too large for int64."""
    low, high = (x & 0xFFFF) * constant, (x >> 16) * constant
    return (high + (low >> 16)) >> 16, ((high & 0xFFFF) << 16) + low & LOW


def kept(seed, heads, tgt_len, src_len, dropout, device="cpu"):
    """Return ``(heads, T, S)``, True where dropout keeps a weight; the first index is sentence * H + head."""
    blocks = (src_len + 7) // 8
    head, query, block = (
        torch.arange(n, device=device).view(shape)
        for n, shape in ((heads, (-1, 1, 1)), (tgt_len, (1, -1, 1)), (blocks, (1, 1, -1)))
    )
    zero = torch.zeros(heads, tgt_len, blocks, dtype=torch.int64, device=device)
    words = philox((zero + query, zero + block, zero + head, zero), (seed & LOW, seed >> 32), 7)
    halves = [half for word in words for half in (word & 0xFFFF, word >> 16)]
    a0, a1, b0, b1, c0, c1, d0, d1 = halves
    # low halves come first, and the last index of a word changes fastest, which is the kernel's order
    bits = torch.stack((a0, a1, c0, c1, b0, b1, d0, d1), dim=-1).flatten(2)
    return bits[..., :src_len] >= round(dropout * 65536)


def attention(q, k, v, scale, num_heads, mask=None, causal=False, dropout=0.0, seed=0, threshold=None):
    """Return the context ``(T, B, d)`` from q, k and v in float64."""
    (tgt_len, bsz, size), src_len = q.shape, k.size(0)

    def split(x):
        return x.reshape(x.size(0), bsz, num_heads, -1).permute(1, 2, 0, 3)

    scores = scale * split(q) @ split(k).transpose(-1, -2)
    weights = torch.relu(scores if threshold is None else scores - threshold[:, None, None])
    allowed = torch.ones(bsz, 1, tgt_len, src_len, dtype=torch.bool, device=q.device)
    if mask is not None:
        allowed = allowed & ~mask[:, None, None]
    if causal:
        allowed = allowed.tril()
    weights = torch.where(allowed, weights, 0.0)
    if dropout:
        keep = kept(seed, bsz * num_heads, tgt_len, src_len, dropout, q.device).view(weights.shape)
        weights = torch.where(keep, weights / (1 - round(dropout * 65536) / 65536), 0.0)
    return (weights @ split(v)).permute(2, 0, 1, 3).reshape(tgt_len, bsz, size)


def gated_rms_norm(z, gain, gate, eps):
    """Return the norm of vectors in float64."""
    y = gain * z / (z.square().mean(-1, keepdim=True) + eps).sqrt()
    return y if gate is None else y * torch.sigmoid(gate * z)


def error(got, expected):
    """Return the largest difference, divided by the largest expected value."""
    difference = (got.double() - expected).abs().max()
    return (difference / expected.abs().max().clamp(min=1e-30)).item()
