import torch

from distributed import barrier, is_main_process


def save_checkpoint(path, net, optimizer, epoch):
    if is_main_process():
        torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, path)
    barrier()


def load_checkpoint(path, net, optimizer, device):
    state = torch.load(path, map_location=device)
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epoch"] + 1
