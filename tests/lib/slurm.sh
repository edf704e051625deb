#!/bin/bash
# slurm.sh FOLDER NODES PORT: a Slurm of this machine's own, without systemd and cgroups: nodes n1
# and on, each a slurmd of the same host. Says "ready", then does what it reads, and answers "ok":
#   kill NODE, start NODE: its slurmd, by SIGKILL
# At the end of its input it ends all that is left, also what outlives a slurmd: every process whose
# environment names its own slurm.conf. Exit status 77: it cannot be, and why.
set -eu
folder=$1 nodes=$2 port=$3
host=$(hostname -s)
export SLURM_CONF=$folder/slurm.conf
PATH=$PATH:/usr/sbin:/sbin

skip() {
	echo "skip: $*"
	exit 77
}

[ "$(id -u)" = 0 ] || skip "a Slurm of one's own needs root"
for program in munged slurmctld slurmd squeue; do
	command -v $program >/dev/null ||
		skip "no $program (Debian: apt-get install slurmctld slurmd slurm-client munge)"
done

mkdir -p "$folder"/{munge,state,log,pid}
chmod 755 "$folder" "$folder/munge"
head -c 1024 /dev/urandom >"$folder/munge/key"
chmod 400 "$folder/munge/key"
: >"$folder/plugstack.conf"

# Short times: a dead slurmd is seen after 6 s, a credential may be used again after 5.
cat >"$SLURM_CONF" <<-END
	ClusterName=pawltest
	SlurmctldHost=$host(127.0.0.1)
	SlurmUser=root
	SlurmdUser=root
	CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
	AuthType=auth/munge
	AuthInfo=socket=$folder/munge/socket,cred_expire=5
	CredType=cred/munge
	SlurmctldPort=$port
	SlurmdPort=$((port + 1))
	SrunPortRange=$((port + 20))-$((port + 49))
	SlurmctldPidFile=$folder/pid/ctld
	SlurmdPidFile=$folder/pid/%n
	StateSaveLocation=$folder/state
	SlurmdSpoolDir=$folder/spool.%n
	TmpFS=$folder
	ProctrackType=proctrack/linuxproc
	TaskPlugin=task/none
	JobAcctGatherType=jobacct_gather/none
	AccountingStorageType=accounting_storage/none
	SelectType=select/cons_tres
	SelectTypeParameters=CR_CPU
	SchedulerType=sched/backfill
	SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0,requeue_delay=0
	MpiDefault=none
	SwitchType=switch/none
	ReturnToService=2
	SlurmdParameters=config_overrides
	SlurmdTimeout=6
	KillWait=4
	MinJobAge=300
	PropagateResourceLimits=NONE
	PlugStackConfig=$folder/plugstack.conf
END
for ((i = 1; i <= nodes; i++)); do
	echo "NodeName=n$i NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1 + i))" \
		"CPUs=4 RealMemory=500"
done >>"$SLURM_CONF"
echo "PartitionName=main Nodes=n[1-$nodes] Default=YES State=UP" >>"$SLURM_CONF"

declare -A pids

launch() { # NAME COMMAND…
	local name=$1
	shift
	setsid "$@" >>"$folder/log/$name" 2>&1 </dev/null &
	pids[$name]=$!
}

start_node() {
	mkdir -p "$folder/spool.$1"
	launch "$1" slurmd -D -N "$1" -f "$SLURM_CONF"
}

# What outlives a slurmd: its steps, and what runs in them.
leftovers() {
	local entry vars
	for entry in /proc/[0-9]*; do
		vars=$(tr '\0' '\n' 2>/dev/null <"$entry/environ") || continue
		grep -qxF "SLURM_CONF=$SLURM_CONF" <<<"$vars" || continue
		if grep -q '^SLURM_JOB_ID=' <<<"$vars" ||
			[[ $(cat "$entry/comm") == slurmstepd ]]; then
			echo "${entry#/proc/}"
		fi
	done 2>/dev/null
}

finish() {
	trap - EXIT
	local name pid
	timeout 5 scancel --user=root >/dev/null 2>&1 || true
	for ((i = 0; i < 80; i++)); do
		[[ -z $(timeout 5 squeue --noheader 2>/dev/null) ]] && break
		sleep 0.1
	done
	for name in "${!pids[@]}"; do
		kill "${pids[$name]}" 2>/dev/null || true
	done
	for ((i = 0; i < 50; i++)); do
		jobs -r | grep -q . || break
		sleep 0.1
	done
	for name in "${!pids[@]}"; do
		kill -9 "${pids[$name]}" 2>/dev/null || true
	done
	for pid in $(leftovers); do
		kill -9 "$pid" 2>/dev/null || true
	done
}
trap finish EXIT

munge=$folder/munge
launch munged munged --foreground --force --socket="$munge/socket" --key-file="$munge/key" \
	--pid-file="$munge/pid" --log-file="$munge/log" --seed-file="$munge/seed"
for ((i = 0; i < 100; i++)); do
	munge -S "$munge/socket" -n >/dev/null 2>&1 && break
	sleep 0.05
done
launch ctld slurmctld -D -f "$SLURM_CONF"
for ((i = 1; i <= nodes; i++)); do
	start_node "n$i"
done
idle() {
	timeout 5 sinfo --noheader --Node --format=%T 2>/dev/null | grep -c '^idle$'
}
for ((i = 0; i < 300; i++)); do
	[[ $(idle) == "$nodes" ]] && break
	sleep 0.1
done
((i < 300)) || {
	echo "Slurm does not start:"
	tail -n 5 "$folder"/log/*
	exit 1
}
echo ready

while read -r word node; do
	case $word in
	kill)
		kill -9 "${pids[$node]}"
		wait "${pids[$node]}" 2>/dev/null || true
		;;
	start) start_node "$node" ;;
	esac
	echo ok
done
