"""A script written for AdaptDL, as its examples are: nothing in it knows of Pawl.

Prints "> EPOCH N loss batch" from the first replica.
"""

import adaptdl
import adaptdl.env
import adaptdl.torch as adl
import torch
from adaptdl.torch.scaling_rules import AdaScale
from torch import nn, optim
from torch.utils.data import TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
adl.init_process_group("nccl" if torch.cuda.is_available() else "gloo")

x = torch.randn(512, 16)
labels = (x[:, :4].sum(1) > 0).long() + 2 * (x[:, 4:8].sum(1) > 0).long()
loader = adl.AdaptiveDataLoader(
    TensorDataset(x, labels), batch_size=16, shuffle=True, num_workers=0, drop_last=True
)
loader.autoscale_batch_size(256, local_bsz_bounds=(4, 64), gradient_accumulation=True)
valid = adl.AdaptiveDataLoader(TensorDataset(x, labels), batch_size=64)

net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD([{"params": [p]} for p in net.parameters()], lr=0.1, momentum=0.9)
schedule = optim.lr_scheduler.MultiStepLR(optimizer, [3, 5], 0.3)
net = adl.AdaptiveDataParallel(net, optimizer, schedule, scaling_rule=AdaScale())


def train(epoch):
    net.train()
    stats = adl.Accumulator()
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = criterion(net(inputs), targets)
        loss.backward()
        optimizer.step()
        stats["loss_sum"] += loss.item() * targets.size(0)
        stats["total"] += targets.size(0)
    with stats.synchronized():
        stats["loss_avg"] = stats["loss_sum"] / stats["total"]


def test(epoch):
    net.eval()
    stats = adl.Accumulator()
    with torch.no_grad():
        for inputs, targets in valid:
            outputs = net(inputs)
            stats["loss_sum"] += criterion(outputs, targets).item() * targets.size(0)
            stats["correct"] += outputs.max(1)[1].eq(targets).sum().item()
            stats["total"] += targets.size(0)
            batch = valid.current_batch_size
    with stats.synchronized():
        if adaptdl.env.replica_rank() == 0:
            loss = stats["loss_sum"] / stats["total"]
            print(f"> EPOCH {epoch} {loss:.4f} {stats['total']} {batch} {net.gain:.2f}", flush=True)


for epoch in adl.remaining_epochs_until(6):
    train(epoch)
    test(epoch)
    schedule.step()
if adaptdl.env.replica_rank() == 0:
    print(f"> END {adaptdl.__version__}", flush=True)
