#!/bin/sh
# Three jobs on 4 nodes of 2 slots, all on this machine: how the scheduler shares the slots while
# they come and go. Takes about a minute. Ends with what each job said last.
set -eu
cd "$(dirname "$0")"
PAWL_SCHED_ROOT=$(mktemp -d /tmp/pawl-three-XXXXXX)
export PAWL_SCHED_ROOT
pawl sched --nodes 4 --slots 2 &
trap 'kill $!; wait; rm -rf "$PAWL_SCHED_ROOT"' EXIT
until pawl ls >/dev/null 2>&1; do sleep 0.1; done

pawl submit --name long --env EPOCHS=24 train.yaml
sleep 12 # alone it gets one slot, then four, then eight
pawl submit --name short --env EPOCHS=4 train.yaml
pawl submit --name other --env EPOCHS=8 train.yaml
while [ "$(pawl ls --json)" != "[]" ]; do
    pawl ls
    sleep 2
done
for job in long short other; do
    pawl logs "$job" | grep "epoch [0-9]*: loss" | tail -n 1 | sed "s/^/$job: /"
done
