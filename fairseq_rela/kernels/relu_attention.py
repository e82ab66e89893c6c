r"""Rectified linear attention for CPUs with explicit gradients, which save memory.

Let :math:`S = Q K^T / \sqrt{d_h}`, plus masks, let :math:`M` be a dropout mask whose entries are 0 or
:math:`1 / (1 - p)`, and :math:`A = M \odot \max(S, 0)`. The context is :math:`Z = A V`. A bar denotes a gradient of the
loss. From :math:`\bar Z` follow

.. math::
    \bar V = A^T \bar Z, \quad \bar S = \frac{[A > 0]}{1 - p} \odot \bar Z V^T, \quad
    \bar Q = \bar S K / \sqrt{d_h}, \quad \bar K = \bar S^T Q / \sqrt{d_h}

because :math:`A > 0` exactly where a weight is neither rectified nor dropped. So A is the only tensor of this size
that is saved for the backward pass; autograd saves the weights, the mask and their product. The gradient at a score of
exactly 0 is 0.

ReLU needs no sum over a row, so the scores can be computed in tiles. With :data:`TILED_FROM` keys or more, and
:data:`CACHED` bytes of scores or more, only one tile of A exists at a time, and the backward pass computes A again.
"""

from typing import Any, Iterator, NamedTuple, Optional, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

TILED_FROM = 512  # keys; with fewer, computing the scores twice takes longer than reading them from memory
CACHED = 32 * 2**20  # bytes of scores; fewer stay in the CPU's caches, and are computed once
TILE = 2 * 2**20  # bytes of a tile for each thread, about; large, because each operation starts and ends all threads
ROWS = 256  # smallest number of rows in a tile, because each tile reads all keys

# torch 1.12 multiplies the old contents of a small result by beta = 0, so that NaN stays NaN
_OLD_TORCH = int(torch.__version__.split(".")[0]) < 2


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    num_heads: int,
    key_padding_mask: Optional[Tensor] = None,
    attn_mask: Optional[Tensor] = None,
    dropout: float = 0.0,
) -> Tensor:
    r"""Return :math:`concat_h(dropout(\max(scale\, Q_h K_h^T + mask, 0))\, V_h)`, which can be differentiated once.

    The dropout mask is drawn with torch's global generator, but differs from that of ``F.dropout``, which takes as
    long as the attention itself. The probability is rounded to a multiple of 1/65536. The weights that are kept are
    scaled by the rounded probability, so that the mean of the weights is exact.

    Args:
        q: projected queries, ``(T, B, d)``, float32 or float64, not scaled.
        k, v: projected keys and values, ``(S, B, d)``.
        scale: factor of the scores, :math:`1 / \sqrt{d_h}`.
        num_heads: H.
        key_padding_mask: ``(B, S)``, True at padding.
        attn_mask: ``(T, S)``, added to the scores; it gets no gradient.
        dropout: probability of dropping a weight; 0 in evaluation.

    Returns:
        the context, ``(T, B, d)``.
    """
    padding = None
    if key_padding_mask is not None:
        padded = key_padding_mask.to(torch.bool)
        if bool(padded.any()):
            padding = torch.zeros_like(padded, dtype=q.dtype).masked_fill_(padded, -torch.inf)
    if attn_mask is not None:
        attn_mask = attn_mask.to(q.dtype)
    options = _Options(num_heads, scale, min(round(dropout * 65536), 65535))
    score_bytes = q.size(0) * k.size(0) * q.size(1) * num_heads * q.element_size()
    function = _Tiled if k.size(0) >= TILED_FROM and score_bytes >= CACHED else _Whole
    return function.apply(q, k, v, padding, attn_mask, options)


