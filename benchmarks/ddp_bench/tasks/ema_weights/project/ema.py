import copy

import torch


class ModelEma:
    def __init__(self, model, decay=0.9):
        self.ema = copy.deepcopy(model).eval()
        self.decay = decay
        for p in self.ema.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for e, p in zip(self.ema.state_dict().values(), model.state_dict().values()):
            if e.is_floating_point():
                e.mul_(self.decay).add_(p, alpha=1 - self.decay)
