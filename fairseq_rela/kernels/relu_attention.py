r"""Rectified linear attention with its gradient written out, for CPUs: it keeps one tensor of the scores' size.

With :math:`S = Q K^T / \sqrt{d_h}`, a dropout mask :math:`M` whose kept entries are :math:`1 / (1 - p)` and
:math:`A = M \odot \max(S, 0)`, the context is :math:`Z = A V` and, for the gradient :math:`\bar Z` of :math:`Z`,

.. math::
    \bar V = A^T \bar Z, \quad \bar S = \frac{[A > 0]}{1 - p} \odot \bar Z V^T, \quad
    \bar Q = \bar S K / \sqrt{d_h}, \quad \bar K = \bar S^T Q / \sqrt{d_h}

since :math:`A > 0` exactly where a weight is neither rectified nor dropped: A alone, after dropout, is kept for the
gradient, where autograd keeps the weights, the mask and their product. At a score of exactly 0 the gradient is 0.

Rectifying needs no sum over a row, so that the rows can be cut into tiles. From :data:`TILED_FROM` keys on the scores
are computed a tile at a time, in the backward pass once again, and not kept, unless they are few bytes in all.
"""

from typing import Any, Iterator, NamedTuple, Optional, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

TILED_FROM = 512  # keys; with fewer, computing the scores twice takes longer than fetching them from memory
CACHED = 32 * 2**20  # bytes; fewer of scores stay in the caches, and are computed once
TILE = 2 * 2**20  # bytes a thread, about; large since each operation starts and ends all threads
ROWS = 256  # of a tile at least, for each tile reads all keys

# torch 1.12 multiplies what was in the memory of a small result by beta = 0, and NaN stays NaN
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
    r""":math:`concat_h(dropout(\max(scale\, Q_h K_h^T + mask, 0))\, V_h)`, differentiable once.

    The mask of dropout comes from torch's global generator. It is not the one that ``F.dropout`` would draw: that
    costs as much as the attention itself. A probability is rounded to a multiple of 1/65536, and the weights are
    scaled by the exact one, so that their mean is right.

    Args:
        q: projected queries, ``(T, B, d)``, float32 or float64, not scaled yet.
        k, v: projected keys and values, ``(S, B, d)``.
        scale: of the scores, :math:`1 / \sqrt{d_h}`.
        num_heads: H.
        key_padding_mask: ``(B, S)``, true at padding.
        attn_mask: ``(T, S)``, added to the scores; it gets no gradient.
        dropout: probability of dropping a weight, 0 in evaluation.

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
    """The same for one position of each hypothesis in decoding, differentiable by autograd; no dropout.

    The hypotheses of a sentence stand next to each other, and where they share its keys one product serves them all.

    Args:
        queries: projected and scaled, ``(1, B, d)``.
        keys, values: ``(B', H, S, d_h)``, of sentences with B / B' hypotheses each.
        padding: ``(B', S)``, true at padding.

    Returns:
        the context, ``(1, B, d)``, and the weights, ``(B' H, B / B', S)``.
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
    """
    Attributes:
        num_heads: H.
        scale: of the scores.
        threshold: random numbers of 16 bits below it drop a weight; 0 for no dropout.
    """

    num_heads: int
    scale: float
    threshold: int

    @property
    def kept_scale(self) -> float:
        """What kept weights are multiplied by."""
        return 65536 / (65536 - self.threshold)

    @property
    def score_scale(self) -> float:
        """relu(c x) = c relu(x) for c > 0, so that what dropout scales by costs no pass of its own."""
        return self.scale * self.kept_scale


def keep_mask(shape: Tuple[int, ...], threshold: int, generator: Optional[torch.Generator] = None) -> Tensor:
    """Booleans, false with a probability of threshold / 65536: four for each number of 64 bits that is drawn."""
    count = torch.Size(shape).numel()
    drawn = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None, generator=generator)
    return (drawn.view(torch.int16)[:count] >= threshold - 32768).view(shape)


def _heads(x: Tensor, num_heads: int) -> Tensor:
    """``(T, B, d)`` to ``(B*H, T, d_h)``, a view."""
    return x.reshape(x.size(0), x.size(1) * num_heads, x.size(2) // num_heads).transpose(0, 1)


def _merged(x: Tensor, like: Tensor) -> Tensor:
    """``(B*H, T, d_h)`` to ``(T, B, d)``."""
    return x.transpose(0, 1).reshape(like.shape)


def _scaled_product(a: Tensor, b: Tensor, scale: float) -> Tensor:
    if _OLD_TORCH:
        return torch.bmm(a, b).mul_(scale)
    return torch.baddbmm(a.new_empty(1, 1, 1), a, b, beta=0, alpha=scale)


def _where_positive_(grad: Tensor, weights: Tensor) -> None:
    """``grad`` where the weights are above 0, else 0, in place."""
    torch.ops.aten.threshold_backward.grad_input(grad, weights, 0, grad_input=grad)


def _autocast_off(x: Tensor) -> torch.autocast:
    """A backward pass may run under autocast, which would put the products in half precision."""
    return torch.autocast(x.device.type, enabled=False)


class _Whole(torch.autograd.Function):
    """All scores at once."""

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
    """A tile of the scores at a time, kept by neither pass."""

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
    """What the backward pass does as the forward pass did, for it draws the same masks of dropout again.

    Attributes:
        heads, rows: of a tile; the heads are those of all sentences.
        seed: of the masks of dropout, None for none.
    """

    heads: int
    rows: int
    seed: Optional[int]

    @classmethod
    def of(cls, queries: Tensor, keys: Tensor, options: _Options) -> "_Tiling":
        """For each thread one head or more, whole ones where they fit.

        Threads that share a head split its rows in one operation and its columns in the next, and each waits for
        what the other has in its cache: up to 1.6 times as long, where caches are far apart.
        """
        row_bytes = keys.size(1) * keys.element_size()
        rows = min(max(TILE // row_bytes, ROWS), queries.size(1))
        heads = min(max(TILE // (row_bytes * rows), 1) * torch.get_num_threads(), queries.size(0))
        return cls(heads, rows, int(torch.empty((), dtype=torch.int64).random_()) if options.threshold else None)

    def buffer(self, keys: Tensor) -> Tensor:
        """Memory for one tile, used over and over: fresh memory costs more than the arithmetic."""
        return keys.new_empty(self.heads * self.rows * keys.size(1))

    def weights(
        self,
        queries: Tensor,
        keys: Tensor,
        padding: Optional[Tensor],
        attn_mask: Optional[Tensor],
        options: _Options,
    ) -> Iterator[Tuple[slice, slice, Tensor]]:
        """Heads, rows and their weights after dropout, of scaled queries; each tile overwrites the one before."""
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
