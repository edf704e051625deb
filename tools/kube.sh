#!/bin/bash
# Builds what tests of the engine k8s run against: etcd, kube-apiserver, kube-controller-manager,
# kube-scheduler and kubelet, 1.20.2, from the source package of Debian bookworm, in
# ~/.cache/pawl-kube or the folder PAWL_KUBE. It takes 10 minutes or more on 2 cores, and 4 GB, of
# which 0.5 GB stay; a second run does nothing. Nothing is installed: the compiler, too, is only
# unpacked. Where it was not run, those tests are skipped.
set -euo pipefail

root=$(realpath -m "${PAWL_KUBE:-${XDG_CACHE_HOME:-$HOME/.cache}/pawl-kube}")
version=1.20.2
programs=(kube-apiserver kube-controller-manager kube-scheduler kubelet)

if [[ -e $root/done ]]; then
	echo "kube: $root is ready"
	exit 0
fi
rm -rf "$root/work" # of a run that was ended
mkdir -p "$root"/{bin,work/{debs,tools,src,apt/{state/lists/partial,cache/archives/partial,etc}}}
cd "$root/work"

say() {
	echo "kube: $*"
}

# apt with source entries, made of the system's own list, and with folders of its own.
configure_apt() {
	local file
	sed -n 's/^deb /deb-src /p' /etc/apt/sources.list /etc/apt/sources.list.d/*.list \
		2>/dev/null >apt/etc/sources.list || true
	for file in /etc/apt/sources.list.d/*.sources; do
		if [[ -e $file ]]; then
			sed 's/^Types:.*/Types: deb deb-src/' "$file" >"apt/etc/${file##*/}"
		fi
	done
	sed -n 's/^deb-src /deb /p' apt/etc/sources.list >apt/etc/binary.list
	cat apt/etc/binary.list >>apt/etc/sources.list
	cat >apt/apt.conf <<-END
		Dir::State "$PWD/apt/state";
		Dir::State::status "/var/lib/dpkg/status";
		Dir::Cache "$PWD/apt/cache";
		Dir::Etc::sourcelist "$PWD/apt/etc/sources.list";
		Dir::Etc::sourceparts "$PWD/apt/etc";
		APT::Sandbox::User "root";
		Acquire::Retries "3";
	END
	rm apt/etc/binary.list
	export APT_CONFIG=$PWD/apt/apt.conf
	apt-get -qq update
}

unpack() { # PACKAGE…: into tools/
	(cd debs && apt-get -qq download "$@")
	local deb
	for deb in debs/*.deb; do
		dpkg-deb -x "$deb" tools
	done
}

# The tree has what it needs (vendor/), but for two things: with Go 1.18 or later its reflect2 1.0.1
# ends the server at the first CRD, so Debian's takes its place; and the OpenAPI definitions are
# made by a generator of the tree's own.
prepare_source() {
	local vendor=src/vendor/github.com/modern-go/reflect2
	apt-get -qq source --download-only kubernetes
	tar -C src --strip-components=1 -xzf kubernetes_*"$version".orig.tar.gz
	rm -f $vendor/*.go $vendor/*.s
	cp tools/usr/share/gocode/src/github.com/modern-go/reflect2/* $vendor/
	mkdir -p src/.go/src/k8s.io
	ln -sfn ../../.. src/.go/src/k8s.io/kubernetes
}

use_go() {
	export GOROOT=$PWD/tools/usr/lib/go-1.19 GOPATH=$PWD/src/.go GOCACHE=$PWD/gocache
	export GO111MODULE=off CGO_ENABLED=0 GOFLAGS=-p=2
	PATH=$GOROOT/bin:$PATH
}

# Lists the packages of the tree that have types with OpenAPI definitions, with commas between.
list_types() {
	{
		grep -rl --include='*.go' '+k8s:openapi-gen=' pkg cmd plugin |
			xargs -n1 dirname | sed 's#^#k8s.io/kubernetes/#'
		cd staging/src
		grep -rl --include='*.go' '+k8s:openapi-gen=' k8s.io |
			grep -v -E 'code-generator|sample-apiserver' |
			xargs -n1 dirname | sed 's#^#k8s.io/kubernetes/vendor/#'
	} | sort -u | paste -sd,
}

build() {
	local program flags= at types header=hack/boilerplate/boilerplate.generatego.txt
	cd src/.go/src/k8s.io/kubernetes
	go build -o "$root/work/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
	types=$(list_types)
	"$root/work/openapi-gen" --go-header-file $header -h $header -i "$types" \
		-p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi \
		-r "$root/work/violations" 2>/dev/null
	for at in component-base/version client-go/pkg/version; do
		at=k8s.io/kubernetes/vendor/k8s.io/$at
		flags+=" -X $at.gitVersion=v$version -X $at.gitMajor=1 -X $at.gitMinor=20"
	done
	for program in "${programs[@]}"; do
		say "compiling $program ($((SECONDS / 60)) min so far)"
		go build -ldflags "-s -w$flags" -o "$root/bin/$program" "./cmd/$program"
	done
}

say "downloading the source (34 MB) and a compiler (130 MB) to $root/work"
configure_apt
unpack golang-1.19-go golang-1.19-src golang-github-modern-go-reflect2-dev etcd-server
prepare_source
use_go
cp tools/usr/bin/etcd "$root/bin/"
(build)
cd "$root"
chmod -R u+w work # Go makes its caches read-only
rm -rf work
touch done
say "$root is ready after $((SECONDS / 60)) min"
