"""A job of pawl.elastic whose steps take as long as their samples say, so that more ranks pay.

Usage: sched_elastic_job.py EPOCHS. Prints "> RANK of RANKS" at each rank's end.
"""

import sys
import time

import torch
from torch import nn
from torch.utils.data import TensorDataset

import pawl.elastic as el

torch.manual_seed(1)
torch.set_num_threads(1)
x = torch.randn(2048, 8)
y = x.sum(1, keepdim=True) + torch.randn(2048, 1)
model: nn.Module = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
loader = el.AdaptiveDataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
loader.autoscale_batch_size(1024, local_bsz_bounds=(8, 256), gradient_accumulation=True)
model = el.AdaptiveDataParallel(model, optimizer)
for _ in el.remaining_epochs_until(int(sys.argv[1])):
    for inputs, targets in loader:
        optimizer.zero_grad()
        (model(inputs) - targets).square().mean().backward()
        time.sleep(0.002 * len(inputs))  # pace
        optimizer.step()
job = loader._elastic._job
print(f"> {job.rank} of {job.ranks}", flush=True)
