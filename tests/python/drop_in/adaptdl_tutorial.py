"""A script in the order of AdaptDL's tutorial: it makes loaders first, and the group of ranks
later.

Nothing in it knows of Pawl. Prints "> EPOCH N loss correct" from each replica.
"""

import adaptdl
import adaptdl.torch
import torch
import torch.distributed
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn, optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import TensorDataset

TRAIN = 1500


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(8 * 9, 10)

    def forward(self, x):
        x = self.dropout(torch.flatten(F.max_pool2d(F.relu(self.conv(x)), 2), 1))
        return F.log_softmax(self.head(x), dim=1)


def train(model, loader, optimizer):
    model.train()
    for data, target in loader:
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()


def test(model, loader, epoch):
    model.eval()
    stats = adaptdl.torch.Accumulator()  # step 5
    with torch.no_grad():
        for data, target in loader:
            output = model(data)
            stats["loss"] += F.nll_loss(output, target, reduction="sum").item()
            stats["correct"] += output.argmax(1).eq(target).sum().item()
    with stats.synchronized():
        n = len(loader.dataset)
        print(f"> EPOCH {epoch} {stats['loss'] / n:.4f} {stats['correct']}", flush=True)


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    x, y = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
    x = (x / 16).float().reshape(-1, 1, 8, 8)
    both = TensorDataset(x[:TRAIN], y[:TRAIN]), TensorDataset(x[TRAIN:], y[TRAIN:])
    train_loader = adaptdl.torch.AdaptiveDataLoader(  # step 2
        both[0], drop_last=True, batch_size=64, shuffle=True
    )
    test_loader = adaptdl.torch.AdaptiveDataLoader(both[1], batch_size=64)
    train_loader.autoscale_batch_size(1028, local_bsz_bounds=(32, 128))  # step 3
    model = Net()
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    adaptdl.torch.init_process_group("nccl" if torch.cuda.is_available() else "gloo")  # step 1
    model = adaptdl.torch.AdaptiveDataParallel(model, optimizer, scheduler)
    for epoch in adaptdl.torch.remaining_epochs_until(4):  # step 4
        train(model, train_loader, optimizer)
        test(model, test_loader, epoch)
        scheduler.step()
    print(f"> END {torch.distributed.get_backend()}", flush=True)


if __name__ == "__main__":
    main()
