from dataclasses import dataclass

import torch


@dataclass
class Graph:
    x: torch.Tensor
    edge_index: torch.Tensor
    y: torch.Tensor


@dataclass
class Batch:
    """Several graphs as one: nodes one after the other, edges shifted, and to which graph a node belongs."""

    x: torch.Tensor
    edge_index: torch.Tensor
    batch: torch.Tensor
    y: torch.Tensor
    num_graphs: int

    def to(self, device):
        return Batch(self.x.to(device), self.edge_index.to(device), self.batch.to(device), self.y.to(device), self.num_graphs)


def collate_graphs(graphs):
    edges, owner, offset = [], [], 0
    for number, graph in enumerate(graphs):
        edges.append(graph.edge_index + offset)
        owner.append(torch.full((len(graph.x),), number))
        offset += len(graph.x)
    return Batch(
        torch.cat([g.x for g in graphs]),
        torch.cat(edges, dim=1),
        torch.cat(owner),
        torch.stack([g.y for g in graphs]),
        len(graphs),
    )


class Molecules(torch.utils.data.Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.graphs = []
        for _ in range(n):
            nodes = int(torch.randint(3, 9, (1,), generator=g))
            kind = torch.randint(0, 4, (nodes,), generator=g)
            chain = torch.arange(nodes - 1)
            extra = torch.randint(0, nodes, (2, 2), generator=g)
            edge = torch.cat([torch.stack([chain, chain + 1]), extra], 1)
            edge = torch.cat([edge, edge.flip(0)], 1)
            energy = kind.to(torch.get_default_dtype()).mean() - 0.5 * (kind[edge[0]] == kind[edge[1]]).to(torch.get_default_dtype()).mean()
            self.graphs.append(Graph(torch.nn.functional.one_hot(kind, 4).to(torch.get_default_dtype()), edge, energy))

    def __len__(self):
        return len(self.graphs)

    def __getitem__(self, i):
        return self.graphs[i]
