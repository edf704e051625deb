"""A script for SMP, as users wrote them: no name of Pawl in it.

Usage: smp_job.py FOLDER STEPS [resume] [full]

Trains to step STEPS, and saves a partial checkpoint after each second step; with "resume", from the
newest one. With "full", saves the whole model in the end. Prints "> loss N VALUE" of each step.
"""

import sys

import smdistributed.modelparallel
import smdistributed.modelparallel.torch as smp
import torch
import torch.nn.functional as F
from smdistributed.modelparallel.torch.nn import FusedLayerNorm
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(23, 16)
        self.h = nn.ModuleList([
            nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Dropout(0.2)) for _ in range(6)
        ])  # fmt: skip
        self.norm = FusedLayerNorm(16)
        self.head = nn.Linear(16, 23, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, ids):
        x = self.emb(ids)
        for layer in self.h:
            x = x + layer(x)
        return self.head(self.norm(x))


@smp.step
def train_step(model, ids, note):
    logits = model(ids)
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    model.backward(loss)
    return {"loss": loss, "logits": logits, "note": note}


@smp.step(non_split_inputs=["weights"], input_split_axes={"ids": 1})
def test_step(model, ids, weights):
    return (model(ids.t()).mean(dim=(0, 1)) * weights).sum(), len(weights)


def main():
    folder, steps, *flags = sys.argv[1:]
    torch.cuda.set_device(smp.local_rank())
    torch.manual_seed(1 if "resume" not in flags else 2)
    model = smp.DistributedModel(Net(), trace_device="gpu", backward_passes_per_step=2)
    smp.set_activation_checkpointing(model.get_module().h, strategy="each")
    optimizer = smp.DistributedOptimizer(
        torch.optim.AdamW(model.parameters(), lr=0.02),
        static_loss_scale=None,
        dynamic_loss_scale=True,
        dynamic_loss_args={"init_scale": 2.0**18, "scale_window": 2, "delayed_shift": 2},
    )
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    seen = []
    model.register_post_partition_hook(lambda m, o: seen.append((m is model, o is optimizer)))
    model.register_post_partition_hook(lambda *_: seen.append("removed")).remove()
    first = 0
    if "resume" in flags:
        content = smp.resume_from_checkpoint(folder)
        first = content["step"] + 1
        schedule.load_state_dict(content["schedule"])
    for n in range(first, int(steps)):
        optimizer.zero_grad(set_to_none=True)
        for part in range(2):
            made = torch.Generator().manual_seed(100 * n + 10 * part + smp.dp_rank())
            ids = torch.randint(0, 23, (8, 7), generator=made)
            if smp.pp_rank() > 0:
                ids = torch.Tensor(
                    0
                )  # as SMP's own examples have it: only the first stage has data
            out = train_step(model, ids, 7)
        optimizer.clip_master_grads(0.7)
        optimizer.step()
        if smp.state.cfg.fp16:
            print(f"> scale {n} {optimizer.loss_scale} {optimizer.overflow}", flush=True)
        if not (smp.state.cfg.fp16 and optimizer.overflow):
            schedule.step()
        assert out["logits"].concat().shape == (8, 7, 23), out["logits"].concat().shape
        assert list(out["note"]) == [7] * 4, out["note"]
        print(f"> loss {n} {out['loss'].reduce_mean().item().hex()}", flush=True)
        if n % 2 == 1:
            content = {"step": n, "schedule": schedule.state_dict(), "kind": Net}
            smp.save_checkpoint(folder, tag=f"at{n}", partial=True, model=model,
                                optimizer=optimizer, user_content=content,
                                num_kept_partial_checkpoints=2)  # fmt: skip
    assert seen == [(True, True)], seen
    model.eval()
    with torch.no_grad():
        score, count = test_step(model, torch.ones(7, 8, dtype=torch.long), torch.arange(23.0))
    assert count == [23] * 4, count
    print(f"> score {score.stack().shape} {score.reduce_mean().item().hex()}", flush=True)
    talk()
    if "full" in flags:
        smp.save_checkpoint(folder, tag="full.pt", partial=False, model=model, user_content=3)
        state = model.state_dict()
        assert list(state) == list(Net().state_dict()), list(state)
        smp.save(model.local_state_dict(), f"{folder}/mine.pt", partial=True)
        smp.barrier()
        assert smp.load(f"{folder}/mine.pt", partial=True)["_smp_is_partial"] == (smp.pp_size() > 1)
    smp.barrier()


def talk():
    assert smp.pp_size() * smp.dp_size() == smp.size() and smp.tp_size() == 1
    assert smp.get_pp_group()[smp.pp_rank()] == smp.rank() == smp.get_dp_group()[smp.dp_rank()]
    assert smp.allgather(smp.rank(), smp.CommGroup.DP_GROUP) == smp.get_dp_group()
    count = torch.ones(1)
    torch.distributed.all_reduce(count, group=smp.get_dp_process_group())
    assert count == smp.dp_size()
    if smp.pp_rank() == 0:
        smp.broadcast({"from": smp.rank()}, smp.PP_GROUP)
    else:
        found = smp.recv_from(0, smp.RankType.PP_RANK)
        assert found == {"from": smp.get_pp_group()[0]}, found


if __name__ == "__main__":
    assert smdistributed.modelparallel.__version__ >= "1.10"
    smp.init()
    main()
