# The loopback probe on software devices: what it measures and what it leaves alone, a port that goes down, a device that is
# deleted under it, a probe that crashes, and what is left when the program is killed. `actions` has the times.
# order: 45
# timeout: 420
# needs: rdmascope rdmascope-verbs

fabric || fail 'the fabric did not come up'
# This bench sends what rxea and rxeb have for themselves through the router as well. Ordinary nodes do not; rxeb is to be
# like them. On rxea the way to its IPv4 address is not found, and another GID is used.
ip rule add pref 150 oif vb to 10.0.2.1 lookup local
trap 'ip rule del pref 150 2> /dev/null' EXIT
probe() { pgrep -x rdmascope-verbs; }
# times DEVICE [KEY]: how many measurements the recording has of it.
times() { grep '"type":"loopback"' recording.jsonl | grep -c "\"device\":\"$1\""; }
more_than() { [ "$(times "$1")" -ge "$2" ]; }
# measured DEVICE N: waits for so many more.
measured() { wait_for 40 more_than "$1" $(($(times "$1") + $2)) || { tail -n 30 recording.jsonl; fail "$1 is not measured"; }; }
qps() { rdma -j -d resource show qp > "$1.json"; }

step 'two of three devices'
record_start --loopback --exclude rxec
measured rxea 5
measured rxeb 5
qps measuring
cat measuring.json
first=$(probe) || fail 'there is no rdmascope-verbs'
ls -l "/proc/$first/fd" > descriptors
for uverbs in /sys/class/infiniband_verbs/uverbs*; do
  echo "$(cat "$uverbs/ibdev") $(basename "$uverbs")"
done > uverbs
awk '{ print $14 + $15, $20 }' "/proc/$first/stat" > cpu

step 'a port that goes down and comes back'
action down device=rxea
ip -n r link set ra down
wait_for 30 grep -q DOWN /sys/class/infiniband/rxea/ports/1/state || fail 'rxea stayed up'
action is_down device=rxea
measured rxeb 3
action up device=rxea
fabric || fail 'the fabric did not come back'
measured rxea 2

step 'a device that is deleted while it is measured'
# The driver waits for every process that has it open.
action delete device=rxeb
timeout 30 rdma link delete rxeb || fail 'rxeb could not be deleted'
action deleted device=rxeb
sleep 2
rdma link add rxeb type rxe netdev vb || fail 'no rxeb'
wait_for 30 active rxeb || fail 'rxeb is not active'
action added device=rxeb
measured rxeb 2

step 'a probe that crashes'
[ "$(probe)" = "$first" ] || fail 'it is another process by now'
action crash
# Not SEGV: Rust programs have a handler for it, which lets one that nothing but a signal caused pass.
kill -ABRT "$first"
again() { [ -n "$(probe)" ] && [ "$(probe)" != "$first" ]; }
wait_for 20 again || fail 'it was not started again'
action again
measured rxea 2
# What is written lies in a buffer for up to a second.
sleep 2
record_stop
wait_for 30 sh -c '! pgrep -x rdmascope-verbs' || fail 'it outlives the recording'
qps stopped
rdmascope qps --recording recording.jsonl --json > qps.json || fail 'no table of QPs'

step 'doctor'
rdmascope doctor --no-ebpf --json > off.json 2> off.err || fail 'doctor'
rdmascope doctor --no-ebpf --json --loopback > on.json 2> on.err || fail 'doctor --loopback'
rdmascope doctor --no-ebpf --json --loopback --verbs-program /nowhere > missing.json 2> missing.err || fail 'doctor without the program'

step 'rdmascope is killed'
rdmascope record killed.jsonl --no-ebpf --loopback 2> killed.err &
killed=$!
wait_for 40 sh -c 'rdma -j -d resource show qp | grep -q rdmascope-verbs' || fail 'no QP of the probe'
qps alive
action kill
kill -KILL $killed
wait $killed 2> /dev/null
wait_for 30 sh -c '! pgrep -x rdmascope-verbs' || fail 'it outlives the program'
action gone
qps killed

step 'functions of the extended interface'
rdmascope-verbs operations > refused.txt 2>&1
echo $? > refused.rc
rdmascope-verbs operations --allow-changes > operations.json 2> operations.err || { cat operations.err; fail 'operations'; }
cat operations.json
qps after
cat actions
