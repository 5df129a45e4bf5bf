import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split


def make_loaders(path, batch_size):
    points = torch.load(path, map_location="cpu")
    data = TensorDataset(points["x"], points["y"])
    held_out = len(data) // 10
    train_set, val_set = random_split(data, [len(data) - held_out, held_out])
    train_sampler = DistributedSampler(train_set, shuffle=True, drop_last=True)
    val_sampler = DistributedSampler(val_set, shuffle=False)
    train_loader = DataLoader(train_set, batch_size=batch_size, sampler=train_sampler)
    val_loader = DataLoader(val_set, batch_size=batch_size, sampler=val_sampler)
    return train_loader, val_loader
