#!/bin/bash
# Installs what tests of the integrations run against: tools/integrations.txt into the .venv, older
# releases (tools/releases.txt) beside it; --long: also those that only long tests need. torch and
# NumPy stay as they are. What cannot be had is named, and its tests skip themselves: a machine
# without network can run all others. --venv: into another environment, without the older releases,
# which serve both. Arguments after -- go to pip.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv
when=test
while (($# > 0)); do
	case $1 in
	--long) when='test|long' ;;
	--venv)
		venv=$2
		when=none
		shift
		;;
	--)
		shift
		break
		;;
	esac
	shift
done
python=$venv/bin/python

# DeepSpeed compiles its operators when they are first used, if at all; its setup needs the torch
# that is installed, which an isolated build would not see.
export DS_BUILD_OPS=0
pip=("$python" -m pip install --quiet --no-warn-conflicts --no-build-isolation --retries 2 "$@")
# uv keeps what it has unpacked, by each package's hash, in ~/.cache/uv, and links it into the next
# checkout's .venv: 8 s for pip's 50. What it cannot get, pip tries.
uv=("$venv/bin/uv" pip install --quiet --python "$python" --no-build-isolation "$@")

install() {
	"${uv[@]}" "$@" || "${pip[@]}" "$@"
}

failed() {
	echo "setup: $1 could not be installed: tests that need it will be skipped."
	echo "setup: uv and pip said:"
	tail -n 3 build/integrations.log | sed 's/^/setup:     /'
}

install_newest() {
	local stamp=$venv/.integrations
	if cmp -s tools/integrations.txt "$stamp"; then return; fi
	echo "setup: install -r tools/integrations.txt (into $venv)"
	"$python" -m pip list --format=freeze | grep -E '^(torch|numpy)==' >build/constraints.txt
	if install $(grep -E '^(setuptools|wheel)==' tools/integrations.txt) &&
		install -c build/constraints.txt -r tools/integrations.txt; then
		cp tools/integrations.txt "$stamp"
		return
	fi
	return 1
}

install_release() {
	local name=$1
	shift
	if [[ -d build/pkgs/$name ]]; then return; fi
	echo "setup: install $* (into build/pkgs)"
	rm -rf "build/pkgs/.$name"
	install --no-deps --target "build/pkgs/.$name" "$@" &&
		mv "build/pkgs/.$name" "build/pkgs/$name"
}

mkdir -p build/pkgs
if ! install_newest 2>build/integrations.log; then
	failed tools/integrations.txt
	exit 0 # what it is built with is in there
fi
while read -r name level packages; do
	if [[ ! $level =~ ^($when)$ ]]; then continue; fi
	install_release "$name" $packages 2>build/integrations.log || failed "$name"
done < <(grep -v '^#' tools/releases.txt)
