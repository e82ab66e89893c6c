"""Captured weights and what is counted in them, against loops."""

import pytest
import torch
from conftest import make_model, make_task
from fairseq.models import build_model
from hypothesis import given, settings
from hypothesis import strategies as st
from test_models import random_batch

from fairseq_rela.analysis.capture import recorded_weights
from fairseq_rela.analysis.sparsity import count_sparsity
from fairseq_rela.models.transformer_rela import attention_modules
from fairseq_rela.variants import VARIANTS


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_counts_against_loops(seed):
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(3, 2, 4, 5, generator=generator)
    weights[torch.rand(weights.shape, generator=generator) < 0.6] = 0
    allowed = torch.rand(3, 4, 5, generator=generator) < 0.7
    cells = queries = 0
    zeros, nulls = [0, 0], [0, 0]
    for b in range(3):
        for t in range(4):
            keys = [s for s in range(5) if allowed[b, t, s]]
            cells += len(keys)
            queries += bool(keys)
            for h in range(2):
                zeros[h] += sum(float(weights[b, h, t, s]) == 0 for s in keys)
                nulls[h] += bool(keys) and all(float(weights[b, h, t, s]) == 0 for s in keys)
    counts = count_sparsity(weights, allowed)
    assert (counts.cells, counts.queries) == (cells, queries)
    assert counts.zeros.tolist() == zeros and counts.nulls.tolist() == nulls
    total = counts + counts
    assert total.sparsity == counts.sparsity == pytest.approx(sum(zeros) / 2 / cells)
    assert total.null_rate == pytest.approx(sum(nulls) / 2 / queries)


def test_a_dense_causal_matrix_is_not_sparse():
    """B15: the future is no zero, nor is padding."""
    allowed = torch.ones(1, 6, 6, dtype=torch.bool).tril()
    weights = torch.softmax(torch.zeros(1, 2, 6, 6).masked_fill(~allowed, -torch.inf), -1)
    counts = count_sparsity(weights, allowed)
    assert counts.cells == 21 and counts.sparsity == 0 and counts.null_rate == 0
    assert float((weights == 0).float().mean()) > 0.4


def test_half_precision_and_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match="float32"):
        count_sparsity(torch.zeros(1, 2, 3, 4).half(), torch.ones(1, 3, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"\(B, H, T, S\)"):
        count_sparsity(torch.zeros(2, 3, 4), torch.ones(2, 3, 4, dtype=torch.bool))  # averaged heads, B50


def captured(model, source, lengths, target):
    sites = attention_modules(model)
    with torch.no_grad(), recorded_weights(sites) as weights:
        output = model(source, lengths, target)[0]
    return weights, output


@pytest.mark.parametrize("name", VARIANTS)
def test_all_heads_of_all_sites_and_the_same_output(name):
    """B11, B50: every layer and head, and recording changes nothing; also for softmax."""
    model = make_model(name)
    source, lengths, target = random_batch()
    with torch.no_grad():
        want = model(source, lengths, target)[0]
    weights, output = captured(model, source, lengths, target)
    torch.testing.assert_close(output, want, atol=1e-5, rtol=1e-5)
    assert len(weights) == 6
    for key, w in weights.items():
        keys = 6 if "decoder" in key and "self" in key else 7
        queries = 7 if key.startswith("encoder") else 6
        assert w.shape == (3, 4, queries, keys) and w.dtype in (torch.float32, torch.float64)
        if name in ("softmax", "sparsemax", "entmax15"):
            torch.testing.assert_close(w.sum(-1), torch.ones_like(w.sum(-1)))
    # nothing of the recording is left behind
    assert not any("forward" in vars(m) for ms in attention_modules(model).values() for m in ms.values())
    assert all(m.skip_embed_dim_check == (name != "softmax") for m in attention_modules(model)["cross"].values())


def test_fairseqs_own_transformer_can_be_looked_into():
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    parser = options.get_training_parser()
    flags = ["data", "--arch", "transformer_tiny"]
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, flags))
    model = build_model(cfg.model, make_task()).eval()
    weights, _ = captured(model, *random_batch())
    assert all(w.dim() == 4 and w.shape[1] == 2 for w in weights.values()) and len(weights) == 6


def test_sparsity_does_not_depend_on_padding_or_batches():
    model = make_model("rela_g")
    source, lengths, target = random_batch()

    def cross(source, lengths, target):
        weights, _ = captured(model, source, lengths, target)
        pad = 1
        allowed = (target != pad)[:, :, None] & (source != pad)[:, None, :]
        return count_sparsity(weights["decoder.layers.1.encoder_attn"], allowed)

    together = cross(source, lengths, target)
    alone = None
    for i, (n, m) in enumerate(((7, 6), (5, 4), (3, 5))):
        one = cross(source[i : i + 1, -n:], lengths[i : i + 1], target[i : i + 1, :m])
        alone = one if alone is None else alone + one
    assert together.cells == alone.cells and together.queries == alone.queries
    assert torch.equal(together.zeros, alone.zeros) and torch.equal(together.nulls, alone.nulls)
    assert 0 < together.sparsity < 1


def test_a_module_that_does_not_run_is_noticed():
    model = make_model("rela_g")
    source, lengths, _ = random_batch()
    with pytest.raises(RuntimeError, match="did not run"), recorded_weights(attention_modules(model)):
        model.encoder(source, lengths)
