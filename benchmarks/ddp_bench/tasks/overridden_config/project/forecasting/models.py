import torch
from torch import nn


class CausalConv(nn.Module):
    def __init__(self, inputs, outputs, dilation):
        super().__init__()
        self.pad = nn.ConstantPad1d((2 * dilation, 0), 0.0)
        self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(inputs, outputs, 3, dilation=dilation))

    def forward(self, x):
        return torch.relu(self.conv(self.pad(x)))


class TCN(nn.Module):
    def __init__(self, width, horizon, quantiles=3):
        super().__init__()
        self.body = nn.Sequential(CausalConv(1, width, 1), CausalConv(width, width, 2))
        self.head = nn.Linear(width, horizon * quantiles)
        self.shape = (horizon, quantiles)

    def forward(self, past):
        return self.head(self.body(past)[..., -1]).unflatten(1, self.shape)


class QuantileLoss(nn.Module):
    def __init__(self, quantiles=(0.1, 0.5, 0.9)):
        super().__init__()
        self.register_buffer("q", torch.tensor(quantiles))

    def forward(self, prediction, target):
        error = target.unsqueeze(-1) - prediction
        return torch.maximum(self.q * error, (self.q - 1) * error).mean()
