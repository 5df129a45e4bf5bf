"""What `rules/catalog/own_losses.toml` says of losses, against the library, where it is installed."""

from __future__ import annotations

import pytest
import torch

from autodist import catalog
from autodist.solve.weights import LEFT_OUT

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
TEXT = {"vocab_size": 20, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
WORDS = ("words", "next_words")
MODELS = {
    "GPT2LMHeadModel": ("GPT2Config", {"n_embd": 16, "n_layer": 1, "n_head": 2}),
    "OpenAIGPTLMHeadModel": ("OpenAIGPTConfig", {"n_embd": 16, "n_layer": 1, "n_head": 2}),
    "LlamaForCausalLM": ("LlamaConfig", SMALL),
    "OPTForCausalLM": ("OPTConfig", {**SMALL, "ffn_dim": 16, "word_embed_proj_dim": 16}),
    "BertForMaskedLM": ("BertConfig", SMALL),
    "BertForTokenClassification": ("BertConfig", SMALL | {"num_labels": 20}),
    "T5ForConditionalGeneration": (
        "T5Config",
        {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "decoder_start_token_id": 0},
    ),
    "BartForConditionalGeneration": (
        "BartConfig",
        {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
        | {"decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16},
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_words(name: str) -> None:
    """Weighed by what the catalogue names, the losses of two halves of a batch give that of the whole."""
    transformers = pytest.importorskip("transformers")
    config, settings = MODELS[name]
    torch.manual_seed(0)
    model = getattr(transformers, name)(getattr(transformers, config)(**TEXT, **settings)).double().eval()
    ids = torch.randint(3, 20, (4, 6))
    labels = torch.where(torch.arange(6) < torch.tensor([[4], [3], [1], [0]]), -100, ids)

    def loss(rows: slice) -> torch.Tensor:
        found: torch.Tensor = model(input_ids=ids[rows], labels=labels[rows]).loss
        return found

    kind = catalog.load().own_loss(f"transformers.{name}")
    assert kind in WORDS
    counts = [eval(LEFT_OUT[kind].format(labels="part"), {"part": labels[rows]}) for rows in (slice(2), slice(2, 4))]
    assert counts[0] != counts[1]
    weighed = (loss(slice(2)) * counts[0] + loss(slice(2, 4)) * counts[1]) / sum(counts)
    torch.testing.assert_close(weighed, loss(slice(4)))


def test_pixels() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.SegformerConfig(
        num_labels=4, depths=[1, 1], hidden_sizes=[8, 8], num_encoder_blocks=2, decoder_hidden_size=8
    )
    assert config.semantic_loss_ignore_index == 255
    assert catalog.load().own_loss("transformers.SegformerForSemanticSegmentation") == "pixels"


def test_samples() -> None:
    """Nothing is said of models that compare one label for each sample, or as many patches of each."""
    known = catalog.load()
    assert not known.own_loss("transformers.BertForSequenceClassification")
    assert not known.own_loss("transformers.ViTMAEForPreTraining.from_pretrained")
    assert known.own_loss("transformers.AutoModelForCausalLM.from_config") == "next_words"
