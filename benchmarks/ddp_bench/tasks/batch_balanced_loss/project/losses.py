import torch
import torch.nn.functional as F


def balanced_hard_loss(logits, target, ratio=0.5):
    """Cross entropy, weighted against the frequency of classes in the batch, over the hardest half of it."""
    counts = torch.bincount(target, minlength=logits.size(1)).clamp(min=1)
    weights = counts.sum() / counts
    per_sample = F.cross_entropy(logits, target, reduction="none") * weights[target]
    hardest, _ = per_sample.topk(int(ratio * len(per_sample)))
    return hardest.mean()
