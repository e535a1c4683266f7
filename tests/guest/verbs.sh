# Every kind of request and completion that the software driver knows, by a program that keeps its own account.
# order: 22
# timeout: 240
# needs: rdmascope

fabric || fail 'the fabric did not come up'
record_start

step 'the operations of ibv_qp_ex and ibv_cq_ex become known by the first process that has them'
# verbs_between SCENARIO…: the program between rxea and rxeb.
verbs_between() { verbs rxea "$(gid_index rxea)" rxeb "$(gid_index rxeb)" "$@"; }
probes_attached() { grep '"type":"probes"' recording.jsonl | tail -n1 | sed 's/.*"attached":\([0-9]*\).*/\1/'; }
before=$(probes_attached)
verbs_between warm > warm.jsonl 2> warm.err &
warm=$!
more_attached() { [ "$(probes_attached)" -gt $((before + 10)) ]; }
[ -z "$recorder" ] || wait_for 30 more_attached || fail "only $before, then $(probes_attached) probes are attached"
echo "$before, then $(probes_attached) probes"

step 'all of them'
verbs_between > verbs.jsonl 2> verbs.err || { echo "exit code $?"; cat verbs.err; fail 'verbs'; }
kill $warm

# run NAME PROGRAM SIZE ITERATIONS: perftest, and what it was asked for in `runs.jsonl`.
run() {
  step "$1"
  perftest "$1" "$2" -s "$3" -n "$4" || { cat "$1".*; fail "$1"; }
  echo "{\"name\":\"$1\",\"program\":\"$2\",\"size\":$3,\"iterations\":$4}" >> runs.jsonl
}
run write_bw ib_write_bw 4096 500
run send_lat ib_send_lat 256 300

step 'ping-pong with the new operations'
# pingpong NAME FLAG…: between rxea and rxeb, ITERATIONS there and back.
pingpong() {
  local name=$1 server
  shift
  timeout 60 ibv_rc_pingpong -d rxeb -g "$(gid_index rxeb)" -s 1024 -n 200 "$@" > "$name.server" 2>&1 &
  server=$!
  # 18515, in state LISTEN.
  wait_for 30 grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6 || return 1
  timeout 60 ibv_rc_pingpong -d rxea -g "$(gid_index rxea)" -s 1024 -n 200 "$@" 127.0.0.1 > "$name.client" 2>&1 || return 1
  wait $server
}
pingpong plain || { cat plain.*; fail 'ibv_rc_pingpong'; }
pingpong new -N || { cat new.*; fail 'ibv_rc_pingpong -N'; }

record_stop
cat record.err 2>/dev/null || true
