# Traffic whose numbers the programs themselves tell, while `rdmascope record` watches.
# order: 20
# timeout: 240
# needs: rdmascope

fabric || fail 'the fabric did not come up'
record_start
snapshot start

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
run send4 ib_send_bw 65536 100 4

step 'two threads on one QP while others come and go'
: > threads.jsonl
# run_threads DEVICE PEER POSTS
run_threads() {
  threads "$1" "$(gid_index "$1")" "$2" "$(gid_index "$2")" "$3" >> threads.jsonl || { cat threads.jsonl; fail "threads on $1"; }
}
run_threads rxea rxeb 2000
run_threads rxec rxec 2000
cat threads.jsonl

# Both devices number their QPs from the same start, so a QP on each soon has the same number: connections are opened
# until the kernel's own list shows it.
step 'the same QPN on both devices'
shared_qpns() {
  snapshot shared
  for device in rxea rxeb; do
    rdma resource show qp link $device/1 type RC | sed -n 's/.* lqpn \([0-9]*\) .*/\1/p' | sort -u
  done | sort | uniq -d | tee shared_qpns | grep -q .
}
pairs=()
for i in 1 2 3 4 5 6; do
  pair rxea "$(gid_index rxea)" rxeb "$(gid_index rxeb)" seconds=6 pause_us=5000 > "pair$i.jsonl" 2>&1 &
  pairs+=($!)
  wait_for 5 grep -q connected "pair$i.jsonl" || { cat "pair$i.jsonl"; fail 'pair did not connect'; }
  shared_qpns && break
done
[ -s shared_qpns ] || fail 'no QPN was on both devices'
echo "on both devices: $(paste -sd' ' shared_qpns)"
for pid in "${pairs[@]}"; do wait "$pid" || fail "pair: exit code $?"; done

snapshot end
record_stop
cat record.err 2>/dev/null || true
