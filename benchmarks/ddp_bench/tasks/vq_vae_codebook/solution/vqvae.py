import torch
import torch.distributed
import torch.nn.functional as F
from torch import nn


class Quantize(nn.Module):
    """A codebook that follows the vectors assigned to it by exponential moving averages."""

    def __init__(self, dim, n_embed, decay=0.9, eps=1e-5):
        super().__init__()
        self.dim, self.n_embed, self.decay, self.eps = dim, n_embed, decay, eps
        embed = torch.randn(dim, n_embed)
        self.register_buffer("embed", embed)
        self.register_buffer("cluster_size", torch.zeros(n_embed))
        self.register_buffer("embed_avg", embed.clone())

    def forward(self, input):
        flatten = input.reshape(-1, self.dim)
        dist = flatten.pow(2).sum(1, keepdim=True) - 2 * flatten @ self.embed + self.embed.pow(2).sum(0, keepdim=True)
        embed_ind = (-dist).max(1).indices
        embed_onehot = F.one_hot(embed_ind, self.n_embed).type(flatten.dtype)
        quantize = F.embedding(embed_ind.view(*input.shape[:-1]), self.embed.t())
        if self.training:
            embed_onehot_sum = embed_onehot.sum(0)
            embed_sum = flatten.detach().t() @ embed_onehot
            torch.distributed.all_reduce(embed_onehot_sum)
            torch.distributed.all_reduce(embed_sum)
            self.cluster_size.mul_(self.decay).add_(embed_onehot_sum, alpha=1 - self.decay)
            self.embed_avg.mul_(self.decay).add_(embed_sum, alpha=1 - self.decay)
            n = self.cluster_size.sum()
            cluster_size = (self.cluster_size + self.eps) / (n + self.n_embed * self.eps) * n
            self.embed.copy_(self.embed_avg / cluster_size.unsqueeze(0))
        diff = (quantize.detach() - input).pow(2).mean()
        quantize = input + (quantize - input).detach()
        return quantize, diff, embed_ind


class VQVAE(nn.Module):
    def __init__(self, dim=4, n_embed=16):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(1, 8, 4, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, dim, 3, padding=1))
        self.quantize = Quantize(dim, n_embed)
        self.dec = nn.Sequential(nn.Conv2d(dim, 8, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, stride=2, padding=1))

    def forward(self, x):
        z = self.enc(x).permute(0, 2, 3, 1)
        quant, diff, ids = self.quantize(z)
        return self.dec(quant.permute(0, 3, 1, 2)), diff, ids
