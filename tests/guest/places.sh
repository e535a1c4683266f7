# Connections of processes that have builds of the provider of their own, some of which were there before `rdmascope record`,
# and a process of which nothing can be found.
# order: 25
# timeout: 300
# needs: rdmascope

fabric || fail 'the fabric did not come up'
provider=$(realpath /usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav*.so) || fail 'no provider'
# build NAME: another file for a provider; prints its path.
build() { { cat "$provider"; echo "$1"; } > "/tmp/$1.so" && echo "/tmp/$1.so"; }
# own NAME COMMAND…: COMMAND in a mount namespace of its own, with another file for a provider.
own() {
  local file
  file=$(build "$1")
  shift
  unshare -m sh -c 'mount --bind "$0" "$1" && shift && exec "$@"' "$file" "$provider" "$@"
}
# connect NAME [COMMAND…]: a connection, started by COMMAND, until it is told to end; its words are in NAME.jsonl.
connect() {
  local name=$1
  shift
  "$@" pair rxea "$(gid_index rxea)" rxeb "$(gid_index rxeb)" seconds=300 pause_us=2000 > "$name.jsonl" 2>&1 &
  wait_for 60 grep -q connected "$name.jsonl" || { cat "$name.jsonl"; fail "$name did not connect"; }
}
number() { grep -o "\"$1\":[0-9]*" "$2" | head -n 1 | cut -d: -f2; }
traced() { grep '"type":"qp_stats"' recording.jsonl | grep '"device":"rxea"' | grep -q "\"qpn\":$(number qpn "$1.jsonl"),"; }
ended() { wait_for 30 grep -q '"end"' "$1.jsonl" || { cat "$1.jsonl"; fail "$1 did not end"; }; cat "$1.jsonl"; }
attached() { grep '"type":"probes"' recording.jsonl | tail -n 1 | grep -o '"attached":[0-9]*'; }

step 'before'
connect before_host
connect before_own own first
contextless "$(build third)" /dev/infiniband/uverbs0 > contextless.out 2>&1 &
contextless=$!
echo "$contextless" > contextless.pid
wait_for 30 grep -q ready contextless.out || { cat contextless.out; fail 'contextless is not ready'; }
record_start

step 'after'
connect after_host
# A process that maps a library by which it could post unseen: the name is all that there is to it.
cp "$(realpath /usr/lib/x86_64-linux-gnu/libm.so.6)" /tmp/libuct_ib_mlx5.so.0
connect accelerated env LD_PRELOAD=/tmp/libuct_ib_mlx5.so.0
connect after_own own second
for name in before_host before_own after_host after_own accelerated; do
  wait_for 20 traced "$name" || { attached; fail "$name is not traced"; }
done
attached > attached.with
rdmascope doctor --json > doctor.json 2> doctor.err || cat doctor.err
rdmascope doctor > doctor.txt 2>> doctor.err
for name in before_host before_own after_host after_own accelerated; do
  kill "$(number pid "$name.jsonl")"
done
for name in before_host before_own after_host after_own accelerated; do
  ended "$name"
done

step 'let go'
kill $contextless
# What nobody maps any more is let go within ten seconds.
fewer() { [ "$(attached | cut -d: -f2)" -lt "$(cut -d: -f2 attached.with)" ]; }
wait_for 40 fewer || attached
# So is what was told of processes that might post unseen.
over() { grep '"type":"process"' recording.jsonl | grep "\"pid\":$1," | tail -n 1 | grep -qv '"way"'; }
for pid in $contextless "$(number pid accelerated.jsonl)"; do
  wait_for 40 over "$pid" || echo "$pid is not told to have ended"
done
attached > attached.without
record_stop
cat record.err 2>/dev/null || true
