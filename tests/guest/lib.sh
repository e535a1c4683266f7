# What the payloads share. A payload runs in its own folder of results ($OUT, also the working directory), with its
# output in the file `log`; everything it starts is ended with it.
set -u
trap 'echo "line $LINENO: exit code $?" >&2' ERR

step() { echo "=== $* [$(mono)]"; }

# fail REASON: ends the payload.
fail() { echo "FAILED: $*" >&2; exit 1; }

# skip REASON: ends the payload as one that cannot run here.
skip() { echo "$*" > skipped; exit 77; }

# wait_for SECONDS COMMAND…: runs COMMAND until it succeeds; fails when the time is over.
wait_for() {
  local end=$(($(date +%s) + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ "$(date +%s)" -lt $end ] || return 1
    sleep 0.1
  done
}

# action NAME [key=value…]: notes in `actions` that something is done now, with its CLOCK_MONOTONIC nanoseconds.
action() { mono "$@" | tee -a actions; }

# The fabric: rxea on va (10.0.1.1) and rxeb on vb (10.0.2.1). Software RDMA devices of these kernels work only in the
# initial network namespace, so both are there, and policy routing forces what they send to each other through the
# namespace r (ra, rb), where links can be cut and packets be dropped or marked. rxec is on the virtio network card,
# whose PCIe function can be given errors. Called again, it repairs what an earlier payload left down.
fabric() {
  if ! ip link show va >/dev/null 2>&1; then
    modprobe -a veth rdma_rxe ib_uverbs rdma_ucm virtio_net || return 1
    ip netns add r
    ip link add va mtu 4200 type veth peer name ra mtu 4200 netns r
    ip link add vb mtu 4200 type veth peer name rb mtu 4200 netns r
    for device in va vb; do
      echo 1 > /proc/sys/net/ipv4/conf/$device/accept_local
      echo 0 > /proc/sys/net/ipv4/conf/$device/rp_filter
    done
    echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter
    ip addr add 10.0.1.1/24 dev va
    ip addr add 10.0.2.1/24 dev vb
    ip netns exec r sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'
    ip -n r addr add 10.0.1.254/24 dev ra
    ip -n r addr add 10.0.2.254/24 dev rb
    ip -n r link set lo up
    ip rule add pref 100 iif va lookup local
    ip rule add pref 100 iif vb lookup local
    ip rule add pref 200 oif va lookup 101
    ip rule add pref 200 oif vb lookup 102
    ip rule add pref 300 lookup local
    ip rule del pref 0
    wait_for 30 card_netdev || return 1
    ip addr add 10.0.3.1/24 dev "$(card_netdev)"
    fabric_up
    rdma link add rxea type rxe netdev va || return 1
    rdma link add rxeb type rxe netdev vb || return 1
    rdma link add rxec type rxe netdev "$(card_netdev)" || return 1
  fi
  fabric_up
  wait_for 30 active rxea && wait_for 30 active rxeb && wait_for 30 active rxec || return 1
  # The first connection of two addresses can stall for a second while they find each other.
  wait_for 30 ping -c1 -W1 -I va 10.0.2.1 && wait_for 30 ping -c1 -W1 -I vb 10.0.1.1
}

# Every link up, and the routes that vanish with a link that goes down.
fabric_up() {
  ip -n r link set ra up
  ip -n r link set rb up
  ip link set va up
  ip link set vb up
  ip link set "$(card_netdev)" up
  ip route replace 10.0.1.0/24 dev va src 10.0.1.1 table 101
  ip route replace default via 10.0.1.254 dev va src 10.0.1.1 table 101
  ip route replace 10.0.2.0/24 dev vb src 10.0.2.1 table 102
  ip route replace default via 10.0.2.254 dev vb src 10.0.2.1 table 102
}

active() { grep -q ACTIVE "/sys/class/infiniband/$1/ports/1/state"; }

# The PCI address of the virtio network card (the only function of that kind), of the root port above it, and its netdev.
card_pci() { lspci -Dn -d 1af4:1041 | cut -d' ' -f1; }
card_root_port() { basename "$(dirname "$(readlink -f "/sys/bus/pci/devices/$(card_pci)")")"; }
card_netdev() { basename "$(ls -d "/sys/bus/pci/devices/$(card_pci)"/virtio*/net/* | head -n1)" | grep .; }

# gid_index DEVICE: the index of its RoCE v2 GID with an IPv4 address.
gid_index() {
  local types=/sys/class/infiniband/$1/ports/1/gid_attrs/types index
  for index in $(ls $types | sort -n); do
    grep -q 'v2' "$types/$index" 2>/dev/null || continue
    grep -q '^0000:0000:0000:0000:0000:ffff' "/sys/class/infiniband/$1/ports/1/gids/$index" && { echo "$index"; return; }
  done
  return 1
}

# perftest NAME PROGRAM ARGUMENTS…: a run of one of perftest's programs from rxea to rxeb; its account in NAME.server and
# NAME.client.
perftest() {
  local name=$1 program=$2 server
  shift 2
  timeout 60 "$program" -d rxeb -x "$(gid_index rxeb)" -F "$@" > "$name.server" 2>&1 &
  server=$!
  # The port of perftest's own TCP connection, 18515, in state LISTEN.
  wait_for 30 grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6 || return 1
  timeout 60 "$program" -d rxea -x "$(gid_index rxea)" -F "$@" 127.0.0.1 > "$name.client" 2>&1 || { wait $server; return 1; }
  wait $server
}

# snapshot NAME: what the kernel itself says of the RDMA devices now.
snapshot() {
  mkdir -p "$1"
  mono snapshot > "$1/time"
  rdma -j link show > "$1/link.json"
  rdma -j -d resource show qp > "$1/qp.json"
  rdma -j statistic show > "$1/statistic.json"
  for device in rxea rxeb rxec; do
    grep -r . "/sys/class/infiniband/$device/ports/1/hw_counters" > "$1/$device.hw_counters" || true
  done
  ps -e -o pid=,comm=,args= > "$1/ps"
}

# record_start [FLAG…]: starts `rdmascope record` in the background; its findings are in `findings.jsonl`. Where the program is
# no more than a placeholder, `rdmascope.absent` says so and the payload goes on without it.
recorder=
record_start() {
  if ! rdmascope --version > rdmascope.version 2>&1 || ! [ -s rdmascope.version ]; then
    echo 'rdmascope says no version: not built, or a placeholder' > rdmascope.absent
    return
  fi
  rdmascope record recording.jsonl --probe-budget off --json "$@" > findings.jsonl 2> record.err &
  recorder=$!
  wait_for 60 test -s recording.jsonl || fail 'the recording is still empty after 60 s'
  # All sources have started once the probes have told what they attached to; a build without them goes on.
  wait_for 60 grep -q '"type":"probes"' recording.jsonl || echo 'no probes line after 60 s'
}

# record_stop: ends the recording as a user would, by SIGINT.
record_stop() {
  [ -n "$recorder" ] || return 0
  kill -INT "$recorder"
  wait "$recorder"
  echo $? > record.rc
  [ "$(cat record.rc)" = 0 ] || fail "record ended with $(cat record.rc)"
}

# The screen in a terminal of 160 columns and 60 rows, for payloads that only look at it.
t() { LC_ALL=C.UTF-8 tmux -u -L screen "$@"; }
capture() { t capture-pane -p > "$1"; }
shows() { t capture-pane -p | grep -qF -- "$1"; }

# screen_start NAME COMMAND…: COMMAND, which draws the screen, in a new terminal.
screen_start() {
  local name=$1
  shift
  t -f /dev/null new-session -d -x 160 -y 60 "$* 2> $OUT/$name.err; echo \$? > $OUT/$name.rc; sleep 600"
  t set -g status off
  t resize-window -x 160 -y 60
  drawn() { [ "$(t capture-pane -p | grep -c '[^ ]')" -gt 5 ]; }
  wait_for 30 drawn || { capture "$name.nothing"; cat "$name.err"; fail "$name: no screen after 30 s"; }
}

# screen_stop NAME: ends it as a user would.
screen_stop() {
  t send-keys q
  wait_for 20 test -s "$OUT/$1.rc" || { capture "$1.hanging"; fail "$1: the screen does not end"; }
  t kill-server
  gone() { ! t has-session; }
  wait_for 30 gone || fail 'tmux stays'
}
