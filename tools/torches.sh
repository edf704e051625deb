#!/bin/bash
# Makes the environments of tools/torches.txt, build/torch/<name>, or brings them up to date:
# another torch each, and everything else that the .venv has. --long: also those that only long
# tests need. What cannot be had is named, and the tests on it are skipped. Arguments after -- go to
# pip.
set -euo pipefail
cd "$(dirname "$0")/.."

when=full
if [[ ${1:-} == --long ]]; then
	when='full|long'
	shift
fi
if [[ ${1:-} == -- ]]; then shift; fi

make_environment() {
	local venv=$1 release=$2 files=$3
	shift 3
	make --no-print-directory setup VENV="$venv" TORCH="$release" PIP_ARGS="$*" || return 1
	if [[ -z $files ]]; then tools/integrations.sh --venv "$venv" -- "$@"; fi
}

while read -r name level release files; do
	if [[ ! $level =~ ^($when)$ ]]; then continue; fi
	venv=build/torch/$name
	if ! make_environment "$venv" "$release" "$files" "$@" </dev/null; then
		rm -f "$venv/.pawl" # what is in it is not this project as it is now
		echo "setup: $release could not be installed into $venv:" \
			"the tests on it will be skipped."
	fi
done < <(grep -v '^#' tools/torches.txt)