def attend_step(queries: Tensor, keys: Tensor, values: Tensor, padding: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
    """Return context and weights for one decoding step, without dropout; autograd can differentiate it.

    The hypotheses of a sentence are neighbours in the batch. If they share the keys of the sentence, one matrix
    product for each sentence and head computes the weights of all of them.

    Args:
        queries: projected and scaled queries, ``(1, B, d)``.
        keys, values: projected keys and values, ``(B', H, S, d_h)``, of B' sentences with B / B' hypotheses each.
        padding: ``(B', S)``, True at padding, or None.

    Returns:
        the context, ``(1, B, d)``, and the weights, ``(B' * H, B / B', S)``.
    """
    sentences, heads, length, head_dim = keys.shape
    keys, values = keys.view(-1, length, head_dim), values.view(-1, length, head_dim)
    shared = sentences != queries.size(1)
    of_heads = queries.view(sentences, -1, heads, head_dim).transpose(1, 2) if shared else queries
    weights = torch.bmm(of_heads.reshape(keys.size(0), -1, head_dim), keys.transpose(1, 2))
    if padding is not None:
        padding = padding.to(torch.bool)[:, None, None]
        weights.view(sentences, heads, -1, length).masked_fill_(padding, -torch.inf)
    context = torch.bmm(weights.relu_(), values)
    if shared:
        context = context.view(sentences, heads, -1, head_dim).transpose(1, 2)
    return context.reshape(queries.shape), weights


class _Options(NamedTuple):
    """Options of one call of :func:`attend`.

    Attributes:
        num_heads: H.
        scale: factor of the scores.
        threshold: a weight is dropped if its random number of 16 bits is below this; 0 for no dropout.
    """

    num_heads: int
    scale: float
    threshold: int

    @property
    def kept_scale(self) -> float:
        """Return the factor 1 / (1 - p) of the weights that dropout keeps."""
        return 65536 / (65536 - self.threshold)

    @property
    def score_scale(self) -> float:
        """Return the factor of the scores that includes that of dropout, because relu(c x) = c relu(x) for c > 0."""
        return self.scale * self.kept_scale


def keep_mask(shape: Tuple[int, ...], threshold: int, generator: Optional[torch.Generator] = None) -> Tensor:
    """Return random booleans, False with probability threshold / 65536. Each 64-bit random number gives four."""
    count = torch.Size(shape).numel()
    drawn = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None, generator=generator)
    return (drawn.view(torch.int16)[:count] >= threshold - 32768).view(shape)


def _heads(x: Tensor, num_heads: int) -> Tensor:
    """Return ``(T, B, d)`` as ``(B*H, T, d_h)``, a view if ``x`` is contiguous."""
    return x.reshape(x.size(0), x.size(1) * num_heads, x.size(2) // num_heads).transpose(0, 1)


def _merged(x: Tensor, like: Tensor) -> Tensor:
    """Return ``(B*H, T, d_h)`` as ``(T, B, d)``, the shape of ``like``."""
    return x.transpose(0, 1).reshape(like.shape)


def _scaled_product(a: Tensor, b: Tensor, scale: float) -> Tensor:
    if _OLD_TORCH:
        return torch.bmm(a, b).mul_(scale)
    return torch.baddbmm(a.new_empty(1, 1, 1), a, b, beta=0, alpha=scale)


def _where_positive_(grad: Tensor, weights: Tensor) -> None:
    """Set ``grad`` to 0, in place, where the weights are not above 0."""
    torch.ops.aten.threshold_backward.grad_input(grad, weights, 0, grad_input=grad)


def _autocast_off(x: Tensor) -> torch.autocast:
    """Return a context without autocast, which would compute the products of a backward pass in half precision."""
    return torch.autocast(x.device.type, enabled=False)


class _Whole(torch.autograd.Function):
    """Compute all scores at once, and save the weights for the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        padding: Optional[Tensor],
        attn_mask: Optional[Tensor],
        options: _Options,
    ) -> Tensor:
        queries, keys, values = (_heads(x, options.num_heads) for x in (q, k, v))
        weights = _scaled_product(queries, keys.transpose(1, 2), options.score_scale)
        if attn_mask is not None:
            weights.add_(attn_mask, alpha=options.kept_scale)
        if padding is not None:
            weights.view(q.size(1), options.num_heads, *weights.shape[1:]).add_(padding[:, None, None])
        weights.relu_()
        if options.threshold:
            weights.mul_(keep_mask(weights.shape, options.threshold))
        ctx.save_for_backward(q, k, v, weights)
        ctx.options = options
        return _merged(torch.bmm(weights, values), q)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        q, k, v, weights = ctx.saved_tensors
        options = ctx.options
        with _autocast_off(q):
            grad, queries, keys, values = (_heads(x, options.num_heads) for x in (grad, q, k, v))
            grad_v = _merged(torch.bmm(weights.transpose(1, 2), grad), v)
            grad_scores = torch.bmm(grad, values.transpose(1, 2))
            _where_positive_(grad_scores, weights)
            grad_q = _merged(_scaled_product(grad_scores, keys, options.score_scale), q)
            grad_k = _merged(_scaled_product(grad_scores.transpose(1, 2), queries, options.score_scale), k)
        return grad_q, grad_k, grad_v, None, None, None


class _Tiled(torch.autograd.Function):
    """Compute one tile of the scores at a time, in the backward pass again, and save no weights."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        padding: Optional[Tensor],
        attn_mask: Optional[Tensor],
        options: _Options,
    ) -> Tensor:
        queries, keys, values = (_heads(x, options.num_heads).contiguous() for x in (q, k, v))
        queries = queries * options.score_scale
        ctx.save_for_backward(q, k, v, padding, attn_mask)
        ctx.options = options
        ctx.tiling = tiling = _Tiling.of(queries, keys, options)
        context = torch.empty_like(queries)
        for heads, rows, weights in tiling.weights(queries, keys, padding, attn_mask, options):
            context[heads, rows] = torch.bmm(weights, values[heads])
        return _merged(context, q)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        q, k, v, padding, attn_mask = ctx.saved_tensors
        options = ctx.options
        with _autocast_off(q):
            grad, queries, keys, values = (_heads(x, options.num_heads).contiguous() for x in (grad, q, k, v))
            queries = queries * options.score_scale
            grad_q, grad_k, grad_v = torch.empty_like(queries), torch.zeros_like(keys), torch.zeros_like(values)
            buffer = ctx.tiling.buffer(keys)
            for heads, rows, weights in ctx.tiling.weights(queries, keys, padding, attn_mask, options):
                grad_v[heads].baddbmm_(weights.transpose(1, 2), grad[heads, rows])
                grad_scores = buffer[: weights.numel()].view(weights.shape)
                torch.bmm(grad[heads, rows], values[heads].transpose(1, 2), out=grad_scores)
                _where_positive_(grad_scores, weights)
                grad_q[heads, rows] = torch.bmm(grad_scores, keys[heads])
                grad_k[heads].baddbmm_(grad_scores.transpose(1, 2), queries[heads, rows])
        grad_q = _merged(grad_q.mul_(options.score_scale), q)
        return grad_q, _merged(grad_k, k), _merged(grad_v, v), None, None, None


