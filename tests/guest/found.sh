# Processes that were there before `rdmascope record`, one of them in a mount namespace of its own with another build of
# the provider, one that came after, and one of which nothing can be found.
# order: 24
# timeout: 240
# needs: rdmascope

fabric || fail 'the fabric did not come up'
provider=$(ls /usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav*.so)
# Another build: another file, and a byte more.
cp "$provider" /tmp/other-build.so
printf x >> /tmp/other-build.so
cp "$provider" /tmp/third-build.so

# posts NAME SECONDS COMMAND…: a connection that COMMAND starts, in the background.
posts() {
  local name=$1 seconds=$2
  shift 2
  "$@" pair rxea "$(gid_index rxea)" rxeb "$(gid_index rxeb)" "seconds=$seconds" pause_us=5000 > "$name.jsonl" 2>&1 &
  wait_for 20 grep -q connected "$name.jsonl" || { cat "$name.jsonl"; fail "$name did not connect"; }
}
posts before 40 env
posts namespace 40 unshare -m sh -c 'mount --bind /tmp/other-build.so "$0" && exec "$@"' "$provider"
contextless /tmp/third-build.so /dev/infiniband/uverbs0 > contextless.out 2>&1 &
contextless=$!
echo "$contextless" > contextless.pid
wait_for 10 grep -q ready contextless.out || { cat contextless.out; fail 'contextless is not ready'; }
action recorder_starts
record_start
posts after 10 env

step 'doctor'
rdmascope doctor --json > doctor.json 2> doctor.err || echo "doctor: $?"

step 'they end'
ended() { grep -q '"end"' before.jsonl && grep -q '"end"' namespace.jsonl && grep -q '"end"' after.jsonl; }
wait_for 60 ended || fail 'they do not end'
kill $contextless
record_stop
cat record.err before.jsonl namespace.jsonl after.jsonl
