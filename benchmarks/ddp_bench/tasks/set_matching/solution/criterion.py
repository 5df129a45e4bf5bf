import itertools

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

CLASSES, QUERIES = 3, 4


def mean_over_ranks(value):
    """DDP averages gradients, so that a sum over all ranks is divided by what one rank has on average."""
    dist.all_reduce(value)
    return value / dist.get_world_size()


class HungarianMatcher(nn.Module):
    """The cheapest assignment of queries to objects; so few that all are tried."""

    def __init__(self, cost_class=1.0, cost_box=2.0):
        super().__init__()
        self.cost_class, self.cost_box = cost_class, cost_box

    @torch.no_grad()
    def forward(self, outputs, targets):
        indices = []
        for logits, boxes, target in zip(outputs["logits"], outputs["boxes"], targets):
            cost = -self.cost_class * logits.softmax(-1)[:, target["labels"]] + self.cost_box * torch.cdist(boxes, target["boxes"], p=1)
            n = len(target["labels"])
            best = min(itertools.permutations(range(QUERIES), n), key=lambda order: sum(cost[q, o].item() for o, q in enumerate(order)))
            indices.append((torch.tensor(best, dtype=torch.long), torch.arange(n)))
        return indices


class SetCriterion(nn.Module):
    def __init__(self, matcher, weights, eos_coef=0.2):
        super().__init__()
        self.matcher, self.weights = matcher, weights
        empty_weight = torch.ones(CLASSES + 1)
        empty_weight[-1] = eos_coef
        self.register_buffer("empty_weight", empty_weight)

    def loss_labels(self, outputs, targets, indices, num_boxes):
        target_classes = torch.full(outputs["logits"].shape[:2], CLASSES, device=outputs["logits"].device)
        for row, (target, (queries, objects)) in enumerate(zip(targets, indices)):
            target_classes[row, queries] = target["labels"][objects]
        loss = F.cross_entropy(outputs["logits"].transpose(1, 2), target_classes, self.empty_weight, reduction="sum")
        loss = loss / mean_over_ranks(self.empty_weight[target_classes].sum())  # the weights of the whole batch
        return {"loss_ce": loss}

    def loss_boxes(self, outputs, targets, indices, num_boxes):
        source = torch.cat([boxes[q] for boxes, (q, _) in zip(outputs["boxes"], indices)])
        target = torch.cat([t["boxes"][o] for t, (_, o) in zip(targets, indices)])
        return {"loss_bbox": F.l1_loss(source, target, reduction="none").sum() / num_boxes}

    def loss_cardinality(self, outputs, targets, indices, num_boxes):
        lengths = torch.tensor([len(t["labels"]) for t in targets], device=outputs["logits"].device)
        predicted = (outputs["logits"].argmax(-1) != CLASSES).sum(1)
        return {"cardinality_error": (predicted - lengths).abs().to(outputs["logits"]).mean().detach()}

    def forward(self, outputs, targets):
        indices = self.matcher(outputs, targets)
        boxes = sum(len(t["labels"]) for t in targets)
        num_boxes = mean_over_ranks(torch.tensor(float(boxes), device=self.empty_weight.device))
        losses = {}
        for loss in (self.loss_labels, self.loss_boxes, self.loss_cardinality):
            losses.update(loss(outputs, targets, indices, num_boxes))
        return losses
