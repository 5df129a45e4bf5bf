"""Losses that models of transformers take for themselves: over what, and what a rank's share is weighed by."""

from __future__ import annotations

from pathlib import Path

import pytest

from autodist.config import Config
from autodist.convert import convert
from autodist.project import Project
from autodist.result import Result

SCRIPT = """\
import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import {model}

from texts import Texts

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(Texts(), batch_size=8, shuffle=True)
model = {model}.from_pretrained("base"{settings})
{adapted}
model.to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for epoch in range(3):
    for batch in loader:
        batch = {{k: v.to(device) for k, v in batch.items()}}
        {step}
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(loss.item())
"""


def converted(folder: Path, model: str, step: str, settings: str = "", adapted: str = "") -> Result:
    path = folder / "train.py"
    path.write_text(SCRIPT.format(model=model, step=step, settings=settings, adapted=adapted))
    return convert(Project.load(path), Config())


@pytest.mark.parametrize(
    "model, count",
    [
        ("GPT2LMHeadModel", '(batch["labels"][..., 1:] != -100).sum()'),
        ("AutoModelForCausalLM", '(batch["labels"][..., 1:] != -100).sum()'),
        ("BertForTokenClassification", '(batch["labels"] != -100).sum()'),
        ("T5ForConditionalGeneration", '(batch["labels"] != -100).sum()'),
        ("VisionEncoderDecoderModel", '(batch["labels"] != -100).sum()'),
        ("SegformerForSemanticSegmentation", '(batch["labels"] != 255).sum()'),
    ],
)
@pytest.mark.parametrize("loss", ["model(**batch).loss", "model(**batch)[0]", 'model(**batch)["loss"]'])
def test_weighed_by_labels(tmp_path: Path, model: str, count: str, loss: str) -> None:
    result = converted(tmp_path, model, f"loss = {loss}")
    assert f"loss = weigh_by_count({loss}, {count})" in result.entry.after
    assert "AD602" not in [each.code for each in result.diagnostics if each.severity.name == "WARNING"]


def test_labels_of_their_own(tmp_path: Path) -> None:
    step = 'outputs = model(batch["x"], labels=batch["y"].to(device))\n        loss = outputs[0] / 2'
    after = converted(tmp_path, "BertForMaskedLM", step).entry.after
    assert 'loss = weigh_by_count(outputs[0], (batch["y"] != -100).sum()) / 2' in after


@pytest.mark.parametrize(
    "step",
    [
        "loss, logits = model(**batch)[:2]",
        "loss, logits = model(**batch, return_dict=False)",
        "loss, *rest = model(**batch, return_dict=False)",
    ],
)
def test_unpacked(tmp_path: Path, step: str) -> None:
    """The name is weighed that stands for the loss."""
    result = converted(tmp_path, "GPT2LMHeadModel", step)
    weighed = 'loss = weigh_by_count(loss, (batch["labels"][..., 1:] != -100).sum())'
    assert f"        {step}\n        {weighed}\n        loss.backward()" in result.entry.after
    assert "AD602" not in [each.code for each in result.diagnostics]


def test_unpacked_to_what_is_no_name(tmp_path: Path) -> None:
    step = "kept = {}\n        kept['loss'], out = model(**batch)[:2]\n        loss = kept['loss']"
    result = converted(tmp_path, "GPT2LMHeadModel", step)
    assert "AD602" in [each.code for each in result.diagnostics]


@pytest.mark.parametrize(
    "model", ["BertForSequenceClassification", "ViTForImageClassification", "ViTMAEForPreTraining"]
)
def test_means_over_samples(tmp_path: Path, model: str) -> None:
    result = converted(tmp_path, model, "loss = model(**batch).loss")
    assert "weigh_by_count" not in result.entry.after
    assert not [each.message for each in result.diagnostics if each.severity.name != "NOTE"]


@pytest.mark.parametrize(
    "model, settings, said",
    [
        ("Wav2Vec2ForCTC", "", "is a sum over the samples"),
        ("Wav2Vec2ForCTC", ', ctc_loss_reduction="mean"', ""),
        ("DetrForObjectDetection", "", "or over the objects in them"),
        ("LlavaForConditionalGeneration", "", "over what its labels do not leave out"),
        ("CLIPModel", "", "compares each sample with all others of the batch"),
    ],
)
def test_warned_of(tmp_path: Path, model: str, settings: str, said: str) -> None:
    result = converted(tmp_path, model, "loss = model(**batch).loss", settings)
    told = [each.message for each in result.diagnostics if each.severity.name == "WARNING"]
    assert len(told) == bool(said) and all(said in each for each in told)


