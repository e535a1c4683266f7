# What a second of the screen costs, of rdmascope and of rdmatop: CPU time of the process, and bytes that it wrote. For
# `cargo xtask bench screen-cost`, which gives the rdmatop and boots a guest whose time is its instructions.
# only: named
# kernel: 6.1
# timeout: 1500
# needs: rdmascope

[ -x /payload/rdmatop ] || skip 'no rdmatop was given'
fabric || fail 'the fabric did not come up'
# Two devices, as the figure to compare with was taken on.
rdma link delete rxec || fail 'rxec stays'

export LC_ALL=C.UTF-8 TERM=xterm-256color
t() { tmux -u -L cost "$@"; }

# counted PID: CPU ns of the process, bytes it wrote, and the time, ns.
counted() { echo "$(cpu "$1") $(awk '/^wchar/ { print $2 }' "/proc/$1/io") $(mono)"; }

# measure NAME SECONDS PID: a line of figures.jsonl.
measure() {
  local before after
  before=$(counted "$3")
  sleep "$2"
  after=$(counted "$3")
  echo "$1 $before $after" | awk '{ printf "{\"name\":\"%s\",\"cpu_ns\":%.0f,\"bytes\":%.0f,\"ns\":%.0f}\n", $1, $5 - $2, $6 - $3, $7 - $4 }' |
    tee -a figures.jsonl
}

# screen NAME PROGRAM…: the program in a new tmux of 120 columns and 40 rows; its process id in $pid.
screen() {
  local name=$1
  shift
  t -f /dev/null new-session -d -x 120 -y 40 "exec $* 2> $OUT/$name.err"
  t set -g status off
  t resize-window -x 120 -y 40
  pid=$(t display-message -p '#{pane_pid}')
  drawn() { [ "$(t capture-pane -p | grep -c '[^ ]')" -gt 5 ]; }
  wait_for 60 drawn || { cat "$name.err"; fail "$name: no screen after 60 s"; }
}

closed() {
  t capture-pane -p > "$1.end"
  t send-keys q
  gone() { ! kill -0 "$pid"; }
  wait_for 20 gone || fail "$1 does not end"
  t kill-server
}

# run NAME PROGRAM…: settles for as long as the first seconds differ from the others (QPs are listed every second for ten
# seconds after something happened, probes are attached), and is measured for a minute.
run() {
  step "$1"
  screen "$@"
  sleep 15
  measure "$1" 60 "$pid"
  closed "$1"
}

step 'traffic on 4 QPs'
# perftest's own account of a run by time leaves out its first and last seconds.
ib_write_bw -d rxeb -x "$(gid_index rxeb)" -F -q 4 -s 4096 -D 1400 > server 2>&1 &
wait_for 10 grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6 || fail 'perftest does not listen'
ib_write_bw -d rxea -x "$(gid_index rxea)" -F -q 4 -s 4096 -D 1400 127.0.0.1 > client 2>&1 &
client=$!
sent() { cat /sys/class/infiniband/rxea/ports/1/hw_counters/sent_pkts; }
before=$(sent)
moves() { [ "$(sent)" -gt $((before + 1000)) ]; }
wait_for 60 moves || { cat server client; fail 'nothing moves'; }

run rdmatop /payload/rdmatop
run no-ebpf rdmascope --no-ebpf
sysctl -qw kernel.bpf_stats_enabled=1
# programs NAME: the kernel's account of each BPF program.
programs() { bpftool -j prog show > "$1" 2>/dev/null || true; }
step ebpf
screen ebpf rdmascope
# Attaching the probes is paid for once, in a thread of its own.
attached() { ! grep -qs 'start probes' /proc/$pid/task/*/comm; }
wait_for 120 attached || fail 'the probes do not start'
echo "{\"name\":\"ebpf-start\",\"cpu_ns\":$(cpu "$pid"),\"bytes\":0,\"ns\":1000000000}" >> figures.jsonl
sleep 15
programs programs.before
measure ebpf 60 "$pid"
programs programs.after
closed ebpf
sysctl -qw kernel.bpf_stats_enabled=0
kill -0 $client || fail 'the traffic ended too early'

step 'nothing changes'
kill $client
wait $client
screen idle rdmascope --no-ebpf
sleep 15
measure idle 30 "$pid"
t send-keys Space
sleep 2
measure paused 30 "$pid"
closed idle
cat figures.jsonl
