import torch
import torch.nn as nn
import torch.nn.functional as F


class MoE(nn.Module):
    """Each token goes to its best experts; `aux` is the loss that keeps them evenly used."""

    def __init__(self, dim, experts=4, top_k=2):
        super().__init__()
        self.top_k, self.n = top_k, experts
        self.router = nn.Linear(dim, experts, bias=False)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim)) for _ in range(experts))
        self.register_buffer("usage", torch.zeros(experts))
        self.aux = None

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        probabilities = self.router(flat).softmax(-1)
        weight, chosen = probabilities.topk(self.top_k, dim=-1)
        weight = weight / weight.sum(-1, keepdim=True)
        out = torch.zeros_like(flat)
        for k, expert in enumerate(self.experts):
            token, slot = (chosen == k).nonzero(as_tuple=True)
            out = out.index_add(0, token, weight[token, slot].unsqueeze(1) * expert(flat[token]))
        fraction = F.one_hot(chosen, self.n).to(flat).sum(1).mean(0)
        self.aux = self.n * (fraction * probabilities.mean(0)).sum()
        if self.training:
            self.usage.mul_(0.9).add_(0.1 * fraction)
        return out.view_as(x)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.moe = MoE(dim)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unsqueeze(1).chunk(3, dim=-1)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).squeeze(1))
        return x + self.moe(self.norm2(x))


class Model(nn.Module):
    def __init__(self, vocab=16, dim=16, layers=2, length=12):
        super().__init__()
        self.embed, self.position = nn.Embedding(vocab, dim), nn.Parameter(0.02 * torch.randn(length, dim))
        self.layers = nn.ModuleList(Block(dim) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(dim), nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens, targets):
        x = self.embed(tokens) + self.position[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        loss = F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())
        return loss, sum(layer.moe.aux for layer in self.layers)