class _Tiling(NamedTuple):
    """Size of the tiles and seed of dropout. Both passes use the same, and so draw the same dropout masks.

    Attributes:
        heads: heads in a tile, counted over all sentences (B * H in all).
        rows: rows (queries) in a tile.
        seed: seed of the dropout masks; None for no dropout.
    """

    heads: int
    rows: int
    seed: Optional[int]

    @classmethod
    def of(cls, queries: Tensor, keys: Tensor, options: _Options) -> "_Tiling":
        """Choose tiles with at least one head for each thread, and with all rows of a head if they fit.

        If threads shared a head, one operation would divide its rows among them and the next its columns, so that
        threads would read from each other's caches. That takes up to 1.6 times as long if the caches are far apart.
        """
        row_bytes = keys.size(1) * keys.element_size()
        rows = min(max(TILE // row_bytes, ROWS), queries.size(1))
        heads = min(max(TILE // (row_bytes * rows), 1) * torch.get_num_threads(), queries.size(0))
        return cls(heads, rows, int(torch.empty((), dtype=torch.int64).random_()) if options.threshold else None)

    def buffer(self, keys: Tensor) -> Tensor:
        """Return memory for one tile, to be used for all tiles; allocating takes longer than the arithmetic."""
        return keys.new_empty(self.heads * self.rows * keys.size(1))

    def weights(
        self,
        queries: Tensor,
        keys: Tensor,
        padding: Optional[Tensor],
        attn_mask: Optional[Tensor],
        options: _Options,
    ) -> Iterator[Tuple[slice, slice, Tensor]]:
        """Yield the heads, the rows and the weights after dropout of each tile.

        The queries are scaled already. All tiles use the same memory, so each tile overwrites the one before.
        """
        all_heads, length = queries.shape[:2]
        buffer = self.buffer(keys)
        generator = None if self.seed is None else torch.Generator().manual_seed(self.seed)
        for head in range(0, all_heads, self.heads):
            heads = slice(head, min(head + self.heads, all_heads))
            if padding is not None:
                sentences = torch.arange(heads.start, heads.stop) // options.num_heads
                padding_of_tile = padding[sentences, None]
            for row in range(0, length, self.rows):
                rows = slice(row, min(row + self.rows, length))
                part = queries[heads, rows]
                shape = (part.size(0), part.size(1), keys.size(1))
                weights = buffer[: torch.Size(shape).numel()].view(shape)
                torch.bmm(part, keys[heads].transpose(1, 2), out=weights)
                if attn_mask is not None:
                    weights.add_(attn_mask[rows], alpha=options.kept_scale)
                if padding is not None:
                    weights.add_(padding_of_tile)
                weights.relu_()
                if options.threshold:
                    weights.mul_(keep_mask(shape, options.threshold, generator))
                yield heads, rows, weights
