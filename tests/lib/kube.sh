#!/bin/bash
# kube.sh FOLDER: runs an API server of Kubernetes of its own, with etcd, at 127.0.0.1, from the
# binaries that tools/kube.sh has built. It finds free ports.
# It prints "ready URL"; FOLDER/admin.kubeconfig leads there as cluster-admin, and
# FOLDER/user.kubeconfig as somebody without rights. Then it carries out the commands that it reads,
# and answers "ok" to each:
#   kill, start   kills (SIGKILL) the API server, or starts it at the same port; "ok" is not ready
#   compact       etcd forgets all changes so far
# At the end of its input, all ends. Exit status 77: it cannot run here, with the reason printed;
# 75: it was late, as in tests/lib/within.h.
set -eu
folder=$1
bin=${PAWL_KUBE:-${XDG_CACHE_HOME:-$HOME/.cache}/pawl-kube}/bin

if [ ! -x "$bin/kubelet" ]; then
	echo "skip: no kube-apiserver in $bin (tools/kube.sh builds it)"
	exit 77
fi

# Events that must happen have 2 minutes, times the scale in PAWL_TEST_TIMES.
scale=$(sed -n 's/^\(.*,\)\?scale=\([0-9.]\+\).*$/\2/p' <<<"${PAWL_TEST_TIMES:-}")
long=$(awk -v scale="${scale:-1}" 'BEGIN { print int(120 * scale) }')

mkdir -p "$folder"/{etcd,certs,log}
chmod 700 "$folder" "$folder/etcd"
openssl genrsa -out "$folder/account.key" 2048 2>/dev/null
openssl rsa -in "$folder/account.key" -pubout -out "$folder/account.pub" 2>/dev/null
cat >"$folder/tokens.csv" <<-END
	admin-token,admin,1,system:masters
	user-token,somebody,2,people
END

declare -A pids

launch() { # NAME COMMAND…
	setsid "${@:2}" >>"$folder/log/$1" 2>&1 </dev/null &
	pids[$1]=$!
}

start_etcd() {
	launch etcd "$bin/etcd" --name a --data-dir "$folder/etcd" --unsafe-no-fsync \
		--listen-client-urls "http://127.0.0.1:$((port + 1))" \
		--advertise-client-urls "http://127.0.0.1:$((port + 1))" \
		--listen-peer-urls "http://127.0.0.1:$((port + 2))" \
		--initial-advertise-peer-urls "http://127.0.0.1:$((port + 2))" \
		--initial-cluster "a=http://127.0.0.1:$((port + 2))" --log-level warn
}

start_server() {
	launch server "$bin/kube-apiserver" --etcd-servers="http://127.0.0.1:$((port + 1))" \
		--bind-address=127.0.0.1 --advertise-address=127.0.0.1 --secure-port="$port" \
		--insecure-port=0 --cert-dir="$folder/certs" \
		--token-auth-file="$folder/tokens.csv" --authorization-mode=Node,RBAC \
		--service-cluster-ip-range=10.96.0.0/16 --service-account-issuer=https://pawl \
		--service-account-key-file="$folder/account.pub" \
		--service-account-signing-key-file="$folder/account.key" --api-audiences=pawl \
		--disable-admission-plugins=ServiceAccount --etcd-compaction-interval=0 \
		--endpoint-reconciler-type=none --enable-priority-and-fairness=false
}

write_config() { # NAME TOKEN
	cat >"$folder/$1.kubeconfig" <<-END
		apiVersion: v1
		kind: Config
		current-context: test
		contexts: [{name: test, context: {cluster: test, user: test}}]
		users: [{name: test, user: {token: $2}}]
		clusters:
		- name: test
		  cluster:
		    server: https://127.0.0.1:$port
		    certificate-authority: $folder/certs/apiserver.crt
	END
	chmod 600 "$folder/$1.kubeconfig"
}

stop() { # NAME
	kill -9 "${pids[$1]}" 2>/dev/null || true
	wait "${pids[$1]}" 2>/dev/null || true
	unset "pids[$1]"
}

finish() {
	trap - EXIT
	local name
	for name in "${!pids[@]}"; do
		stop "$name"
	done
}
trap finish EXIT

alive() {
	local name
	for name in "${!pids[@]}"; do
		kill -0 "${pids[$name]}" 2>/dev/null || return
	done
}

# Prints the answer to a request without a check of the certificate. With DATA, it is a POST. Only
# the API server gets a token.
ask() { # URL [DATA]
	python3 - "$@" 2>/dev/null <<-'END'
		import ssl, sys, urllib.request
		data = sys.argv[2].encode() if len(sys.argv) > 2 else None
		secure = sys.argv[1].startswith("https:")
		head = {"Authorization": "Bearer admin-token"} if secure else {}
		request = urllib.request.Request(sys.argv[1], data, head)
		context = ssl._create_unverified_context()
		with urllib.request.urlopen(request, timeout=5, context=context) as answer:
		    print(answer.read().decode())
	END
}

is_ready() {
	[[ $(ask "https://127.0.0.1:$port/readyz") == ok ]]
}

# Returns once the server is ready; fails if a daemon ends before, or after the time limit.
begin() {
	local end=$((SECONDS + long))
	start_etcd
	start_server
	while alive; do
		if is_ready; then return; fi
		if ((SECONDS >= end)); then
			echo "late: not within $long s: the API server is not ready"
			exit 75
		fi
		sleep 0.1
	done
	return 1
}

compact() {
	local at="http://127.0.0.1:$((port + 1))/v3/kv" revision
	revision=$(ask "$at/range" '{"key": "eA=="}' |
		sed -n 's/.*"revision":"\([0-9]*\)".*/\1/p')
	ask "$at/compaction" "{\"revision\": $revision, \"physical\": true}" >/dev/null
}

for ((tries = 1; ; tries++)); do
	port=$((30000 + RANDOM % 900 * 10))
	begin && break
	if ((tries == 10)) || ! grep -qs "address already in use" "$folder"/log/*; then
		echo "the API server does not start:"
		tail -n 5 "$folder"/log/*
		exit 1
	fi
	stop etcd
	stop server
	rm -rf "$folder/etcd" "$folder"/log/*
	mkdir -m 700 "$folder/etcd"
done
write_config admin admin-token
write_config user user-token
echo "ready https://127.0.0.1:$port"

while read -r word; do
	case $word in
	kill) stop server ;;
	start) start_server ;;
	compact) compact ;;
	esac
	echo ok
done
