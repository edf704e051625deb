"""A script as users of SMDDP from 1.4 on write it: torch's own DDP, and the backend "smddp"."""

import os

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401, gives torch the backend
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    dist.init_process_group(backend="smddp")
    local_rank = int(os.environ["LOCAL_RANK"])
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank)
    device = torch.device(f"cuda:{local_rank}" if torch.cuda.is_available() else "cpu")

    torch.manual_seed(0)
    dataset = TensorDataset(
        *torch.load(os.path.join(os.environ["SM_CHANNEL_TRAINING"], "train.pt"))
    )
    sampler = DistributedSampler(
        dataset, num_replicas=dist.get_world_size(), rank=dist.get_rank(), shuffle=False
    )
    loader = DataLoader(dataset, batch_size=48 // dist.get_world_size(), sampler=sampler)
    net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 4), nn.LogSoftmax(dim=1))
    model = DDP(net.to(device))
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        for data, target in loader:
            optimizer.zero_grad()
            F.nll_loss(model(data.to(device)), target.to(device)).backward()
            optimizer.step()
    told = [None] * dist.get_world_size()
    dist.all_gather_object(told, dist.get_backend())
    if dist.get_rank() == 0:
        print(f"> {' '.join(told)}")
        torch.save(net.state_dict(), os.path.join(os.environ["SM_MODEL_DIR"], "model.pth"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
