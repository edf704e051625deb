"""A script as users of SMDDP 1.0 to 1.3 write it, in the layout, calls and variables of SMDDP."""

import argparse
import os

import smdistributed.dataparallel.torch.distributed as dist
import torch
import torch.nn.functional as F
from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel as DDP
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(20, 64)
        self.fc2 = nn.Linear(64, 4)

    def forward(self, x):
        return F.log_softmax(self.fc2(torch.relu(self.fc1(x))), dim=1)


def train(args, model, device, loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        if batch_idx % args.log_interval == 0 and args.rank == 0:
            print(f"Train Epoch: {epoch} [{batch_idx}/{len(loader)}]\tLoss: {loss.item():.6f}")


def test(model, device, x, y):
    model.eval()
    with torch.no_grad():
        correct = model(x.to(device)).argmax(dim=1).eq(y.to(device)).float().mean().item()
    print(f"Test set: Accuracy: {100 * correct:.0f}%")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=48)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--log-interval", type=int, default=5)
    parser.add_argument("--data-path", type=str, default=os.environ["SM_CHANNEL_TRAINING"])
    parser.add_argument("--model-dir", type=str, default=os.environ["SM_MODEL_DIR"])
    args = parser.parse_args()
    args.world_size = dist.get_world_size()
    args.rank = dist.get_rank()
    args.local_rank = dist.get_local_rank()
    args.batch_size = max(args.batch_size // args.world_size, 1)

    torch.manual_seed(args.rank)  # DDP takes rank 0's model all the same
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    x, y = torch.load(os.path.join(args.data_path, "train.pt"))
    dataset = TensorDataset(x, y)
    sampler = DistributedSampler(
        dataset, num_replicas=args.world_size, rank=args.rank, shuffle=False
    )
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler)

    model = DDP(Net().to(device))
    if torch.cuda.is_available():
        torch.cuda.set_device(args.local_rank)
        model.cuda(args.local_rank)
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(1, args.epochs + 1):
        train(args, model, device, loader, optimizer, epoch)
        if args.rank == 0:
            test(model, device, x, y)

    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), os.path.join(args.model_dir, "model.pth"))


if __name__ == "__main__":
    main()
