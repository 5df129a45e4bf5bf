import argparse

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", default=90, type=int)
parser.add_argument("--batch-size", default=256, type=int)
parser.add_argument("--resume", default="", type=str)
parser.add_argument("--world-size", default=1, type=int)
parser.add_argument("--rank", default=0, type=int)
parser.add_argument("--gpu", default=None, type=int)
parser.add_argument("--dist-url", default="tcp://127.0.0.1:23456", type=str)
best_acc1 = 0


class AverageMeter:
    def __init__(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def all_reduce(self):
        total = torch.tensor([self.sum, self.count], dtype=torch.float32, device="cuda")
        dist.all_reduce(total, dist.ReduceOp.SUM, async_op=False)
        self.sum, self.count = total.tolist()
        self.avg = self.sum / self.count


def main():
    args = parser.parse_args()
    ngpus_per_node = torch.cuda.device_count()
    args.world_size = ngpus_per_node * args.world_size
    mp.spawn(main_worker, nprocs=ngpus_per_node, args=(ngpus_per_node, args))


def main_worker(gpu, ngpus_per_node, args):
    global best_acc1
    args.gpu = gpu
    print(f"Use GPU: {args.gpu} for training")
    args.rank = args.rank * ngpus_per_node + gpu
    dist.init_process_group("nccl", init_method=args.dist_url, world_size=args.world_size, rank=args.rank)
    torch.manual_seed(0)
    torch.cuda.set_device(args.gpu)
    model = nn.Linear(24, 10).cuda(args.gpu)
    args.batch_size = int(args.batch_size / ngpus_per_node)
    model = nn.parallel.DistributedDataParallel(model, device_ids=[args.gpu])
    criterion = nn.CrossEntropyLoss().cuda(args.gpu)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    start = 0
    if args.resume:
        checkpoint = torch.load(args.resume, map_location=f"cuda:{args.gpu}")
        start = checkpoint["epoch"]
        model.load_state_dict(checkpoint["state_dict"])
        optimizer.load_state_dict(checkpoint["optimizer"])
    train_dataset = TensorDataset(torch.randn(5120, 24), torch.randint(10, (5120,)))
    val_dataset = TensorDataset(torch.randn(512, 24), torch.randint(10, (512,)))
    train_sampler = DistributedSampler(train_dataset)
    val_sampler = DistributedSampler(val_dataset, shuffle=False, drop_last=True)
    train_loader = DataLoader(train_dataset, args.batch_size, shuffle=(train_sampler is None), sampler=train_sampler)
    val_loader = DataLoader(val_dataset, args.batch_size, shuffle=False, sampler=val_sampler)
    for epoch in range(start, args.epochs):
        train_sampler.set_epoch(epoch)
        train(train_loader, model, criterion, optimizer, epoch, args)
        acc1 = validate(val_loader, model, criterion, args)
        is_best = acc1 > best_acc1
        best_acc1 = max(acc1, best_acc1)
        if args.rank % ngpus_per_node == 0:
            state = {"epoch": epoch + 1, "state_dict": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, "checkpoint.pth.tar")
            if is_best:
                torch.save(state, "model_best.pth.tar")
    dist.destroy_process_group()


def train(loader, model, criterion, optimizer, epoch, args):
    losses = AverageMeter()
    model.train()
    for i, (images, target) in enumerate(loader):
        images, target = images.cuda(args.gpu), target.cuda(args.gpu)
        loss = criterion(model(images), target)
        losses.update(loss.item(), images.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % 10 == 0 and args.rank == 0:
            print(f"[{epoch}][{i}] {losses.avg:.4f}")


def validate(loader, model, criterion, args):
    top1 = AverageMeter()
    model.eval()
    with torch.no_grad():
        for images, target in loader:
            output = model(images.cuda(args.gpu))
            correct = output.argmax(1).eq(target.cuda(args.gpu)).float().mean()
            top1.update(correct.item() * 100, images.size(0))
    top1.all_reduce()
    if args.rank == 0:
        print(f" * Acc@1 {top1.avg:.3f}")
    return top1.avg


if __name__ == "__main__":
    main()
