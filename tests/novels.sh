#!/bin/sh
# novels.sh: conf/novels.conf reaches 1.45 nats a byte on what it has not read, and continues a prompt. It downloads two
# packages, which it does not install: apt-get download golang-github-colinmarc-hdfs-dev r-cran-janeaustenr.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
if ! (apt-get -q download golang-github-colinmarc-hdfs-dev r-cran-janeaustenr >"$aside/apt" 2>&1); then
    note <"$aside/apt"
    echo "1..0 # SKIP no novels: apt-get download golang-github-colinmarc-hdfs-dev r-cran-janeaustenr"
    exit 77
fi
for p in *.deb; do dpkg -x "$p" root; done
check "contrib/novels" "$here/../contrib/novels" root data/novels
cp "$here/../conf/novels.conf" .
trains novels 2 -c novels.conf
loss=$(sed -n '/"event":"evaluation"/s/.*"loss":\([0-9.]*\).*/\1/p' novels/metrics.jsonl | tail -n 1)
check "${loss:-no} nats a byte, wanted 1.45" awk -v x="${loss:-9}" 'BEGIN { exit !(x <= 1.45) }'
job threads -c novels.conf --run-dir novels --generate - --prompt "Call me" -o generate.max_tokens=64
note <"$aside/out"
check "it continues a prompt" grep -q '"text":"..*"reason":"length"' "$aside/out"
tap_done
