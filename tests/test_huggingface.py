"""The example for Hugging Face's transformers: masks, shared heads, generation, and loading a softmax model."""

import sys
from copy import deepcopy

import pytest
import torch
from conftest import ROOT

transformers = pytest.importorskip(
    "transformers", minversion="5.24", reason="pip install -r requirements-huggingface.txt"
)
sys.path.insert(0, str(ROOT / "examples" / "huggingface"))

import rela_llama  # noqa: E402
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM  # noqa: E402
from transformers.models.llama import modeling_llama  # noqa: E402

from fairseq_rela.norms import GatedRMSNorm  # noqa: E402

SIZES = dict(vocab_size=20, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
# two sentences, the first with padding at the beginning, the second with padding at the end
TOKENS = torch.arange(3, 15).view(2, 6)
SEEN = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0]])


def make(shared=2, **options):
    """Return a random model in float64 with ``shared`` query heads for each head of keys and values."""
    torch.manual_seed(1)
    return rela_llama.RelaLlama(LlamaConfig(num_key_value_heads=4 // shared, **SIZES, **options)).double().eval()


def reference(model, monkeypatch):
    """Return Llama with its own eager attention, where ReLU replaces softmax and a hook computes the norm."""
    eager = LlamaForCausalLM._from_config(deepcopy(model.config), attn_implementation="eager").double().eval()
    eager.load_state_dict(model.state_dict(), strict=False)
    monkeypatch.setattr(modeling_llama.nn.functional, "softmax", lambda scores, dim, dtype: torch.relu(scores))
    for layer, ours in zip(eager.model.layers, model.model.layers):
        gain, gate = ours.self_attn.attn_norm.weight, ours.self_attn.attn_norm.gate

        def norm(module, arguments, gain=gain, gate=gate):
            (z,) = arguments
            return gain * torch.sigmoid(gate * z) * z / (z.square().mean(-1, keepdim=True) + 1e-8).sqrt()

        layer.self_attn.o_proj.register_forward_pre_hook(norm)
    return eager


@pytest.mark.parametrize("shared", [1, 2, 4])
@pytest.mark.parametrize("seen", [None, SEEN])
def test_logits_and_gradients_equal_those_of_transformers_own_attention_with_relu(shared, seen, monkeypatch):
    model = make(shared)
    expected = reference(model, monkeypatch)
    real = torch.ones_like(TOKENS) if seen is None else seen
    gradients = []
    for one in (model, expected):
        logits = one(TOKENS, attention_mask=seen).logits[real.bool()]
        logits.square().mean().backward()
        gradients.append([logits, *(layer.self_attn.v_proj.weight.grad for layer in one.model.layers)])
    for got, right in zip(*gradients):
        torch.testing.assert_close(got, right)
    assert all(parameter.grad.abs().max() > 0 for parameter in model.parameters())


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_sentences_of_a_padded_batch_continue_as_they_do_alone(cache):
    """Each step of generation sees the keys in the cache, and not the padding."""
    model = make()
    options = dict(max_new_tokens=5, do_sample=False, pad_token_id=0, eos_token_id=None, cache_implementation=cache)
    seen = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]])
    together = model.generate(TOKENS, attention_mask=seen, **options)[:, 6:]
    for row, first in ((0, 2), (1, 0)):
        tokens = TOKENS[row : row + 1, first:]
        alone = model.generate(tokens, attention_mask=torch.ones_like(tokens), **options)[0, -5:]
        assert together[row].tolist() == alone.tolist()
        for _ in range(5):  # without a cache
            following = model(tokens, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, following], dim=1)
        assert tokens[0, -5:].tolist() == alone.tolist()


def test_a_saved_model_loads_and_a_softmax_model_gets_start_values(tmp_path):
    model = make().float()
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.attn_norm.weight.uniform_(1, 2)
    model.save_pretrained(tmp_path / "rela")
    loaded = rela_llama.RelaLlama.from_pretrained(tmp_path / "rela").eval()
    assert torch.equal(loaded(TOKENS).logits, model(TOKENS).logits)
    softmax = LlamaForCausalLM(LlamaConfig(num_key_value_heads=2, **SIZES))
    softmax.save_pretrained(tmp_path / "softmax")
    started = rela_llama.RelaLlama.from_pretrained(tmp_path / "softmax", attn_implementation="sdpa")
    assert started.config._attn_implementation == "rela"
    for layer, right in zip(started.model.layers, softmax.model.layers):
        norm = layer.self_attn.attn_norm
        assert torch.equal(layer.self_attn.q_proj.weight, right.self_attn.q_proj.weight)
        assert (norm.weight == 1).all() and 0 < norm.gate.abs().max() <= (3 / 32) ** 0.5 and norm.gate.std() > 0.1


def test_dropout_is_for_training_only():
    model = make(attention_dropout=0.5)
    assert torch.equal(model(TOKENS).logits, model(TOKENS).logits)
    model.train()
    assert not torch.equal(model(TOKENS).logits, model(TOKENS).logits)


def test_an_encoder_sees_the_future_and_not_the_padding():
    """Any model of transformers takes the attention, once its attention modules have a norm."""
    torch.manual_seed(1)
    config = BertConfig(**SIZES, attn_implementation="rela")
    model = BertModel(config, add_pooling_layer=False).eval()
    for layer in model.encoder.layer:
        layer.attention.self.attn_norm = GatedRMSNorm(32)
    padded = model(TOKENS, attention_mask=SEEN).last_hidden_state
    torch.testing.assert_close(padded[1:, :5], model(TOKENS[1:, :5]).last_hidden_state)
    other = TOKENS.clone()
    other[1, 4] = 3
    changed = model(other, attention_mask=SEEN).last_hidden_state
    assert (changed[1, 0] - padded[1, 0]).abs().max() > 1e-4 and torch.equal(changed[0], padded[0])


def test_the_example_learns_to_repeat(capsys):
    rela_llama.main()
    said = capsys.readouterr().out.splitlines()
    assert said[-1].split()[1:] == said[-2].split()[1:]
