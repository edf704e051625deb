#!/bin/bash
# slurm.sh FOLDER NODES [HOST=ADDRESS…]: runs a Slurm of its own on this machine, without systemd
# and cgroups. Nodes are n1, n2, …, each a slurmd on this host; or, with one HOST for each node, in
# the network namespace HOST, with the controller and the commands in the first one. The script
# finds free ports: if a daemon finds one taken, all daemons begin again with other ports.
# It prints "ready", then carries out the commands that it reads, and answers "ok" to each:
#   kill NODE, start NODE: kills (SIGKILL) or starts that slurmd; NODE ctld: slurmctld
# At the end of its input, it ends all that is left, also what outlives a slurmd: every process
# whose environment names its slurm.conf. Exit status 77: Slurm cannot run here, with the reason
# printed; 75: it was late, as in tests/lib/within.h.
# LATE=NODE in the environment: by the clocks of that node, its machine is up for a day more.
set -eu
folder=$1 nodes=$2
shift 2
hosts=("$@")
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

# Events that must happen have 2 minutes, times the scale in PAWL_TEST_TIMES.
scale=$(sed -n 's/^\(.*,\)\?scale=\([0-9.]\+\).*$/\2/p' <<<"${PAWL_TEST_TIMES:-}")
long=$(awk -v scale="${scale:-1}" 'BEGIN { print int(120 * scale) }')
late=

mkdir -p "$folder"/{munge,state,log,pid}
chmod 755 "$folder" "$folder/munge"
head -c 1024 /dev/urandom >"$folder/munge/key"
chmod 400 "$folder/munge/key"
: >"$folder/plugstack.conf"

address_of() { # NUMBER of a node
	local host=${hosts[$1 - 1]:-=127.0.0.1}
	echo "${host#*=}"
}

name_of() {
	if ((${#hosts[@]})); then echo "n$1"; else hostname -s; fi
}

# Runs a command as on a node. Slurm needs the host's /sys, so `ip netns exec` cannot be used.
on() { # NUMBER COMMAND…
	local number=$1
	shift
	if ((${#hosts[@]})); then
		exec nsenter --net="/run/netns/${hosts[number - 1]%%=*}" unshare --uts \
			sh -c "hostname n$number"' && exec "$@"' sh "$@"
	fi
	exec "$@"
}

ask() { # COMMAND…: runs a command of Slurm's, with a time limit
	(on 1 timeout 5 "$@" 2>/dev/null)
}

# With these options Slurm resolves the names of hosts, which fails for those of namespaces.
listen=NoInAddrAny,NoCtldInAddrAny
((${#hosts[@]})) && listen=

# Times are short: a dead slurmd is noticed after 15 s. So one message that a loaded machine lost or
# answered late makes no node dead. A credential can be used again after 15 s.
write_conf() { # PORT: this port and the next 49 belong to this Slurm
	local port=$1 delays=batch_sched_delay=0,requeue_delay=0
	cat >"$SLURM_CONF" <<-END
		ClusterName=pawltest
		SlurmctldHost=$(name_of 1)($(address_of 1))
		SlurmUser=root
		SlurmdUser=root
		${listen:+CommunicationParameters=$listen}
		AuthType=auth/munge
		AuthInfo=socket=$folder/munge/socket,cred_expire=15
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
		SchedulerParameters=bf_interval=1,sched_interval=1,$delays
		MpiDefault=none
		SwitchType=switch/none
		ReturnToService=2
		SlurmdParameters=config_overrides
		SlurmdTimeout=15
		MessageTimeout=5
		KillWait=15
		EnforcePartLimits=ALL
		MinJobAge=300
		PropagateResourceLimits=NONE
		PlugStackConfig=$folder/plugstack.conf
	END
	for ((i = 1; i <= nodes; i++)); do
		echo "NodeName=n$i NodeHostname=$(name_of $i) NodeAddr=$(address_of $i)" \
			"Port=$((port + 1 + i)) CPUs=4 RealMemory=1000 TmpDisk=2000"
	done >>"$SLURM_CONF"
	cat >>"$SLURM_CONF" <<-END
		PartitionName=main Nodes=n[1-$nodes] Default=YES State=UP
		PartitionName=short Nodes=n1 MaxTime=2 State=UP
	END
}

declare -A pids

launch() { # NAME NUMBER COMMAND…
	local name=$1
	shift
	on "$1" setsid "${@:2}" >>"$folder/log/$name" 2>&1 </dev/null &
	pids[$name]=$!
}

start_daemon() {
	local late=
	if [[ $1 == ctld ]]; then
		launch ctld 1 slurmctld -D -f "$SLURM_CONF"
		return
	fi
	[[ $1 == "${LATE:-}" ]] && late="unshare --time --monotonic 86400 --boottime 86400"
	mkdir -p "$folder/spool.$1"
	launch "$1" "${1#n}" $late slurmd -D -N "$1" -f "$SLURM_CONF"
}

# Lists the processes that outlive a slurmd: its steps, and the programs in them.
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
	local jobs
	for ((i = 0; i < 80; i++)); do
		jobs=$(ask squeue --noheader --format=%A) || break
		[[ -z $jobs ]] && break
		((i == 0)) && ask scancel $jobs
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
	for ((i = 0; i < 50; i++)); do
		pid=$(leftovers)
		[[ -z $pid ]] && break
		kill -9 $pid 2>/dev/null || true
		sleep 0.1
	done
	wait
}
trap finish EXIT

munge=$folder/munge
launch munged 1 munged --foreground --force --socket="$munge/socket" --key-file="$munge/key" \
	--pid-file="$munge/pid" --log-file="$munge/log" --seed-file="$munge/seed"
while ((SECONDS < long)); do
	munge -S "$munge/socket" -n >/dev/null 2>&1 && break
	sleep 0.05
done
idle() {
	ask sinfo --noheader --Node --partition=main --format=%T | grep -c '^idle$'
}
# Waits until all nodes are idle; fails if a daemon ends before, or after the time limit.
await_nodes() {
	local name end=$((SECONDS + long))
	while ((SECONDS < end)); do
		for name in "${!pids[@]}"; do
			kill -0 "${pids[$name]}" 2>/dev/null || return
		done
		[[ $(idle) == "$nodes" ]] && return
		sleep 0.1
	done
	late=1
	return 1
}
begin() {
	late=
	local i
	write_conf $((20000 + RANDOM % 200 * 50))
	start_daemon ctld
	for ((i = 1; i <= nodes; i++)); do
		start_daemon "n$i"
	done
	await_nodes
}
stop_daemons() {
	local name
	for name in "${!pids[@]}"; do
		[[ $name == munged ]] && continue
		kill -9 "${pids[$name]}" 2>/dev/null || true
		wait "${pids[$name]}" 2>/dev/null || true
		unset "pids[$name]"
	done
}
for ((tries = 1; ; tries++)); do
	begin && break
	if ((tries == 10)) || ! grep -qs "Address already in use" "$folder"/log/*; then
		echo "${late:+late: not within $long s: }Slurm does not start:"
		tail -n 5 "$folder"/log/*
		[[ $late ]] && exit 75
		exit 1
	fi
	stop_daemons
	rm -rf "$folder"/{state,spool.*}/* "$folder"/log/{ctld,n*}
done
echo ready

while read -r word node; do
	case $word in
	kill)
		kill -9 "${pids[$node]}"
		wait "${pids[$node]}" 2>/dev/null || true
		;;
	start) start_daemon "$node" ;;
	esac
	echo ok
done
