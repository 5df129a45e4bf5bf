import builtins
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def setup_for_distributed(is_master):
    builtin_print = builtins.print

    def print(*args, **kwargs):
        force = kwargs.pop("force", False)
        if is_master or force:
            builtin_print(*args, **kwargs)

    builtins.print = print


def is_dist_avail_and_initialized():
    return dist.is_available() and dist.is_initialized()


def get_world_size():
    return dist.get_world_size() if is_dist_avail_and_initialized() else 1


def get_rank():
    if not is_dist_avail_and_initialized():
        return 0
    return dist.get_rank()


def is_main_process():
    return get_rank() == 0


def save_on_master(*args, **kwargs):
    if is_main_process():
        torch.save(*args, **kwargs)


def reduce_across_processes(val):
    if not is_dist_avail_and_initialized():
        return torch.tensor(val)
    t = torch.tensor(val, device="cuda", dtype=torch.float64)
    dist.barrier()
    dist.all_reduce(t)
    return t


class SmoothedValue:
    def __init__(self):
        self.total = 0.0
        self.count = 0

    def update(self, value, n=1):
        self.count += n
        self.total += value * n

    def synchronize_between_processes(self):
        t = reduce_across_processes([self.count, self.total])
        t = t.tolist()
        self.count = int(t[0])
        self.total = t[1]

    @property
    def global_avg(self):
        return self.total / self.count


def train_one_epoch(model, criterion, optimizer, loader, epoch):
    model.train()
    meter = SmoothedValue()
    for image, target in loader:
        image, target = image.cuda(), target.cuda()
        output = model(image)
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meter.update(loss.item(), len(image))
    meter.synchronize_between_processes()
    print("train", epoch, meter.global_avg)


def evaluate(model, criterion, loader):
    model.eval()
    meter = SmoothedValue()
    with torch.inference_mode():
        for image, target in loader:
            image, target = image.cuda(), target.cuda()
            loss = criterion(model(image), target)
            meter.update(loss.item(), len(image))
    meter.synchronize_between_processes()
    print("test", meter.global_avg)
    return meter.global_avg


def init_distributed_mode(args):
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        args.rank = int(os.environ["RANK"])
        args.gpu = int(os.environ["LOCAL_RANK"])
    else:
        print("Not using distributed mode")
        args.distributed = False
        return
    args.distributed = True
    torch.cuda.set_device(args.gpu)
    dist.init_process_group(backend="nccl", init_method="env://")
    dist.barrier()
    setup_for_distributed(args.rank == 0)


def main(args):
    init_distributed_mode(args)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(512, 8), torch.randint(3, (512,)))
    test = TensorDataset(torch.randn(128, 8), torch.randint(3, (128,)))
    if args.distributed:
        train_sampler = DistributedSampler(data)
        test_sampler = DistributedSampler(test, shuffle=False)
    else:
        train_sampler = RandomSampler(data)
        test_sampler = SequentialSampler(test)
    loader = DataLoader(data, batch_sampler=BatchSampler(train_sampler, args.batch_size, drop_last=True))
    test_loader = DataLoader(test, batch_size=args.batch_size, sampler=test_sampler)
    model = nn.Linear(8, 3).cuda()
    model_without_ddp = model
    if args.distributed:
        model = nn.parallel.DistributedDataParallel(model, device_ids=[args.gpu])
        model_without_ddp = model.module
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    if args.resume:
        checkpoint = torch.load(args.resume, map_location="cpu")
        model_without_ddp.load_state_dict(checkpoint["model"])
    for epoch in range(args.epochs):
        if args.distributed:
            train_sampler.set_epoch(epoch)
        train_one_epoch(model, criterion, optimizer, loader, epoch)
        evaluate(model, criterion, test_loader)
        save_on_master({"model": model_without_ddp.state_dict(), "epoch": epoch}, os.path.join("out", f"{epoch}.pth"))
    if args.distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", default=32, type=int)
    parser.add_argument("--lr", default=0.1, type=float)
    parser.add_argument("--epochs", default=3, type=int)
    parser.add_argument("--resume", default="")
    main(parser.parse_args())
