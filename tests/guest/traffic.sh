# Traffic whose numbers the programs themselves tell, while `rdmascope record` watches.
# order: 20
# timeout: 240
# needs: rdmascope

fabric || fail 'the fabric did not come up'
record_start
snapshot start

# Sends stay below one packet: on these kernels the software driver now and then fails a retransmitted longer one.
# run NAME PROGRAM SIZE ITERATIONS QPS: perftest, and what it was asked for in `runs.jsonl`. Each QP of the client posts
# ITERATIONS work requests of SIZE bytes.
run() {
  step "$1"
  perftest "$1" "$2" -s "$3" -n "$4" -q "$5" || { cat "$1".*; fail "$1"; }
  echo "{\"name\":\"$1\",\"program\":\"$2\",\"device\":\"rxea\",\"size\":$3,\"iterations\":$4,\"qps\":$5}" >> runs.jsonl
}
run write1 ib_write_bw 4096 1000 1
run write4 ib_write_bw 65536 100 4
run send1 ib_send_bw 4096 1000 1
run send4 ib_send_bw 4096 500 4

step 'two threads on one QP while others come and go'
: > threads.jsonl
# run_threads DEVICE PEER POSTS
run_threads() {
  threads "$1" "$(gid_index "$1")" "$2" "$(gid_index "$2")" "$3" >> threads.jsonl || { cat threads.jsonl; fail "threads on $1"; }
}
run_threads rxea rxeb 2000
run_threads rxec rxec 2000
cat threads.jsonl

step 'the same QPN on both devices'
pair rxea "$(gid_index rxea)" rxeb "$(gid_index rxeb)" seconds=5 pause_us=2000 same_qpn=1 > same_qpn.jsonl 2>&1 &
connection=$!
wait_for 30 grep -q connected same_qpn.jsonl || { cat same_qpn.jsonl; fail 'pair did not connect'; }
snapshot same_qpn
wait $connection || { cat same_qpn.jsonl; fail "pair: exit code $?"; }
cat same_qpn.jsonl

step 'the counters are read once more'
readings() { grep -cE '"source":"(nldev|hw_counters)"' recording.jsonl; }
more_than() { [ "$(readings)" -ge "$1" ]; }
# Three devices a tick, and what is written lies in a buffer for up to a second: after three ticks one is new.
[ -z "$recorder" ] || wait_for 20 more_than $(($(readings) + 9)) || fail 'the counters are not read any more'

snapshot end
record_stop
cat record.err 2>/dev/null || true
