import functools
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(64, 512)
        self.down = nn.Linear(512, 10)

    def forward(self, x):
        return self.down(F.relu(self.up(x)))


def train(model, rank, loader, optimizer, epoch, sampler):
    model.train()
    ddp_loss = torch.zeros(2).to(rank)
    sampler.set_epoch(epoch)
    for data, target in loader:
        data, target = data.to(rank), target.to(rank)
        optimizer.zero_grad()
        output = model(data)
        loss = F.cross_entropy(output, target, reduction="sum")
        loss.backward()
        optimizer.step()
        ddp_loss[0] += loss.item()
        ddp_loss[1] += len(data)
    dist.all_reduce(ddp_loss, op=dist.ReduceOp.SUM)
    if rank == 0:
        print(f"Train Epoch: {epoch} \tLoss: {ddp_loss[0] / ddp_loss[1]:.6f}")


def test(model, rank, loader):
    model.eval()
    ddp_loss = torch.zeros(3).to(rank)
    with torch.no_grad():
        for data, target in loader:
            data, target = data.to(rank), target.to(rank)
            output = model(data)
            ddp_loss[0] += F.cross_entropy(output, target, reduction="sum").item()
            pred = output.argmax(dim=1, keepdim=True)
            ddp_loss[1] += pred.eq(target.view_as(pred)).sum().item()
            ddp_loss[2] += len(data)
    dist.all_reduce(ddp_loss, op=dist.ReduceOp.SUM)
    if rank == 0:
        print(f"Test loss: {ddp_loss[0] / ddp_loss[2]:.4f}, accuracy {ddp_loss[1] / ddp_loss[2]}")


def main():
    dist.init_process_group("nccl")
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(2048, 64), torch.randint(10, (2048,)))
    held_out = TensorDataset(torch.randn(256, 64), torch.randint(10, (256,)))
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    test_loader = DataLoader(held_out, batch_size=32, sampler=DistributedSampler(held_out, shuffle=False))
    policy = functools.partial(size_based_auto_wrap_policy, min_num_params=1000)
    model = FSDP(Net().to(rank), auto_wrap_policy=policy)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    for epoch in range(1, 4):
        train(model, rank, loader, optimizer, epoch, sampler)
        test(model, rank, test_loader)
        scheduler.step()
    dist.barrier()
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(True, True)):
        states = model.state_dict()
    if rank == 0:
        torch.save(states, "mnist_cnn.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
