#!/bin/bash
# Installs the Debian or Ubuntu packages that building and testing Pawl needs: only those missing,
# as root or through sudo. Where neither is possible it prints the line to run and stops.
# --bench: what benchmarks compare with, too.
set -euo pipefail

packages=(
	gcc libc6-dev clang clang-tidy pkg-config # compilers; Meson and Ninja come by pip
	ccache # a second checkout compiles what changed
	lld # links the tests' many programs in a third of the time
	# libraries; docs/decisions says why each
	liburing-dev libisal-dev libjansson-dev libssl-dev libnlopt-dev libyaml-dev libsqlite3-dev
	libmicrohttpd-dev libcurl4-openssl-dev libexpat1-dev
	libcmocka-dev
	libfabric-dev libfabric1 # headers; the library is loaded when PAWL_TRANSPORT asks for it
	python3-dev python3-venv
	xfsprogs iproute2 # tests: files that can share bytes, hosts that are network namespaces
	slurmctld slurmd slurm-client munge # tests: a real Slurm; they start its daemons themselves
)
if [[ ${1:-} == --bench ]]; then
	packages+=(openmpi-bin libopenmpi-dev iperf3 fuse3 s3fs) # peers that are measured beside us
fi
# Waits for another apt to finish; tries a download again.
options=(-qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -o Dpkg::Use-Pty=0)

missing() {
	local name
	for name in "${packages[@]}"; do
		if ! dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'ok installed'; then
			echo "$name"
		fi
	done
}

# clang's sanitizers are a package of their own since clang 14, named after the version.
has_sanitizers() {
	echo 'int main(void) { return 0; }' |
		clang -fsanitize=address,undefined -x c - -o /dev/null 2>/dev/null
}

sanitizer_package() {
	local version
	version=$(apt-cache depends clang | sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p') || true
	version=${version%%$'\n'*}
	if apt-cache show "libclang-rt-$version-dev" >/dev/null 2>&1; then
		echo "libclang-rt-$version-dev"
	fi
}

if ! command -v apt-get >/dev/null; then
	echo "setup: this is not Debian or Ubuntu; what is needed has these names there:"
	echo "setup:   ${packages[*]} libclang-rt-dev"
	exit 0
fi
mapfile -t wanted < <(missing)
if ((${#wanted[@]} == 0)) && has_sanitizers; then
	exit 0
fi

become=()
if (($(id -u) != 0)); then
	become=(sudo)
	if ! command -v sudo >/dev/null || { [[ ! -t 0 ]] && ! sudo -n true 2>/dev/null; }; then
		echo "setup: packages are missing and this user may not install them. As root, run:"
		echo "    apt-get update"
		echo "    apt-get install --no-install-recommends ${packages[*]}" \
			"$(sanitizer_package)"
		exit 1
	fi
fi
export DEBIAN_FRONTEND=noninteractive

echo "setup: apt-get update"
"${become[@]}" apt-get "${options[@]}" update
runtime=$(sanitizer_package)
if [[ -n $runtime ]] && ! has_sanitizers; then
	wanted+=("$runtime")
fi
echo "setup: apt-get install ${wanted[*]}"
# RUNLEVEL: no daemon is started by being installed.
"${become[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
	apt-get "${options[@]}" install --no-install-recommends -y "${wanted[@]}" >/dev/null
