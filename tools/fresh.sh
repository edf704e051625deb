#!/bin/bash
# Proves the commands of README.md in a new, minimal Debian root: git and make, and nothing else.
#
#     tools/fresh.sh [TARGET…]      make setup, then the targets (default: test), in a fresh clone
#
# The clone is of HEAD: commit first. Needs root and debootstrap. The root is made under TMPDIR and
# removed at the end, and its mounts live in a namespace of their own, so none can stay behind. The
# release is this machine's, the mirror and everything else that apt and pip have been told here is
# told there too. KEEP=1 keeps the root and prints where it is.
set -euo pipefail

repo=$(cd "$(dirname "$0")/.." && git rev-parse --show-toplevel)

if [[ ${1:-} != --inside ]]; then
	if (($(id -u) != 0)) || ! command -v debootstrap >/dev/null; then
		echo "fresh: needs root and debootstrap (apt-get install debootstrap)"
		exit 1
	fi
	root=$(mktemp -d -t pawl-fresh-XXXXXX)
	chmod 755 "$root" # apt reads it as a user of its own
	if [[ -n ${KEEP:-} ]]; then
		echo "fresh: the root stays at $root"
	else
		trap 'rm -rf --one-file-system "$root"' EXIT
	fi
	unshare --mount --pid --fork --kill-child "$0" --inside "$root" "${@:-test}"
	exit
fi

root=$2
shift 2

# Says what is done and how long it took.
stage() {
	local name=$1 start=$SECONDS
	shift
	echo "fresh: $name"
	"$@"
	echo "fresh: $name: $((SECONDS - start)) s"
}

# The directories on this machine that pip has been told to look in; an index in DIR/simple refers
# to files elsewhere in DIR.
pip_directories() {
	{ python3 -m pip config list; env | grep '^PIP_'; } 2>/dev/null |
		grep -oE '(file://)?/[^[:space:]'\''"]+' |
		sed 's|^file://||; s|/simple/*$||' | sort -u |
		while read -r path; do
			if [[ -d $path ]]; then echo "$path"; fi
		done
}

make_root() {
	local mirror release
	release=$(. /etc/os-release && echo "$VERSION_CODENAME")
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' \
		"Codename: $release" | head -n 1)
	debootstrap --variant=minbase --include=git,make "$release" "$root" "$mirror" \
		>"$root.log" 2>&1 || { tail -n 20 "$root.log"; return 1; }
	rm -f "$root.log"
}

# Copies what lies outside the project and says where packages come from and whom to trust.
copy_settings() {
	local path
	rm -f "$root/etc/apt/sources.list"
	for path in /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} \
		/etc/apt/keyrings/* /etc/apt/trusted.gpg.d/* /usr/share/keyrings/* \
		/etc/resolv.conf /etc/hosts /etc/pip.conf ~/.config/pip/pip.conf ~/.pip/pip.conf \
		/usr/local/share/ca-certificates/* /etc/ssl/certs/ca-certificates.crt; do
		if [[ -f $path ]]; then
			mkdir -p "$root$(dirname "$path")"
			cp -L "$path" "$root$path"
		fi
	done
}

mount_all() {
	local path
	mount -t proc proc "$root/proc"
	mount --rbind /sys "$root/sys"
	mount --rbind /dev "$root/dev"
	mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs "$root/dev/shm"
	for path in $(pip_directories); do
		mkdir -p "$root$path"
		mount --bind -o ro "$path" "$root$path"
	done
}

# Runs a command in the clone, with an environment that holds nothing but what downloads need.
inside() {
	local -a settings
	mapfile -t settings < <(env | grep -E '^(PIP_|SSL_CERT_|CI=|[a-zA-Z]+_(proxy|PROXY)=)')
	chroot "$root" /usr/bin/env -i HOME=/root TERM=dumb LANG=C.UTF-8 "${settings[@]}" \
		PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		bash -c 'cd /pawl && "$@"' fresh "$@"
}

stage "debootstrap" make_root
copy_settings
mount_all
git clone --quiet --no-hardlinks "$repo" "$root/pawl"
git -C "$root/pawl" checkout --quiet --detach "$(git -C "$repo" rev-parse HEAD)"
stage "make setup" inside make setup
for target in "$@"; do
	stage "make $target" inside make "$target"
done
echo "fresh: done in $SECONDS s"
