# Connections of processes that have builds of the provider of their own, some of which were there before `rdmascope record`.
# order: 25
# timeout: 240
# needs: rdmascope

fabric || fail 'the fabric did not come up'
provider=$(realpath /usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav*.so) || fail 'no provider'
# own NAME COMMAND…: COMMAND in a mount namespace of its own, with another file for a provider.
own() {
  local build=/tmp/$1.so
  shift
  { cat "$provider"; echo "$build"; } > "$build"
  unshare -m sh -c 'mount --bind "$0" "$1" && shift && exec "$@"' "$build" "$provider" "$@"
}
# connect NAME SECONDS [COMMAND…]: a connection, started by COMMAND; its words are in NAME.jsonl.
connect() {
  local name=$1 seconds=$2
  shift 2
  "$@" pair rxea "$(gid_index rxea)" rxeb "$(gid_index rxeb)" "seconds=$seconds" pause_us=2000 > "$name.jsonl" 2>&1 &
}
connected() { wait_for 20 grep -q connected "$1.jsonl" || { cat "$1.jsonl"; fail "$1 did not connect"; }; }
ended() { wait_for 120 grep -q '"end"' "$1.jsonl" || { cat "$1.jsonl"; fail "$1 did not end"; }; cat "$1.jsonl"; }

step 'before'
connect before_host 90
connect before_own 90 own first
connected before_host
connected before_own
record_start

step 'after'
connect after_host 40
connect after_own 40 own second
connected after_own
attached() { grep '"type":"probes"' recording.jsonl | tail -n 1 | grep -o '"attached":[0-9]*'; }
builds() { attached | grep -q ":$1\$"; }
# Seven functions of the kernel, AER, and post_send in three files.
wait_for 20 builds 11 || attached
attached > attached.with
rdmascope doctor --json > doctor.json 2> doctor.err || cat doctor.err
ended after_host
ended after_own
ended before_host
ended before_own

step 'let go'
# What nobody maps any more is let go within ten seconds: then one file is left, the host's.
wait_for 40 builds 9 || attached
attached > attached.without
record_stop
cat record.err 2>/dev/null || true