@pytest.mark.parametrize("settings", [", semantic_loss_ignore_index=0", ", num_labels=1"])
def test_pixels_that_the_script_chooses(tmp_path: Path, settings: str) -> None:
    """Of one class alone the loss is a mean over all pixels."""
    result = converted(tmp_path, "SegformerForSemanticSegmentation", "loss = model(**batch).loss", settings)
    assert "weigh_by_count" not in result.entry.after
    assert any("labels do not leave out" in each.message for each in result.diagnostics)


def test_pairs_of_a_model(tmp_path: Path) -> None:
    step = "loss = torch.nn.functional.cross_entropy(model(**batch).logits_per_image, torch.arange(8))"
    result = converted(tmp_path, "CLIPModel", step)
    assert any(each.code == "AD906" for each in result.diagnostics)


def test_adapted(tmp_path: Path) -> None:
    adapted = (
        'model = get_peft_model(model, LoraConfig(r=4, target_modules=["query"]))\nmodel.print_trainable_parameters()'
    )
    after = converted(tmp_path, "BertForTokenClassification", "loss = model(**batch).loss", adapted=adapted).entry.after
    assert 'weigh_by_count(model(**batch).loss, (batch["labels"] != -100).sum())' in after
    assert after.index("get_peft_model(model") < after.index("DDP(model")


DETECTION = """\
import torch
from torch.utils.data import DataLoader
from torchvision.models.detection import {model}

from boxes import Boxes

loader = DataLoader(Boxes(), batch_size=2, shuffle=True, collate_fn=lambda batch: tuple(zip(*batch)))
model = {model}(weights=None)
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.005)
for epoch in range(3):
    model.train()
    for images, targets in loader:
        loss_dict = model(images, targets)
        {step}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())
"""


@pytest.mark.parametrize("model, warned", [("fasterrcnn_resnet50_fpn", True), ("retinanet_resnet50_fpn", False)])
@pytest.mark.parametrize(
    "step",
    [
        "loss = sum(each for each in loss_dict.values())",
        "loss = sum(loss_dict.values())",
        'loss = loss_dict["classification"] + loss_dict["bbox_regression"]',
    ],
)
def test_detectors_hand_out_means(tmp_path: Path, model: str, warned: bool, step: str) -> None:
    """They were taken for sums over samples, and multiplied by the number of ranks."""
    path = tmp_path / "train.py"
    path.write_text(DETECTION.format(model=model, step=step))
    result = convert(Project.load(path), Config())
    assert "\n        loss.backward()" in result.entry.after
    assert "print(reduce_mean(loss.item()))" in result.entry.after
    told = [each.message for each in result.diagnostics if each.code == "AD602"]
    assert len(told) == warned and all(each.startswith(f"the loss of {model} is a mean over") for each in told)


def test_other_modules_of_detection_compute_no_losses(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    imports = "from torchvision.models.detection.anchor_utils import AnchorGenerator"
    text = DETECTION.format(model="retinanet_resnet50_fpn", step="anchors = anchor_maker(images, targets)")
    text = text.replace("from boxes", f"{imports}\nfrom boxes").replace(
        "loss.backward()", "sum(loss_dict.values()).backward()"
    )
    path.write_text(
        text.replace("for epoch", "anchor_maker = AnchorGenerator()\nfor epoch").replace("loss.item()", "anchors")
    )
    after = convert(Project.load(path), Config()).entry.after
    assert "print(reduce_mean(anchors))" not in after
    assert "sum(loss_dict.values()).backward()" in after


PIPELINE = """\
import torch
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel
from ema_pytorch import EMA
from torch.utils.data import DataLoader

from pictures import Pictures

loader = DataLoader(Pictures(), batch_size=16, shuffle=True)
model = UNet2DModel(sample_size=32)
ema = EMA(model, beta=0.99)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for epoch in range(3):
    for x, t in loader:
        loss = (model(x, t).sample - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update()
    pipeline = DDPMPipeline(unet=model, scheduler=DDPMScheduler())
    images = pipeline(batch_size=4).images
    images[0].save(f"{epoch:04d}.png")
    pipeline.save_pretrained("out")
"""


def test_what_is_given_the_model_itself(tmp_path: Path) -> None:
    """A pipeline asks the model for its settings; the pictures that it makes are files."""
    path = tmp_path / "train.py"
    path.write_text(PIPELINE)
    after = convert(Project.load(path), Config()).entry.after
    assert "EMA(model.module, beta=0.99)" in after
    assert "DDPMPipeline(unet=model.module, scheduler=DDPMScheduler())" in after
    assert (
        'if dist.get_rank() == 0:\n        images[0].save(f"{epoch:04d}.png")\n        pipeline.save_pretrained'
        in after
    )
